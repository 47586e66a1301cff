"""The line below the input."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.utils import get_cwidth

from pigeon.frontends.terminal.footer import FooterFacts, footer_text, read_git_branch

ANY = st.text(max_size=40)


def facts() -> FooterFacts:
    return FooterFacts(
        model="anthropic/claude",
        thinking="high",
        context_percent=12.3,
        context_window=200_000,
        cost=0.1234,
        cwd="/home/me/work/pigeon",
        home="/home/me",
        branch="main",
        session="a name",
        statuses={"x": "3 tests fail"},
    )


FACTS = st.builds(FooterFacts, ANY, ANY, st.just(3.0), st.just(1000), st.just(1.0), ANY, ANY, ANY, ANY)


@given(FACTS, st.integers(0, 90))
@settings(max_examples=50, deadline=None)
def test_it_always_fits_and_is_one_harmless_line(made: FooterFacts, width: int) -> None:
    line = footer_text(made, width)
    assert get_cwidth(line) <= width
    assert all(char.isprintable() or char in "\u200c\u200d" for char in line)


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (
            200,
            "anthropic/claude high  context 12% of 200k  $0.123  ~/work/pigeon  (main)  a name  3 tests fail",
        ),
        (75, "anthropic/claude high  context 12% of 200k  $0.123  ~/work/pigeon  (main)"),
        (60, "anthropic/claude high  context 12% of 200k  $0.123  pigeon"),
        (40, "anthropic/claude high  12%  $0.123"),
        (10, "claude"),
        (3, "cla"),
    ],
)
def test_what_matters_least_goes_first(width: int, line: str) -> None:
    assert footer_text(facts(), width) == line


def test_no_model_is_said_to_be_missing_while_the_agent_starts() -> None:
    assert footer_text(FooterFacts(cwd="/x"), 40) == "starting  /x"
    assert footer_text(FooterFacts(cwd="/x", is_starting=False), 40) == "no model  /x"


def test_the_branch_is_that_of_the_folder_above(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/topic/one\n")
    (tmp_path / "deep").mkdir()
    assert read_git_branch(str(tmp_path / "deep")) == "topic/one"


def test_a_repository_that_a_command_has_spoiled_has_no_branch_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git" / "HEAD")
    assert read_git_branch(str(tmp_path)) == ""
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / ".git").write_bytes(b"gitdir: a\0b\n")
    assert read_git_branch(str(tmp_path / "below")) == ""


def test_plan_mode_and_the_background_are_named_and_the_cost_stays_in_a_narrow_terminal() -> None:
    made = facts()
    assert made.show_background(2)
    assert not made.show_background(2), "one update is enough"
    made.plans_first = True
    assert "plan mode  $0.123  2 in the background" in footer_text(made, 200)
    narrow = footer_text(made, 40)
    assert "$0.123" in narrow
    assert "plan" in narrow
