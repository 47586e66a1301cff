"""SIGKILL at any moment of a run: whatever the host was told is in the file, which opens again at once.

`PIGEON_KILLS` says how often (30 by default).
"""

from __future__ import annotations

import json
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer, Thinking
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess
from support.sessions import DiskRepository

KILLS = int(os.environ.get("PIGEON_KILLS", "30"))
PARTS = 3
RECORDS = 130
SETTINGS = {"compaction": {"keepRecentTokens": 20, "reserveTokens": 1000}, "retry": {"baseDelayMs": 1}}


@pytest.mark.timeout(60 + 4 * KILLS)
@pytest.mark.parametrize("part", range(PARTS))
def test_everything_that_was_told_is_in_the_file(part: int, tmp_path: Path) -> None:
    for number in range(part, KILLS, PARTS):
        _killed_once(random.Random(number), tmp_path / str(number))


def _killed_once(chance: random.Random, folder: Path) -> None:
    with ModelServer() as server:
        folders = AgentFolders(folder)
        folders.configure(providers(server.url), SETTINGS)
        agent = RpcProcess(folders, "--provider", "fake", "--model", "fake-1", "--dialect", "pi-latest")
        try:
            _prepare(server)
            agent.send({"type": "get_state"}, *_commands())
            _wait_records(agent, chance.randint(1, RECORDS))
            threading.Event().wait(chance.random() * 0.003)
        finally:
            agent.kill()
    told = _announced_items(agent.records)
    files = list(folders.agent.rglob("*.jsonl"))
    if not files:
        assert told == []
        return
    assert _is_in_order(told, _items_in_file(files[0])), f"told and not kept; see {files[0]}"
    journal = DiskRepository(files[0].parent).open(str(files[0]), "/")
    assert journal.leaf_id is not None or not told
    journal.close()


def _prepare(server: ModelServer) -> None:
    server.answers(Thinking("hm"), "first", Call("bash", {"command": "echo 1"}), Call("bash", {"command": "echo 2"}))
    server.answers("and", Call("write", {"path": "x.txt", "content": "x"}))
    server.answers("done " * 20)
    server.answers("more")
    server.fails(529, "overloaded", kind="overloaded_error")
    server.answers("the last", Call("bash", {"command": "echo 3"}))
    server.answers("end")


def _commands() -> list[dict[str, Any]]:
    return [
        {"type": "prompt", "message": "one"},
        {"type": "prompt", "message": "two", "streamingBehavior": "followUp"},
        {"type": "set_session_name", "name": "a name"},
        {"type": "bash", "command": "echo host"},
        {"type": "prompt", "message": "three", "streamingBehavior": "followUp"},
    ]


def _wait_records(agent: RpcProcess, count: int) -> None:
    """Wait for so many records, or for the end of everything."""
    seen = 0

    def enough(record: dict[str, Any]) -> bool:
        nonlocal seen
        seen += 1
        return seen >= count or record["type"] == "agent_settled"

    agent.wait(enough)


def _announced_items(records: list[dict[str, Any]]) -> list[Any]:
    """What the host heard of that a file must have."""
    parts = {"message_end": "message", "entry_appended": "entry"}
    return [record[parts[record["type"]]] for record in records if record["type"] in parts]


def _items_in_file(file: Path) -> list[Any]:
    kept = []
    for line in file.read_bytes().split(b"\n"):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        kept.append(entry["message"] if entry["type"] == "message" else entry)
    return kept


def _is_in_order(part: list[Any], whole: list[Any]) -> bool:
    rest = iter(whole)
    return all(item in rest for item in part)
