from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.agent_loop import AnyTool, EventLog, Owner, Queues, answer_with_calls, outcome
from pigeon.agent.interfaces import Gate, PreparedCall, ToolMode, ToolRun
from pigeon.agent.scope import Scope
from pigeon.agent.tool_calls import CUT_OFF, SKIPPED, ToolBatch, group_calls
from pigeon.agent.tool_facts import ToolFacts
from pigeon.wire.content import ToolCall, text_of
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolCallStarted, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate, ToolOutcome
from pigeon.wire.messages import AssistantMessage, ToolResultMessage

READS = AnyTool("read", reads_only=True)
WRITES = AnyTool("write")
DECLARES = AnyTool("bash", parallel={"type": "boolean"})
TOOLS: dict[str, Any] = {"read": READS, "write": WRITES, "bash": DECLARES}


class Bench:
    """A batch of calls and everything that can be seen of it."""

    def __init__(
        self,
        *tools: AnyTool,
        gate: Gate | None = None,
        steering: tuple[str, ...] = (),
        interrupts: bool = False,
        mode: ToolMode = "ordered",
    ) -> None:
        self.heard = EventLog()
        self.scope = Scope()
        self.queues = Queues(steering, interrupts=interrupts)
        self.owner = Owner(*tools)
        self.batch = ToolBatch(self.owner, self.queues, lambda: gate, self.heard, lambda: 1, self.scope, mode)

    async def run(self, *named: tuple[str, dict[str, Any]], **more: Any) -> list[tuple[str, bool]]:
        return [
            (text_of(result.content), result.is_error)
            for result in await self.results(answer_with_calls(*named, **more))
        ]

    async def results(self, answer: AssistantMessage) -> list[ToolResultMessage]:
        return await self.batch.run(answer)

    def is_balanced(self) -> bool:
        begun = [event.tool_call_id for event in self.heard.of(ToolExecutionStart)]
        ended = [event.tool_call_id for event in self.heard.of(ToolExecutionEnd)]
        return sorted(begun) == sorted(ended) and len(set(ended)) == len(ended)


def letters(text: str) -> list[ToolCall]:
    """Calls; those in capitals are declared as independent."""
    names = {"r": "read", "w": "write", "b": "bash", "?": "unknown"}
    return [
        ToolCall(id=str(at), name=names[letter.lower()], arguments={"parallel": True} if letter.isupper() else {})
        for at, letter in enumerate(text)
    ]


@pytest.mark.parametrize(
    ("mode", "calls", "groups"),
    [
        ("ordered", "rrwwrr", ["rr", "w", "w", "rr"]),
        ("ordered", "r?r", ["r", "?", "r"]),
        ("parallel", "rwr?", ["rwr?"]),
        ("sequential", "rrw", ["r", "r", "w"]),
        ("declared", "rrwwrr", ["rr", "w", "w", "rr"]),
        ("declared", "BBbBrBw", ["bb", "b", "brb", "w"]),
        ("declared", "WW", ["w", "w"]),
        ("ordered", "BB", ["b", "b"]),
        ("sequential", "BB", ["b", "b"]),
        ("parallel", "", []),
        ("ordered", "", []),
    ],
)
def test_calls_run_side_by_side_as_the_mode_says(mode: ToolMode, calls: str, groups: list[str]) -> None:
    found = group_calls(letters(calls), TOOLS, mode)
    assert ["".join(call.name[0] if call.name in TOOLS else "?" for call in group) for group in found] == groups


@given(st.text("rwbB?", max_size=12), st.sampled_from(["ordered", "declared", "parallel", "sequential"]))
def test_grouping_keeps_every_call_in_its_order(calls: str, mode: ToolMode) -> None:
    listed = letters(calls)
    groups = group_calls(listed, TOOLS, mode)
    assert [call for group in groups for call in group] == listed
    assert all(groups)


@pytest.mark.parametrize("said", ["true", 1, None, [True], False])
def test_only_a_plain_yes_declares_a_call(said: Any) -> None:
    calls = [ToolCall(id=one, name="bash", arguments={"parallel": said}) for one in "ab"]
    assert len(group_calls(calls, TOOLS, "declared")) == 2


async def test_neighbours_that_read_run_together_and_report_in_the_order_of_the_calls() -> None:
    slow_may_end = asyncio.Event()

    async def slow(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        await slow_may_end.wait()
        return outcome("slow")

    async def fast(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        slow_may_end.set()
        return outcome("fast")

    bench = Bench(AnyTool("slow", slow, reads_only=True), AnyTool("fast", fast, reads_only=True))
    assert await bench.run(("slow", {}), ("fast", {})) == [("slow", False), ("fast", False)]
    assert bench.heard.outline() == [
        "tool_execution_start 1",
        "tool_execution_start 2",
        "tool_execution_end 2",
        "tool_execution_end 1",
        "message_start toolResult",
        "message_end toolResult",
        "message_start toolResult",
        "message_end toolResult",
    ]


async def test_where_the_order_must_be_the_same_neighbours_run_one_after_the_other() -> None:
    ran: list[str] = []

    async def slow(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        for _ in range(10):
            await asyncio.sleep(0)
        ran.append("slow")
        return outcome("slow")

    async def fast(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        ran.append("fast")
        return outcome("fast")

    bench = Bench(AnyTool("slow", slow, reads_only=True), AnyTool("fast", fast, reads_only=True))
    bench.owner.one_at_a_time = True
    assert await bench.run(("slow", {}), ("fast", {})) == [("slow", False), ("fast", False)]
    assert ran == ["slow", "fast"]
    assert bench.heard.outline()[:4] == [
        "tool_execution_start 1",
        "tool_execution_start 2",
        "tool_execution_end 1",
        "tool_execution_end 2",
    ]


async def test_a_tool_that_changes_something_begins_when_the_one_before_has_ended() -> None:
    bench = Bench(WRITES)
    await bench.run(("write", {}), ("write", {}))
    one = ["tool_execution_start {}", "tool_execution_end {}", "message_start toolResult", "message_end toolResult"]
    assert bench.heard.outline() == [line.format(number) for number in (1, 2) for line in one]


async def test_each_failure_becomes_the_result_of_its_call() -> None:
    async def fail_with_details(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        raise ToolFailed("exit 1", {"code": 1})

    async def fail(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        raise KeyError("path")

    bench = Bench(AnyTool("told", fail_with_details), AnyTool("broken", fail), AnyTool("typed", n={"type": "integer"}))
    results = await bench.results(answer_with_calls(("told", {}), ("broken", {}), ("gone", {}), ("typed", {"n": "x"})))
    texts = [text_of(result.content) for result in results]
    assert all(result.is_error for result in results)
    assert texts[:3] == ["exit 1", "KeyError: 'path'", "Tool gone not found"]
    assert 'Validation failed for tool "typed"' in texts[3]
    assert [result.details for result in results] == [{"code": 1}, {}, {}, {}]
    assert bench.is_balanced()


async def test_arguments_are_shown_as_they_came_and_used_as_they_were_put_right() -> None:
    tool = AnyTool("typed", n={"type": "integer"})
    bench = Bench(tool)
    await bench.run(("typed", {"n": "5"}))
    assert bench.heard.of(ToolExecutionStart)[0].args == {"n": "5"}
    assert tool.seen == [{"n": 5}]


async def test_updates_are_told_until_the_call_ends() -> None:
    runs: list[ToolRun] = []

    async def work(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        runs.append(run)
        await run.update(outcome("half"))
        return outcome("whole")

    bench = Bench(AnyTool("work", work))
    await bench.run(("work", {}))
    await runs[0].update(outcome("too late"))
    assert [text_of(event.partial_result.content) for event in bench.heard.of(ToolExecutionUpdate)] == ["half"]
    assert runs[0].call_id == "1"


async def test_waiting_steering_skips_what_has_not_started() -> None:
    async def steer(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        bench.queues.steering.extend(Queues(["stop that"]).steering)
        return outcome("first")

    last = AnyTool("last")
    bench = Bench(AnyTool("first", steer), last, interrupts=True)
    assert await bench.run(("first", {}), ("last", {}), ("last", {})) == [
        ("first", False),
        (SKIPPED, True),
        (SKIPPED, True),
    ]
    assert last.seen == []
    assert bench.is_balanced()


async def test_waiting_steering_skips_nothing_where_the_owner_says_so() -> None:
    bench = Bench(WRITES, steering=("later",), interrupts=False)
    assert await bench.run(("write", {})) == [("done", False)]


async def test_calls_of_an_answer_that_was_cut_off_are_not_run() -> None:
    tool = AnyTool("write")
    bench = Bench(tool)
    assert await bench.run(("write", {}), ("write", {}), stop="length") == [(CUT_OFF.format(name="write"), True)] * 2
    assert tool.seen == []
    assert not bench.batch.should_end_run
    assert bench.is_balanced()


@pytest.mark.parametrize("mode", ["ordered", "declared", "parallel", "sequential"])
async def test_after_an_abort_every_call_still_has_one_result(mode: ToolMode) -> None:
    async def abort(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        bench.scope.cancel()
        await run.scope.wait(asyncio.Event().wait())
        raise AssertionError("unreachable")

    async def endless(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        await run.scope.wait(asyncio.Event().wait())
        raise AssertionError("unreachable")

    bench = Bench(AnyTool("abort", abort), AnyTool("endless", endless), mode=mode)
    results = await bench.run(("abort", {}), ("endless", {}), ("gone", {}))
    assert [is_error for _, is_error in results] == [True, True, True]
    assert [text for text, _ in results[:2]] == ["Operation aborted"] * 2
    assert bench.is_balanced()


async def test_a_batch_of_a_cancelled_run_touches_nothing() -> None:
    tool = AnyTool("write")
    bench = Bench(tool)
    bench.scope.cancel()
    assert await bench.run(("write", {}), ("write", {})) == [("Operation aborted", True)] * 2
    assert tool.seen == []


async def test_a_tool_that_ends_well_in_spite_of_an_abort_keeps_its_result() -> None:
    async def finishing(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        bench.scope.cancel()
        return outcome("written")

    bench = Bench(AnyTool("write", finishing))
    assert await bench.run(("write", {})) == [("written", False)]


class Keeper:
    """A gate that changes what passes, blocks what is called `secret`, and notes its visitors."""

    def __init__(self, after: Exception | None = None) -> None:
        self.visits: list[str] = []
        self._after = after

    async def before_call(self, prepared: PreparedCall) -> None:
        self.visits.append(f"before {prepared.call.name} {prepared.arguments}")
        if prepared.call.name == "secret":
            raise ToolFailed("not for you")
        await prepared.replace_arguments({**prepared.arguments, "checked": True})

    async def after_call(self, call: ToolCall, ended: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]:
        self.visits.append(f"after {call.name} {is_error}")
        if self._after is not None:
            raise self._after
        return outcome(text_of(ended.content).upper()), not is_error


async def test_the_gate_sees_checked_arguments_and_changes_both_ways() -> None:
    keeper, tool = Keeper(), AnyTool("typed", n={"type": "integer"})
    bench = Bench(tool, gate=keeper)
    assert await bench.run(("typed", {"n": "5"})) == [("DONE", True)]
    assert keeper.visits == ["before typed {'n': 5}", "after typed False"]
    assert tool.seen == [{"n": 5, "checked": True}]


async def test_a_blocked_call_is_not_run_and_says_why() -> None:
    keeper, tool = Keeper(), AnyTool("secret")
    bench = Bench(tool, gate=keeper)
    assert await bench.run(("secret", {})) == [("not for you", True)]
    assert (tool.seen, keeper.visits) == ([], ["before secret {}"])


async def test_bad_arguments_never_reach_the_gate() -> None:
    keeper = Keeper()
    await Bench(AnyTool("typed", n={"type": "integer"}), gate=keeper).run(("typed", {"n": "x"}), ("gone", {}))
    assert keeper.visits == []


async def test_a_gate_that_breaks_afterwards_is_the_result() -> None:
    bench = Bench(WRITES, gate=Keeper(after=ValueError("gate broke")))
    assert await bench.run(("write", {})) == [("gate broke", True)]
    assert bench.is_balanced()


async def test_a_gate_that_never_answers_does_not_hold_up_an_abort() -> None:
    class Silent(Keeper):
        async def before_call(self, prepared: PreparedCall) -> None:
            asyncio.get_running_loop().call_soon(bench.scope.cancel)
            await asyncio.Event().wait()

    bench = Bench(WRITES, gate=Silent())
    assert await bench.run(("write", {}), ("write", {})) == [("Operation aborted", True)] * 2
    assert bench.is_balanced()


async def test_an_abort_while_the_gate_looks_at_a_result_keeps_the_result() -> None:
    class Thoughtful(Keeper):
        async def after_call(self, call: ToolCall, ended: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]:
            asyncio.get_running_loop().call_soon(bench.scope.cancel)
            await asyncio.Event().wait()
            return ended, is_error

    bench = Bench(WRITES, gate=Thoughtful())
    assert await bench.run(("write", {})) == [("done", False)]
    assert bench.is_balanced()


async def test_a_defect_of_a_tool_is_named_where_its_text_alone_says_nothing() -> None:
    for error, text in (
        (KeyError("path"), "KeyError: 'path'"),
        (RuntimeError("no"), "no"),
        (RuntimeError(), "RuntimeError"),
    ):

        async def work(arguments: dict[str, Any], run: ToolRun, error: Exception = error) -> ToolOutcome:
            raise error

        assert await Bench(AnyTool("work", work)).run(("work", {})) == [(text, True)]


async def test_details_of_a_failure_are_kept_and_there_is_always_an_object() -> None:
    for error, details in ((ToolFailed("no", {"code": 1}), {"code": 1}), (ToolFailed("no"), {}), (OSError("no"), {})):

        async def work(arguments: dict[str, Any], run: ToolRun, error: Exception = error) -> ToolOutcome:
            raise error

        (result,) = await Bench(AnyTool("work", work)).results(answer_with_calls(("work", {})))
        assert result.details == details


@pytest.mark.parametrize(
    ("wishes", "ends"), [([True], True), ([True, True], True), ([True, False], False), ([], False)]
)
async def test_the_run_ends_only_if_every_call_asks_for_it(wishes: list[bool], ends: bool) -> None:
    async def work(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        return outcome("x", terminate=True) if arguments["ends"] else outcome("x")

    bench = Bench(AnyTool("work", work))
    await bench.run(*[("work", {"ends": wish}) for wish in wishes])
    assert bench.batch.should_end_run is ends


async def test_a_refusal_may_end_the_run_too() -> None:
    class Final(ToolFailed):
        terminate = True

    async def work(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        raise Final("enough")

    bench = Bench(AnyTool("work", work))
    assert await bench.run(("work", {})) == [("enough", True)]
    assert bench.batch.should_end_run


async def test_a_call_is_announced_with_what_its_tool_declares() -> None:
    bench = Bench(AnyTool("ls"))
    bench.owner.tools()["ls"].facts = ToolFacts(lambda arguments: f"List {arguments['path']}", kind="search")
    await bench.run(("ls", {"path": "src"}), ("missing", {}))
    started = [(event.tool_name, event.kind, event.title) for event in bench.heard.of(ToolCallStarted)]
    assert started == [("ls", "search", "List src"), ("missing", "other", "missing")]
