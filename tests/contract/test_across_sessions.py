"""Conversations on disk: where they are, what they are called, going back, going elsewhere, and as a page."""

from __future__ import annotations

import json
from pathlib import Path

from fakes.contract_manifest import proves
from fakes.dialect_cases import in_each
from fakes.model_server import ModelServer, said_in
from fakes.record_outline import answers, text_of
from fakes.rpc_process import RpcProcess, Start

ASKING = {"pi": ("fork", "get_fork_messages", "forking"), "other": ("branch", "get_branch_messages", "branching")}


def header(file: str) -> dict[str, object]:
    with Path(file).open() as lines:
        found: dict[str, object] = json.loads(next(lines))
    return found


def texts(agent: RpcProcess) -> list[str]:
    return [text_of(message) for message in agent.ask("get_messages")["messages"]]


@proves(
    "get_state.sessionFile",
    "get_state.file",
    "get_state.name",
    "set_session_name.response",
    "command.set_session_name",
    "new_session.parent",
    "new_session.parent_response",
    "switch_session.response",
    "switch_session.loads",
    "switch_session.state",
    "switch_session.continues",
    "command.switch_session",
    dialects=("pi", "omp", "xcsh"),
)
@proves("get_session_stats.sessionFile", "start.session_dir", dialects=("pi", "omp"))
@in_each("pi", "omp", "xcsh")
def test_a_session_is_kept_named_left_and_opened_again(
    start: Start, server: ModelServer, dialect: str, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    agent = start("--session-dir", str(repository), dialect=dialect, keeps=True)
    server.answers("one")
    agent.run("first")
    state = agent.ask("get_state")
    file = Path(state["sessionFile"])
    assert file.parent == repository
    assert file.is_file()
    assert header(str(file))["id"] == state["sessionId"]
    assert agent.ask("get_session_stats")["sessionFile"] == str(file)
    assert agent.ask("set_session_name", name=" my work ") is None
    assert agent.ask("get_state")["sessionName"] == "my work"
    assert agent.ask("new_session", parentSession=str(file)) == {"cancelled": False}
    server.answers("two")
    agent.run("second")
    other = agent.ask("get_state")
    assert other["sessionFile"] != str(file)
    assert "sessionName" not in other
    assert header(other["sessionFile"])["parentSession"] == str(file)
    assert agent.ask("switch_session", sessionPath=str(file)) == {"cancelled": False}
    again = agent.ask("get_state")
    assert (again["sessionId"], again["sessionFile"]) == (state["sessionId"], str(file))
    assert again["sessionName"] == "my work"
    assert texts(agent) == ["first", "one"]
    asked = server.answers("three")
    assert text_of(answers(agent.run("third"))[0]) == "three"
    assert [text for _, text in said_in(asked.request)] == ["first", "one", "third"]


@proves(
    "fork.response",
    "fork.cuts",
    "fork.session",
    "fork.bad",
    "get_fork_messages.list",
    "command.fork",
    "command.get_fork_messages",
    dialects=("pi",),
)
@proves(
    "omp+xcsh/branch.response",
    "omp+xcsh/branch.cuts",
    "omp+xcsh/branch.session",
    "omp+xcsh/branch.bad",
    "omp+xcsh/get_branch_messages.list",
    "omp+xcsh/command.branch",
    "omp+xcsh/command.get_branch_messages",
    dialects=("omp", "xcsh"),
)
@in_each("pi", "omp", "xcsh")
def test_a_branch_ends_before_the_message_it_was_made_at(start: Start, server: ModelServer, dialect: str) -> None:
    command, listing, word = ASKING.get(dialect, ASKING["other"])
    agent = start(dialect=dialect, keeps=True)
    for message in ("one", "two", "three"):
        server.answers(f"answer {message}")
        agent.run(message)
    before = agent.ask("get_state")
    listed = agent.ask(listing)["messages"]
    assert [row["text"] for row in listed] == ["one", "two", "three"]
    assert all(set(row) == {"entryId", "text"} for row in listed)
    assert agent.refused(command, entryId="nobody") == f"Invalid entry ID for {word}"
    assert agent.ask(command, entryId=listed[1]["entryId"]) == {"text": "two", "cancelled": False}
    after = agent.ask("get_state")
    assert after["sessionId"] != before["sessionId"]
    assert texts(agent) == ["one", "answer one"]
    asked = server.answers("anew")
    agent.run("instead")
    assert [text for _, text in said_in(asked.request)] == ["one", "answer one", "instead"]
    branch = agent.ask("get_state")["sessionFile"]
    assert branch != before["sessionFile"]
    assert header(branch)["parentSession"] == before["sessionFile"]


@proves(
    "export_html.default",
    "export_html.response",
    "export_html.path",
    "command.export_html",
    dialects=("pi", "omp", "xcsh"),
)
@proves("omp/export_html.said", dialects=("omp",))
@proves("note/ops.export_html")
@in_each("pi", "omp", "xcsh")
def test_a_conversation_is_written_as_a_page(start: Start, server: ModelServer, dialect: str, tmp_path: Path) -> None:
    agent = start(dialect=dialect, keeps=True)
    server.answers("the answer to everything")
    agent.run("a question")
    response = agent.request("export_html")
    assert (response["command"], response["success"]) == ("export_html", True)
    pages = [agent.folders.work / response["data"]["path"]]
    wanted = tmp_path / "page.html"
    assert agent.ask("export_html", outputPath=str(wanted)) == {"path": str(wanted)}
    for page in [*pages, wanted]:
        text = page.read_text("utf-8")
        assert text.lstrip().lower().startswith("<!doctype html")
        assert "the answer to everything" in text
        assert "a question" in text


@proves("start.no_session", dialects=("omp", "companion"))
@proves("companion/start.session", dialects=("companion",))
@in_each("omp", "companion")
def test_a_conversation_is_kept_unless_it_is_said_otherwise(start: Start, server: ModelServer, dialect: str) -> None:
    for keeps in (False, True):
        agent = start(dialect=dialect, keeps=keeps)
        server.answers("well")
        agent.send({"type": "prompt", "message": "x"})
        agent.wait_end()
        agent.close()
        kept = list(agent.folders.agent.rglob("*.jsonl"))
        assert len(kept) == int(keeps)
    assert '"well"' in kept[0].read_text("utf-8")
