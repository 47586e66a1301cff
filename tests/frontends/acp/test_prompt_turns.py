"""Prompts that have not been answered, and how they end."""

from __future__ import annotations

from pigeon.frontends.acp.editions.edition import PromptEnd
from pigeon.frontends.acp.prompt_blocks import PromptGiven
from pigeon.frontends.acp.prompt_turns import MOST_ENDS, PromptTurns

GIVEN = PromptGiven("Hello", [], [])


async def test_only_the_first_end_of_a_prompt_counts() -> None:
    turn = PromptTurns().add(GIVEN)
    turn.end(PromptEnd("end_turn"))
    turn.end(PromptEnd("refusal"))
    assert turn.ended.result() == PromptEnd("end_turn")
    assert (turn.taken.done(), turn.inserted, turn.mark_inserted()) == (True, False, False)


async def test_a_cancelled_prompt_ends_as_cancelled_whatever_the_run_does() -> None:
    turns = PromptTurns()
    turn = turns.add(GIVEN)
    turns.cancel_all()
    assert turns.has_cancelled
    turns.fail_all(ValueError("no"))
    assert turn.ended.result() == PromptEnd("cancelled")


async def test_a_prompt_that_joins_a_run_that_has_ended_ends_with_it() -> None:
    turns = PromptTurns()
    assert turns.record_run_end("1", PromptEnd("max_tokens")) == []
    late = turns.add(GIVEN)
    assert not turns.join_run(late, "1")
    assert late.ended.result() == PromptEnd("max_tokens")


async def test_a_run_ends_its_own_prompts_only() -> None:
    turns = PromptTurns()
    one, other, waiting = (turns.add(GIVEN) for _ in range(3))
    assert not turns.has_joined
    assert turns.join_run(one, "1")
    assert turns.join_run(other, "2")
    assert turns.has_joined
    assert turns.record_run_end("1", PromptEnd("end_turn")) == [one]
    assert turns.find(waiting.message_id) is waiting
    turns.remove(one)
    assert (turns.find(one.message_id), len(turns)) == (None, 2)


async def test_the_ends_of_old_runs_are_forgotten() -> None:
    turns = PromptTurns()
    for number in range(MOST_ENDS + 1):
        turns.record_run_end(str(number), PromptEnd("end_turn"))
    assert turns.join_run(turns.add(GIVEN), "0")
    assert not turns.join_run(turns.add(GIVEN), "1")
