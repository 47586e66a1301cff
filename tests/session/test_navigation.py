"""Another entry becomes the leaf: which one, what of the branch that is left is summarized, and what goes on record."""

from __future__ import annotations

import asyncio

import pytest

from fakes.loop_parts import Script, says
from fakes.session_desk import SessionDesk
from fakes.summaries import LONG, Bench, filled
from pigeon.session.navigation import BRANCH, NavigationOptions
from pigeon.wire.base import ABSENT
from pigeon.wire.content import text_of
from pigeon.wire.entries import BranchSummaryEntry, CustomMessageEntry, LabelEntry
from pigeon.wire.errors import Aborted, Refusal
from pigeon.wire.messages import UserMessage


async def test_a_branch_summary_takes_the_newest_that_fits_and_no_results() -> None:
    bench = filled("WHAT IT DID", turns=0, window=4_000)
    root = bench.say("root")
    for number in range(8):
        bench.say(f"question {number} {LONG}")
        bench.call("read", "the secret result", path=f"{number}.py")
    old_leaf = bench.journal.leaf_id
    went = await bench.navigation.go(root, NavigationOptions(summarize=True, label="left"), bench.scope)
    summary, label = (line.entry for line in bench.journal.branch)
    assert isinstance(summary, BranchSummaryEntry)
    assert (summary.from_id, summary.parent_id) == (old_leaf, None)
    assert summary.summary.startswith("WHAT IT DID\n\n<read-files>\n")
    assert getattr(label, "target_id", None) == summary.id == went.summary_entry_id
    asked = bench.answers.asked()
    assert "question 7" in asked
    assert "question 0" not in asked
    assert "secret" not in asked
    assert [request.max_tokens for request in bench.answers.requests] == [800]


async def test_leaving_nothing_behind_needs_no_summary() -> None:
    bench = filled(turns=1)
    leaf = bench.journal.leaf_id
    assert leaf is not None
    went = await bench.navigation.go(leaf, NavigationOptions(summarize=True), bench.scope)
    assert (went.leaf_id, went.summary_entry_id) == (leaf, ABSENT)
    bench.scope.cancel()
    with pytest.raises(Aborted):
        await bench.navigation.go(bench.journal.lines[0].id, NavigationOptions(), bench.scope)
    assert bench.journal.leaf_id == leaf


async def test_a_message_of_the_user_is_taken_back_for_editing() -> None:
    bench = filled(turns=2)
    second = next(line.id for line in bench.journal.lines if b"question 1" in line.raw)
    went = await bench.navigation.go(second, NavigationOptions(), bench.scope)
    assert (went.cancelled, went.text) == (False, f"question 1 {LONG}")
    assert [line.role for line in bench.journal.branch] == ["user", "assistant"]
    assert went.leaf_id == bench.journal.leaf_id == bench.journal.branch[-1].id
    assert (went.summary_entry_id, bench.answers.requests) == (ABSENT, [])


async def test_a_message_of_an_extension_is_taken_back_too_and_anything_else_is_the_leaf_itself() -> None:
    bench = filled(turns=1)
    parent = bench.journal.leaf_id
    note = bench.journal.append(CustomMessageEntry, custom_type="x", content="a note", display=True)
    went = await bench.navigation.go(note.id, NavigationOptions(), bench.scope)
    assert (went.text, went.leaf_id) == ("a note", parent)
    answer = bench.journal.lines[1].id
    went = await bench.navigation.go(answer, NavigationOptions(), bench.scope)
    assert (went.text, went.leaf_id) == (ABSENT, answer)


async def test_a_label_goes_to_the_entry_that_was_named_where_nothing_is_summarized() -> None:
    bench = filled(turns=2)
    target = bench.journal.lines[1].id
    went = await bench.navigation.go(target, NavigationOptions(label="here"), bench.scope)
    label = bench.journal.branch[-1].entry
    assert isinstance(label, LabelEntry)
    assert (label.target_id, label.label, went.leaf_id) == (target, "here", label.id)
    await bench.navigation.go(target, NavigationOptions(), bench.scope)
    assert bench.journal.leaf_id == target, "no label was asked for"


async def test_the_summary_is_of_what_is_left_alone_with_the_focus_that_was_asked_for() -> None:
    bench = filled("WHAT IT DID", turns=3, window=10_000)
    leaf, target = bench.journal.leaf_id, bench.journal.lines[1].id
    await bench.navigation.go(target, NavigationOptions(summarize=True, instructions="the tests"), bench.scope)
    asked = bench.answers.asked()
    assert ("question 0" in asked, "question 1" in asked, "question 2" in asked) == (False, True, True)
    assert asked.endswith(f"{BRANCH}\n\nAdditional focus: the tests")
    entry = bench.journal.branch[-1].entry
    assert isinstance(entry, BranchSummaryEntry)
    assert (entry.from_id, entry.parent_id, entry.from_hook) == (leaf, target, False)
    assert getattr(entry.usage, "input", None) == 7
    assert entry.details == {"readFiles": [], "modifiedFiles": []}


async def test_without_a_focus_there_is_none() -> None:
    bench = filled("WHAT IT DID", turns=2)
    await bench.navigation.go(bench.journal.lines[0].id, NavigationOptions(summarize=True), bench.scope)
    assert bench.answers.asked().endswith(BRANCH)


@pytest.mark.parametrize(
    ("window", "most", "shown"),
    [
        (0, 4_000, 1),  # unknown: the model's own limit holds
        (2_000, 400, 3),  # half of a small window
        (200_000, 4_000, 8),
    ],
)
async def test_what_is_summarized_follows_the_window(window: int, most: int, shown: int) -> None:
    bench = filled("WHAT IT DID", turns=0, window=window)
    root = bench.say("root")
    for number in range(8):
        bench.say(f"question {number} {LONG}")
    await bench.navigation.go(root, NavigationOptions(summarize=True), bench.scope)
    assert [request.max_tokens for request in bench.answers.requests] == [most]
    assert bench.answers.asked().count("question ") == shown


async def test_without_a_model_the_leaf_moves_and_nothing_is_summarized() -> None:
    bench = filled(turns=2)
    bench.models.model = None
    went = await bench.navigation.go(bench.journal.lines[1].id, NavigationOptions(summarize=True), bench.scope)
    assert (went.leaf_id, went.summary_entry_id) == (bench.journal.lines[1].id, ABSENT)


async def test_a_branch_of_tool_results_alone_is_not_summarized() -> None:
    bench = Bench(window=10_000)
    bench.say("go")
    asked, _ = bench.call("read", "result", path="a.py")
    went = await bench.navigation.go(asked, NavigationOptions(summarize=True), bench.scope)
    assert (went.leaf_id, went.summary_entry_id, bench.answers.requests) == (asked, ABSENT, [])


async def branched(*scripts: Script) -> SessionDesk:
    desk = SessionDesk(says("one"), says("two"), *scripts)
    for word in ("first", "second"):
        await desk.prompt(word)
    return desk


def entry_of(desk: SessionDesk, word: str) -> str:
    return next(line.id for line in desk.session.journal.lines if line.role == "user" and word.encode() in line.raw)


def said(desk: SessionDesk) -> list[str]:
    return [text_of(message.content) for message in desk.session.context if isinstance(message, UserMessage)]


async def test_an_abort_in_the_summary_leaves_the_session_where_it_was() -> None:
    reached = asyncio.Event()

    async def hold() -> None:
        reached.set()
        await asyncio.get_running_loop().create_future()

    desk = await branched([hold], says("three"))
    leaf = desk.session.journal.leaf_id
    engine = desk.session.engine
    work = asyncio.ensure_future(engine.navigate(entry_of(desk, "second"), NavigationOptions(summarize=True)))  # type: ignore[arg-type]
    await reached.wait()
    assert desk.session.activity.compacting
    engine.abort()
    went = await work
    assert (went.cancelled, went.leaf_id) == (True, leaf)
    assert (desk.session.activity.state, desk.session.journal.leaf_id) == ("idle", leaf)
    await desk.prompt("third")
    assert said(desk) == ["first", "second", "third"]


async def test_an_entry_that_is_not_there_is_refused_and_stops_nothing() -> None:
    reached, goes_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await goes_on.wait()

    desk = await branched([hold, *says("three")])
    running = asyncio.ensure_future(desk.prompt("third"))
    await reached.wait()
    with pytest.raises(Refusal, match="Entry not found: gone"):
        desk.session.engine.navigate("gone", NavigationOptions())
    goes_on.set()
    await running
    assert desk.spoken()[-1] == "assistant: three"


async def test_a_run_is_stopped_first_and_the_next_prompt_goes_on_at_the_new_place() -> None:
    reached = asyncio.Event()

    async def hold() -> None:
        reached.set()
        await asyncio.get_running_loop().create_future()

    desk = await branched([hold], says("four"))
    running = asyncio.ensure_future(desk.prompt("third"))
    await reached.wait()
    went = await desk.session.engine.navigate(entry_of(desk, "second"), NavigationOptions())
    await running
    assert (went.cancelled, went.text) == (False, "second")
    assert not desk.session.activity.busy
    await desk.prompt("other")
    assert said(desk) == ["first", "other"]


async def test_a_navigation_that_is_aborted_before_its_turn_is_refused() -> None:
    reached = asyncio.Event()

    async def hold() -> None:
        reached.set()
        await asyncio.get_running_loop().create_future()

    desk = await branched([hold])
    running = asyncio.ensure_future(desk.prompt("third"))
    await reached.wait()
    leaf = desk.session.journal.leaf_id
    waiting = desk.session.engine.navigate(entry_of(desk, "second"), NavigationOptions())
    desk.session.engine.abort()
    with pytest.raises(Refusal, match="Compaction cancelled"):
        await waiting
    await running
    assert not desk.session.activity.busy
    assert leaf in [line.id for line in desk.session.journal.branch]
