"""Conversations on disk: where they are, what they are called, going back, going elsewhere, and as a page."""

from __future__ import annotations

import json
from pathlib import Path

from fakes.model_server import ModelServer, said_in
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers, text_of

ASKING = {"pi": ("fork", "get_fork_messages", "forking"), "other": ("branch", "get_branch_messages", "branching")}


def header(file: str) -> dict[str, object]:
    with Path(file).open() as lines:
        found: dict[str, object] = json.loads(next(lines))
    return found


def texts(agent: RpcProcess) -> list[str]:
    return [text_of(message) for message in agent.ask("get_messages")["messages"]]


@scenario
def kept(stage: Stage) -> Seen:
    """A session is kept, named, left for a new one, and opened again."""
    repository = stage.path / "repository"
    agent = stage.start("--session-dir", str(repository), keeps=True)
    stage.server.answers("one")
    agent.run("first")
    state = agent.ask("get_state")
    file = Path(state["sessionFile"])
    found = (file.is_file(), header(str(file))["id"])
    stats = agent.ask("get_session_stats")
    named = agent.request("set_session_name", name=" my work ")
    name = agent.ask("get_state")["sessionName"]
    begun = agent.ask("new_session", parentSession=str(file))
    stage.server.answers("two")
    agent.run("second")
    other = agent.ask("get_state")
    parent = header(other["sessionFile"])["parentSession"]
    switched = agent.ask("switch_session", sessionPath=str(file))
    again, messages = agent.ask("get_state"), texts(agent)
    asked = stage.server.answers("three")
    last = answers(agent.run("third"))[0]
    return Seen(
        repository=repository, state=state, file=file, found=found, stats=stats, named=named, name=name, begun=begun,
        other=other, parent=parent, switched=switched, again=again, messages=messages, last=last,
        said=[text for _, text in said_in(asked.request)],
    )  # fmt: skip


@proves("get_state.sessionFile")
def test_the_state_has_the_file_of_the_session(kept: Seen) -> None:
    assert kept.file.suffix == ".jsonl"
    assert kept.found[1] == kept.state["sessionId"]


@proves("get_state.file")
def test_the_file_of_the_session_exists(kept: Seen) -> None:
    assert kept.found[0]


@proves("start.session_dir")
def test_an_option_says_where_sessions_are_kept(kept: Seen) -> None:
    assert kept.file.parent == kept.repository


@proves("get_session_stats.sessionFile")
def test_statistics_have_the_file_of_the_session(kept: Seen) -> None:
    assert kept.stats["sessionFile"] == str(kept.file)


@proves("set_session_name.response")
def test_a_name_is_answered_with_a_bare_success(kept: Seen) -> None:
    assert (kept.named["success"], "data" in kept.named) == (True, False)


@proves("get_state.name")
def test_the_state_has_the_name_that_was_set(kept: Seen) -> None:
    assert kept.name == "my work"


@proves("new_session.parent_response")
def test_a_new_session_with_a_parent_is_answered_with_cancelled_false(kept: Seen) -> None:
    assert kept.begun == {"cancelled": False}


@proves("new_session.parent")
def test_the_parent_is_kept_in_the_new_session(kept: Seen) -> None:
    assert kept.parent == str(kept.file)
    assert kept.other["sessionFile"] != str(kept.file)
    assert "sessionName" not in kept.other


@proves("switch_session.response")
def test_a_switch_is_answered_with_cancelled_false(kept: Seen) -> None:
    assert kept.switched == {"cancelled": False}


@proves("switch_session.loads")
def test_after_a_switch_the_messages_of_the_other_session_are_there(kept: Seen) -> None:
    assert kept.messages == ["first", "one"]


@proves("switch_session.state")
def test_after_a_switch_the_state_is_that_of_the_other_session(kept: Seen) -> None:
    assert (kept.again["sessionId"], kept.again["sessionFile"]) == (kept.state["sessionId"], str(kept.file))
    assert kept.again["sessionName"] == "my work"


@proves("switch_session.continues")
def test_after_a_switch_the_conversation_continues_there(kept: Seen) -> None:
    assert text_of(kept.last) == "three"
    assert kept.said == ["first", "one", "third"]


@scenario
def branched(stage: Stage) -> Seen:
    """A branch is made at the second of three messages."""
    command, listing, word = ASKING.get(stage.dialect, ASKING["other"])
    agent = stage.start(keeps=True)
    for message in ("one", "two", "three"):
        stage.server.answers(f"answer {message}")
        agent.run(message)
    before = agent.ask("get_state")
    listed = agent.ask(listing)["messages"]
    error = agent.expect_error(command, entryId="nobody")
    made = agent.ask(command, entryId=listed[1]["entryId"])
    after, messages = agent.ask("get_state"), texts(agent)
    asked = stage.server.answers("anew")
    agent.run("instead")
    branch = agent.ask("get_state")["sessionFile"]
    return Seen(
        word=word, before=before, listed=listed, error=error, made=made, after=after, messages=messages, branch=branch,
        said=[text for _, text in said_in(asked.request)], parent=header(branch)["parentSession"],
    )  # fmt: skip


@proves("get_fork_messages.list", same=("omp+xcsh/get_branch_messages.list",))
def test_the_messages_of_the_user_are_listed_with_their_entries(branched: Seen) -> None:
    assert [row["text"] for row in branched.listed] == ["one", "two", "three"]
    assert all(set(row) == {"entryId", "text"} for row in branched.listed)


@proves("fork.bad", same=("omp+xcsh/branch.bad",))
def test_a_branch_at_an_unknown_entry_is_refused(branched: Seen) -> None:
    assert branched.error == f"Invalid entry ID for {branched.word}"


@proves("fork.response", same=("omp+xcsh/branch.response",))
def test_a_branch_is_answered_with_the_text_of_the_message(branched: Seen) -> None:
    assert branched.made == {"text": "two", "cancelled": False}


@proves("fork.cuts", same=("omp+xcsh/branch.cuts",))
def test_a_branch_ends_before_the_message_it_was_made_at(branched: Seen) -> None:
    assert branched.messages == ["one", "answer one"]


@proves("fork.session", same=("omp+xcsh/branch.session",))
def test_a_branch_is_a_session_of_its_own_and_continues(branched: Seen) -> None:
    assert branched.after["sessionId"] != branched.before["sessionId"]
    assert branched.said == ["one", "answer one", "instead"]
    assert branched.branch != branched.before["sessionFile"]
    assert branched.parent == branched.before["sessionFile"]


@scenario
def page(stage: Stage) -> Seen:
    """A conversation is written as a page, where it likes and where it is asked to."""
    agent = stage.start(keeps=True)
    stage.server.answers("the answer to everything")
    agent.run("a question")
    response = agent.request("export_html")
    wanted = stage.path / "page.html"
    said = agent.ask("export_html", outputPath=str(wanted))
    return Seen(response=response, file=agent.folders.work / response["data"]["path"], wanted=wanted, said=said)


def check_page(file: Path) -> None:
    text = file.read_text("utf-8")
    assert text.lstrip().lower().startswith("<!doctype html")
    assert "the answer to everything" in text
    assert "a question" in text


@proves("export_html.default", same=("note/ops.export_html",))
def test_a_conversation_is_written_as_a_page(page: Seen) -> None:
    check_page(page.file)


@proves("export_html.response")
def test_a_page_is_answered_under_the_name_of_its_command(page: Seen) -> None:
    assert (page.response["command"], page.response["success"]) == ("export_html", True)


@proves("export_html.path")
def test_the_path_of_the_page_can_be_given(page: Seen) -> None:
    check_page(page.wanted)


@proves("omp/export_html.said")
def test_the_answer_has_the_path_that_was_given(page: Seen) -> None:
    assert page.said == {"path": str(page.wanted)}


def files_of_a_run(start: Start, server: ModelServer, dialect: str, keeps: bool) -> list[Path]:
    agent = start(dialect=dialect, keeps=keeps)
    server.answers("well")
    agent.send({"type": "prompt", "message": "x"})
    agent.wait_end()
    agent.close()
    return list(agent.folders.agent.rglob("*.jsonl"))


@proves("start.no_session", dialects=("omp", "companion"))
def test_with_an_option_nothing_is_kept_on_disk(start: Start, server: ModelServer, dialect: str) -> None:
    assert files_of_a_run(start, server, dialect, keeps=False) == []


@proves("companion/start.session")
def test_without_that_option_a_conversation_is_kept(start: Start, server: ModelServer, dialect: str) -> None:
    (file,) = files_of_a_run(start, server, dialect, keeps=True)
    assert '"well"' in file.read_text("utf-8")
