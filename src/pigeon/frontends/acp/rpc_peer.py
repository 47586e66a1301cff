"""JSON-RPC 2.0 over lines: requests and notifications both ways, every request answered exactly once.

Handlers are called at once, in the order of the lines, so that a notification never overtakes the request before it;
slow work goes into the coroutine that a handler returns. Invalid input gets the JSON-RPC error code for it, and nothing
that a peer sends ends the process. ACP has no batches: an array is an invalid request.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from inspect import iscoroutine
from traceback import print_exception
from typing import Any

from pigeon.frontends.acp.rpc_errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    OversizedAnswer,
    PeerGone,
    RpcError,
)
from pigeon.transport.reader import Frame, SkippedEnd, TooLong
from pigeon.transport.writer import LineSink
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.errors import BadRecord, PigeonError, text_for_host

CANCEL_REQUEST = "$/cancel_request"
MOST_IN_FLIGHT = 1024
NO_BATCHES = "ACP does not use JSON-RPC batches: send each message on a line of its own"

RequestId = int | str | None
# Called with the method and its params; returns the result, or a coroutine for it.
Handle = Callable[[str, Json], Any]


class RpcPeer:
    """One connection. `request` and `notice` handle incoming messages, and refuse unknown methods themselves."""

    def __init__(self, sink: LineSink, request: Handle, notice: Callable[[str, Json], None]) -> None:
        self._sink = sink
        self._request = request
        self._notice = notice
        self._running: dict[RequestId, asyncio.Task[None]] = {}
        self._asked: dict[int, asyncio.Future[Json]] = {}
        self._next_id = 0
        # Whether the current oversized line has not ended, and its beginning did not show what it belongs to.
        self._giant_is_open = False
        self._closed = False

    # What comes in

    def handle_frames(self, frames: list[Frame]) -> Awaitable[None] | None:
        """Handle some lines; if it returns an awaitable, that must be awaited before more are read."""
        for frame in frames:
            if isinstance(frame, TooLong):
                self._handle_oversized(frame)
            elif isinstance(frame, SkippedEnd):
                self._handle_oversized_end(frame)
            elif frame.strip():
                self._handle_line(frame)
        return self._sink.wait_for_room() if self._sink.is_overfull else None

    def _handle_oversized(self, line: TooLong) -> None:
        """Handle a line that is too long: its request fails at once, if the beginning shows which that is."""
        members = codec.parse_outer_members(line.beginning)
        if members.get("id") is None and members.keys() & {"result", "error"} and len(self._asked) == 1:
            # Some clients write the id last. If only one request is open, this must be its answer.
            [members["id"]] = self._asked
        self._giant_is_open = bool(members) and members.get("id") is None
        if not self._giant_is_open:
            self._refuse_oversized(members, line.cap)

    def _handle_oversized_end(self, line: SkippedEnd) -> None:
        """Handle the end of such a line: it may show what the beginning did not."""
        if self._giant_is_open:
            self._giant_is_open = False
            self._refuse_oversized(codec.parse_outer_members(line.beginning, line.ending), line.cap)

    def _refuse_oversized(self, members: dict[str, Json], cap: int) -> None:
        text = f"is longer than {cap} bytes, the most that Pigeon accepts"
        id = _id_of(members)
        if "method" in members:
            self._send_error(id, INVALID_REQUEST, f"The request {text}" if "id" in members else f"The line {text}")
            return
        waiting = self._asked.pop(id, None) if isinstance(id, int) else None
        if waiting is None:
            self._send_error(None, PARSE_ERROR, f"The line {text}")
        elif not waiting.done():
            waiting.set_exception(OversizedAnswer(INVALID_REQUEST, f"the answer of the client {text}"))

    def _handle_line(self, line: bytes) -> None:
        try:
            # The parser would silently replace bytes that are not UTF-8.
            line.decode()
            problem = codec.shape_error(line)
            message = None if problem else codec.decode(line)
        except UnicodeDecodeError as error:
            self._send_error(None, PARSE_ERROR, f"The line is not UTF-8: byte {error.start} cannot be read")
            return
        except BadRecord as error:
            self._send_error(None, PARSE_ERROR, f"The line is not JSON: {error}")
            return
        if problem:
            self._send_error(None, INVALID_REQUEST, f"The line {problem}")
        elif isinstance(message, list):
            self._send_error(None, INVALID_REQUEST, NO_BATCHES)
        elif not isinstance(message, dict):
            self._send_error(None, INVALID_REQUEST, "A message must be a JSON object")
        elif "method" in message:
            self._handle_call(message)
        elif "result" in message or "error" in message:
            self._handle_response(message)
        else:
            self._send_error(
                _id_of(message), INVALID_REQUEST, 'A message needs "method" (or "result" or "error", for an answer)'
            )

    def _handle_call(self, message: dict[str, Json]) -> None:
        method, params, id = message["method"], message.get("params"), _id_of(message)
        problem = None
        if message.get("jsonrpc") != "2.0":
            problem = 'Every message needs "jsonrpc": "2.0"'
        elif not isinstance(method, str):
            problem = '"method" must be a string'
        elif "id" in message and (isinstance(message["id"], bool) or not isinstance(message["id"], int | str | None)):
            problem = '"id" must be an integer or a string'
        elif not isinstance(params, dict | list | None):
            problem = '"params" must be an object'
        elif "id" in message and id in self._running:
            problem = f"The id {codec.encode(id).decode()[:100]} is in use by a request that has not been answered"
        elif "id" in message and len(self._running) >= MOST_IN_FLIGHT:
            problem = f"More than {MOST_IN_FLIGHT} requests are not answered yet; wait for some of them"
        if problem is not None:
            if "id" in message or not isinstance(method, str):
                self._send_error(id, INVALID_REQUEST, problem)
        elif "id" not in message:
            self._handle_notification(method, params)
        else:
            self._handle_request(id, method, params)

    def _handle_notification(self, method: str, params: Json) -> None:
        if method == CANCEL_REQUEST:
            asked = params.get("requestId") if isinstance(params, dict) else None
            running = self._running.get(asked) if isinstance(asked, int | str) else None
            if running is not None:
                # Only after the task has started: one that is cancelled earlier neither answers nor cleans up.
                asyncio.get_running_loop().call_soon(running.cancel)
            return
        try:
            self._notice(method, params)
        except RpcError as error:
            # A notification gets no answer, not even an error.
            print(f"pigeon acp: {method}: {error.message}", file=sys.stderr)  # noqa: T201
        except Exception as error:
            # The following lines are handled all the same.
            print_exception(error)

    def _handle_request(self, id: RequestId, method: str, params: Json) -> None:
        try:
            result = self._request(method, params)
        except BaseException as error:
            self._answer_failure(id, error)
            return
        if not iscoroutine(result):
            self.send({"jsonrpc": "2.0", "id": id, "result": result})
            return
        task = asyncio.ensure_future(self._run_request(id, result))
        self._running[id] = task
        task.add_done_callback(lambda _: self._running.pop(id, None))

    async def _run_request(self, id: RequestId, work: Coroutine[Any, Any, Json]) -> None:
        try:
            result = await work
        except BaseException as error:
            self._answer_failure(id, error)
            return
        self.send({"jsonrpc": "2.0", "id": id, "result": result})

    def _answer_failure(self, id: RequestId, error: BaseException) -> None:
        if isinstance(error, RpcError):
            self.send({"jsonrpc": "2.0", "id": id, "error": error.to_record()})
        elif isinstance(error, asyncio.CancelledError):
            self._send_error(id, REQUEST_CANCELLED, "The request was cancelled")
        elif isinstance(error, PigeonError | OSError):
            self._send_error(id, INTERNAL_ERROR, text_for_host(error))
        elif isinstance(error, Exception):
            print_exception(error)
            self._send_error(id, INTERNAL_ERROR, text_for_host(error))
        else:
            raise error

    def _handle_response(self, message: dict[str, Json]) -> None:
        id = message.get("id")
        waiting = self._asked.pop(id, None) if isinstance(id, int) and not isinstance(id, bool) else None
        if waiting is None or waiting.done():
            return
        if "error" in message:
            waiting.set_exception(_error_of(message["error"]))
        else:
            waiting.set_result(message["result"])

    # What goes out

    @property
    def is_full(self) -> bool:
        return self._sink.is_full

    async def wait_for_room(self) -> None:
        await self._sink.wait_for_room()

    def notify(self, method: str, params: Json, can_wait: bool = False) -> None:
        """Send a notification; with `can_wait`, together with the next line or a little later."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params}, can_wait)

    async def send_request(self, method: str, params: Json, withdraws: bool = True) -> Json:
        """Send a request and wait for its result; raises the `RpcError` that the peer answered with, and `PeerGone`.

        Cancelling it tells the peer that no answer is wanted any more, unless `withdraws` is false.
        """
        if self._closed:
            raise PeerGone
        self._next_id += 1
        id = self._next_id
        waiting: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._asked[id] = waiting
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        try:
            return await waiting
        except asyncio.CancelledError:
            if self._asked.pop(id, None) is not None and withdraws:
                self.notify(CANCEL_REQUEST, {"requestId": id})
            raise

    def send(self, message: dict[str, Json], can_wait: bool = False) -> None:
        if not self._closed:
            self._sink.put([codec.encode(message), b"\n"], can_wait=can_wait)

    def _send_error(self, id: RequestId, code: int, text: str) -> None:
        self.send({"jsonrpc": "2.0", "id": id, "error": RpcError(code, text).to_record()})

    # The end

    def on_input_end(self) -> None:
        """The input has ended: requests that wait for an answer fail."""
        for waiting in list(self._asked.values()):
            if not waiting.done():
                waiting.set_exception(PeerGone())
        self._asked.clear()

    async def close(self) -> None:
        """Handle and send nothing more."""
        self.on_input_end()
        running = list(self._running.values())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        self._closed = True


def _id_of(message: dict[str, Json]) -> RequestId:
    id = message.get("id")
    return id if isinstance(id, int | str) and not isinstance(id, bool) else None


def _error_of(error: Json) -> RpcError:
    if not isinstance(error, dict):
        return RpcError(INTERNAL_ERROR, "The client answered with an error without a message")
    code = error.get("code")
    return RpcError(
        code if isinstance(code, int) else INTERNAL_ERROR,
        str(error.get("message") or "The client gave no reason"),
        error.get("data"),
    )
