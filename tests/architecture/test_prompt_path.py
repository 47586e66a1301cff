"""How often a reader changes the package to follow one prompt: traced on the running program."""

from __future__ import annotations

from prompt_trace import trace_prompts

from support.source_tree import ROOT

# An alarm: what a prompt passes through is counted by `make house`. Checkpoints added three.
CHANGES_OF_PACKAGE = 155
# On a busy machine what the program does meanwhile runs more often between the steps of a prompt.
TRACES = 3


def test_a_prompt_changes_the_package_few_times_until_its_first_delta() -> None:
    most = 0
    for _ in range(TRACES):
        first, second = trace_prompts(ROOT)
        assert "agent/run.py" in first.files
        assert "dialects/snapshots.py" in first.files
        most = max(first.changes_of_package, second.changes_of_package)
        if most <= CHANGES_OF_PACKAGE:
            break
    assert most <= CHANGES_OF_PACKAGE
