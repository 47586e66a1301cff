"""Journals of arbitrary conversations, grown from steps that hypothesis draws."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from fakes.model_requests import answered, returned, said
from fakes.repositories import NOW
from pigeon.session.history.journal import Journal, new_header
from pigeon.wire.base import ABSENT
from pigeon.wire.content import TextContent, ToolCall
from pigeon.wire.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    ContextEdit,
    CustomEntry,
    CustomMessageEntry,
    LabelEntry,
    ModelChange,
    SessionInfo,
)
from pigeon.wire.messages import BashExecutionMessage

WORDS = st.text("ab \n", max_size=40)
CALLS = st.lists(st.sampled_from(["c1", "c2", "c3"]), max_size=3)
STOPS = st.sampled_from(["stop", "toolUse", "length", "error", "aborted"])
PLACE = st.integers(0, 30)

STEP = st.one_of(
    st.tuples(st.just("user"), WORDS),
    st.tuples(st.just("answer"), WORDS, CALLS, STOPS),
    st.tuples(st.just("result"), st.sampled_from(["c1", "c2", "c3"]), WORDS),
    st.tuples(st.just("results")),
    st.tuples(st.just("bash"), WORDS),
    st.tuples(st.just("custom_message"), WORDS),
    st.tuples(st.just("quiet"), st.integers(0, 3)),
    st.tuples(st.just("label"), PLACE),
    st.tuples(st.just("summary"), WORDS),
    st.tuples(st.just("compaction"), PLACE),
    st.tuples(st.just("omit"), PLACE),
    st.tuples(st.just("replace"), PLACE, WORDS),
    st.tuples(st.just("move"), PLACE),
)
STORIES = st.lists(STEP, max_size=25)


def empty() -> Journal:
    """A journal in memory."""
    return Journal("test", "/", new_header("test", NOW, "/"), None, lambda: NOW)


def take(journal: Journal, step: tuple[Any, ...]) -> None:
    """One more thing happens."""
    kind, *rest = step
    if kind == "user":
        journal.append_message(said([TextContent(text=rest[0])]))
    elif kind == "answer":
        text, calls, stop = rest
        blocks = [TextContent(text=text), *(ToolCall(id=name, name="bash", arguments={"n": name}) for name in calls)]
        journal.append_message(answered(*blocks, stop_reason=stop))
    elif kind == "result":
        journal.append_message(returned(rest[0], rest[1]))
    elif kind == "results":
        _answer_all(journal)
    elif kind == "bash":
        journal.append_message(
            BashExecutionMessage(command="ls", output=rest[0], cancelled=False, truncated=False, timestamp=NOW)
        )
    else:
        _take_other(journal, kind, rest)


def _answer_all(journal: Journal) -> None:
    last = next((line.message for line in reversed(journal.branch) if line.role == "assistant"), None)
    for block in getattr(last, "content", []):
        if isinstance(block, ToolCall):
            journal.append_message(returned(block.id, "ok"))


def _take_other(journal: Journal, kind: str, rest: list[Any]) -> None:
    if kind == "custom_message":
        journal.append(CustomMessageEntry, custom_type="x", content=rest[0], display=True)
    elif kind == "quiet":
        quiet: list[tuple[Any, dict[str, Any]]] = [
            (ModelChange, {"provider": "here", "model_id": "m-1"}),
            (SessionInfo, {"name": "n"}),
            (CustomEntry, {"custom_type": "x", "data": {"a": 1}}),
            (CustomEntry, {"custom_type": "y", "data": ABSENT}),
        ]
        entry, fields = quiet[rest[0]]
        journal.append(entry, **fields)
    elif kind == "summary":
        journal.append(BranchSummaryEntry, from_id="root", summary=rest[0])
    elif kind == "compaction":
        journal.append(
            CompactionEntry, summary="the summary", first_kept_entry_id=_entry(journal, rest[0]), tokens_before=1
        )
    elif kind == "move":
        journal.move_to(_entry(journal, rest[0]) or None)
    elif kind == "label":
        journal.append(LabelEntry, target_id=_entry(journal, rest[0]), label="l")
    else:
        replacement = None if kind == "omit" else {"content": rest[1]}
        journal.append(ContextEdit, target_id=_entry(journal, rest[0]), replacement=replacement)


def _entry(journal: Journal, place: int) -> str:
    return journal.lines[place % len(journal.lines)].id if journal.lines else ""


def grown(story: list[tuple[Any, ...]]) -> Journal:
    """The journal of a whole story."""
    journal = empty()
    for step in story:
        take(journal, step)
    return journal
