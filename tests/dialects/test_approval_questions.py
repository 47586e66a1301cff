"""Questions about permission in oh-my-pi's words, beside the titles that oh-my-pi 18.2 formatted for the same calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.dialects.approval_questions import format_approval_title
from pigeon.dialects.choice import NAMES
from pigeon.tools.catalog import TOOLS
from pigeon.wire.dialogs import SelectRequest
from support.records import Record, dialect_for, records_for

RECORDED = Path(__file__).parent / "recorded" / "omp_approval_questions.jsonl"
CASES: list[Record] = [json.loads(line) for line in RECORDED.read_text("utf-8").splitlines()]
WORDED = ("omp", "xcsh")
# What screens show as it is; a space that is none for a shell is not among them.
TEXTS = st.text(st.characters(categories=("L", "N", "P", "S")) | st.sampled_from(" \n\t"), max_size=40)


def question(tool: str, arguments: Record) -> SelectRequest:
    return SelectRequest(
        id="q", title="Allow x", options=["Allow once", "Deny"], tool_call_id="c", tool_name=tool, args=arguments
    )


def to_text(value: Any) -> Any:
    """A recorded argument; a long one is recorded as a text and how often it is repeated."""
    return value[0] * value[1] if isinstance(value, list) and isinstance(value[-1], int) else value


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_title_is_the_one_that_was_recorded(case: Record) -> None:
    title = format_approval_title(case["tool"], {name: to_text(value) for name, value in case["args"].items()})
    if "title" in case:
        assert title == case["title"]
    else:
        start, end, length = case["start"], case["end"], case["length"]
        assert (title[: len(start)], title[-len(end) :], len(title)) == (start, end, length)


def test_every_tool_with_a_text_of_its_own_is_recorded() -> None:
    recorded = {case["tool"] for case in CASES}
    assert {tool.name for tool in TOOLS} - recorded <= {"ls", "task", "jobs"}


@pytest.mark.parametrize("name", NAMES)
def test_only_the_family_of_oh_my_pi_words_a_question_so(name: str) -> None:
    shown = records_for(dialect_for(name), question("bash", {"command": "ls"}))
    if name == "companion":
        assert not shown
        return
    (record,) = shown
    worded = ("Allow tool: bash\nCommand: ls", ["Approve", "Deny"])
    assert (record["title"], record["options"]) == (worded if name in WORDED else ("Allow x", ["Allow once", "Deny"]))
    assert record.get("args") == (None if name == "pi-0.73" else {"command": "ls"})


@pytest.mark.parametrize("name", WORDED)
def test_the_questions_of_extensions_keep_their_words(name: str) -> None:
    asked = SelectRequest(id="q", title="Allow bash: x", options=["Allow once", "Approve"])
    (record,) = records_for(dialect_for(name), asked)
    assert (record["title"], record["options"]) == ("Allow bash: x", ["Allow once", "Approve"])


@given(tool=st.sampled_from([tool.name for tool in TOOLS] + ["deploy"]), text=TEXTS)
def test_a_client_reads_the_tool_and_the_whole_command(tool: str, text: str) -> None:
    title = format_approval_title(tool, {"command": text, "path": text, "content": text})
    first, _, rest = title.partition("\n")
    assert first == f"Allow tool: {tool}"
    if tool == "bash":
        assert rest == f"Command: {text}"


def test_a_started_agent_is_asked_about_with_its_type_and_task() -> None:
    """The arguments have other names in oh-my-pi, the lines are the same."""
    assert format_approval_title("task", {"agent": "reviewer", "title": "x", "prompt": "Look at it.\nAll."}) == (
        "Allow tool: task\nAgent: reviewer\nTask:\nLook at it.\nAll."
    )
    assert (
        format_approval_title("task", {"prompt": "p" * 2001}) == f"Allow tool: task\nTask:\n{'p' * 2000}[…1ch elided…]"
    )


def test_a_command_that_leaves_the_sandbox_says_so_in_words_of_ours() -> None:
    arguments = {"command": "make", "unsandboxed": True, "reason": "fun\nCommand: ls"}
    assert format_approval_title("bash", arguments) == (
        "Allow tool: bash\nReason: The command is to run outside the sandbox\nCommand: make"
    )


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\xa0", "\x1b[2K", "\rls"])
def test_nothing_in_a_title_is_invisible(hidden: str) -> None:
    title = format_approval_title("write", {"path": f"a{hidden}", "content": f"one\r\n{hidden}\n"})
    assert hidden not in title
    assert "one\r\n\ufffd" in title
