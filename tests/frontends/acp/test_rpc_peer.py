"""The JSON-RPC peer by itself: whatever comes, each request is answered once, and nothing raises."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.frontends.acp.editions.tool_views import git_patch
from pigeon.frontends.acp.rpc_errors import RpcError
from pigeon.frontends.acp.rpc_peer import RpcPeer
from pigeon.transport.reader import SkippedEnd, TooLong

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.fixed_dictionaries(
    {}, optional={"jsonrpc": st.just("2.0") | JSON, "id": JSON, "method": st.text(max_size=6) | JSON, "params": JSON,
                  "result": JSON, "error": JSON},
)  # fmt: skip
WITHDRAWALS = JSON.map(lambda id: {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}})
LINES = st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"")) | (MESSAGES | WITHDRAWALS | JSON).map(
    lambda value: json.dumps(value).encode()
)


class Kept:
    """A sink that keeps what is sent."""

    is_full = is_overfull = False

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def put(self, buffers: Sequence[bytes], apart: bool = False, can_wait: bool = False) -> None:
        self.lines.append(json.loads(b"".join(buffers)))

    async def wait_for_room(self) -> None:
        """There is always room."""


def handle_request(method: str, params: Any) -> Any:
    """Answers at once, later, or with an error, by the name of the method."""
    if method.startswith("a"):
        raise RpcError(-32601, "no such method")

    async def later() -> Any:
        await asyncio.sleep(0)
        return params

    return later() if method.startswith("b") else params


def ignore_notification(method: str, params: Any) -> None:
    """A notification that is not known."""


def test_a_request_that_is_cancelled_before_it_has_begun_is_answered_once() -> None:
    async def run() -> list[Any]:
        sink = Kept()
        peer = RpcPeer(sink, handle_request, ignore_notification)
        withdrawn = b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":7}}'
        peer.handle_frames([b'{"jsonrpc":"2.0","id":7,"method":"b"}', withdrawn, withdrawn])
        for _ in range(4):
            await asyncio.sleep(0)
        await peer.close()
        return sink.lines

    [answer] = asyncio.run(run())
    assert (answer["id"], answer["error"]["code"]) == (7, -32800)


def test_a_notification_that_breaks_its_handler_takes_no_other_line_along(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(method: str, params: Any) -> None:
        raise ValueError("a mistake of ours")

    async def run() -> list[Any]:
        sink = Kept()
        peer = RpcPeer(sink, handle_request, fail)
        peer.handle_frames(
            [b'{"jsonrpc":"2.0","method":"note"}', b'{"jsonrpc":"2.0","id":1,"method":"c","params":{"x":1}}']
        )
        await peer.close()
        return sink.lines

    assert asyncio.run(run()) == [{"jsonrpc": "2.0", "id": 1, "result": {"x": 1}}]
    assert "a mistake of ours" in capsys.readouterr().err


@given(st.lists(LINES, max_size=6))
def test_whatever_comes_every_request_is_answered_once_and_nothing_else(lines: list[bytes]) -> None:
    async def run() -> list[Any]:
        sink = Kept()
        peer = RpcPeer(sink, handle_request, ignore_notification)
        peer.handle_frames(list(lines))
        for _ in range(4):
            await asyncio.sleep(0)
        await peer.close()
        return sink.lines

    answers = asyncio.run(run())
    for answer in answers:
        assert ("result" in answer) != ("error" in answer)
        assert answer["jsonrpc"] == "2.0"
    assert len(answers) <= len(lines)


def apply_patch(patch: str, old: str) -> str:
    """The text that a patch of one hunk makes of another."""
    body = patch.split("@@\n", 1)[1]
    first = int(patch.split("@@ -")[1].split(",", maxsplit=1)[0])
    before = [] if not old else old.split("\n")
    lines = [f"{line}\n" for line in before[:-1]] + ([before[-1]] if before and before[-1] else [])
    at = max(first - 1, 0) if " -0,0 " not in patch else 0
    result, position = lines[:at], at
    parts = body.split("\n")[:-1]
    for index, line in enumerate(parts):
        if line.startswith("\\"):
            continue
        ends = "" if index + 1 < len(parts) and parts[index + 1].startswith("\\") else "\n"
        if line[0] in " -":
            assert lines[position] == line[1:] + ends
            position += 1
        if line[0] in " +":
            result.append(line[1:] + ends)
    return "".join(result + lines[position:])


TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "\n", "c d\n", "\r\n"]), max_size=12).map("".join)


@given(TEXTS, TEXTS, st.sampled_from(["", "end"]), st.sampled_from(["", "end", "other"]))
def test_a_patch_makes_the_new_text_of_the_old_one(old: str, new: str, last: str, other: str) -> None:
    assert apply_patch(git_patch("/a", old + last, new + other), old + last) == new + other


@pytest.mark.parametrize(
    ("beginning", "ending", "waiting", "failed", "told"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"content":"xx', None, 2, [1], None),
        (b' {"id": 2, "jsonrpc": "2.0", "result" : {', None, 2, [2], None),
        (b'{"result":{"content":"xx', None, 1, [1], None),
        (b'{"error":{"message":"xx', None, 1, [1], None),
        (b'{"result":{"content":"xx', b'xx","more":[1]}}', 2, [], (None, -32700)),
        (b'{"result":{"content":"xx', b'xx"}, "id": 2, "jsonrpc":"2.0" } \r', 2, [2], None),
        (b'{"result":{"content":"xx', b'xx","id":1}}', 2, [], (None, -32700)),
        (b'{"result":{"content":"xx', b'xx,\\"id\\":1}"}}', 2, [], (None, -32700)),
        (b'{"jsonrpc":"2.0","id":7,"result":{', b'},"id":1}', 2, [], (None, -32700)),
        (b'{"jsonrpc":"2.0","id":"p","method":"session/prompt","params":{', None, 1, [], ("p", -32600)),
        (b'{"jsonrpc":"2.0","method":"session/prompt","id":4,"params":{', b'},"id":1}', 1, [], (4, -32600)),
        (b'{"jsonrpc":"2.0","method":"session/prompt","params":{', b"}}", 1, [], (None, -32600)),
        (b'{"jsonrpc":"2.0","method":"session/prompt","params":{', b'},"id":"p"}', 1, [], ("p", -32600)),
        (b'{"params":{', b'},"method":"session/prompt","id":9}', 1, [], (9, -32600)),
        (b"xxxxxxxxxxxxxxxxx", b'x,"id":1}', 2, [], (None, -32700)),
        (b"", b"", 1, [], (None, -32700)),
    ],
)
def test_what_a_line_that_is_too_long_asks_or_answers_fails_as_soon_as_it_can_be_told(
    beginning: bytes, ending: bytes | None, waiting: int, failed: list[int], told: tuple[Any, int] | None
) -> None:
    """At its beginning, unless more is needed: `ending`."""

    async def run() -> tuple[list[int], list[Any]]:
        sink = Kept()
        peer = RpcPeer(sink, handle_request, ignore_notification)
        asked = [asyncio.ensure_future(peer.send_request("fs/read_text_file", {})) for _ in range(waiting)]
        await asyncio.sleep(0)
        sent = len(sink.lines)
        peer.handle_frames([TooLong(32, beginning)])
        if ending is not None:
            peer.handle_frames([SkippedEnd(32, beginning, ending)])
        await asyncio.sleep(0)
        ended = [number for number, one in enumerate(asked, 1) if one.done()]
        assert all("is longer than 32 bytes" in str(asked[number - 1].exception()) for number in ended)
        answers = sink.lines[sent:]
        await peer.close()
        await asyncio.gather(*asked, return_exceptions=True)
        return ended, answers

    ended, answers = asyncio.run(run())
    assert ended == failed
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == ([] if told is None else [told])


@given(st.binary(max_size=80) | MESSAGES.map(lambda value: json.dumps(value).encode()))
def test_no_part_of_a_line_that_is_too_long_breaks_the_peer(line: bytes) -> None:
    async def run() -> None:
        peer = RpcPeer(Kept(), handle_request, ignore_notification)
        peer.handle_frames([TooLong(32, line[:40]), SkippedEnd(32, line[:40], line[-40:])])
        await peer.close()

    asyncio.run(run())
