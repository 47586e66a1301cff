"""Limits of runs and conversations: what is refused before it is sent, what counts, and how a run ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fakes.agent_loop import AnyTool, Script, ScriptedProvider, calls, fails, outcome, says
from fakes.clock import LoopClock
from pigeon.agent.inference import Metered
from pigeon.agent.interfaces import ToolRun
from pigeon.session.policies.final_answer import FinalAnswer
from pigeon.session.policies.run_limits import RunLimits
from pigeon.session.prompting import HostMessage
from pigeon.session.settings import CompactionPolicy, RetryPolicy, SessionSettings
from pigeon.wire.base import ABSENT
from pigeon.wire.content import text_of
from pigeon.wire.errors import BadRecord, Refusal
from pigeon.wire.events import AgentSettled, AutoRetryStart, CompactionEnd, MessageEnd, PromptResult, ToolOutcome
from pigeon.wire.messages import CustomMessage, ToolResultMessage
from pigeon.wire.model import Cost, ModelCost, Usage
from pigeon.wire.steering import LimitedUse, LimitReached, Limits, parse_limits
from support.model_requests import a_model, a_request
from support.session_setup import SessionSetup

PRICED = a_model(cost=ModelCost(input=10, output=10, cache_read=1, cache_write=10), context_window=100_000)
QUICK = RetryPolicy(base_delay_ms=0)


def with_usage(script: Script, input: int = 100, output: int = 10, **more: int) -> Script:
    usage = Usage(input=input, output=output, cost=Cost(), **more)
    return [*script[:-1], Metered(usage=usage), script[-1]]


def make_limited_setup(*scripts: Script, settings: dict[str, Any] | None = None, **limits: Any) -> SessionSetup:
    given = SessionSettings(retry=QUICK, limits=Limits(**limits), **(settings or {}))
    return SessionSetup(*scripts, model=PRICED, settings=given, tools=(AnyTool("look"), AnyTool("other")))


def many(count: int) -> list[Script]:
    """Answers that each call a tool with other arguments."""
    return [with_usage(calls(("look", {"at": number}))) for number in range(count)]


def last_settled(setup: SessionSetup) -> AgentSettled:
    settled: AgentSettled = setup.heard.of(AgentSettled)[-1]
    return settled


def limit_of(setup: SessionSetup) -> LimitReached:
    settled = last_settled(setup)
    assert (settled.reason, settled.aborted) == ("limit", False)
    assert isinstance(settled.limit, LimitReached)
    return settled.limit


def notices(setup: SessionSetup) -> list[str]:
    messages = [event.message for event in setup.heard.of(MessageEnd)]
    return [text_of(one.content) for one in messages if isinstance(one, CustomMessage)]


async def test_no_more_turns_are_asked_for_than_allowed() -> None:
    setup = make_limited_setup(*many(9), turns=3)
    await setup.prompt("go")
    assert len(setup.provider.requests) == 3
    assert limit_of(setup) == LimitReached(name="turns", allowed=3, reached=3)
    assert "3 turns are allowed" in str(setup.heard.of(MessageEnd)[-1].message.error_message)
    [result] = setup.heard.of(PromptResult)
    assert result.status == "error"
    assert "turns" in result.error.message


async def test_a_run_that_ends_within_its_limit_is_done() -> None:
    setup = make_limited_setup(*many(2), says("done"), turns=3)
    await setup.prompt("go")
    assert (last_settled(setup).reason, last_settled(setup).limit) == ("done", ABSENT)


async def test_repeated_requests_count_as_turns() -> None:
    setup = make_limited_setup(*[fails("busy", retryable=True) for _ in range(5)], turns=2)
    await setup.prompt("go")
    assert len(setup.provider.requests) == 2
    assert limit_of(setup).name == "turns"


@pytest.mark.parametrize(("name", "allowed"), [("cost", 0.0025), ("tokens", 250)])
async def test_what_was_used_passes_a_limit_by_one_answer_at_most(name: str, allowed: float) -> None:
    setup = make_limited_setup(*many(9), **{name: allowed})
    await setup.prompt("go")
    reached = limit_of(setup)
    assert reached.name == name
    one_answer = 110 if name == "tokens" else 0.0011
    assert allowed - one_answer <= reached.reached <= allowed + one_answer


@pytest.mark.parametrize(("name", "allowed"), [("cost", 0.01), ("tokens", 1000)])
async def test_a_request_that_cannot_fit_is_never_sent(name: str, allowed: float) -> None:
    setup = make_limited_setup(says("never"), **{name: allowed})
    await setup.prompt("x" * 8000)
    assert not setup.provider.requests
    assert limit_of(setup) == LimitReached(name=name, allowed=allowed, reached=0)  # type: ignore[arg-type]


async def test_what_the_provider_has_in_its_cache_is_estimated_at_its_price() -> None:
    cached = with_usage(says("one"), input=10, cache_write=2000)
    setup = make_limited_setup(cached, with_usage(says("two"), input=10, cache_read=2000), cost=0.032)
    await setup.prompt("x" * 8000)
    await setup.prompt("again")
    assert len(setup.provider.requests) == 2
    assert last_settled(setup).reason == "done"


async def test_an_answer_that_breaks_before_it_was_counted_is_estimated() -> None:
    broken: Script = [*says("y" * 400)[:-1], *fails("broken")]
    setup = make_limited_setup(broken, tokens=10_000)
    await setup.prompt("x" * 400)
    used = setup.session.engine.limits.state().used
    assert used.turns == 1
    assert used.tokens >= 200


async def test_a_request_that_failed_before_an_answer_used_nothing() -> None:
    setup = make_limited_setup(fails("refused"), tokens=10_000)
    await setup.prompt("x" * 400)
    assert setup.session.engine.limits.state().used.tokens == 0
    assert last_settled(setup).reason == "error"


async def test_calls_beyond_the_limit_are_refused_and_end_the_run() -> None:
    setup = make_limited_setup(calls(("look", {}), ("look", {}), ("other", {})), says("never"), tool_calls=2)
    await setup.prompt("go")
    results = [event.message for event in setup.heard.of(MessageEnd) if isinstance(event.message, ToolResultMessage)]
    assert [result.is_error for result in results] == [False, False, True]
    assert "2 tool calls are allowed" in text_of(results[-1].content)
    assert limit_of(setup) == LimitReached(name="toolCalls", allowed=2, reached=2)
    assert len(setup.provider.requests) == 1


async def test_a_server_that_counts_nothing_is_estimated() -> None:
    setup = make_limited_setup(with_usage(says("y" * 400), input=0, output=0), says("never"), tokens=250)
    await setup.prompt("x" * 400)
    assert setup.session.engine.limits.state().used.tokens >= 200
    await setup.prompt("x" * 400)
    assert limit_of(setup).name == "tokens"


async def test_the_final_answer_is_no_tool_call() -> None:
    setup = make_limited_setup(calls(("look", {})), calls(("final_answer", {"n": 1})), tool_calls=1)
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    await setup.prompt("go", final_answer=FinalAnswer(schema))
    assert (last_settled(setup).reason, last_settled(setup).output) == ("done", {"n": 1})


async def test_what_a_tool_used_itself_counts() -> None:
    async def asks(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        return outcome("done", usage=Usage(total_tokens=5000, cost=Cost(total=1)))

    setup = SessionSetup(
        calls(("ask", {})),
        says("never"),
        settings=SessionSettings(limits=Limits(cost=0.5)),
        tools=(AnyTool("ask", asks),),
    )
    await setup.prompt("go")
    assert (limit_of(setup).name, int(limit_of(setup).reached)) == ("cost", 1)


async def test_summaries_count_but_are_no_turns() -> None:
    small = CompactionPolicy(keep_tokens=10, reserve_tokens=1000)
    setup = make_limited_setup(
        with_usage(says("one " * 50)),
        with_usage(says("two " * 50)),
        with_usage(says("SUMMARY")),
        with_usage(says("SUMMARY OF THE TURN")),
        settings={"compaction": small},
        tokens=5000,
    )
    for text in ("question " * 30, "another " * 30):
        await setup.prompt(text)
    before = setup.session.engine.limits.state().used
    await setup.session.history.compact()
    after = setup.session.engine.limits.state().used
    assert (after.tokens - before.tokens, after.turns - before.turns) == (220, 0)


async def test_a_compaction_that_the_limit_refuses_says_so() -> None:
    small = CompactionPolicy(keep_tokens=10, reserve_tokens=1000)
    setup = make_limited_setup(says("one " * 50), says("two " * 50), settings={"compaction": small})
    for text in ("question " * 30, "another " * 30):
        await setup.prompt(text)
    setup.session.engine.set_limits(Limits(tokens=5))
    with pytest.raises(Refusal, match="Limit reached"):
        await setup.session.history.compact()
    assert "Limit reached" in setup.heard.of(CompactionEnd)[-1].error_message


async def test_a_full_context_that_may_not_be_summarized_ends_by_the_limit() -> None:
    small = CompactionPolicy(keep_tokens=10, reserve_tokens=1000)
    full: Script = [Metered(usage=Usage(input=390, cost=Cost())), *fails("too long", overflow=True)]
    setup = make_limited_setup(says("one " * 50), says("two " * 50), full, settings={"compaction": small})
    for text in ("question " * 30, "another " * 30):
        await setup.prompt(text)
    await setup.prompt("x", limits=Limits(tokens=400))
    assert limit_of(setup).name == "tokens"
    assert len(setup.provider.requests) == 3


async def test_no_pause_is_made_before_a_retry_that_the_limit_refuses() -> None:
    patient = SessionSettings(retry=RetryPolicy(base_delay_ms=60_000), limits=Limits(turns=1))
    setup = SessionSetup(fails("busy", retryable=True), settings=patient)
    await setup.prompt("go")
    assert limit_of(setup) == LimitReached(name="turns", allowed=1, reached=1)
    assert not setup.heard.of(AutoRetryStart)


async def never() -> None:
    await asyncio.Event().wait()


async def prompt_for_seconds(setup: SessionSetup, seconds: float, **more: Any) -> None:
    """A prompt whose run hangs somewhere, and so much time; it has settled then."""
    clock = LoopClock()
    running = asyncio.ensure_future(setup.prompt("go", **more))
    await setup.until(lambda: setup.provider.requests)
    await clock.advance(0)
    assert not running.done()
    await clock.advance(seconds)
    await running


async def test_seconds_end_a_run_in_the_middle_of_an_answer() -> None:
    setup = make_limited_setup([*says("begun")[:2], never], seconds=5)
    await prompt_for_seconds(setup, 5.01)
    reached = limit_of(setup)
    assert (reached.name, reached.allowed, int(reached.reached)) == ("seconds", 5, 5)


async def test_seconds_end_a_run_in_the_middle_of_a_tool() -> None:
    async def hangs(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        await run.scope.wait(never())
        return outcome("never")

    settings = SessionSettings(limits=Limits(seconds=2.5))
    setup = SessionSetup(calls(("hang", {})), settings=settings, tools=(AnyTool("hang", hangs),))
    await prompt_for_seconds(setup, 2.6)
    assert limit_of(setup).name == "seconds"


async def test_seconds_end_a_run_that_makes_room() -> None:
    small = CompactionPolicy(keep_tokens=10, reserve_tokens=1000)
    setup = make_limited_setup(
        says("one " * 50),
        [*with_usage(says("two " * 50), input=99_900)],
        [never, *says("SUMMARY")],
        settings={"compaction": small},
    )
    await setup.prompt("question " * 30)
    clock = LoopClock()
    running = asyncio.ensure_future(setup.prompt("another " * 30, limits=Limits(seconds=4)))
    await setup.until(lambda: len(setup.provider.requests) == 3)
    await clock.advance(4.1)
    await running
    assert limit_of(setup).name == "seconds"


async def test_seconds_end_a_run_that_waits_for_a_retry() -> None:
    patient = SessionSettings(retry=RetryPolicy(base_delay_ms=60_000), limits=Limits(seconds=3))
    setup = SessionSetup(fails("busy", retryable=True), settings=patient)
    await prompt_for_seconds(setup, 3.1)
    assert limit_of(setup).name == "seconds"


async def test_only_the_time_of_runs_counts() -> None:
    setup = make_limited_setup(says("one"), [never, *says("two")], seconds=5)
    clock = LoopClock()
    await setup.prompt("go")
    await clock.advance(100)
    assert setup.session.engine.limits.state().used.seconds < 1
    setup.provider.requests.clear()
    await prompt_for_seconds(setup, 5.1)
    assert limit_of(setup).name == "seconds"
    with pytest.raises(Refusal, match="5 seconds are allowed"):
        await setup.prompt("once more")


async def test_an_abort_is_no_limit() -> None:
    setup = make_limited_setup([never, *says("never")], turns=1)
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: setup.provider.requests)
    setup.session.engine.abort()
    await running
    assert (last_settled(setup).aborted, last_settled(setup).limit) == (True, ABSENT)


async def test_a_conversation_that_is_used_up_refuses_the_next_prompt() -> None:
    setup = make_limited_setup(says("one"), says("two"), turns=1)
    await setup.prompt("go")
    assert last_settled(setup).reason == "done"
    with pytest.raises(Refusal, match="1 turns are allowed, 1 are used, in this conversation"):
        await setup.prompt("go on")
    setup.session.engine.set_limits(Limits(turns=1))
    await setup.prompt("go on")
    assert last_settled(setup).reason == "done"


async def test_each_conversation_keeps_what_it_has_used() -> None:
    limits = RunLimits(Limits(turns=2), "one")
    limits.enter_conversation("two")
    limits.enter_conversation("one")
    async for _ in limits.stream(ScriptedProvider(says("a")), a_request(PRICED), turn=True):
        pass
    limits.enter_conversation("two")
    assert limits.state().used.turns == 0
    limits.enter_conversation("one")
    assert limits.state().used.turns == 1
    limits.set(Limits(turns=2), None)
    assert limits.state().used.turns == 0


async def test_a_conversation_without_limits_counts_nothing() -> None:
    setup = make_limited_setup(says("one"))
    await setup.prompt("go", limits=Limits(turns=2))
    assert setup.session.engine.limits.state().used == LimitedUse()


async def test_limits_of_one_prompt_end_with_its_run() -> None:
    setup = make_limited_setup(*many(2), says("free"))
    await setup.prompt("go", limits=Limits(turns=1))
    assert limit_of(setup).name == "turns"
    assert not setup.session.engine.limits.active
    await setup.prompt("go on")
    assert last_settled(setup).reason == "done"
    assert len(setup.provider.requests) == 3


async def test_a_queued_message_stays_in_the_queue_when_a_limit_ends_the_run() -> None:
    setup = make_limited_setup([lambda: asyncio.sleep(0), *says("one")], says("two"))
    running = asyncio.ensure_future(setup.prompt("go", limits=Limits(turns=1)))
    await setup.until(lambda: setup.provider.requests)
    setup.session.prompting.queue_message(HostMessage("and then"), "followUp")
    await running
    assert limit_of(setup) == LimitReached(name="turns", allowed=1, reached=1)
    assert len(setup.session.queue) == 1
    assert not any("and then" in text for text in setup.message_texts())
    await setup.prompt("next", limits=Limits(turns=2))
    assert len(setup.session.queue) == 0


async def test_limits_on_a_message_that_joins_a_run_are_refused() -> None:
    setup = make_limited_setup([never, *says("never")])
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: setup.provider.requests)
    with pytest.raises(Refusal, match="joins a run"):
        setup.session.prompting.prompt(HostMessage("more", limits=Limits(turns=1)), "followUp")
    setup.session.engine.abort()
    await running


async def test_the_model_is_told_once_when_little_is_left() -> None:
    setup = make_limited_setup(*many(9), turns=5)
    await setup.prompt("go")
    [notice] = notices(setup)
    assert "1 of 5 turns" in notice
    assert any("1 of 5 turns" in text_of(message.content) for message in setup.provider.requests[-1].messages)
    assert len(setup.provider.requests) == 5


async def test_limits_set_during_a_run_are_in_force_at_its_next_request() -> None:
    setup = make_limited_setup(*many(9))
    setup.heard.events.clear()
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: len(setup.provider.requests) == 2)
    setup.session.engine.set_limits(Limits(turns=2))
    await running
    assert limit_of(setup).name == "turns"
    assert len(setup.provider.requests) == 4


async def test_seconds_set_during_a_run_count_from_there() -> None:
    setup = make_limited_setup([never, *says("never")])
    clock = LoopClock()
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: setup.provider.requests)
    await clock.advance(5)
    setup.session.engine.set_limits(Limits(seconds=2))
    await clock.advance(2.1)
    await running
    assert 2 <= limit_of(setup).reached < 3


async def test_limits_taken_away_during_a_run_do_not_end_it() -> None:
    held = asyncio.Event()
    setup = make_limited_setup([held.wait, *says("done")], says("again"), seconds=2)
    clock = LoopClock()
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: setup.provider.requests)
    setup.session.engine.set_limits(Limits())
    await clock.advance(5)
    held.set()
    await running
    assert last_settled(setup).reason == "done"
    await setup.prompt("go on")
    assert last_settled(setup).reason == "done"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (5, "limits"),
        ([], "limits"),
        ({"turns": 0}, "limits.turns"),
        ({"turns": 1.5}, "limits.turns"),
        ({"turns": True}, "limits.turns"),
        ({"turns": "3"}, "limits.turns"),
        ({"cost": 0}, "limits.cost"),
        ({"cost": float("inf")}, "limits.cost"),
        ({"seconds": -1}, "limits.seconds"),
        ({"tokens": float("nan")}, "limits.tokens"),
        ({"tokens": 10**400}, "limits.tokens"),
        ({"cost": 1e308}, "limits.cost"),
        ({"maxTurns": 3}, "limits.maxTurns"),
        ({"tool_calls": 3}, "limits.tool_calls"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_by_its_name(given: Any, named: str) -> None:
    with pytest.raises(BadRecord, match=f'"{named}"'):
        parse_limits(given)


def test_null_is_no_limit() -> None:
    assert parse_limits({"turns": None, "toolCalls": 3.0}) == Limits(tool_calls=3)


def test_a_record_of_limits_is_checked_when_it_is_made() -> None:
    assert parse_limits(Limits(turns=3)) == Limits(turns=3)
    assert Limits(turns=None, tool_calls=2.0) == Limits(tool_calls=2)  # type: ignore[arg-type]
    for wrong in (0, -1, True, "3", float("nan"), float("inf"), 2**53, 10**400):
        for name in ("turns", "cost", "tokens", "seconds", "tool_calls"):
            with pytest.raises(BadRecord, match=f'"{name}"'):
                Limits(**{name: wrong})
