"""Shell commands of the host: how they end, what an abort reaches, and what of them goes on record."""

from __future__ import annotations

import asyncio

import pytest

from pigeon.session.hooks import NoHooks
from pigeon.system.process.start import ProcessOwner
from pigeon.system.shell.shell import Shell
from pigeon.wire.answers import BashResult
from pigeon.wire.base import ABSENT
from pigeon.wire.errors import Refusal
from pigeon.wire.events import BashExecutionUpdate
from pigeon.wire.messages import BashExecutionMessage
from support.session_setup import SessionSetup


def kept_executions(setup: SessionSetup) -> list[BashExecutionMessage]:
    found = [line.message for line in setup.session.journal.branch]
    return [message for message in found if isinstance(message, BashExecutionMessage)]


async def test_a_command_is_shown_answered_and_kept(processes: ProcessOwner) -> None:
    setup = SessionSetup(processes=processes)
    result = await setup.session.shell.run("printf hello; exit 3", False, "b")
    assert (result.output, result.exit_code, result.cancelled, result.truncated) == ("hello", 3, False, False)
    assert (result.full_output_path, result.artifact_id) == (ABSENT, ABSENT)
    updates = setup.heard.of(BashExecutionUpdate)
    assert [(update.id, update.delta) for update in updates] == [("b", "hello")]
    (message,) = kept_executions(setup)
    assert (message.command, message.output, message.exit_code) == ("printf hello; exit 3", "hello", 3)
    assert message.exclude_from_context is ABSENT
    await setup.session.shell.run("true", True, "c")
    assert kept_executions(setup)[-1].exclude_from_context is True


async def test_a_shell_that_cannot_be_started_is_a_refusal_and_nothing_is_kept(processes: ProcessOwner) -> None:
    setup = SessionSetup(processes=processes, shell=Shell("/nowhere/sh"))
    with pytest.raises(Refusal, match="/nowhere/sh"):
        await setup.session.shell.run("true", False, "b")
    assert kept_executions(setup) == []


class Slow(NoHooks):
    """An extension that is asked about commands and takes its time."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool, str]] = []
        self.answer: BashResult | None = None
        self.goes_on = asyncio.Event()

    async def intercept_user_bash(self, command: str, excluded: bool, cwd: str) -> BashResult | None:
        self.seen.append((command, excluded, cwd))
        await self.goes_on.wait()
        return self.answer


OWN = BashResult(
    output="mine", cancelled=False, truncated=False, total_lines=1, total_bytes=4, output_lines=1, output_bytes=4
)


async def test_an_extension_may_answer_instead() -> None:
    hooks = Slow()
    hooks.answer = OWN
    hooks.goes_on.set()
    setup = SessionSetup(hooks=hooks)
    assert await setup.session.shell.run("false", True, "b") == OWN
    assert hooks.seen == [("false", True, "/")]
    assert [message.output for message in kept_executions(setup)] == ["mine"]


async def test_an_abort_reaches_commands_before_they_have_begun_and_only_running_ones() -> None:
    hooks = Slow()
    setup = SessionSetup(hooks=hooks)
    shell = setup.session.shell
    waiting = [shell.run("one", False, "a"), shell.run("two", False, "b")]
    shell.abort()
    results = await asyncio.gather(*waiting)
    assert [(result.cancelled, result.output) for result in results] == [(True, "")] * 2
    assert hooks.seen == []
    assert [(message.command, message.cancelled) for message in kept_executions(setup)] == [
        ("one", True),
        ("two", True),
    ]
    hooks.answer = OWN
    hooks.goes_on.set()
    assert not (await shell.run("three", False, "c")).cancelled, "an abort is over when it has been obeyed"
