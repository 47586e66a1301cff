"""The order of commands for clients whose originals process them one after another (oh-my-pi, xcsh).

There `abort` and `prompt` in one write end the run and begin another, and a prompt during a compaction waits for it. So
a command that changes something waits here until those before it have been answered. Not waited for, because hosts
count on it: what only reads, answers to the agent, shell commands, and whatever stops something. A prompt is answered
when it is accepted, and the commands behind it are in order anyway (`rpc/lanes.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from pigeon.dialects.base import Dialect
from pigeon.rpc.lanes import MOST_IN_FLIGHT, PROMPTS, TOO_MANY, Finish
from pigeon.wire.base import Absent
from pigeon.wire.commands import Abort, AbortBash, Bash, Command, Prompt
from pigeon.wire.errors import ABORTED_BEFORE, Refusal

Convert = Callable[[Any], Any]


class CommandTaker(Protocol):
    """Runs commands: here (`rpc/lanes.py`), or elsewhere (`rpc/relay.py`)."""

    def submit(self, command: Command, finish: Finish, taken: Convert) -> None:
        """Run a command; `finish` is called exactly once with its answer or its failure."""
        ...

    async def wait_until_drained(self) -> None: ...


class _OrderedCommand(Struct, frozen=True):
    command: Command
    finish: Finish
    taken: Convert


class CommandOrder:
    """Passes commands on, at once or in order, as the dialect of the client has it."""

    def __init__(self, commands: CommandTaker, dialect: Callable[[], Dialect]) -> None:
        self._commands = commands
        self._dialect = dialect
        self._waiting: deque[_OrderedCommand] = deque()
        self._unanswered = 0

    def submit(self, command: Command, finish: Finish, taken: Convert) -> None:
        """Run a command in its turn; `finish` is called exactly once."""
        dialect = self._dialect()
        if isinstance(command, Abort) and isinstance(command.tool_call_id, Absent):
            self._withdraw_prompts()
            if dialect.abort_ends_bash:
                self._commands.submit(AbortBash(), _ignore_end, _return_unchanged)
        if not (dialect.runs_commands_in_order or self._waiting) or not _has_order(command):
            self._commands.submit(command, finish, taken)
        elif command.lane == "control" or not (self._unanswered or self._waiting):
            self._run(command, finish, taken)
        elif len(self._waiting) >= MOST_IN_FLIGHT:
            finish(None, Refusal(TOO_MANY))
        else:
            self._waiting.append(_OrderedCommand(command, finish, taken))

    async def wait_until_drained(self) -> None:
        await self._commands.wait_until_drained()
        while self._waiting or self._unanswered:
            await asyncio.sleep(0)
            await self._commands.wait_until_drained()

    def _run(self, command: Command, finish: Finish, taken: Convert) -> None:
        if isinstance(command, Prompt):
            self._commands.submit(command, finish, taken)
            return
        self._unanswered += 1

        def on_end(data: Any, error: BaseException | None) -> None:
            try:
                finish(data, error)
            finally:
                self._unanswered -= 1
                self._run_waiting()

        self._commands.submit(command, on_end, taken)

    def _run_waiting(self) -> None:
        while self._waiting and not self._unanswered:
            following = self._waiting.popleft()
            self._run(following.command, following.finish, following.taken)

    def _withdraw_prompts(self) -> None:
        """Refuse the prompts that wait: an abort reaches those that were sent before it."""
        gone = [one for one in self._waiting if isinstance(one.command, PROMPTS)]
        self._waiting = deque(one for one in self._waiting if not isinstance(one.command, PROMPTS))
        for one in gone:
            one.finish(None, Refusal(ABORTED_BEFORE))


def _has_order(command: Command) -> bool:
    if command.effect == "reads" or isinstance(command, Bash):
        return False
    return command.lane != "control" or isinstance(command, Abort)


def _ignore_end(data: Any, error: BaseException | None) -> None: ...


def _return_unchanged(result: Any) -> Any:
    return result
