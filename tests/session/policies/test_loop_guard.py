"""The loop guard: the same calls with the same results, told first, then stopped."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.agent_loop import AnyTool, Script, answer_with_calls, calls, outcome, says
from pigeon.agent.interfaces import ToolRun
from pigeon.session.context.transcript import Transcript
from pigeon.session.policies.loop_guard import LoopGuard
from pigeon.session.prompting import HostMessage
from pigeon.session.settings import LoopGuardPolicy, SessionSettings
from pigeon.wire.content import TextContent, text_of
from pigeon.wire.events import AgentSettled, MessageEnd, ToolOutcome
from pigeon.wire.messages import CustomMessage, ToolResultMessage
from pigeon.wire.steering import LimitReached
from support.session_setup import SessionSetup
from support.strategies import empty_journal


def notices(setup: SessionSetup) -> list[str]:
    messages = [event.message for event in setup.heard.of(MessageEnd)]
    return [text_of(one.content) for one in messages if isinstance(one, CustomMessage)]


def looping(cycle: list[tuple[str, dict[str, Any]]], turns: int) -> list[Script]:
    return [calls(cycle[number % len(cycle)]) for number in range(turns)]


async def run_scripts(*scripts: Script, **tools: Any) -> SessionSetup:
    known = [AnyTool(name, tools.get(name)) for name in ("a", "b", "c", "d")]
    setup = SessionSetup(*scripts, tools=tuple(known), settings=SessionSettings())
    await setup.prompt("go")
    return setup


@pytest.mark.parametrize("length", [1, 2, 3, 4])
async def test_a_cycle_is_told_and_then_stopped(length: int) -> None:
    cycle: list[tuple[str, dict[str, Any]]] = [("a", {"x": 1, "y": 2}), ("b", {}), ("c", {}), ("d", {})][:length]  # type: ignore[list-item]
    setup = await run_scripts(*looping(cycle, 60))
    assert len(setup.provider.requests) == 10 * length
    [notice] = notices(setup)
    assert "5 times in a row" in notice
    settled = setup.heard.of(AgentSettled)[-1]
    assert (settled.reason, settled.aborted) == ("limit", False)
    assert settled.limit == LimitReached(name="repeated_calls", allowed=10, reached=10)


async def test_the_order_of_arguments_does_not_matter() -> None:
    turns = [calls(("a", {"x": 1, "y": 2} if number % 2 else {"y": 2, "x": 1})) for number in range(60)]
    assert len((await run_scripts(*turns)).provider.requests) == 10


async def test_white_space_does_not_matter() -> None:
    turns = [calls(("a", {"command": "ls " + " " * number + "-l\n" * (number % 2)})) for number in range(8)]
    assert len(notices(await run_scripts(*turns, says("done")))) == 0
    turns = [calls(("a", {"command": f"{' ' * number}ls  -l\n"})) for number in range(60)]
    assert len((await run_scripts(*turns)).provider.requests) == 10


async def test_a_tool_whose_results_differ_may_be_asked_much_more_often() -> None:
    count = 0

    async def polls(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        nonlocal count
        count += 1
        return outcome(f"{count} % done")

    setup = await run_scripts(*looping([("a", {})], 49), says("done"), a=polls)
    assert not notices(setup)
    assert setup.heard.of(AgentSettled)[-1].reason == "done"
    setup = await run_scripts(*looping([("a", {}), ("b", {})], 300), a=polls)
    [notice] = notices(setup)
    assert "50 times in a row. If you wait for something" in notice
    settled = setup.heard.of(AgentSettled)[-1]
    assert settled.limit == LimitReached(name="repeated_calls", allowed=100, reached=100)


async def test_a_message_of_the_user_begins_the_count_anew() -> None:
    setup = SessionSetup(*looping([("a", {})], 8), says("done"), tools=(AnyTool("a"),))

    async def steers(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        if len(setup.provider.requests) == 4:
            setup.session.prompting.queue_message(HostMessage("go on"), "steering")
        return outcome("same")

    setup = SessionSetup(*looping([("a", {})], 8), says("done"), tools=(AnyTool("a", steers),))
    await setup.prompt("go")
    assert not notices(setup)


async def test_a_model_that_heeds_the_notice_goes_on() -> None:
    setup = await run_scripts(
        *looping([("a", {})], 6), *looping([("b", {})], 4), *looping([("a", {})], 4), says("done")
    )
    assert len(notices(setup)) == 1
    assert setup.heard.of(AgentSettled)[-1].reason == "done"


async def test_many_identical_calls_in_one_answer_are_told_before_they_stop_the_run() -> None:
    setup = await run_scripts(calls(*[("a", {})] * 30), says("done"))
    assert len(notices(setup)) == 1
    assert setup.heard.of(AgentSettled)[-1].reason == "done"


async def test_calls_of_another_prompt_do_not_count() -> None:
    setup = SessionSetup(
        *looping([("a", {})], 4), says("one"), *looping([("a", {})], 4), says("two"), tools=(AnyTool("a"),)
    )
    await setup.prompt("go")
    await setup.prompt("once more")
    assert not notices(setup)


async def test_the_guard_can_be_switched_off() -> None:
    settings = SessionSettings(loop_guard=LoopGuardPolicy(warn=0))
    setup = SessionSetup(*looping([("a", {})], 40), says("done"), tools=(AnyTool("a"),), settings=settings)
    await setup.prompt("go")
    assert setup.heard.of(AgentSettled)[-1].reason == "done"


def result(text: str) -> ToolResultMessage:
    return ToolResultMessage(
        tool_call_id="1", tool_name="a", content=[TextContent(text=text)], is_error=False, timestamp=1
    )


@given(st.lists(st.integers(0, 2), max_size=60))
def test_nothing_is_stopped_that_was_not_told(numbers: list[int]) -> None:
    guard, told = LoopGuard(LoopGuardPolicy(warn=2, stop=4), Transcript(empty_journal()), lambda reached: None), False
    for number in numbers:
        told = guard.add_calls(answer_with_calls(("a", {"n": number})), [result("same")], "u") is not None or told
        assert told or guard.find_reached_limit() is None


@given(st.lists(st.integers(), min_size=1, max_size=60, unique=True))
def test_calls_that_differ_are_never_a_loop(numbers: list[int]) -> None:
    guard = LoopGuard(LoopGuardPolicy(warn=2, stop=4), Transcript(empty_journal()), lambda reached: None)
    assert not any(
        guard.add_calls(answer_with_calls(("a", {"n": number})), [result("same")], "u") for number in numbers
    )
