"""`open_session`: the newest session of a folder goes on, or one begins there."""

from __future__ import annotations

from pathlib import Path

from fakes.model_server import ModelServer
from support.agent_process import Start
from support.contract import proves
from support.records import text_of


@proves("omp.open_session", dialects=("pi",))
def test_a_folder_is_opened_by_its_newest_session(start: Start, server: ModelServer, tmp_path: Path) -> None:
    agent = start(keeps=True)
    folder = tmp_path / "kept"
    fresh = agent.ask("open_session", sessionDir=str(folder))
    assert (fresh["cancelled"], fresh["resumed"]) == (False, False)
    assert Path(fresh["sessionFile"]).parent == folder
    server.answers("kept here")
    agent.run("keep this")
    agent.ask("new_session")
    assert Path(agent.ask("get_state")["sessionFile"]).parent == folder
    again = agent.ask("open_session", sessionDir=str(folder))
    assert again == {**fresh, "resumed": True}
    assert [text_of(message) for message in agent.ask("get_messages")["messages"]] == ["keep this", "kept here"]
    mark = agent.mark()
    assert agent.ask("open_session", sessionDir=str(folder)) == again, "it is open already"
    assert [record["type"] for record in agent.since(mark)] == ["response"]


@proves("omp.open_session_none", dialects=("pi",))
def test_without_files_there_is_no_folder_to_open(start: Start, tmp_path: Path) -> None:
    agent = start()
    told = agent.expect_error("open_session", sessionDir=str(tmp_path))
    assert told == "open_session requires session persistence (omit --no-session)"


@proves("omp.event_filter_null")
def test_null_sends_every_event_again(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    assert agent.ask("set_event_filter", events=["agent_settled"]) == {"events": ["agent_settled"]}
    agent.send('{"id":"all","type":"set_event_filter","events":null}')
    assert agent.response("all")["data"] == {"events": None}
    server.answers("heard")
    assert "message_update" in {record["type"] for record in agent.run("speak")}
    told = agent.expect_error("set_event_filter")
    assert told == "events must be null or an array of non-empty event type strings"
