"""Random sequences of changes and undos; `make undo-storm` runs thousands of them."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from support.undo_sequences import STEPS, run_sequence


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_any_sequence_of_changes_can_be_undone_and_nobody_elses_work_is_lost(steps: list[tuple[str, int]]) -> None:
    run_sequence(steps)
