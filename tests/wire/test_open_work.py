"""What the events of a conversation have begun and not ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pigeon.wire.open_work import OpenWork, read_open_work

RUN = {"type": "agent_start", "runId": "r1"}
SETTLED = {"type": "agent_settled", "aborted": False, "reason": "done", "runId": "r1"}


def work_of(*events: dict[str, Any]) -> OpenWork:
    lines = (json.dumps(event, separators=(",", ":")).encode() for event in events)
    return read_open_work(enumerate(lines, 1))


def question(id: str, method: str = "select") -> dict[str, Any]:
    return {"method": method, "type": "extension_ui_request", "id": id}


def cancel(target: str) -> dict[str, Any]:
    return {"method": "cancel", "type": "extension_ui_request", "id": "c", "targetId": target}


def test_a_run_is_open_until_it_has_settled() -> None:
    work = work_of(RUN, {"type": "turn_start"})
    assert (work.running, work.run_id, work.is_busy) == (True, "r1", True)
    work = work_of(RUN, {"type": "agent_end"}, SETTLED)
    assert (work.running, work.run_id, work.is_busy) == (False, None, False)


@pytest.mark.parametrize("method", ["select", "confirm", "input", "editor"])
def test_a_question_is_open_until_it_is_cancelled_whatever_else_ends(method: str) -> None:
    work = work_of(RUN, question("q", method), SETTLED)
    assert list(work.questions) == ["q"]
    assert work.is_busy
    assert not work_of(RUN, question("q", method), cancel("q"), SETTLED).is_busy
    assert work_of(question("q", method), cancel("other")).is_busy


def test_a_notice_is_no_question() -> None:
    assert not work_of(question("n", "notify"), question("s", "setStatus")).is_busy


def test_a_permission_question_ends_with_its_outcome() -> None:
    assert not work_of(question("q"), {"type": "permission_resolved", "id": "q", "outcome": "once"}).is_busy


def test_a_host_tool_call_is_open_until_it_is_cancelled() -> None:
    call = {"type": "host_tool_call", "id": "h", "toolCallId": "t", "toolName": "x", "arguments": {}}
    assert list(work_of(call).questions) == ["h"]
    assert not work_of(call, {"type": "host_tool_cancel", "id": "c", "targetId": "h"}).is_busy


def test_what_is_under_way_begins_with_the_earliest_message_or_tool_call() -> None:
    start = {"type": "message_start", "message": {"role": "assistant"}}
    end = {"type": "message_end", "message": {"role": "assistant"}}
    tool = {"type": "tool_execution_start", "toolCallId": "t"}
    assert work_of(RUN, start).first_open_number == 2
    assert work_of(RUN, start).message == 2
    assert work_of(RUN, start, end).first_open_number is None
    assert work_of(RUN, start, end).messages == 1
    work = work_of(RUN, tool, {**tool, "toolCallId": "u"}, {"type": "tool_execution_end", "toolCallId": "t"}, start)
    assert (work.first_open_number, work.message) == (3, 5)
    assert work_of(RUN, tool, SETTLED).first_open_number is None
