"""What a client does when the connection to a served conversation breaks, against a server that does as it is told."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import pigeon
from pigeon.sdk.remote.addresses import parse_address
from pigeon.sdk.remote.line_connections import NotReached
from pigeon.sdk.remote.sent_lines import MOST_TRIES
from pigeon.sdk.remote.served_transport import ServedTransport


class Visit:
    """One connection, as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def next(self) -> Any:
        async with asyncio.timeout(10):
            return json.loads(await self._reader.readline())

    async def begins(self) -> None:
        """The first byte of a line, of which nothing more is read."""
        async with asyncio.timeout(10):
            await self._reader.readexactly(1)

    def send_records(self, *records: Any) -> None:
        self._writer.write(b"".join(json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records))

    async def cut(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


class Server:
    """Lets clients in; `visit` gives the next connection, after its first line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._visits: asyncio.Queue[Visit] = asyncio.Queue()
        self._server: asyncio.Server | None = None
        self._all: list[Visit] = []

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._came, self._path)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for visit in self._all:
            await visit.cut()

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._all.append(Visit(reader, writer))
        self._visits.put_nowait(self._all[-1])

    async def visit(self, after: int | None = None, seq: int = 0) -> Visit:
        async with asyncio.timeout(10):
            visit = await self._visits.get()
        first = await visit.next()
        assert first == {"type": "attach", "session": "s"} | ({} if after is None else {"after": after})
        visit.send_records(
            {"type": "response", "command": "attach", "success": True, "data": {"session": "s", "seq": seq}}
        )
        return visit

    async def refuse(self, why: str) -> None:
        async with asyncio.timeout(10):
            visit = await self._visits.get()
        await visit.next()
        visit.send_records({"type": "response", "command": "attach", "success": False, "error": why})


class Host:
    """What the transport hands on."""

    def __init__(self) -> None:
        self._records: asyncio.Queue[Any] = asyncio.Queue()
        self.lost = asyncio.Event()

    def receive(self, data: bytes) -> None:
        for line in data.splitlines():
            self._records.put_nowait(json.loads(line))

    async def next(self) -> Any:
        async with asyncio.timeout(10):
            return await self._records.get()

    async def next_records(self, count: int) -> list[Any]:
        return [await self.next() for _ in range(count)]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = Server(tmp_path / "s.sock")
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
async def transport(server: Server, host: Host, tmp_path: Path) -> AsyncIterator[ServedTransport]:
    made = ServedTransport(parse_address(f"unix:{tmp_path}/s.sock?session=s"))
    yield made
    await made.close()


async def open_visit(transport: ServedTransport, server: Server, host: Host, seq: int = 0) -> Visit:
    opening = asyncio.ensure_future(transport.open(host.receive, host.lost.set))
    visit = await server.visit(seq=seq)
    await opening
    return visit


def send_record(transport: ServedTransport, **record: Any) -> None:
    transport.write(json.dumps(record).encode() + b"\n")


def event(seq: int, kind: str = "turn_start", **members: Any) -> Any:
    return {"type": kind, **members, "seq": seq}


async def test_events_go_on_behind_the_last_one_and_none_comes_twice(
    transport: ServedTransport, server: Server, host: Host
) -> None:
    visit = await open_visit(transport, server, host, seq=4)
    await visit.cut()
    visit = await server.visit(after=4)
    visit.send_records(event(5), event(6))
    assert [one["seq"] for one in await host.next_records(2)] == [5, 6]
    await visit.cut()
    visit = await server.visit(after=6)
    visit.send_records(event(6), event(7))
    assert (await host.next())["seq"] == 7


async def test_a_prompt_is_sent_again_under_its_id_and_answered_before_its_run(
    transport: ServedTransport, server: Server, host: Host
) -> None:
    visit = await open_visit(transport, server, host)
    send_record(transport, type="prompt", id="p", message="go")
    first = await visit.next()
    visit.send_records(event(1, "agent_start", runId="old"))
    await host.next()
    await visit.cut()
    visit = await server.visit(after=1)
    again = await visit.next()
    assert again == first
    visit.send_records(
        event(2, "agent_settled", runId="old"), event(3, "agent_start", runId="new"), event(4, runId="new")
    )
    mine = {"type": "response", "id": "p", "command": "prompt", "success": True}
    data = {"disposition": "started", "runId": "new", "clientMessageId": again["clientMessageId"]}
    visit.send_records({**mine, "data": data}, event(5, "agent_settled", runId="new"))
    seen = await host.next_records(5)
    assert [one.get("seq", "answer") for one in seen] == [2, "answer", 3, 4, 5]
    assert seen[1] == {**mine, "data": {"disposition": "started", "runId": "new"}}


async def test_a_long_line_over_which_the_connection_breaks_each_time_is_given_up(
    transport: ServedTransport, server: Server, host: Host
) -> None:
    visit = await open_visit(transport, server, host)
    send_record(transport, type="prompt", id="p", message="x" * 1_100_000)
    for _ in range(MOST_TRIES):
        await visit.begins()
        await visit.cut()
        visit = await server.visit(after=0)
    answer = await host.next()
    assert (answer["id"], answer["success"], answer["code"]) == ("p", False, "too_long")
    send_record(transport, type="get_state", id="g")
    assert (await visit.next())["id"] == "g"


async def test_the_id_of_a_message_is_hidden_wherever_it_comes_back(
    transport: ServedTransport, server: Server, host: Host
) -> None:
    visit = await open_visit(transport, server, host)
    transport.write(b' { "type":"prompt", "id":"p", "message":"go"}\n')
    sent = await visit.next()
    assert {**sent, "clientMessageId": ""} == {"type": "prompt", "id": "p", "message": "go", "clientMessageId": ""}
    given = {"clientMessageId": sent["clientMessageId"], "accepted": {"disposition": "started", "digest": "}"}}
    others = {"clientMessageId": "mine", "accepted": {}}
    quoted = {"role": "assistant", "content": f'"clientMessageId":"{sent["clientMessageId"]}"'}
    messages = [{"role": "user", "content": "go"}, {"role": "user", **others}, quoted]
    visit.send_records(event(1, "agent_end", messages=[{**messages[0], **given}, *messages[1:]]))
    assert (await host.next())["messages"] == messages


async def test_an_id_of_the_host_is_left_as_it_is(transport: ServedTransport, server: Server, host: Host) -> None:
    visit = await open_visit(transport, server, host)
    send_record(transport, type="steer", id="p", message="go", clientMessageId="mine")
    assert (await visit.next())["clientMessageId"] == "mine"
    visit.send_records({"type": "response", "id": "p", "success": True, "data": {"x": 1, "clientMessageId": "mine"}})
    assert (await host.next())["data"]["clientMessageId"] == "mine"


async def test_a_question_is_not_held_back_by_an_answer_that_waits_for_it(
    transport: ServedTransport, server: Server, host: Host
) -> None:
    visit = await open_visit(transport, server, host)
    send_record(transport, type="prompt", id="p", message="go")
    await visit.next()
    await visit.cut()
    visit = await server.visit(after=0)
    await visit.next()
    visit.send_records(event(1), event(2, "extension_ui_request", method="confirm", id="q"))
    assert [one["seq"] for one in await host.next_records(2)] == [1, 2]


async def test_what_may_have_been_done_fails_and_what_can_be_repeated_is_repeated(
    transport: ServedTransport, server: Server, host: Host
) -> None:
    visit = await open_visit(transport, server, host)
    for number, kind in enumerate(("bash", "get_state", "compact", "set_model", "abort", "cycle_model")):
        send_record(transport, type=kind, id=number)
        await visit.next()
    await visit.cut()
    failures = await host.next_records(3)
    assert [(one["id"], one["command"], one["code"]) for one in failures] == [
        (0, "bash", "connection_lost"),
        (2, "compact", "connection_lost"),
        (5, "cycle_model", "connection_lost"),
    ]
    assert "not known whether it was done" in failures[0]["error"]
    send_record(transport, type="compact", id="later")
    visit = await server.visit(after=0)
    assert [(await visit.next())["type"] for _ in range(4)] == ["get_state", "set_model", "abort", "compact"]


async def test_an_answer_to_a_question_is_sent_again_until_the_question_is_closed(
    transport: ServedTransport, server: Server, host: Host
) -> None:
    visit = await open_visit(transport, server, host)
    for id in ("a", "b", "c"):
        send_record(transport, type="extension_ui_response", id=id, confirmed=True)
        await visit.next()
    visit.send_records(event(1, "permission_resolved", id="a"))
    visit.send_records(event(2, "extension_ui_request", method="cancel", id="x", targetId="b"), event(3))
    # The one that has answered is not told that the question is closed.
    assert [one["seq"] for one in await host.next_records(2)] == [1, 3]
    await visit.cut()
    visit = await server.visit(after=3)
    assert (await visit.next())["id"] == "c"
    visit.send_records(event(4, "agent_settled"))
    await host.next()
    await visit.cut()
    visit = await server.visit(after=4)
    send_record(transport, type="get_state", id=1)
    assert (await visit.next())["type"] == "get_state"


async def test_a_gap_ends_the_runs_that_have_ended_in_it(
    transport: ServedTransport, server: Server, host: Host
) -> None:
    visit = await open_visit(transport, server, host)
    visit.send_records(event(1, "agent_start", runId="one"))
    await host.next()
    await visit.cut()
    visit = await server.visit(after=1)
    visit.send_records(
        {"type": "gap", "after": 1, "snapshot": {"seq": 90, "runId": "two", "state": {}, "messages": []}}
    )
    gap, end = await host.next_records(2)
    assert gap["type"] == "gap"
    assert (end["type"], end["runId"], end["reason"]) == ("agent_settled", "one", "error")
    await visit.cut()
    await server.visit(after=90)


async def test_events_that_are_not_wanted_are_left_out_also_after_a_break(
    transport: ServedTransport, server: Server, host: Host
) -> None:
    visit = await open_visit(transport, server, host)
    send_record(transport, type="set_event_filter", id=1, events=["agent_settled"])
    await visit.next()
    visit.send_records({"type": "response", "id": 1, "command": "set_event_filter", "success": True})
    await host.next()
    await visit.cut()
    visit = await server.visit(after=0)
    again = await visit.next()
    assert (again["type"], again["events"]) == ("set_event_filter", ["agent_settled"])
    visit.send_records({"type": "response", "id": again["id"], "command": "set_event_filter", "success": True})
    visit.send_records(event(1), event(2, "host_tool_call", id="h"), event(3, "agent_settled"))
    assert [one["seq"] for one in await host.next_records(2)] == [2, 3]


async def test_an_event_filter_that_was_refused_leaves_out_nothing(
    transport: ServedTransport, server: Server, host: Host
) -> None:
    visit = await open_visit(transport, server, host)
    send_record(transport, type="set_event_filter", id=1, events=[[1]])
    await visit.next()
    visit.send_records(event(1), {"type": "response", "id": 1, "command": "set_event_filter", "success": False})
    visit.send_records(event(2))
    assert [one.get("seq") for one in await host.next_records(3)] == [1, None, 2]


async def test_it_gives_up_when_its_patience_is_over_or_the_conversation_is_gone(
    server: Server, host: Host, tmp_path: Path
) -> None:
    transport = ServedTransport(parse_address(f"unix:{tmp_path}/s.sock?session=s"), patience=0)
    visit = await open_visit(transport, server, host)
    await server.close()
    await visit.cut()
    async with asyncio.timeout(10):
        await host.lost.wait()
    assert isinstance(await transport.explain_death(), pigeon.ProcessDied)
    assert transport.reason
    await transport.close()


async def test_a_server_that_refuses_for_good_is_not_asked_again(
    transport: ServedTransport, server: Server, host: Host
) -> None:
    visit = await open_visit(transport, server, host)
    await visit.cut()
    await server.refuse("There is no session s")
    async with asyncio.timeout(10):
        await host.lost.wait()
    assert "There is no session s" in transport.reason


async def test_without_the_package_for_websockets_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets.asyncio.client", None)
    with pytest.raises(pigeon.StartupError, match=r"pip install 'pigeon-agent\[serve\]'"):
        await pigeon.Client(url="ws://127.0.0.1:1/id", token="t").open()


async def test_another_kind_of_server_is_told(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"type":"ready"}\n')
        await reader.readline()
        writer.close()
        await writer.wait_closed()
        left.set()

    async with await asyncio.start_unix_server(greet, tmp_path / "other"):
        transport = ServedTransport(parse_address(f"unix:{tmp_path}/other?session=s"))
        with pytest.raises(NotReached, match="no server of conversations"):
            await transport.open(lambda data: None, lambda: None)
        async with asyncio.timeout(10):
            await left.wait()


async def test_a_second_answer_to_attach_ends_the_conversation_with_its_reason_however_it_is_written(
    transport: ServedTransport, server: Server, host: Host
) -> None:
    visit = await open_visit(transport, server, host)
    visit.send_records(event(1, text='"type":"response","command":"attach"'))
    assert (await host.next())["seq"] == 1
    visit.send_records({"error": "The session was deleted", "success": False, "command": "attach", "type": "response"})
    async with asyncio.timeout(10):
        await host.lost.wait()
    assert transport.reason == "The session was deleted"
