"""From each command of a client to exactly one response; no input, however malformed, ends the process."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from pigeon.dialects.base import Dialect
from pigeon.rpc.command_order import CommandOrder, CommandTaker
from pigeon.rpc.command_reader import RefusedLine, make_line_refusal, read_frame
from pigeon.rpc.connection import EncodedData
from pigeon.rpc.lanes import PROMPTS
from pigeon.rpc.outbox import LongAnswer, Outbox
from pigeon.transport.reader import Frame
from pigeon.wire.answers import failure_response, success_response
from pigeon.wire.base import ABSENT
from pigeon.wire.commands import NAMES, Command
from pigeon.wire.errors import UNEXPECTED, BadRecord, Refusal, text_for_host

PLAIN = Dialect()


class Server:
    """Accepts frames as they arrive, and answers commands as they finish."""

    def __init__(self, commands: CommandTaker, outbox: Outbox, dialect: Callable[[], Dialect] = lambda: PLAIN) -> None:
        """`dialect` returns what the host speaks now, which decides how commands are read and in which order they
        run."""
        self._dialect = dialect
        self._commands = CommandOrder(commands, dialect)
        self._outbox = outbox
        self._frames: deque[Frame] = deque()
        self._begun = asyncio.Event()
        self._encoding: set[asyncio.Future[EncodedData]] = set()

    def handle_frames(self, frames: list[Frame]) -> Awaitable[None] | None:
        """Handle more input; returns an awaitable while the host must read answers first."""
        self._frames.extend(frames)
        done = self._try_process_all()
        self._begun.set()
        return None if done else self._process_as_room_allows()

    async def wait_for_first_input(self) -> None:
        """Wait until the first input was processed."""
        await self._begun.wait()

    async def wait_until_drained(self) -> None:
        """Wait until every command was answered."""
        await self._commands.wait_until_drained()

    async def wait_for_long_answers(self) -> None:
        """Wait until the answers that take long to encode are being sent."""
        while self._encoding:
            await asyncio.wait(set(self._encoding))

    def _try_process_all(self) -> bool:
        while self._frames and not self._outbox.is_overfull:
            self._process_frame(self._frames.popleft())
        return not self._frames

    async def _process_as_room_allows(self) -> None:
        while not self._try_process_all():
            await self._outbox.wait_for_room()

    def _process_frame(self, frame: Frame) -> None:
        if self._dialect().skips_blank_lines and _is_blank(frame):
            return
        for item in read_frame(frame):
            if isinstance(item, RefusedLine):
                self._send_refusal(item)
                continue
            try:
                self._dispatch(item)
            except Exception as error:
                self._send_refusal(make_line_refusal(_log_and_describe_error(error)))

    def _send_refusal(self, refused: RefusedLine) -> None:
        if refused.unknown:
            self._outbox.refuse_unknown(refused.response)
        else:
            self._outbox.send_answer(refused.response)

    def _dispatch(self, command: Command) -> None:
        self._commands.submit(
            command, lambda data, error: self._on_command_finished(command, data, error), self._encode_long_result
        )

    def _encode_long_result(self, result: Any) -> Any:
        if not isinstance(result, LongAnswer):
            return result
        encoded = self._outbox.encode_answer(result)
        if isinstance(encoded, EncodedData):
            return encoded
        work = asyncio.ensure_future(encoded)
        self._encoding.add(work)
        work.add_done_callback(self._encoding.discard)
        return work

    def _on_command_finished(self, command: Command, data: Any, error: BaseException | None) -> None:
        name = NAMES[type(command)]
        if error is not None:
            code = error.code if isinstance(error, Refusal) and error.code else ABSENT
            response = failure_response(name, _log_and_describe_error(error), command.id, code)
            if isinstance(command, PROMPTS) and isinstance(error, Refusal) and not isinstance(error, BadRecord):
                self._outbox.refuse_prompt(response)
            else:
                self._outbox.send_answer(response)
        elif not command.silent:
            self._outbox.send_answer(success_response(name, ABSENT if command.answer is None else data, command.id))


def _is_blank(frame: Frame) -> bool:
    return isinstance(frame, bytes) and not frame.strip()


def _log_and_describe_error(error: BaseException) -> str:
    text = text_for_host(error)
    if text == UNEXPECTED:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    return text
