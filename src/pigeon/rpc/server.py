"""From lines to commands, and from each command to exactly one response; no input, however malformed, ends the
process."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from pigeon.rpc.lanes import PROMPTS, Finish
from pigeon.rpc.outbox import EncodedData, LongAnswer, Outbox
from pigeon.transport.reader import Frame, SkippedEnd, TooLong
from pigeon.wire import codec
from pigeon.wire.answers import failed, succeeded
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.commands import NAMES, Command, HostServiceResult, HostToolResult
from pigeon.wire.errors import UNEXPECTED, BadRecord, Refusal, UnknownCommand, text_for_host

PARSE = "parse"


class CommandTaker(Protocol):
    """Has commands carried out: here (`rpc/lanes.py`), or elsewhere (`rpc/relay.py`)."""

    def submit(self, command: Command, finish: Finish, taken: Callable[[Any], Any]) -> None:
        """Take a command; `finish` is called exactly once with its answer or its failure."""
        ...

    async def drained(self) -> None:
        """Wait until every command taken has ended."""
        ...


class Server:
    """Takes frames as they come and answers in the order things finish."""

    def __init__(self, commands: CommandTaker, outbox: Outbox) -> None:
        self._commands = commands
        self._outbox = outbox
        self._frames: deque[Frame] = deque()
        self._begun = asyncio.Event()
        self._encoding: set[asyncio.Future[EncodedData]] = set()

    def take(self, frames: list[Frame]) -> Awaitable[None] | None:
        """Work off more input; gives something to await where the host has to read some answers first."""
        self._frames.extend(frames)
        done = self._take_now()
        self._begun.set()
        return None if done else self._take_with_room()

    async def until_begun(self) -> None:
        """Wait until the first input was worked off."""
        await self._begun.wait()

    async def drained(self) -> None:
        """Wait until every command taken was answered."""
        await self._commands.drained()

    async def long_answers_sent(self) -> None:
        """Wait until the answers that take long to encode are on their way."""
        while self._encoding:
            await asyncio.wait(set(self._encoding))

    def _take_now(self) -> bool:
        while self._frames and not self._outbox.overfull:
            self._frame(self._frames.popleft())
        return not self._frames

    async def _take_with_room(self) -> None:
        while not self._take_now():
            await self._outbox.until_room()

    def _frame(self, frame: Frame) -> None:
        if isinstance(frame, TooLong):
            self._unreadable(f"the line is longer than {frame.cap} bytes and was skipped")
            self._fail_waiting(codec.outer_members(frame.beginning), frame.cap)
            return
        if isinstance(frame, SkippedEnd):
            begun = codec.outer_members(frame.beginning)
            if begun.get("type") is None or begun.get("id") is None:
                self._fail_waiting(codec.outer_members(frame.beginning, frame.ending), frame.cap)
            return
        try:
            value = codec.decode(frame)
        except BadRecord as error:
            self._unreadable(str(error))
            return
        problem = codec.shape_error(frame, values=len(frame))
        if problem is not None:
            self._unreadable(f"the JSON {problem}", _short(_id_of(value)))
            value = _failed_call(value, f"its JSON {problem}")
            if value is None:
                return
        try:
            self._value(value)
        except Exception as error:
            self._unreadable(_text(error))

    def _fail_waiting(self, members: dict[str, Json], cap: int) -> None:
        """If a line that was skipped is the result that a call waits for, let the call end."""
        result = _failed_call(members, f"it is longer than {cap} bytes") if members.get("id") is not None else None
        if result is not None:
            self._value(result)

    def _value(self, value: Any) -> None:
        id = _id_of(value)
        try:
            command = codec.command_of(value)
        except UnknownCommand as error:
            self._outbox.unknown(failed(error.name, str(error), id))
        except BadRecord as error:
            name = value.get("type") if isinstance(value, dict) else None
            if isinstance(name, str):
                self._outbox.answer(failed(name, str(error), id))
            else:
                self._unreadable(str(error), id)
        else:
            self._dispatch(command)

    def _dispatch(self, command: Command) -> None:
        self._commands.submit(command, lambda data, error: self._finished(command, data, error), self._started)

    def _started(self, result: Any) -> Any:
        if not isinstance(result, LongAnswer):
            return result
        encoded = self._outbox.encoded(result)
        if isinstance(encoded, EncodedData):
            return encoded
        work = asyncio.ensure_future(encoded)
        self._encoding.add(work)
        work.add_done_callback(self._encoding.discard)
        return work

    def _finished(self, command: Command, data: Any, error: BaseException | None) -> None:
        name = NAMES[type(command)]
        if error is not None:
            code = error.code if isinstance(error, Refusal) and error.code else ABSENT
            response = failed(name, _text(error), command.id, code)
            if isinstance(command, PROMPTS) and isinstance(error, Refusal) and not isinstance(error, BadRecord):
                self._outbox.refuse_prompt(response)
            else:
                self._outbox.answer(response)
        elif not command.silent:
            self._outbox.answer(succeeded(name, ABSENT if command.answer is None else data, command.id))

    def _unreadable(self, reason: str, id: Json | Absent = ABSENT) -> None:
        self._outbox.answer(failed(PARSE, f"Failed to parse command: {reason}", id))


def _id_of(value: Any) -> Json | Absent:
    id = value.get("id") if isinstance(value, dict) else None
    return ABSENT if id is None else id


def _failed_call(value: Any, problem: str) -> Any:
    """What stands for a result that cannot be taken: its call waits and must end. None for any other line."""
    name = value.get("type") if isinstance(value, dict) else None
    text = f"The host's result cannot be used: {problem}"
    if name == NAMES[HostToolResult]:
        failed = {"result": {"content": [{"type": "text", "text": text}]}, "isError": True}
    elif name == NAMES[HostServiceResult]:
        # The host has the file, maybe with changes that the disk does not have.
        failed = {"error": text, "final": True}
    else:
        return None
    return {"type": name, "id": _short(_id_of(value)) or None, **failed}


def _short(id: Json | Absent) -> Json | Absent:
    """An id that can be sent back, whatever the line was."""
    return id if isinstance(id, str | int | float) else ABSENT


def _text(error: BaseException) -> str:
    text = text_for_host(error)
    if text == UNEXPECTED:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    return text
