"""The socket of `pigeon serve`, line by line."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agent_process import RpcProcess
from support.pigeon_serve import ServedConversations, shared_server


class Lines:
    """A client that knows nothing but lines."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(str(path))
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *rest: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, record: Any) -> None:
        data = record if isinstance(record, bytes) else json.dumps(record).encode()
        self._socket.sendall(data + b"\n")

    def next(self) -> Any:
        line = self._file.readline()
        return json.loads(line) if line else None

    def until(self, kind: str) -> list[Any]:
        seen = [self.next()]
        while seen[-1]["type"] != kind:
            seen.append(self.next())
        return seen

    def answer(self, record: Any) -> Any:
        self.send(record)
        return self.until("response")[-1]


@pytest.fixture
def server() -> ServedConversations:
    return shared_server()


@pytest.fixture
def client(server: ServedConversations) -> Iterator[Lines]:
    with Lines(server.socket) as lines:
        yield lines


def test_only_its_owner_may_open_it(server: ServedConversations) -> None:
    assert stat.S_IMODE(server.socket.stat().st_mode) == 0o600


def test_a_conversation_that_cannot_be_begun_leaves_nothing(server: ServedConversations, client: Lines) -> None:
    kept = server.folders.agent / "serve" / "conversations"
    before = set(kept.iterdir())
    answer = client.answer({"type": "attach", "cwd": str(server.folders.work), "model": "no-such-model"})
    assert not answer["success"]
    assert '"no-such-model" not found' in answer["error"]
    assert set(kept.iterdir()) == before


def test_a_new_conversation_is_begun_and_speaks_the_protocol(server: ServedConversations, client: Lines) -> None:
    answer = client.answer({"type": "attach", "id": 1, "cwd": str(server.folders.work), "model": "demo"})
    assert (answer["id"], answer["command"], answer["success"]) == (1, "attach", True)
    assert answer["data"]["cwd"] == str(server.folders.work)
    state = client.answer({"type": "get_state", "id": {"odd": []}})
    assert state["id"] == {"odd": []}
    assert state["data"]["sessionId"] == answer["data"]["session"]
    assert client.answer(b"{ no json")["command"] == "parse"


def test_a_client_that_comes_back_gets_what_it_missed_and_nothing_twice(
    server: ServedConversations, client: Lines
) -> None:
    id = client.answer({"type": "attach", "cwd": str(server.folders.work), "model": "demo"})["data"]["session"]
    client.send({"type": "prompt", "message": "list the files"})
    seen = client.until("agent_settled")
    numbers = [event["seq"] for event in seen if "seq" in event]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    with Lines(server.socket) as again:
        answer = again.answer({"type": "attach", "session": id, "after": numbers[3]})
        assert answer["data"]["seq"] == numbers[3]
        missed = again.until("agent_settled")
    assert missed == [event for event in seen if event.get("seq", 0) > numbers[3]]
    with Lines(server.socket) as fresh:
        assert fresh.answer({"type": "attach", "session": id})["data"]["seq"] == numbers[-1]
        assert fresh.answer({"type": "get_state"})["success"] is True


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ({"type": "attach"}, '"session"'),
        ({"type": "attach", "session": "no-such"}, "There is no session no-such"),
        ({"type": "attach", "session": "../../etc"}, "There is no session"),
        ({"type": "attach", "session": 5}, '"session"'),
        ({"type": "attach", "session": "x", "after": "5"}, '"after"'),
        ({"type": "attach", "session": "x", "after": -1}, '"after"'),
        ({"type": "attach", "cwd": "relative"}, "relative is not below"),
        ({"type": "attach", "cwd": "/no/such/folder"}, "is not a folder"),
        ({"type": "get_state"}, '"type"'),
        ([], "object"),
        (b"{", "end of JSON"),
    ],
)
def test_a_first_line_that_cannot_be_followed_is_answered_with_the_reason(
    client: Lines, first: Any, reason: str
) -> None:
    client.send(first)
    answer = client.next()
    assert (answer["command"], answer["success"]) == ("attach", False)
    assert reason in answer["error"]
    assert client.next() is None


def test_what_a_command_prints_has_the_id_of_the_command_for_the_client_that_sent_it(
    server: ServedConversations, client: Lines
) -> None:
    id = client.answer({"type": "attach", "cwd": str(server.folders.work), "model": "demo"})["data"]["session"]
    with Lines(server.socket) as other:
        other.answer({"type": "attach", "session": id})
        client.send({"type": "bash", "id": ["mine"], "command": "echo first"})
        printed, answer = client.until("response")[-2:]
        assert (printed["type"], printed["id"], answer["id"]) == ("bash_execution_update", ["mine"], ["mine"])
        assert other.until("bash_execution_update")[-1]["id"] not in (None, ["mine"])
        client.send({"type": "bash", "command": "echo second"})
        assert "id" not in client.until("response")[-2]


def test_the_clients_of_a_session_that_is_deleted_are_told_and_do_not_bring_it_back(
    server: ServedConversations, client: Lines
) -> None:
    id = client.answer({"type": "attach", "id": 0, "cwd": str(server.folders.work), "model": "demo"})["data"]["session"]
    process = RpcProcess(server.folders, f"unix:{server.socket}?session={id}", mode=("attach",))
    process.request("get_state")
    server.call("DELETE", f"/api/sessions/{id}")
    told = client.until("response")[-1]
    assert (told["command"], told["success"], told["error"]) == ("attach", False, "The session was deleted")
    assert client.next() is None
    assert process.wait_exit() == 1
    assert "The session was deleted" in process.stderr


def test_a_client_that_says_nothing_costs_nothing(server: ServedConversations) -> None:
    with Lines(server.socket), Lines(server.socket) as other:
        assert other.answer({"type": "attach", "session": "none"})["success"] is False
