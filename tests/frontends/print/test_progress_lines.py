"""The lines that `pigeon -p` shows at a terminal while an agent works."""

from __future__ import annotations

from typing import Any

import pytest

from pigeon.frontends.print.answer_output import LONGEST_SUBJECT, ProgressLines
from pigeon.wire.events import (
    AutoRetryStart,
    CompactionStart,
    QueueUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolOutcome,
)


def started(**arguments: Any) -> ToolExecutionStart:
    return ToolExecutionStart(tool_call_id="1", tool_name="bash", args=arguments)


def ended(failed: bool) -> ToolExecutionEnd:
    return ToolExecutionEnd(tool_call_id="1", tool_name="bash", result=ToolOutcome(content=[]), is_error=failed)


def retrying(**more: Any) -> AutoRetryStart:
    return AutoRetryStart(attempt=2, max_attempts=3, delay_ms=1449, error_message="529 {}", **more)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (started(command="ls"), "bash ls"),
        (started(command="ls\npwd"), "bash ls …"),
        (started(command="x" * LONGEST_SUBJECT), f"bash {'x' * LONGEST_SUBJECT}"),
        (started(command="x" * (LONGEST_SUBJECT + 1)), f"bash {'x' * LONGEST_SUBJECT} …"),
        (started(timeout=5), "bash"),
        (ToolExecutionStart(tool_call_id="1", tool_name="odd", args=None), "odd"),
        (ended(True), "bash failed"),
        (ended(False), ""),
        (retrying(), "retrying in 1.4 s (2 of 3): 529 {}"),
        (retrying(explanation="It is overloaded"), "retrying in 1.4 s (2 of 3): It is overloaded"),
        (CompactionStart(reason="threshold"), "summarizing older messages to free context"),
        (QueueUpdate(steering=[], follow_up=[]), ""),
    ],
)
def test_a_person_sees_which_tools_run_and_what_is_waited_for(event: Any, line: str) -> None:
    assert ProgressLines(None).line_for(event) == line
