"""Where a conversation is cut: the rules, and what must hold for any conversation."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pigeon.session.compaction.cutting import LARGE, find_cut, find_prunable_results, pieces_of, prune_results
from pigeon.session.context.transcript import context_of, estimate_branch_tokens
from pigeon.wire.content import text_of
from pigeon.wire.entries import CompactionEntry, LabelEntry, ModelChange
from pigeon.wire.messages import BashExecutionMessage, CompactionSummaryMessage, Message, ToolResultMessage
from pigeon.wire.tokens import message_tokens
from support.session_setup import CompactionSetup
from support.sessions import user
from support.strategies import STORIES, journal_of

FORTY = "x" * 160


def texts(messages: list[Message]) -> list[str]:
    return [text_of(message.content) for message in messages if hasattr(message, "content")]


@given(STORIES, st.integers(0, 60), st.integers(0, 60))
def test_any_cut_loses_nothing_and_never_parts_a_result_from_its_call(
    story: list[Any], keep: int, most_kept: int
) -> None:
    journal = journal_of(story)
    pieces, previous = pieces_of(journal.branch)
    cut = find_cut(journal.branch, keep, most_kept)
    if cut is None:
        assert pieces == []
        return
    assert [*cut.history, *cut.prefix, *cut.kept] == [piece.message for piece in pieces]
    assert cut.previous is previous
    if not cut.is_empty:
        assert not isinstance(cut.kept[0], ToolResultMessage) or all(
            isinstance(piece.message, ToolResultMessage) for piece in pieces
        )
    assert cut.kept_tokens == sum(map(message_tokens, cut.kept))
    journal.append(CompactionEntry, summary="s", first_kept_entry_id=cut.first_kept, tokens_before=1)
    rebuilt = context_of(journal.branch)
    assert isinstance(rebuilt[0], CompactionSummaryMessage)
    assert rebuilt[1:] == cut.kept


def test_the_cut_is_the_first_place_at_or_after_enough_recent_tokens() -> None:
    setup = CompactionSetup()
    for number in range(4):
        setup.append_user_message(f"{number}{FORTY}")
        setup.answer(f"a{number}{FORTY}")
    cut = find_cut(setup.journal.branch, 100, 10_000)
    assert cut is not None
    assert [text[:2] for text in texts(cut.kept)] == ["a2", "3x", "a3"]
    assert [text[:2] for text in texts(cut.prefix)] == ["2x"]
    assert [text[:2] for text in texts(cut.history)] == ["0x", "a0", "1x", "a1"]


def test_a_result_is_kept_with_its_call_only_if_both_are() -> None:
    setup = CompactionSetup()
    setup.append_user_message("go")
    setup.call("bash", "y" * 4_000, command="ls")
    setup.answer("done")
    cut = find_cut(setup.journal.branch, 100, 10_000)
    assert cut is not None
    assert texts(cut.kept) == ["done"]
    assert len(cut.prefix) == 3
    assert cut.history == []


def test_a_last_result_that_is_large_stays_with_its_call() -> None:
    setup = CompactionSetup()
    setup.append_user_message("go")
    asked, _ = setup.call("bash", "y" * 4_000, command="ls")
    cut = find_cut(setup.journal.branch, 100, 10_000)
    assert cut is not None
    assert cut.first_kept == asked
    assert texts(cut.prefix) == ["go"]


def test_a_conversation_that_is_small_is_kept_whole() -> None:
    setup = CompactionSetup()
    setup.append_user_message("one")
    setup.answer("two")
    cut = find_cut(setup.journal.branch, 1_000, 10_000)
    assert cut is not None
    assert cut.is_empty


def test_the_cut_takes_along_what_says_nothing_before_it() -> None:
    setup = CompactionSetup()
    setup.append_user_message(FORTY)
    setup.answer(FORTY)
    change = setup.journal.append(ModelChange, provider="a", model_id="b")
    label = setup.journal.append(LabelEntry, target_id=change.id, label="here")
    setup.append_user_message(FORTY)
    cut = find_cut(setup.journal.branch, 10, 10_000)
    assert cut is not None
    assert cut.first_kept == change.id
    assert cut.first_kept != label.id
    assert len(cut.kept) == 1


def test_a_shell_command_of_the_host_begins_a_turn() -> None:
    setup = CompactionSetup()
    setup.append_user_message(FORTY)
    setup.answer(FORTY)
    setup.journal.append_message(
        BashExecutionMessage(command="ls", output=FORTY, cancelled=False, truncated=False, timestamp=1)
    )
    cut = find_cut(setup.journal.branch, 10, 10_000)
    assert cut is not None
    assert (len(cut.history), len(cut.prefix), len(cut.kept)) == (2, 0, 1)


def test_what_an_earlier_cut_kept_is_summarized_this_time() -> None:
    setup = CompactionSetup()
    ids = [setup.append_user_message(f"{number}{FORTY}") for number in range(4)]
    setup.journal.append(CompactionEntry, summary="s", first_kept_entry_id=ids[2], tokens_before=1)
    setup.append_user_message(f"4{FORTY}")
    cut = find_cut(setup.journal.branch, 10, 10_000)
    assert cut is not None
    assert [text[0] for text in texts(cut.history)] == ["2", "3"]
    assert cut.previous is not None
    assert cut.previous.summary == "s"


def test_less_is_kept_where_it_would_not_leave_enough_room() -> None:
    setup = CompactionSetup()
    for _ in range(10):
        setup.append_user_message("z" * 400)
        setup.answer("z" * 400)
    generous = find_cut(setup.journal.branch, 1_000, 10_000)
    tight = find_cut(setup.journal.branch, 1_000, 300)
    assert generous is not None
    assert tight is not None
    assert generous.kept_tokens == 1_000
    assert tight.kept_tokens <= 300


def test_only_large_and_old_results_are_shortened_and_only_once() -> None:
    setup = CompactionSetup()
    setup.append_user_message("go")
    _, old = setup.call("bash", "o" * (LARGE + 1), command="a")
    setup.call("bash", "s" * LARGE, command="b")
    _, recent = setup.call("bash", "r" * (LARGE + 1), command="c")
    found = find_prunable_results(setup.journal.branch, 1_200)
    assert [entry for entry, _, _ in found] == [old]
    before = estimate_branch_tokens(setup.journal.branch)
    prune_results(setup.journal, found)
    after = estimate_branch_tokens(setup.journal.branch)
    assert before - after == found[0][2]
    assert find_prunable_results(setup.journal.branch, 1_200) == []
    assert [entry for entry, _, _ in find_prunable_results(setup.journal.branch, 0)] == [recent]
    shortened = texts(context_of(setup.journal.branch))[2]
    assert shortened.startswith("o" * 400)
    assert shortened.endswith("characters of old output removed to save context]")


def test_results_are_shortened_in_their_order() -> None:
    setup = CompactionSetup()
    ids = [setup.call("bash", letter * (LARGE + 1), command="a")[1] for letter in "abc"]
    found = find_prunable_results(setup.journal.branch, 0)
    assert [entry for entry, _, _ in found] == ids
    assert [entry.target_id for entry in prune_results(setup.journal, found)] == ids


@given(STORIES)
def test_the_size_of_a_context_is_never_negative_and_grows_with_what_is_said(story: list[Any]) -> None:
    journal = journal_of(story)
    before = estimate_branch_tokens(journal.branch)
    assert before >= 0
    journal.append_message(user("twelve chars"))
    assert estimate_branch_tokens(journal.branch) == before + message_tokens(user("twelve chars"))
