"""How far a reader walks to follow one prompt: traced on the running program (`scripts/prompt_trace.py`)."""

from __future__ import annotations

from prompt_trace import trace_prompts

from fakes.source_tree import ROOT

FILES = 51


def test_a_prompt_runs_through_few_files_until_its_first_delta() -> None:
    first, _ = trace_prompts(ROOT)
    assert "agent/run.py" in first.files
    assert "dialects/snapshots.py" in first.files
    assert len(first.files) <= FILES, "\n".join(["more files than before:", *first.files])
