"""Parts of a conversation for programs that show it live: some entries, one text, search results.

They are made by the same code as exported pages, and need nothing around them but the style sheet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from pigeon.export.diff_html import diff_html, lines_of_listing, lines_of_patch
from pigeon.export.entry_html import conversation_html
from pigeon.export.escaping import escape_html, to_plain_text
from pigeon.export.html import to_one_line
from pigeon.export.markdown import TextFormatter
from pigeon.export.tool_html import card_html, json_text
from pigeon.export.tree import Line, branches_of
from pigeon.wire.answers import BranchInfo, FoundText, HtmlPiece
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.commands import RenderHtml
from pigeon.wire.content import TextContent, ThinkingContent, ToolCall, text_of
from pigeon.wire.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomMessageEntry,
    Entry,
    LabelEntry,
    MessageEntry,
)
from pigeon.wire.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CustomMessage,
    Message,
    ToolResultMessage,
    UserMessage,
)

AROUND = 60


def render_pieces_of(
    lines: Sequence[Line],
    start: int,
    settled: int,
    formatter: TextFormatter,
    labels: Iterable[Line],
    previous: Line | None,
    explain: Callable[[AssistantMessage], str],
) -> list[HtmlPiece]:
    """Consecutive entries from the number `start` on; `previous` is the message before them, and `explain` words
    failures for people.

    The first `settled` ones will not change any more.
    """
    before = None if previous is None else previous.parse_uncached()
    items = ((start + at, line.parse_uncached() or line.to_plain()) for at, line in enumerate(lines))
    before = before if isinstance(before, MessageEntry) else None
    made = conversation_html(items, formatter, _label_texts_of(labels), before, explain)
    return [
        HtmlPiece(entry_id=lines[number - start].id, html=html, settled=number - start < settled)
        for number, html in made
    ]


def attach_markdown_sources(pieces: Iterable[HtmlPiece], lines: Iterable[Line]) -> list[HtmlPiece]:
    """The pieces; those of messages include their source: the texts, without thinking and calls."""
    by_id = {line.id: line for line in lines}
    return [replace(piece, markdown=_markdown_of(by_id[piece.entry_id].parse_uncached())) for piece in pieces]


def _markdown_of(entry: Entry | None) -> str | Absent:
    message = entry.message if isinstance(entry, MessageEntry) else None
    if isinstance(message, UserMessage):
        return text_of(message.content)
    if isinstance(message, AssistantMessage):
        texts = (block.text.strip("\n") for block in message.content if isinstance(block, TextContent))
        return "\n\n".join(filter(None, texts))
    return ABSENT


def find_unsettled_index(lines: Sequence[Line]) -> int:
    """The index of the last answer, if it has a call without a result; else that after the last entry."""
    done: set[str] = set()
    for at in range(len(lines) - 1, -1, -1):
        if lines[at].role not in ("assistant", "toolResult"):
            continue
        entry = lines[at].parse_uncached()
        message = entry.message if isinstance(entry, MessageEntry) else None
        if isinstance(message, ToolResultMessage):
            done.add(message.tool_call_id)
        elif isinstance(message, AssistantMessage):
            calls = {block.id for block in message.content if isinstance(block, ToolCall)}
            return at if calls - done else len(lines)
    return len(lines)


def render_requested_html(asked: RenderHtml, formatter: TextFormatter) -> str:
    """A text of a program as HTML."""
    if not isinstance(asked.markdown, Absent):
        return formatter.format_prose(asked.markdown)
    if not isinstance(asked.diff, Absent):
        lines = lines_of_patch(asked.diff) or lines_of_listing(asked.diff)
        return diff_html(lines, formatter.try_spend_budget) if lines else f"<pre>{escape_html(asked.diff)}</pre>"
    if not isinstance(asked.call, Absent):
        return card_html(asked.call.name, asked.call.arguments, None, formatter)
    return ""


def find_entries_with_text(lines: Sequence[Line], text: str, most: int) -> tuple[list[FoundText], bool]:
    """The entries that contain a text, newest first, and whether there are more."""
    wanted = text.casefold()
    found: list[FoundText] = []
    for at in range(len(lines) - 1, -1, -1):
        entry = lines[at].parse_uncached()
        for role, said in () if entry is None else _texts_of_entry(entry):
            place = said.casefold().find(wanted)
            if place < 0:
                continue
            if len(found) == most:
                return found, True
            start, end = place - AROUND, place + len(text) + AROUND
            around = f"{'… ' * (start > 0)}{said[max(0, start) : end]}{' …' * (end < len(said))}"
            shown = _answer_index_of(lines, at)
            found.append(FoundText(entry_id=lines[shown].id, role=role, text=" ".join(to_plain_text(around).split())))
            break
    return found, False


def list_branches(lines: Sequence[Line], active: Sequence[str]) -> list[BranchInfo]:
    """Every branch of a session, for a list of them."""
    rows = []
    for branch in branches_of(lines, active):
        if not branch.entries:
            continue
        last = lines[branch.entries[-1]]
        entries = (lines[number].parse_uncached() for number in branch.entries if lines[number].role == "user")
        said = (to_one_line(text_of(_user_text_of(entry))) for entry in entries)
        title = next(filter(None, said), "")
        rows.append(
            BranchInfo(
                leaf_id=last.id,
                title=title,
                entries=len(branch.entries),
                active=branch.number == 0,
                timestamp=str(last.to_plain().get("timestamp", "")),
            )
        )
    return rows


def _user_text_of(entry: Entry | None) -> str:
    message = entry.message if isinstance(entry, MessageEntry) else None
    return text_of(message.content) if isinstance(message, UserMessage) else ""


def _label_texts_of(labels: Iterable[Line]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for line in labels:
        entry = line.parse_uncached()
        if isinstance(entry, LabelEntry):
            found[entry.target_id] = "" if isinstance(entry.label, Absent) else to_one_line(entry.label)
    return found


def _answer_index_of(lines: Sequence[Line], at: int) -> int:
    """A result is shown with the answer before it."""
    while at > 0 and lines[at].role == "toolResult":
        at -= 1
    return at


def _texts_of_entry(entry: Entry) -> Iterator[tuple[str, str]]:
    if isinstance(entry, (CompactionEntry, BranchSummaryEntry)):
        yield "summary", entry.summary
    elif isinstance(entry, CustomMessageEntry):
        yield "custom", text_of(entry.content)
    elif isinstance(entry, MessageEntry):
        yield from _texts_in(entry.message)


def _texts_in(message: Message) -> Iterator[tuple[str, str]]:
    if isinstance(message, AssistantMessage):
        for block in message.content:
            if isinstance(block, TextContent):
                yield "assistant", block.text
            elif isinstance(block, ThinkingContent):
                yield "thinking", block.thinking
            else:
                yield block.name, json_text(block.arguments)
    elif isinstance(message, BashExecutionMessage):
        yield "shell", f"{message.command}\n{message.output}"
    elif isinstance(message, ToolResultMessage):
        yield message.tool_name, text_of(message.content)
    elif isinstance(message, (UserMessage, CustomMessage)):
        yield "user" if isinstance(message, UserMessage) else "custom", text_of(message.content)
