"""What the death of a process has left of a run, so that the run can be continued: its notes in the session say that it
began and did not end, and which of its tool calls had begun.

| the session ends with | what comes next |
|---|---|
| the note of the run, or a part of its first messages | the messages that are missing, then the model |
| a message of the user, or results | the model is asked again |
| an answer with tool calls | those that had begun are reported as interrupted; the others run |
| an answer without calls | nothing: the run ends |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from pigeon.agent.interfaces import Spoken, UnfinishedAnswer
from pigeon.session.history.entry_line import EntryLine
from pigeon.session.history.journal import Journal, append_missing_results, find_dangling_calls
from pigeon.wire import codec
from pigeon.wire.entries import CALL_ENTRY, RUN_ENTRY, CustomEntry
from pigeon.wire.errors import BadRecord
from pigeon.wire.messages import AssistantMessage, Message

_MARKS = (RUN_ENTRY.encode(), CALL_ENTRY.encode())


class InterruptedRun(Struct, frozen=True):
    """A run that has not ended: its id, the first messages that are missing, and the answer to go on with."""

    run_id: str
    opening: list[Spoken]
    answer: UnfinishedAnswer | None


def find_interrupted_run(journal: Journal, now_ms: int) -> InterruptedRun | None:
    """The run of the active branch that has begun and not ended. Calls of it that had begun get their results."""
    branch = journal.branch
    at, data = _find_last_note(branch)
    if data.get("state") != "active" or not isinstance(data.get("runId"), str):
        return None
    said = [line for line in branch[at + 1 :] if line.type in ("message", "custom_message") and line.role != "system"]
    answers = [line.message for line in said if line.role == "assistant"]
    missing = [] if answers else _read_opening(data)[len(said) :]
    answer = answers[-1] if answers else None
    unfinished = None
    if isinstance(answer, AssistantMessage) and answer.stop_reason not in ("error", "aborted"):
        open_calls = {call.id for call in find_dangling_calls(branch)}
        begun = _find_begun_calls(branch)
        if open_calls or said[-1].role == "assistant":
            unfinished = UnfinishedAnswer(answer, frozenset(open_calls - begun))
        append_missing_results(journal, now_ms, only=begun)
    return InterruptedRun(data["runId"], missing, unfinished)


def _find_last_note(branch: Sequence[EntryLine]) -> tuple[int, dict[str, Any]]:
    """Where the last note of a run is, and what it says."""
    for index in range(len(branch) - 1, -1, -1):
        data = _read_note(branch[index], RUN_ENTRY)
        if data is not None:
            return index, data
    return -1, {}


def _find_begun_calls(branch: Sequence[EntryLine]) -> set[str]:
    notes = (_read_note(line, CALL_ENTRY) for line in branch)
    return {str(data.get("toolCallId")) for data in notes if data is not None}


def _read_note(line: EntryLine, kind: str) -> dict[str, Any] | None:
    if line.type != "custom" or not any(mark in line.raw for mark in _MARKS):
        return None
    entry = line.entry
    if not isinstance(entry, CustomEntry) or entry.custom_type != kind or not isinstance(entry.data, dict):
        return None
    return entry.data


def _read_opening(data: dict[str, Any]) -> list[Spoken]:
    try:
        return [codec.convert(message, Message) for message in data.get("opening", [])]  # type: ignore[arg-type]
    except (BadRecord, TypeError):
        return []
