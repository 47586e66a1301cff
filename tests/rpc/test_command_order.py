from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pigeon.dialects.base import Dialect
from pigeon.dialects.omp import Omp
from pigeon.rpc.command_order import CommandOrder
from pigeon.rpc.lanes import MOST_IN_FLIGHT, Finish
from pigeon.wire.commands import (
    Abort,
    AbortBash,
    AbortRetry,
    Bash,
    Command,
    Compact,
    ConnectMcpServer,
    ExtensionUiResponse,
    GetState,
    NewSession,
    Prompt,
    Steer,
)
from pigeon.wire.errors import ABORTED_BEFORE, Refusal

PROMPT = Prompt(message="hi")


class Taken:
    """Takes commands, and ends them when it is told to; `ends` has what each was answered."""

    def __init__(self, dialect: Dialect | None = None) -> None:
        self.dialect = dialect or Omp()
        self.taken: list[Command] = []
        self.ends: list[tuple[Command, Any]] = []
        self._finish: dict[int, Finish] = {}
        self.order = CommandOrder(self, lambda: self.dialect)

    def submit(self, command: Command, finish: Finish, taken: Callable[[Any], Any]) -> None:
        self.taken.append(command)
        self._finish[id(command)] = finish

    async def wait_until_drained(self) -> None:
        for command in list(self.taken):
            self.end(command)

    def send(self, *commands: Command) -> None:
        for command in commands:
            self.order.submit(command, lambda data, error, it=command: self.ends.append((it, error)), lambda it: it)

    def end(self, command: Command) -> None:
        if (finish := self._finish.pop(id(command), None)) is not None:
            finish(None, None)


def test_what_changes_something_waits_for_what_came_before() -> None:
    office = Taken()
    compact, new, steer = Compact(), NewSession(), Steer(message="s")
    office.send(compact, new, PROMPT, steer)
    assert office.taken == [compact]
    office.end(compact)
    assert office.taken == [compact, new]
    office.end(new)
    assert office.taken == [compact, new, PROMPT, steer], "a prompt is not waited for"


def test_nothing_waits_for_shell_commands_reads_and_answers() -> None:
    office = Taken()
    free = [Bash(command="ls"), GetState(), ExtensionUiResponse(id="x"), ConnectMcpServer(name="n"), AbortRetry()]
    office.send(*free, PROMPT, *free)
    assert len(office.taken) == 2 * len(free) + 1
    blocked = Taken()
    compact = Compact()
    blocked.send(compact, *free)
    assert blocked.taken == [compact, *free], "and they wait for nothing"


def test_an_abort_overtakes_and_refuses_the_prompts_that_wait() -> None:
    office = Taken()
    compact, abort, later, steer = Compact(), Abort(), Prompt(message="later"), Steer(message="s")
    office.send(compact, PROMPT, steer, abort, later)
    assert office.taken == [compact, AbortBash(), abort]
    ((refused, error),) = office.ends
    assert (refused, str(error)) == (PROMPT, ABORTED_BEFORE)
    office.end(abort)
    office.end(compact)
    office.end(steer)
    assert office.taken[3:] == [steer, later]


@pytest.mark.parametrize("abort", [Abort(tool_call_id="toolu_1"), AbortRetry()])
def test_another_abort_refuses_nothing(abort: Command) -> None:
    office = Taken()
    office.send(Compact(), PROMPT, abort)
    assert office.ends == []


def test_in_the_dialects_of_pi_nothing_waits() -> None:
    office = Taken(Dialect())
    commands = [Compact(), NewSession(), PROMPT, Abort()]
    office.send(*commands)
    assert office.taken == commands


def test_what_waits_when_the_dialect_changes_keeps_its_place() -> None:
    office = Taken()
    compact, new, steer = Compact(), NewSession(), Steer(message="s")
    office.send(compact, new)
    office.dialect = Dialect()  # type: ignore[assignment]
    office.send(steer)
    assert office.taken == [compact]
    office.end(compact)
    office.end(new)
    assert office.taken == [compact, new, steer]


def test_too_many_waiting_commands_are_refused() -> None:
    office = Taken()
    office.send(Compact(), *[Steer(message="s")] * (MOST_IN_FLIGHT + 1))
    ((_, error),) = office.ends
    assert isinstance(error, Refusal)


async def test_everything_has_been_answered_when_it_is_drained() -> None:
    office = Taken()
    office.send(Compact(), NewSession(), Steer(message="s"))
    await office.order.wait_until_drained()
    assert len(office.ends) == 3
