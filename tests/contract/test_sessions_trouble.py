"""Sessions when things go wrong around them: another process, a kill, a full disk, a folder that is gone."""

from __future__ import annotations

import json
import os
import resource
import shutil
from pathlib import Path
from typing import Any

from fakes.model_server import Call, ModelServer
from support.agent_process import RpcProcess, Start
from support.contract import proves, proves_each
from support.contract_scenes import Seen, Stage, scenario
from support.records import finished_messages, text_of

Record = dict[str, Any]


def lines_of(file: str | Path) -> list[Record]:
    return [json.loads(line) for line in Path(file).read_bytes().split(b"\n") if line]


def talk(agent: RpcProcess, server: ModelServer, *messages: str) -> Path:
    for message in messages:
        server.answers(f"answer {message}")
        agent.run(message)
    return Path(agent.ask("get_state")["sessionFile"])


def notices(agent: RpcProcess, start: int = 0) -> list[str]:
    found = agent.since(start, "extension_ui_request")
    return [record["message"] for record in found if record["method"] == "notify"]


@proves("session.copy_in_use")
def test_a_session_in_use_can_be_copied(start: Start, server: ModelServer) -> None:
    first = start(keeps=True)
    file = talk(first, server, "one")
    second = start("--fork", str(file), keeps=True)
    assert [text_of(message) for message in second.ask("get_messages")["messages"]] == ["one", "answer one"]
    assert talk(second, server, "two") != file
    assert len(first.ask("get_messages")["messages"]) == 2


@scenario
def full_disk(stage: Stage) -> Seen:
    """A disk that is full at three places of a line, each time with room again afterwards."""
    agent, server = stage.start(keeps=True), stage.server
    file = talk(agent, server, "one")
    times = []
    for spare in (0, 1, 120):
        mark = agent.mark()
        _limit(agent, file.stat().st_size + spare)
        server.answers("look", Call("bash", {"command": "echo hello"}))
        server.answers("answer two")
        said = [text_of(message) for message in finished_messages(agent.run("two"), "assistant")]
        told, is_whole = notices(agent, mark), file.read_bytes().endswith(b"\n")
        streaming = agent.ask("get_state")["isStreaming"]
        _limit(agent, resource.RLIM_INFINITY)
        mark = agent.mark()
        talk(agent, server, "three")
        times.append(Seen(said=said, told=told, is_whole=is_whole, streaming=streaming, later=notices(agent, mark),
                          lines=lines_of(file)[1:], entries=agent.ask("get_entries")["entries"]))  # fmt: skip
    agent.close()
    kept = lines_of(file)[1:]
    again = stage.start("--session", str(file), keeps=True)
    return Seen(file=file, times=times, kept=kept, reopened=again.ask("get_entries")["entries"])


@proves("session.disk_full")
def test_a_full_disk_is_told_once_and_the_conversation_continues(full_disk: Seen) -> None:
    for one in full_disk.times:
        assert one.said == ["look", "answer two"]
        assert one.told == [
            f"The session cannot be saved to {full_disk.file}: File too large. The conversation goes on in memory and "
            "will be saved when writing works again."
        ]
        assert one.is_whole
        assert one.streaming is False


@proves("session.saved_again")
def test_nothing_is_lost_once_there_is_room_and_that_is_told(full_disk: Seen) -> None:
    for one in full_disk.times:
        assert one.later == [f"The session is saved again: {full_disk.file}"]
        assert one.lines == one.entries
    assert full_disk.reopened == full_disk.kept


def _limit(agent: RpcProcess, size: int) -> None:
    """No file of the process may grow beyond this."""
    hard = resource.prlimit(agent.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (size, hard))


@proves_each("whole_folder", {"session.deleted": (False,), "session.folder_gone": (True,)})
def test_a_session_that_is_deleted_in_a_run_is_written_again(
    start: Start, server: ModelServer, whole_folder: bool
) -> None:
    agent = start(keeps=True)
    file = talk(agent, server, "one")
    server.answers("look", Call("bash", {"command": f"rm -r '{file.parent if whole_folder else file}'"}))
    server.answers("gone")
    agent.run("two")
    assert lines_of(file)[1:] == agent.ask("get_entries")["entries"]
    assert lines_of(file)[0]["id"] == agent.ask("get_state")["sessionId"]
    assert notices(agent) == []


@proves("session.folder_blocked")
def test_a_folder_that_cannot_be_made_is_told_and_tried_again(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    file = Path(agent.ask("get_state")["sessionFile"])
    shutil.rmtree(agent.folders.agent / "sessions", ignore_errors=True)
    (agent.folders.agent / "sessions").write_text("in the way")
    server.answers("answer one")
    agent.run("one")
    (told,) = notices(agent)
    assert told.startswith(f"The session cannot be saved to {file}: ")
    assert agent.ask("get_state")["messageCount"] == 2
    (agent.folders.agent / "sessions").unlink()
    talk(agent, server, "two")
    assert lines_of(file)[1:] == agent.ask("get_entries")["entries"]
    assert notices(agent)[1:] == [f"The session is saved again: {file}"]


@proves("session.not_ours")
def test_a_session_file_that_was_exchanged_is_not_written_into(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    file = talk(agent, server, "one")
    os.replace(file, file.with_suffix(".mine"))
    file.write_text("somebody else's\n")
    talk(agent, server, "two")
    assert file.read_text() == "somebody else's\n"
    assert "another file has taken its place" in notices(agent)[0]


@proves("session.huge_numbers")
def test_a_number_beyond_every_float_spoils_neither_the_page_nor_the_conversation(
    start: Start, server: ModelServer
) -> None:
    first = start(keeps=True)
    server.answers(Call("read", {"path": "there"}))
    server.answers("done")
    first.run("look")
    file = Path(first.ask("get_state")["sessionFile"])
    first.close()
    text = file.read_text("utf-8")
    assert '"path":"there"' in text
    file.write_text(text.replace('"path":"there"', '"path":"there","count":' + "9" * 10_000), "utf-8")
    again = start("--session", str(file), keeps=True)
    page = Path(again.ask("export_html", outputPath="page.html")["path"])
    assert "there" in (again.folders.work / page).read_text("utf-8")
    server.answers("on")
    again.run("go on")
    (call,) = (block for block in server.requests[-1]["messages"][1]["content"] if block["type"] == "tool_use")
    assert call["input"] == {"path": "there", "count": None}
