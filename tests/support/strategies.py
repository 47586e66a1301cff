"""Strategies for hypothesis: JSON values of every kind, and journals of arbitrary conversations.

A JSON value is made from two draws: `st.recursive` needs dozens for one value. An example that fails is reduced to the
smallest size at which its seed still fails.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import isfinite
from random import Random
from typing import Any

from hypothesis import strategies as st

from pigeon.session.history.journal import Journal, make_header
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
from support.model_requests import assistant_message, tool_result, user_message
from support.sessions import NOW

Texts = Callable[[Random], str]
INTEGERS = [0, 1, -1, 2**31, 2**53 + 1, -(2**53) - 1, 2**63, 2**64, -(2**63) - 1, 10**30]
FLOATS = [0.0, -0.0, 0.1, 1.5, 1e16, 1e-7, 5e-324, 1.7976931348623157e308]
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


def letters(special: str, most: int = 8, surrogates: bool = False) -> Texts:
    """Texts in which every second sign is one of these and the others any of Unicode, halves of pairs only if asked."""

    def make_text(chance: Random) -> str:
        signs = "".join(
            chance.choice(special) if chance.random() < 0.5 else _sign(chance, surrogates)
            for _ in range(chance.randint(0, most))
        )
        # Two halves side by side are one sign to every reader.
        return signs.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if surrogates else signs

    return make_text


def words(*some: str) -> Texts:
    return lambda chance: chance.choice(some)


def _sign(chance: Random, surrogates: bool) -> str:
    code = chance.randrange(chance.choice((0x80, 0x800, 0x10000, 0x110000)))
    return "\ufffd" if 0xD800 <= code < 0xE000 and not surrogates else chr(code)


ANY_TEXT = letters('"\\/ \n\u2028a')


def json_values(
    texts: Texts = ANY_TEXT, keys: Texts | None = None, size: int = 12, scalars: Sequence[Any] = ()
) -> st.SearchStrategy[Any]:
    """Scalars, lists and objects of at most so many values; `scalars` are mixed in with those of every kind."""
    names = keys or texts
    return st.builds(
        lambda most, seed: _value(Random(seed), most, texts, names, scalars),
        st.integers(1, size),
        st.integers(0, 2**32 - 1),
    )


def json_objects(
    texts: Texts = ANY_TEXT, keys: Texts | None = None, size: int = 12, scalars: Sequence[Any] = ()
) -> st.SearchStrategy[dict[str, Any]]:
    """Objects of at most so many values."""
    names = keys or texts
    return st.builds(
        lambda most, seed: _object(Random(seed), most, texts, names, scalars),
        st.integers(0, size),
        st.integers(0, 2**32 - 1),
    )


def _value(chance: Random, size: int, texts: Texts, keys: Texts, scalars: Sequence[Any]) -> Any:
    kind = chance.randrange(3)
    if size < 2 or kind == 0:
        return _scalar(chance, texts, scalars)
    if kind == 1:
        return [_value(chance, share, texts, keys, scalars) for share in _shares(chance, size - 1)]
    return _object(chance, size - 1, texts, keys, scalars)


def _object(chance: Random, size: int, texts: Texts, keys: Texts, scalars: Sequence[Any]) -> dict[str, Any]:
    return {keys(chance): _value(chance, share, texts, keys, scalars) for share in _shares(chance, size)}


def _shares(chance: Random, size: int) -> list[int]:
    """How many values each member may be made of, together at most so many."""
    shares = []
    while size > 0 and chance.random() < 0.8:
        shares.append(chance.randint(1, size))
        size -= shares[-1]
    return shares


def _scalar(chance: Random, texts: Texts, scalars: Sequence[Any]) -> Any:
    kind = chance.randrange(6 if scalars else 5)
    if kind < 2:
        return texts(chance)
    if kind == 2:
        return chance.choice((None, True, False))
    if kind == 3:
        return chance.choice(INTEGERS) if chance.random() < 0.5 else chance.randint(-1000, 1000)
    return _float(chance) if kind == 4 else chance.choice(scalars)


def _float(chance: Random) -> float:
    if chance.random() < 0.5:
        return chance.choice(FLOATS)
    (value,) = struct.unpack("d", chance.randbytes(8))
    return float(value) if isfinite(value) else 0.5


def empty_journal() -> Journal:
    return Journal("test", "/", make_header("test", NOW, "/"), None, lambda: NOW)


def apply_step(journal: Journal, step: tuple[Any, ...]) -> None:
    kind, *rest = step
    if kind == "user":
        journal.append_message(user_message([TextContent(text=rest[0])]))
    elif kind == "answer":
        text, calls, stop = rest
        blocks = [TextContent(text=text), *(ToolCall(id=name, name="bash", arguments={"n": name}) for name in calls)]
        journal.append_message(assistant_message(*blocks, stop_reason=stop))
    elif kind == "result":
        journal.append_message(tool_result(rest[0], rest[1]))
    elif kind == "results":
        _answer_all(journal)
    elif kind == "bash":
        journal.append_message(
            BashExecutionMessage(command="ls", output=rest[0], cancelled=False, truncated=False, timestamp=NOW)
        )
    else:
        _apply_other_step(journal, kind, rest)


def _answer_all(journal: Journal) -> None:
    last = next((line.message for line in reversed(journal.branch) if line.role == "assistant"), None)
    for block in getattr(last, "content", []):
        if isinstance(block, ToolCall):
            journal.append_message(tool_result(block.id, "ok"))


def _apply_other_step(journal: Journal, kind: str, rest: list[Any]) -> None:
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
        journal.set_leaf(_entry(journal, rest[0]) or None)
    elif kind == "label":
        journal.append(LabelEntry, target_id=_entry(journal, rest[0]), label="l")
    else:
        replacement = None if kind == "omit" else {"content": rest[1]}
        journal.append(ContextEdit, target_id=_entry(journal, rest[0]), replacement=replacement)


def _entry(journal: Journal, place: int) -> str:
    return journal.lines[place % len(journal.lines)].id if journal.lines else ""


def journal_of(story: list[tuple[Any, ...]]) -> Journal:
    """The journal of a whole story."""
    journal = empty_journal()
    for step in story:
        apply_step(journal, step)
    return journal
