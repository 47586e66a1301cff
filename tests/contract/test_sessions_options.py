"""Which conversation a process begins with: the options of the command line, and what they refuse."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from fakes.contract_manifest import proves
from fakes.model_server import ModelServer
from fakes.record_outline import text_of
from fakes.repositories import RECORDED
from fakes.rpc_process import RpcProcess, Start

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


@proves("start.session_path", "start.session_by_id", "start.session_prefix", "start.session_unknown", "start.continue")
def test_a_session_is_found_by_path_id_beginning_or_age(start: Start, server: ModelServer) -> None:
    older = once(start, server, "one")
    newer = once(start, server, "two")
    os.utime(older, ns=(0, 10**18))
    os.utime(newer, ns=(0, 2 * 10**18))
    session = lines_of(older)[0]["id"]
    for reference in (str(older), session, session[:-1], os.path.relpath(older, start_folder(older))):
        agent = start("--session", reference, keeps=True)
        assert agent.ask("get_state")["sessionFile"] == str(older)
        assert texts(agent) == ["one", "answer one"]
        agent.close()
    agent = start("--continue", keeps=True)
    assert texts(agent) == ["two", "answer two"]
    server.answers("well")
    agent.run("more")
    assert len(lines_of(newer)) > 4
    assert fails(start, "--session", "no-such", keeps=True) == "No session found matching 'no-such'"


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


@proves("start.session_elsewhere", "start.session_new_path", "start.session_invalid")
def test_sessions_of_other_folders_and_other_files_are_refused_clearly(
    start: Start, folders: Any, tmp_path: Path
) -> None:
    other = folders.agent / "sessions" / "--elsewhere--"
    other.mkdir(parents=True)
    foreign = other / "2026-01-01_x.jsonl"
    foreign.write_bytes((RECORDED / "pi-0.73.1.jsonl").read_bytes())
    reference = lines_of(foreign)[0]["id"]
    assert fails(start, "--session", reference, keeps=True) == (
        f"Session '{reference}' belongs to another project: {foreign}. "
        "Open it with --session PATH, or copy it here with --fork PATH"
    )
    page = tmp_path / "page.jsonl"
    page.write_text("a page\n")
    assert fails(start, "--session", str(page), keeps=True) == f"Session file is not a valid pi session: {page}"
    assert page.read_text() == "a page\n"
    gone = tmp_path / "gone.jsonl"
    gone.write_bytes(foreign.read_bytes().replace(b'"cwd":"/"', b'"cwd":"/not/here"', 1))
    assert fails(start, "--session", str(gone), keeps=True).startswith(
        f"Stored session working directory does not exist: /not/here\nSession file: {gone}\n"
    )
    agent = start("--session", str(tmp_path / "new" / "one.jsonl"), keeps=True)
    assert agent.ask("get_state")["sessionFile"] == str(tmp_path / "new" / "one.jsonl")


@proves("start.session_id", "start.session_id_invalid", "start.name")
def test_a_session_gets_the_id_and_the_name_that_are_asked_for(start: Start, server: ModelServer) -> None:
    file = once(start, server, "one", "--session-id", "my.own_id-1", "--name", "my name")
    assert file.name.endswith("_my.own_id-1.jsonl")
    assert lines_of(file)[0]["id"] == "my.own_id-1"
    agent = start("--session-id", "my.own_id-1", keeps=True)
    state = agent.ask("get_state")
    assert (state["sessionFile"], state["sessionName"]) == (str(file), "my name")
    agent.close()
    other = start("--session-id", "my.own", keeps=True)
    assert other.ask("get_state")["sessionId"] == "my.own"
    other.close()
    for bad in ("-x", "x/y", "x-", ""):
        if bad:
            assert fails(start, f"--session-id={bad}", keeps=True).startswith(f'Invalid session id "{bad}"')
    for flag in (("--session", "x"), ("--continue",), ("--resume", "x")):
        error = fails(start, "--session-id", "x", *flag, keeps=True)
        assert error == "--session-id cannot be combined with --session, --continue or --resume"


@proves("start.fork", "start.fork_alone", "start.resume_needs_terminal")
def test_a_process_can_begin_with_a_copy(start: Start, server: ModelServer, folders: Any) -> None:
    source = once(start, server, "one")
    raw = source.read_bytes()
    agent = start("--fork", str(source), "--session-id", "the-copy", keeps=True)
    state = agent.ask("get_state")
    header, *entries = lines_of(state["sessionFile"])
    assert (header["id"], header["parentSession"], header["cwd"]) == ("the-copy", str(source), str(folders.work))
    assert entries[: len(lines_of(source)) - 1] == lines_of(source)[1:]
    assert texts(agent) == ["one", "answer one"]
    assert source.read_bytes() == raw
    agent.close()
    for flag, word in (
        (("--session", "x"), "session"),
        (("--continue",), "continue"),
        (("--no-session",), "no-session"),
    ):
        error = fails(start, "--fork", str(source), *flag, keeps=True)
        assert error == f"--fork cannot be combined with --{word}"
    assert fails(start, "--fork", "/no/such.jsonl", keeps=True) == "No session found matching '/no/such.jsonl'"
    assert fails(start, "--resume", keeps=True).startswith("--resume needs a terminal")


@proves("start.session_dir_env", "start.session_dir_setting", "start.continue_here")
def test_sessions_can_be_kept_elsewhere(start: Start, server: ModelServer, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    by_setting = once(start, server, "one", settings={"sessionDir": str(shared)})
    by_variable = once(start, server, "two", env={"PI_CODING_AGENT_SESSION_DIR": str(shared)})
    by_option = once(start, server, "three", "--session-dir", str(shared), settings={"sessionDir": "/not/this"})
    assert {file.parent for file in (by_setting, by_variable, by_option)} == {shared}
    alien = shared / "alien.jsonl"
    alien.write_bytes((RECORDED / "pi-0.73.1.jsonl").read_bytes())
    os.utime(alien, ns=(0, 4 * 10**18))
    for number, file in enumerate((by_setting, by_option, by_variable), 1):
        os.utime(file, ns=(0, number * 10**18))
    agent = start("--continue", keeps=True, env={"PI_CODING_AGENT_SESSION_DIR": str(shared)})
    assert texts(agent) == ["two", "answer two"]


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
