"""Which conversation a process begins with: the options of the command line, and what they refuse."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import ModelServer
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import text_of
from support.sessions import RECORDED

Record = dict[str, Any]


def lines_of(file: str | Path) -> list[Record]:
    return [json.loads(line) for line in Path(file).read_bytes().split(b"\n") if line]


def texts(agent: RpcProcess) -> list[str]:
    return [text_of(message) for message in agent.ask("get_messages")["messages"]]


def once(start: Start, server: ModelServer, message: str, *args: str, **more: Any) -> Path:
    """A process that says one thing and ends; the file it leaves."""
    agent = start(*args, keeps=True, **more)
    server.answers(f"answer {message}")
    agent.run(message)
    file = Path(agent.ask("get_state")["sessionFile"])
    agent.close()
    return file


def fails(start: Start, *args: str, **more: Any) -> str:
    """The error of a start that must fail."""
    agent = start(*args, **more)
    assert agent.wait_exit() in (1, 2)
    assert agent.records == []
    return agent.stderr.removeprefix("Error: ").rstrip("\n")


@scenario
def references(stage: Stage) -> Seen:
    """Two sessions, opened by every kind of reference."""
    older, newer = once(stage.start, stage.server, "one"), once(stage.start, stage.server, "two")
    os.utime(older, ns=(0, 10**18))
    os.utime(newer, ns=(0, 2 * 10**18))
    session = lines_of(older)[0]["id"]
    ways = {
        "path": str(older), "relative": os.path.relpath(older, start_folder(older)), "id": session,
        "prefix": session[:-1],
    }  # fmt: skip
    opened = {}
    for way, reference in ways.items():
        agent = stage.start("--session", reference, keeps=True)
        opened[way] = (agent.ask("get_state")["sessionFile"], texts(agent))
        agent.close()
    agent = stage.start("--continue", keeps=True)
    continued = texts(agent)
    stage.server.answers("well")
    agent.run("more")
    return Seen(
        wanted=(str(older), ["one", "answer one"]), opened=opened, continued=continued, lines=lines_of(newer),
        unknown=fails(stage.start, "--session", "no-such", keeps=True),
    )  # fmt: skip


@proves("start.session_path")
def test_a_session_is_opened_by_its_path(references: Seen) -> None:
    assert references.opened["path"] == references.opened["relative"] == references.wanted


@proves("start.session_by_id")
def test_a_session_is_opened_by_its_id(references: Seen) -> None:
    assert references.opened["id"] == references.wanted


@proves("start.session_prefix")
def test_a_session_is_opened_by_the_beginning_of_its_id(references: Seen) -> None:
    assert references.opened["prefix"] == references.wanted


@proves("start.session_unknown")
def test_an_unknown_session_is_an_error_at_the_start(references: Seen) -> None:
    assert references.unknown == "No session found matching 'no-such'"


@proves("start.continue")
def test_the_session_that_was_changed_last_can_be_continued(references: Seen) -> None:
    assert references.continued == ["two", "answer two"]
    assert len(references.lines) > 4


@proves("start.session_ambiguous")
@pytest.mark.parametrize("flag", ["--session", "--resume", "--fork"])
def test_the_beginning_of_several_ids_is_refused_with_a_list_of_them(
    start: Start, server: ModelServer, flag: str
) -> None:
    first = once(start, server, "one", "--session-id", "abc-1")
    once(start, server, "two", "--session-id", "abc-2")
    before = sorted(first.parent.iterdir())
    told = fails(start, flag, "abc", keeps=True)
    assert told.startswith("'abc' is the beginning of several sessions; give more of the id of one:\n")
    listed = re.findall(r"^  (\S+)  \d{4}-\d\d-\d\d \d\d:\d\d  (.+)$", told, re.MULTILINE)
    assert sorted(listed) == [("abc-1", "one"), ("abc-2", "two")]
    assert sorted(first.parent.iterdir()) == before
    third = once(start, server, "three", "--session-id", "abc")
    agent = start("--session", "abc", keeps=True)
    assert agent.ask("get_state")["sessionFile"] == str(third)


def start_folder(file: Path) -> Path:
    """The working folder of the process that made a session."""
    return Path(lines_of(file)[0]["cwd"])


@scenario
def elsewhere(stage: Stage) -> Seen:
    """A session of another project, a file that is none, one whose folder is gone, and a new path."""
    other = stage.folders.agent / "sessions" / "--elsewhere--"
    other.mkdir(parents=True)
    foreign = other / "2026-01-01_x.jsonl"
    foreign.write_bytes((RECORDED / "pi-0.73.1.jsonl").read_bytes())
    reference = lines_of(foreign)[0]["id"]
    refusal = fails(stage.start, "--session", reference, keeps=True)
    page = stage.path / "page.jsonl"
    page.write_text("a page\n")
    invalid = fails(stage.start, "--session", str(page), keeps=True)
    gone = stage.path / "gone.jsonl"
    gone.write_bytes(foreign.read_bytes().replace(b'"cwd":"/"', b'"cwd":"/not/here"', 1))
    no_folder = fails(stage.start, "--session", str(gone), keeps=True)
    new = str(stage.path / "new" / "one.jsonl")
    state = stage.start("--session", new, keeps=True).ask("get_state")
    return Seen(foreign=foreign, reference=reference, refusal=refusal, page=page, invalid=invalid, gone=gone,
                no_folder=no_folder, new=new, state=state, kept=page.read_text())  # fmt: skip


@proves("start.session_elsewhere")
def test_a_session_of_another_project_is_refused_with_what_to_do(elsewhere: Seen) -> None:
    assert elsewhere.refusal == (
        f"Session '{elsewhere.reference}' belongs to another project: {elsewhere.foreign}. "
        "Open it with --session PATH, or copy it here with --fork PATH"
    )


@proves("start.session_invalid")
def test_a_file_that_cannot_be_used_is_an_error_that_names_it(elsewhere: Seen) -> None:
    assert elsewhere.invalid == f"Session file is not a valid pi session: {elsewhere.page}"
    assert elsewhere.kept == "a page\n"
    assert elsewhere.no_folder.startswith(
        f"Stored session working directory does not exist: /not/here\nSession file: {elsewhere.gone}\n"
    )


@proves("start.session_new_path")
def test_a_new_path_begins_a_session_there(elsewhere: Seen) -> None:
    assert elsewhere.state["sessionFile"] == elsewhere.new


@scenario
def chosen(stage: Stage) -> Seen:
    """A session with an id and a name of the host's choice, and ids that cannot be."""
    file = once(stage.start, stage.server, "one", "--session-id", "my.own_id-1", "--name", "my name")
    agent = stage.start("--session-id", "my.own_id-1", keeps=True)
    state = agent.ask("get_state")
    agent.close()
    other = stage.start("--session-id", "my.own", keeps=True)
    other_id = other.ask("get_state")["sessionId"]
    other.close()
    bad = {name: fails(stage.start, f"--session-id={name}", keeps=True) for name in ("-x", "x/y", "x-")}
    flags = (("--session", "x"), ("--continue",), ("--resume", "x"))
    beside = [fails(stage.start, "--session-id", "x", *flag, keeps=True) for flag in flags]
    return Seen(file=file, header=lines_of(file)[0], state=state, other_id=other_id, bad=bad, beside=beside)


@proves("start.session_id")
def test_a_session_is_opened_or_created_with_exactly_the_id_that_is_asked_for(chosen: Seen) -> None:
    assert chosen.file.name.endswith("_my.own_id-1.jsonl")
    assert chosen.header["id"] == "my.own_id-1"
    assert chosen.state["sessionFile"] == str(chosen.file)
    assert chosen.other_id == "my.own"


@proves("start.name")
def test_a_session_gets_the_name_that_is_asked_for(chosen: Seen) -> None:
    assert chosen.state["sessionName"] == "my name"


@proves("start.session_id_invalid")
def test_a_bad_id_or_one_beside_other_choices_is_an_error(chosen: Seen) -> None:
    assert all(error.startswith(f'Invalid session id "{name}"') for name, error in chosen.bad.items())
    assert chosen.beside == ["--session-id cannot be combined with --session, --continue or --resume"] * 3


@scenario
def copied(stage: Stage) -> Seen:
    """A process that begins with a copy, and starts that cannot."""
    source = once(stage.start, stage.server, "one")
    raw = source.read_bytes()
    agent = stage.start("--fork", str(source), "--session-id", "the-copy", keeps=True)
    header, *entries = lines_of(agent.ask("get_state")["sessionFile"])
    there = texts(agent)
    after = source.read_bytes()
    agent.close()
    flags = {"session": ("--session", "x"), "continue": ("--continue",), "no-session": ("--no-session",)}
    beside = {word: fails(stage.start, "--fork", str(source), *flag, keeps=True) for word, flag in flags.items()}
    return Seen(
        source=source, work=str(stage.folders.work), header=header, entries=entries, there=there, raw=raw, after=after,
        beside=beside, unknown=fails(stage.start, "--fork", "/no/such.jsonl", keeps=True),
        resume=fails(stage.start, "--resume", keeps=True),
    )  # fmt: skip


@proves("start.fork")
def test_a_process_can_begin_with_a_copy(copied: Seen) -> None:
    found = (copied.header["id"], copied.header["parentSession"], copied.header["cwd"])
    assert found == ("the-copy", str(copied.source), copied.work)
    kept = lines_of(copied.source)[1:]
    assert copied.entries[: len(kept)] == kept
    assert copied.there == ["one", "answer one"]
    assert copied.after == copied.raw
    assert copied.unknown == "No session found matching '/no/such.jsonl'"


@proves("start.fork_alone")
def test_a_copy_does_not_go_with_other_choices_of_a_session(copied: Seen) -> None:
    assert copied.beside == {word: f"--fork cannot be combined with --{word}" for word in copied.beside}


@proves("start.resume_needs_terminal")
def test_to_choose_a_session_needs_a_terminal(copied: Seen) -> None:
    assert copied.resume.startswith("--resume needs a terminal")


@scenario
def shared(stage: Stage) -> Seen:
    """Sessions in a folder that projects share, by setting, variable and option."""
    folder = stage.path / "shared"
    env = {"PI_CODING_AGENT_SESSION_DIR": str(folder)}
    by_setting = once(stage.start, stage.server, "one", settings={"sessionDir": str(folder)})
    by_variable = once(stage.start, stage.server, "two", env=env)
    wrong = {"sessionDir": "/not/this"}
    by_option = once(stage.start, stage.server, "three", "--session-dir", str(folder), settings=wrong)
    alien = folder / "alien.jsonl"
    alien.write_bytes((RECORDED / "pi-0.73.1.jsonl").read_bytes())
    os.utime(alien, ns=(0, 4 * 10**18))
    for number, file in enumerate((by_setting, by_option, by_variable), 1):
        os.utime(file, ns=(0, number * 10**18))
    agent = stage.start("--continue", keeps=True, env=env)
    return Seen(folder=folder, by_setting=by_setting, by_variable=by_variable, by_option=by_option,
                continued=texts(agent))  # fmt: skip


@proves("start.session_dir_setting")
def test_a_setting_says_where_sessions_are_kept_unless_an_option_does(shared: Seen) -> None:
    assert shared.by_setting.parent == shared.by_option.parent == shared.folder


@proves("start.session_dir_env")
def test_a_variable_says_where_sessions_are_kept(shared: Seen) -> None:
    assert shared.by_variable.parent == shared.folder


@proves("start.continue_here")
def test_in_a_shared_folder_the_newest_session_of_this_project_is_continued(shared: Seen) -> None:
    assert shared.continued == ["two", "answer two"]


@proves("start.no_session_wins")
def test_no_session_wins_over_everything_that_would_open_one(start: Start, server: ModelServer) -> None:
    file = once(start, server, "one")
    raw = file.read_bytes()
    for flags in (("--continue",), ("--session", str(file)), ("--session-id", "chosen")):
        agent = start(*flags)
        state = agent.ask("get_state")
        assert "sessionFile" not in state
        assert state["messageCount"] == 0
        server.answers("well")
        agent.run("two")
        agent.close()
    assert state["sessionId"] == "chosen"
    assert file.read_bytes() == raw
    assert list(agent.folders.agent.rglob("*.jsonl")) == [file]


@proves("start.thinking_resumed")
@pytest.mark.parametrize("named", [("--thinking", "high"), ("--model", "fake/fake-1:high")])
def test_a_level_that_is_named_at_the_start_counts_for_resumed_sessions_too(
    start: Start, server: ModelServer, named: tuple[str, str]
) -> None:
    file = str(once(start, server, "hi", "--thinking", "low"))
    plain = start("--continue", keeps=True, model=None)
    assert plain.ask("get_state")["thinkingLevel"] == "low"
    plain.close()
    for options in (["--continue", *named], ["--session", file, *named], list(named)):
        agent = start(*options, keeps=True, model=None)
        agent.ask("switch_session", sessionPath=file)
        assert agent.ask("get_state")["thinkingLevel"] == "high", options
        agent.close()
