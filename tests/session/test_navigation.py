"""Another entry becomes the leaf: which one, what of the branch that is left is summarized, and what goes on record."""

from __future__ import annotations

import asyncio

import pytest

from fakes.agent_loop import Script, says
from pigeon.session.navigation import BRANCH, NavigationOptions
from pigeon.wire.base import ABSENT
from pigeon.wire.content import text_of
from pigeon.wire.entries import BranchSummaryEntry, CustomMessageEntry, LabelEntry
from pigeon.wire.errors import Aborted, Refusal
from pigeon.wire.messages import UserMessage
from support.session_setup import LONG, CompactionSetup, SessionSetup, make_filled_setup


async def test_a_branch_summary_takes_the_newest_that_fits_and_no_results() -> None:
    setup = make_filled_setup("WHAT IT DID", turns=0, window=4_000)
    root = setup.append_user_message("root")
    for number in range(8):
        setup.append_user_message(f"question {number} {LONG}")
        setup.call("read", "the secret result", path=f"{number}.py")
    old_leaf = setup.journal.leaf_id
    went = await setup.navigation.navigate_to(root, NavigationOptions(summarize=True, label="left"), setup.scope)
    summary, label = (line.entry for line in setup.journal.branch)
    assert isinstance(summary, BranchSummaryEntry)
    assert (summary.from_id, summary.parent_id) == (old_leaf, None)
    assert summary.summary.startswith("WHAT IT DID\n\n<read-files>\n")
    assert getattr(label, "target_id", None) == summary.id == went.summary_entry_id
    asked = setup.answers.summarized_text()
    assert "question 7" in asked
    assert "question 0" not in asked
    assert "secret" not in asked
    assert [request.max_tokens for request in setup.answers.requests] == [None]


async def test_leaving_nothing_behind_needs_no_summary() -> None:
    setup = make_filled_setup(turns=1)
    leaf = setup.journal.leaf_id
    assert leaf is not None
    went = await setup.navigation.navigate_to(leaf, NavigationOptions(summarize=True), setup.scope)
    assert (went.leaf_id, went.summary_entry_id) == (leaf, ABSENT)
    setup.scope.cancel()
    with pytest.raises(Aborted):
        await setup.navigation.navigate_to(setup.journal.lines[0].id, NavigationOptions(), setup.scope)
    assert setup.journal.leaf_id == leaf


async def test_a_message_of_the_user_is_taken_back_for_editing() -> None:
    setup = make_filled_setup(turns=2)
    second = next(line.id for line in setup.journal.lines if b"question 1" in line.raw)
    went = await setup.navigation.navigate_to(second, NavigationOptions(), setup.scope)
    assert (went.cancelled, went.text) == (False, f"question 1 {LONG}")
    assert [line.role for line in setup.journal.branch] == ["user", "assistant"]
    assert went.leaf_id == setup.journal.leaf_id == setup.journal.branch[-1].id
    assert (went.summary_entry_id, setup.answers.requests) == (ABSENT, [])


async def test_a_message_of_an_extension_is_taken_back_too_and_anything_else_is_the_leaf_itself() -> None:
    setup = make_filled_setup(turns=1)
    parent = setup.journal.leaf_id
    note = setup.journal.append(CustomMessageEntry, custom_type="x", content="a note", display=True)
    went = await setup.navigation.navigate_to(note.id, NavigationOptions(), setup.scope)
    assert (went.text, went.leaf_id) == ("a note", parent)
    answer = setup.journal.lines[1].id
    went = await setup.navigation.navigate_to(answer, NavigationOptions(), setup.scope)
    assert (went.text, went.leaf_id) == (ABSENT, answer)


async def test_a_label_goes_to_the_entry_that_was_named_where_nothing_is_summarized() -> None:
    setup = make_filled_setup(turns=2)
    target = setup.journal.lines[1].id
    went = await setup.navigation.navigate_to(target, NavigationOptions(label="here"), setup.scope)
    label = setup.journal.branch[-1].entry
    assert isinstance(label, LabelEntry)
    assert (label.target_id, label.label, went.leaf_id) == (target, "here", label.id)
    await setup.navigation.navigate_to(target, NavigationOptions(), setup.scope)
    assert setup.journal.leaf_id == target, "no label was asked for"


async def test_the_summary_is_of_what_is_left_alone_with_the_focus_that_was_asked_for() -> None:
    setup = make_filled_setup("WHAT IT DID", turns=3, window=10_000)
    leaf, target = setup.journal.leaf_id, setup.journal.lines[1].id
    await setup.navigation.navigate_to(target, NavigationOptions(summarize=True, instructions="the tests"), setup.scope)
    asked = setup.answers.summarized_text()
    assert ("question 0" in asked, "question 1" in asked, "question 2" in asked) == (False, True, True)
    assert asked.endswith(f"{BRANCH}\n\nAdditional focus: the tests")
    entry = setup.journal.branch[-1].entry
    assert isinstance(entry, BranchSummaryEntry)
    assert (entry.from_id, entry.parent_id, entry.from_hook) == (leaf, target, False)
    assert getattr(entry.usage, "input", None) == 7
    assert entry.details == {"readFiles": [], "modifiedFiles": []}


async def test_without_a_focus_there_is_none() -> None:
    setup = make_filled_setup("WHAT IT DID", turns=2)
    await setup.navigation.navigate_to(setup.journal.lines[0].id, NavigationOptions(summarize=True), setup.scope)
    assert setup.answers.summarized_text().endswith(BRANCH)


@pytest.mark.parametrize(
    ("window", "shown"),
    [
        (0, 1),
        (2_000, 3),  # half of a small window
        (200_000, 8),
    ],
)
async def test_what_is_summarized_follows_the_window(window: int, shown: int) -> None:
    setup = make_filled_setup("WHAT IT DID", turns=0, window=window)
    root = setup.append_user_message("root")
    for number in range(8):
        setup.append_user_message(f"question {number} {LONG}")
    await setup.navigation.navigate_to(root, NavigationOptions(summarize=True), setup.scope)
    # The model's own limit holds, as for any answer.
    assert [request.max_tokens for request in setup.answers.requests] == [None]
    assert setup.answers.summarized_text().count("question ") == shown


async def test_without_a_model_the_leaf_moves_and_nothing_is_summarized() -> None:
    setup = make_filled_setup(turns=2)
    setup.models.model = None
    went = await setup.navigation.navigate_to(setup.journal.lines[1].id, NavigationOptions(summarize=True), setup.scope)
    assert (went.leaf_id, went.summary_entry_id) == (setup.journal.lines[1].id, ABSENT)


async def test_a_branch_of_tool_results_alone_is_not_summarized() -> None:
    setup = CompactionSetup(window=10_000)
    setup.append_user_message("go")
    asked, _ = setup.call("read", "result", path="a.py")
    went = await setup.navigation.navigate_to(asked, NavigationOptions(summarize=True), setup.scope)
    assert (went.leaf_id, went.summary_entry_id, setup.answers.requests) == (asked, ABSENT, [])


async def make_branched_setup(*scripts: Script) -> SessionSetup:
    setup = SessionSetup(says("one"), says("two"), *scripts)
    for word in ("first", "second"):
        await setup.prompt(word)
    return setup


def entry_of(setup: SessionSetup, word: str) -> str:
    return next(line.id for line in setup.session.journal.lines if line.role == "user" and word.encode() in line.raw)


def user_texts(setup: SessionSetup) -> list[str]:
    return [text_of(message.content) for message in setup.session.context if isinstance(message, UserMessage)]


async def test_an_abort_in_the_summary_leaves_the_session_where_it_was() -> None:
    reached = asyncio.Event()

    async def hold() -> None:
        reached.set()
        await asyncio.get_running_loop().create_future()

    setup = await make_branched_setup([hold], says("three"))
    leaf = setup.session.journal.leaf_id
    engine, history = setup.session.engine, setup.session.history
    work = asyncio.ensure_future(history.navigate(entry_of(setup, "second"), NavigationOptions(summarize=True)))  # type: ignore[arg-type]
    await reached.wait()
    assert setup.session.activity.is_compacting
    engine.abort()
    went = await work
    assert (went.cancelled, went.leaf_id) == (True, leaf)
    assert (setup.session.activity.state, setup.session.journal.leaf_id) == ("idle", leaf)
    await setup.prompt("third")
    assert user_texts(setup) == ["first", "second", "third"]


async def test_an_entry_that_is_not_there_is_refused_and_stops_nothing() -> None:
    reached, goes_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await goes_on.wait()

    setup = await make_branched_setup([hold, *says("three")])
    running = asyncio.ensure_future(setup.prompt("third"))
    await reached.wait()
    with pytest.raises(Refusal, match="Entry not found: gone"):
        setup.session.history.navigate("gone", NavigationOptions())
    goes_on.set()
    await running
    assert setup.message_texts()[-1] == "assistant: three"


async def test_a_run_is_stopped_first_and_the_next_prompt_goes_on_at_the_new_place() -> None:
    reached = asyncio.Event()

    async def hold() -> None:
        reached.set()
        await asyncio.get_running_loop().create_future()

    setup = await make_branched_setup([hold], says("four"))
    running = asyncio.ensure_future(setup.prompt("third"))
    await reached.wait()
    went = await setup.session.history.navigate(entry_of(setup, "second"), NavigationOptions())
    await running
    assert (went.cancelled, went.text) == (False, "second")
    assert not setup.session.activity.is_busy
    await setup.prompt("other")
    assert user_texts(setup) == ["first", "other"]


async def test_a_navigation_that_is_aborted_before_its_turn_is_refused() -> None:
    reached = asyncio.Event()

    async def hold() -> None:
        reached.set()
        await asyncio.get_running_loop().create_future()

    setup = await make_branched_setup([hold])
    running = asyncio.ensure_future(setup.prompt("third"))
    await reached.wait()
    leaf = setup.session.journal.leaf_id
    waiting = setup.session.history.navigate(entry_of(setup, "second"), NavigationOptions())
    setup.session.engine.abort()
    with pytest.raises(Refusal, match="Compaction cancelled"):
        await waiting
    await running
    assert not setup.session.activity.is_busy
    assert leaf in [line.id for line in setup.session.journal.branch]
