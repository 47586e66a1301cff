"""The link to the process that holds connections: what was sent arrives, and anything else is one clear error."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import typing
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.mcp.connector import records
from pigeon.mcp.connector.records import (
    CallEnded,
    CallFailed,
    ConnectorReady,
    ConnectorUnusable,
    FromConnector,
    LinkConfig,
    QuestionAsked,
    ReadResource,
    ServerFailed,
    ServerResult,
    SignInQuestion,
    StoredSignIn,
    ToConnector,
    decode_for_agent,
    decode_for_connector,
    encode_line,
)
from pigeon.mcp.connector_process import Connector, make_connector_command
from pigeon.wire.content import TextContent
from pigeon.wire.errors import BadRecord

WRONG_LINES = (b"\n", b"[]\n", b"{}\n", b'{"type":"Nonsense"}\n', b'{"type":"CallEnded","id":"one"}\n')


def test_a_record_comes_back_as_it_was_sent() -> None:
    sent: list[FromConnector] = [
        CallEnded(id=3, result=ServerResult(content=[TextContent(text="half a pair \ud83d")], structured={"a": [1]})),
        QuestionAsked(id=4, server="s", question=SignInQuestion(url="http://x", code="AB")),
        records.SignInChanged(server="s", stored=StoredSignIn(tokens={"access_token": "t"}, expires=12.5)),
    ]
    assert [decode_for_agent(encode_line(one)) for one in sent] == sent
    config = LinkConfig(transport="stdio", folder="/", start_seconds=5.0, version="1")
    asked: list[ToConnector] = [
        records.OpenServer(server="1", config=config),
        records.AskServer(id=1, server="1", seconds=2.5, request=ReadResource(uri="a:b")),
        records.AnswerQuestion(id=4, answer=StoredSignIn()),
        records.AnswerQuestion(id=5),
    ]
    assert [decode_for_connector(encode_line(one)) for one in asked] == asked


def test_every_record_of_the_module_goes_one_way_or_is_inside_another() -> None:
    sent = {*typing.get_args(ToConnector), *typing.get_args(FromConnector)}
    found: set[Any] = set()
    for one in sent:
        found |= {one, *_inside(one)}
    declared = {
        one for one in vars(records).values() if isinstance(one, type) and issubclass(one, records.ConnectorRecord)
    }
    assert declared - {records.ConnectorRecord} == found & declared


def _inside(kind: Any) -> set[Any]:
    found: set[Any] = set()
    for hint in typing.get_type_hints(kind).values():
        found |= _parts(hint)
    return found


def _parts(hint: Any) -> set[Any]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return {hint, *_inside(hint)}
    return {part for one in typing.get_args(hint) for part in _parts(one)}


@given(
    st.one_of(
        st.binary(max_size=50).map(lambda data: data.replace(b"\n", b"")),
        st.dictionaries(st.sampled_from(["type", "id", "server", "text", "result"]), st.text() | st.integers()).map(
            msgspec.json.encode
        ),
    )
)
def test_any_line_is_a_record_or_one_kind_of_error(line: bytes) -> None:
    for decode in (decode_for_agent, decode_for_connector):
        with suppress(BadRecord):
            decode(line)


@pytest.mark.asyncio
async def test_a_connector_that_cannot_read_what_the_agent_sends_says_so_and_ends() -> None:
    (control, theirs), (line, their_line) = socket.socketpair(), socket.socketpair()
    with control, theirs, their_line:
        process = await asyncio.create_subprocess_exec(*make_connector_command(), stdin=theirs, stdout=their_line)
    line.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=line)
    try:
        writer.write(WRONG_LINES[-1])
        assert decode_for_agent(await reader.readline()) == ConnectorReady()
        last = decode_for_agent(await reader.readline())
        assert isinstance(last, ConnectorUnusable)
        assert last.text.startswith("The agent has sent a record that cannot be read: ")
        assert await process.wait() == 0
    finally:
        writer.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("line", WRONG_LINES)
async def test_an_agent_that_cannot_read_what_the_connector_sends_fails_calls_and_servers_with_the_reason(
    line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = f"import os; os.write(1, {line!r}); os.read(0, 1)"
    monkeypatch.setattr("pigeon.mcp.connector_process.make_connector_command", lambda: [sys.executable, "-c", printed])
    connector, user = Connector(os.environ), object()
    connector.join(user)
    try:
        await connector.wait_until_started()
        config = LinkConfig(transport="http", folder="/", start_seconds=5.0, version="1")
        failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        connector.open_server("1", config, None, failed.set_result)
        connector.send_request("1", ReadResource(uri="a:b"), 5.0, ended.set_result)
        server, call = await failed, await ended
        assert isinstance(server, ServerFailed)
        assert isinstance(call, CallFailed)
        assert "has sent a record that cannot be read: " in server.text
        assert server.text == call.text
        assert connector.over
    finally:
        await connector.leave(user)
