from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pigeon.rpc.lanes import CommandJob, Lanes
from pigeon.wire.commands import Abort, AbortAndPrompt, Bash, Command, NewSession, Prompt, SetSessionName
from pigeon.wire.errors import Refusal


class Office:
    """Lanes, and a note of what began and how it ended."""

    def __init__(self) -> None:
        self.lanes = Lanes()
        self.notes: list[str] = []
        self.doors: dict[str, asyncio.Event] = {}
        self.ended: dict[str, asyncio.Event] = {}

    def submit(self, command: Command, name: str, work: Callable[[], Any]) -> None:
        self.ended[name] = asyncio.Event()

        def start() -> Any:
            self.notes.append(f"{name} begins")
            return work()

        def finish(data: Any, error: BaseException | None) -> None:
            self.notes.append(f"{name} {data if error is None else f'fails: {error}'}")
            self.ended[name].set()

        self.lanes.submit(CommandJob(command, start, finish))

    def quick(self, command: Command, name: str) -> None:
        self.submit(command, name, lambda: "done")

    def slow(self, command: Command, name: str) -> None:
        door = self.doors[name] = asyncio.Event()

        async def work() -> str:
            await door.wait()
            return "done"

        self.submit(command, name, work)

    async def finish(self, name: str) -> None:
        self.doors[name].set()
        await self.ended[name].wait()


PROMPT = Prompt(message="hi")
NAME = SetSessionName(name="n")
BASH = Bash(command="ls")


async def test_a_quick_command_has_ended_when_submit_returns() -> None:
    office = Office()
    office.quick(NAME, "a")
    assert office.notes == ["a begins", "a done"]
    assert office.lanes.in_flight == 0


async def test_session_commands_run_one_after_the_other_in_their_order() -> None:
    office = Office()
    office.slow(NewSession(), "a")
    office.quick(NAME, "b")
    office.slow(PROMPT, "c")
    office.quick(NAME, "d")
    assert office.notes == ["a begins"]
    assert office.lanes.in_flight == 4
    await office.finish("a")
    assert office.notes == ["a begins", "a done", "b begins", "b done", "c begins"]
    office.doors["c"].set()
    await office.lanes.wait_until_drained()
    assert office.notes[-3:] == ["c done", "d begins", "d done"]
    assert office.lanes.in_flight == 0


async def test_control_and_beside_overtake_the_session_lane() -> None:
    office = Office()
    office.slow(NewSession(), "session")
    office.quick(NAME, "waits")
    office.slow(BASH, "beside")
    office.slow(BASH, "beside too")
    office.quick(Abort(), "control")
    assert office.notes[1:] == ["beside begins", "beside too begins", "control begins", "control done"]
    await office.finish("beside too")
    assert "waits begins" not in office.notes
    await office.finish("session")
    assert office.notes[-2:] == ["waits begins", "waits done"]
    await office.finish("beside")
    await office.lanes.wait_until_drained()


@pytest.mark.parametrize("late", [True, False])
async def test_a_failure_ends_its_command_and_no_other(late: bool) -> None:
    async def fails_late() -> None:
        await asyncio.sleep(0)
        raise Refusal("no")

    def fails_at_once() -> None:
        raise Refusal("no")

    office = Office()
    office.submit(NAME, "a", fails_late if late else fails_at_once)
    office.quick(NAME, "b")
    await office.lanes.wait_until_drained()
    assert office.notes == ["a begins", "a fails: no", "b begins", "b done"]


async def test_withdrawn_commands_fail_and_never_begin() -> None:
    office = Office()
    office.slow(NewSession(), "running")
    office.quick(PROMPT, "p1")
    office.quick(NAME, "kept")
    office.quick(PROMPT, "p2")
    office.lanes.withdraw((Prompt,), Refusal("aborted"))
    assert office.notes == ["running begins", "p1 fails: aborted", "p2 fails: aborted"]
    await office.finish("running")
    await office.lanes.wait_until_drained()
    assert office.notes[-3:] == ["running done", "kept begins", "kept done"]
    assert office.lanes.in_flight == 0


async def test_a_long_line_of_quick_commands_is_worked_off() -> None:
    office = Office()
    office.slow(NewSession(), "first")
    for number in range(900):
        office.quick(NAME, str(number))
    office.doors["first"].set()
    await office.lanes.wait_until_drained()
    assert office.notes[2:] == [note for number in range(900) for note in (f"{number} begins", f"{number} done")]
    assert office.lanes.in_flight == 0


async def test_an_answer_that_cannot_be_given_is_a_failure_of_that_command_and_no_end_of_its_lane() -> None:
    office = Office()
    given: list[Any] = []

    def finish(data: Any, error: BaseException | None) -> None:
        given.append(data if error is None else str(error))
        if error is None:
            raise ValueError("cannot be said")

    office.lanes.submit(CommandJob(NAME, lambda: "done", finish))
    assert given == ["done", "cannot be said"]
    office.lanes.submit(CommandJob(NAME, lambda: asyncio.sleep(0, "late"), finish))
    office.quick(NAME, "next")
    await office.lanes.wait_until_drained()
    assert given[2:] == ["late", "cannot be said"]
    assert office.notes == ["next begins", "next done"]


async def test_what_runs_beside_counts_as_in_flight_until_it_has_ended() -> None:
    office = Office()
    office.slow(BASH, "a")
    office.slow(NewSession(), "b")
    office.quick(NAME, "c")
    assert office.lanes.in_flight == 3
    drained = asyncio.ensure_future(office.lanes.wait_until_drained())
    await office.finish("a")
    assert not drained.done()
    office.doors["b"].set()
    await drained
    assert office.lanes.in_flight == 0


async def test_a_prompt_that_cannot_be_queued_does_not_wait_for_a_prompt() -> None:
    office = Office()
    office.slow(PROMPT, "a")
    office.quick(Prompt(message="later", streaming_behavior="followUp"), "b")
    office.quick(PROMPT, "c")
    assert office.notes == ["a begins", "c begins", "c done"]
    await office.finish("a")
    await office.lanes.wait_until_drained()
    assert office.notes[3:] == ["a done", "b begins", "b done"]


@pytest.mark.parametrize("other", [NewSession(), NAME, AbortAndPrompt(message="x")])
async def test_a_prompt_waits_for_everything_else(other: Command) -> None:
    for commands in ((other, PROMPT), (PROMPT, other)):
        office = Office()
        office.slow(commands[0], "a")
        office.quick(commands[1], "b")
        office.quick(PROMPT, "c")
        assert "c begins" not in office.notes
        await office.finish("a")
        await office.lanes.wait_until_drained()
        assert office.notes[-2:] == ["c begins", "c done"]
