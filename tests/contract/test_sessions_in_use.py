"""One session and several processes: one of them writes, the others read until it has ended, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_process import RpcProcess, Start
from support.contract import proves, proves_each
from support.contract_scenes import Seen, Stage, scenario
from support.records import text_of

Record = dict[str, Any]
WAYS = ("--session", "--session ID", "--session-id", "--continue", "--resume", "switch_session")
RACES = int(os.environ.get("PIGEON_RACES", "4"))
READS = ("get_state", "get_messages", "get_entries", "get_tree", "get_session_stats", "get_last_assistant_text",
         "get_fork_messages", "get_commands", "get_available_models")  # fmt: skip
WRITES: list[tuple[str, Record]] = [
    ("prompt", {"message": "mine"}),
    ("set_session_name", {"name": "mine"}),
    ("compact", {}),
    ("bash", {"command": "touch ran"}),
    ("set_model", {"provider": "fake", "modelId": "fake-2"}),
    ("cycle_model", {}),
    ("set_thinking_level", {"level": "high"}),
    ("cycle_thinking_level", {}),
]


def lines_of(file: str | Path) -> list[Record]:
    return [json.loads(line) for line in Path(file).read_bytes().split(b"\n") if line]


def talk(agent: RpcProcess, server: ModelServer, *messages: str) -> Path:
    for message in messages:
        server.answers(f"answer {message}")
        agent.run(message)
    return Path(agent.ask("get_state")["sessionFile"])


def texts(agent: RpcProcess) -> list[str]:
    return [text_of(message) for message in agent.ask("get_messages")["messages"]]


def said_in_file(file: Path) -> list[str]:
    messages = [entry["message"] for entry in lines_of(file) if entry["type"] == "message"]
    return [text_of(message) for message in messages if message["role"] in ("user", "assistant")]


def in_use(file: str | Path) -> str:
    return f"Session is in use by another process: {file}. "


def is_one_line(file: str | Path) -> bool:
    """True if every entry hangs on the one before it: there is one branch."""
    entries = lines_of(file)[1:]
    return [entry["parentId"] for entry in entries] == [None, *(entry["id"] for entry in entries[:-1])]


def own_id(file: Path) -> str:
    return file.stem.rpartition("_")[2]


@scenario
def readers(stage: Stage) -> Seen:
    """A session that is written, opened by a second process in each way there is."""
    return Seen(ways={way: read_elsewhere(stage, way) for way in WAYS})


def read_elsewhere(stage: Stage, way: str) -> Seen:
    """What a second process sees of a session, and what it is refused."""
    first = stage.start(keeps=True)
    file = talk(first, stage.server, "one")
    value = {"--session": str(file), "--continue": None}.get(way, own_id(file))
    option = way.split(maxsplit=1)[0]
    chosen = [] if option == "switch_session" else [option] if value is None else [option, value]
    second = stage.start(*chosen, keeps=True)
    if option == "switch_session":
        assert second.ask(option, sessionPath=str(file)) == {"cancelled": False}
    second.wait_event("extension_ui_request")
    told = [record["message"] for record in second.since(0, "extension_ui_request")]
    early = texts(second)
    talk(first, stage.server, "two")
    reads = {command: second.request(command)["success"] for command in READS}
    page = second.ask("export_html", outputPath=str(file.with_suffix(".html")))["path"]
    both = [(texts(agent), agent.ask("get_entries")) for agent in (first, second)]
    session = second.ask("get_state")["sessionId"]
    before = file.read_bytes()
    entry = second.ask("get_entries")["entries"][0]["id"]
    refused = {command: second.expect_error(command, **fields) for command, fields in WRITES}
    refused["navigate_tree"] = second.expect_error("navigate_tree", entryId=entry)
    changed = (file.read_bytes() != before, (second.folders.work / "ran").exists())
    streaming = second.ask("get_state")["isStreaming"]
    for agent in (second, first):
        agent.close()
    return Seen(file=file, told=told, early=early, reads=reads, page=Path(page).read_text(), both=both, session=session,
                refused=refused, changed=changed, streaming=streaming, stderr=second.stderr)  # fmt: skip


@proves("session.in_use")
@pytest.mark.parametrize("way", WAYS)
def test_a_session_that_another_process_writes_opens_for_reading_only(readers: Seen, way: str) -> None:
    seen = readers.ways[way]
    assert set(seen.reads.values()) == {True}
    assert all(error.startswith(in_use(seen.file)) for error in seen.refused.values())
    assert seen.changed == (False, False)
    assert seen.streaming is False
    assert seen.stderr == ""


@proves("session.in_use_start")
@pytest.mark.parametrize("way", WAYS)
def test_a_session_that_another_process_writes_opens_with_a_notice(readers: Seen, way: str) -> None:
    (told,) = readers.ways[way].told
    assert told.startswith(in_use(readers.ways[way].file))
    assert readers.ways[way].early == ["one", "answer one"]


@proves("session.in_use_follows")
@pytest.mark.parametrize("way", WAYS)
def test_a_session_that_is_read_follows_what_the_other_process_appends(readers: Seen, way: str) -> None:
    seen = readers.ways[way]
    assert "answer two" in seen.page
    assert seen.both[0] == seen.both[1]
    assert seen.session == own_id(seen.file)


@proves_each("end", {"session.takes_over": ("close",), "session.stale_lock": ("kill",)})
def test_the_next_write_takes_over_when_the_writer_has_ended(start: Start, server: ModelServer, end: str) -> None:
    first = start(keeps=True)
    file = talk(first, server, "one")
    second = start("--session", str(file), keeps=True)
    assert texts(second) == ["one", "answer one"]
    server.answers("wait", Call("bash", {"command": "sleep 60"}))
    first.send({"type": "prompt", "message": "two"})
    first.wait_event("tool_execution_start")
    first.signal(signal.SIGSTOP)
    assert second.expect_error("prompt", message="too early").startswith(in_use(file)), (
        "a stopped process holds its lock"
    )
    first.signal(signal.SIGCONT)
    if end == "kill":
        first.signal(signal.SIGKILL)
        first.wait_exit()
    else:
        first.close()
    talk(second, server, "three")
    said = texts(second)
    assert (said[:3], said[-2:]) == (["one", "answer one", "two"], ["three", "answer three"])
    (result,) = [message for message in second.ask("get_messages")["messages"] if message["role"] == "toolResult"]
    assert result["isError"] is True, "what was cut off is answered"
    assert is_one_line(file)
    assert lines_of(file)[1:] == second.ask("get_entries")["entries"]
    second.ask("set_session_name", name="taken over")
    assert lines_of(file)[-1]["name"] == "taken over"


@proves("session.takes_over_name")
def test_a_name_may_be_the_write_that_takes_over(start: Start, server: ModelServer) -> None:
    first = start(keeps=True)
    file = talk(first, server, "one")
    second = start("--session", str(file), "--name", "too early", keeps=True)
    assert "sessionName" not in second.ask("get_state")
    assert second.stderr.startswith(f"Warning: --name: {in_use(file)}")
    talk(first, server, "two")
    first.close()
    second.ask("set_session_name", name="now")
    assert is_one_line(file)
    assert texts(second) == ["one", "answer one", "two", "answer two"]
    assert second.ask("get_state")["sessionName"] == "now"


@proves("session.fork_in_use")
def test_a_session_that_is_read_can_be_forked_and_cloned_and_left(start: Start, server: ModelServer) -> None:
    first = start(keeps=True)
    file = talk(first, server, "one", "two")
    second = start("--session", str(file), keeps=True)
    assert second.ask("clone") == {"cancelled": False}
    copy = talk(second, server, "mine")
    assert copy != file
    assert texts(second) == ["one", "answer one", "two", "answer two", "mine", "answer mine"]
    second.ask("switch_session", sessionPath=str(file))
    last = second.ask("get_fork_messages")["messages"][-1]
    assert second.ask("fork", entryId=last["entryId"]) == {"text": "two", "cancelled": False}
    assert talk(second, server, "other") not in (file, copy)
    second.ask("switch_session", sessionPath=str(file))
    assert second.ask("new_session") == {"cancelled": False}
    talk(second, server, "new")
    assert said_in_file(file) == texts(first)


def race(start: Start, server: ModelServer, *options: str) -> tuple[list[RpcProcess], list[Record]]:
    """Two processes that are prompted at the same time; their answers to the prompt."""
    agents = [start(*options, keeps=True) for _ in range(2)]
    for agent in agents:
        agent.ask("get_state")
    server.answers("to one of them")
    with ThreadPoolExecutor(2) as pool:
        return agents, list(pool.map(lambda agent: agent.request("prompt", message=f"from {agent.pid}"), agents))


@proves_each("option", {"session.race_path": ("--session",), "session.race_id": ("--session-id",)})
@pytest.mark.parametrize("number", range(RACES))
def test_two_starts_on_a_missing_session_make_one_file(
    start: Start, server: ModelServer, option: str, number: int, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    options = ("--session", str(folder / "s.jsonl")) if option == "--session" else ("--session-id", "mine")
    agents, answers = race(start, server, *options, "--session-dir", str(folder))
    assert sorted(answer["success"] for answer in answers) == [False, True]
    winner, loser = agents if answers[0]["success"] else agents[::-1]
    winner.wait_end()
    (file,) = folder.iterdir()
    refused = next(answer for answer in answers if not answer["success"])
    assert refused["error"].startswith(in_use(file))
    assert texts(loser) == [f"from {winner.pid}", "to one of them"]
    assert loser.ask("get_state")["sessionId"] == winner.ask("get_state")["sessionId"]
    winner.close()
    talk(loser, server, "again")
    loser.close()
    assert [path.name for path in folder.iterdir()] == [file.name]
    assert said_in_file(file) == [f"from {winner.pid}", "to one of them", "again", "answer again"]
    assert is_one_line(file)


@proves("session.begun_elsewhere")
def test_a_session_that_was_begun_elsewhere_before_the_first_prompt_is_read(
    start: Start, server: ModelServer, tmp_path: Path
) -> None:
    file = tmp_path / "s.jsonl"
    first, second = (start("--session", str(file), keeps=True) for _ in range(2))
    second.ask("set_session_name", name="kept for later")
    assert not file.exists()
    talk(first, server, "one")
    assert texts(second) == ["one", "answer one"]
    first.close()
    talk(second, server, "two")
    assert texts(second) == ["one", "answer one", "two", "answer two"]
    assert second.ask("get_state")["sessionName"] == "kept for later"
    assert is_one_line(file)


@proves("session.fork_id_exists")
def test_a_fork_with_an_id_that_exists_is_refused(start: Start, server: ModelServer) -> None:
    first = start("--session-id", "mine", keeps=True)
    file = talk(first, server, "one")
    second = start("--fork", str(file), "--session-id", "mine", keeps=True)
    assert second.wait_exit() == 1
    assert second.stderr == "Error: Session already exists with id 'mine'\n"


@proves("session.unlocked_writer")
@pytest.mark.parametrize("how", ["appends", "rewrites", "truncates"])
def test_what_a_program_without_a_lock_does_to_the_file_loses_no_line(
    start: Start, server: ModelServer, how: str
) -> None:
    agent = start(keeps=True)
    file = talk(agent, server, "one")
    kept = lines_of(file)
    message = {"role": "user", "content": [{"type": "text", "text": "from pi"}], "timestamp": 1}
    time = "2026-11-16T00:00:00.000Z"
    foreign = {"type": "message", "id": "f0000001", "parentId": kept[-1]["id"], "timestamp": time, "message": message}
    if how == "appends":
        with file.open("a") as other:
            other.write(json.dumps(foreign) + "\n")
    elif how == "rewrites":
        file.write_text("".join(json.dumps(line) + "\n" for line in [*kept[:-1], foreign]))
    else:
        file.write_text("".join(json.dumps(line) + "\n" for line in kept[:3]))
    talk(agent, server, "two")
    agent.close()
    after = lines_of(file)
    assert after[0]["id"] == kept[0]["id"]
    ids = [entry["id"] for entry in after]
    assert len(set(ids)) == len(ids)
    wanted = {entry["id"] for entry in kept} | ({"f0000001"} if how != "truncates" else set())
    assert wanted <= set(ids)
    said = said_in_file(file)
    assert {"one", "answer one", "two", "answer two"} <= set(said)
    assert ("from pi" in said) == (how != "truncates")
