"""How often a reader changes the package to follow one prompt: traced on the running program."""

from __future__ import annotations

from prompt_trace import trace_prompts

from support.source_tree import ROOT

CHANGES_OF_PACKAGE = 150


def test_a_prompt_changes_the_package_few_times_until_its_first_delta() -> None:
    first, second = trace_prompts(ROOT)
    assert "agent/run.py" in first.files
    assert "dialects/snapshots.py" in first.files
    assert first.changes_of_package <= CHANGES_OF_PACKAGE
    assert second.changes_of_package <= CHANGES_OF_PACKAGE
