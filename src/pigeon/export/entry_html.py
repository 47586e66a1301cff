"""Each entry of a conversation as a piece of HTML, for a page and for whatever else shows conversations.

`entry_html`, `answer_html` and `call_html` (in `tool_html.py`) make complete elements that only need the style sheet of
`style.py`; all contents are escaped or cleaned. `conversation_html` combines results with their calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pigeon.export.escaping import escape_html, moment_html, to_iso_time
from pigeon.export.markdown import TextFormatter
from pigeon.export.pictures import picture_html
from pigeon.export.tool_html import blocks_html, call_html, card_html, json_text, shell_html
from pigeon.providers.explanations import explain_answer
from pigeon.wire.base import Absent, value_or_default
from pigeon.wire.content import TextContent, ThinkingContent, ToolCall, UserBlock
from pigeon.wire.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomMessageEntry,
    Entry,
    MessageEntry,
    ModelChange,
    ThinkingLevelChange,
)
from pigeon.wire.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)

Item = Entry | dict[str, Any]
Results = Mapping[str, ToolResultMessage]
DAY = 86_400_000
_ORDINARY_ENDS = ("stop", "toolUse", "pending")


def conversation_html(
    items: Iterable[tuple[int, Item]],
    formatter: TextFormatter,
    labels: Mapping[str, str],
    previous: MessageEntry | None = None,
    explain: Callable[[AssistantMessage], str] = explain_answer,
) -> Iterator[tuple[int, str]]:
    """The entries of one branch, oldest first, each with its number; results are shown with their calls.

    `labels` are the bookmarks by the id of their entry, `previous` is the message before the first one, and `explain`
    words failures for people. Entries are read one at a time and forgotten: a session may be larger than what should be
    in memory.
    """
    rest = iter(items)
    ahead: deque[tuple[int, Item]] = deque()
    speaker, day = "", 0
    if previous is not None:
        day = previous.message.timestamp // DAY
        speaker = previous.message.model if isinstance(previous.message, AssistantMessage) else ""
    while ahead or (following := next(rest, None)) is not None:
        number, item = ahead.popleft() if ahead else following  # type: ignore[misc]
        message = item.message if isinstance(item, MessageEntry) else None
        label = labels.get(item.id, "") if isinstance(item, Entry) else ""
        this_day = message.timestamp // DAY if message is not None else day
        another_day = to_iso_time(this_day * DAY)[:10] if this_day != day and day else ""
        day = this_day
        if isinstance(message, AssistantMessage):
            results = _pop_results(message, ahead, rest)
            again = speaker == message.model
            piece = answer_html(message, formatter, results, f"m{number}", label, again, explain)
            speaker = message.model
        else:
            piece = entry_html(item, formatter, f"m{number}", label)
            speaker = "" if piece else speaker
        if piece:
            yield number, f'<p class="changed day">{another_day}</p>{piece}' if another_day else piece


def _pop_results(
    message: AssistantMessage, ahead: deque[tuple[int, Item]], rest: Iterator[tuple[int, Item]]
) -> dict[str, ToolResultMessage]:
    """The results of this answer's calls, removed from the entries up to the next answer, because ids may occur
    again."""
    called = {block.id for block in message.content if isinstance(block, ToolCall)}
    results: dict[str, ToolResultMessage] = {}
    waiting = list(ahead)
    ahead.clear()
    while len(results) < len(called):
        entry = waiting.pop(0) if waiting else next(rest, None)
        if entry is None:
            break
        found = entry[1].message if isinstance(entry[1], MessageEntry) else None
        if isinstance(found, ToolResultMessage) and found.tool_call_id in called - results.keys():
            results[found.tool_call_id] = found
        else:
            ahead.append(entry)
            if isinstance(found, AssistantMessage):
                break
    ahead.extend(waiting)
    return results


def entry_html(item: Item, formatter: TextFormatter, anchor: str = "", label: str = "") -> str:
    """One entry, empty if it has no content; an answer comes without its results (see `answer_html`)."""
    if isinstance(item, dict):
        return _unknown_html(item, formatter, anchor)
    if isinstance(item, MessageEntry):
        return _message_html(item.message, formatter, anchor, label)
    if isinstance(item, CompactionEntry):
        return _compaction_html(item.tokens_before, item.summary, item.timestamp, formatter, anchor, label)
    if isinstance(item, BranchSummaryEntry):
        return _summary_html("Summary of another branch", "", item.summary, item.timestamp, formatter, anchor, label)
    if isinstance(item, CustomMessageEntry):
        return _custom_html(item.custom_type, item.content, item.display, item.timestamp, formatter, anchor, label)
    if isinstance(item, ModelChange):
        return f'<p class="changed">model: {escape_html(item.provider)}/{escape_html(item.model_id)}</p>'
    if isinstance(item, ThinkingLevelChange):
        return f'<p class="changed">thinking: {escape_html(item.thinking_level)}</p>'
    return ""


def answer_html(
    message: AssistantMessage,
    formatter: TextFormatter,
    results: Results,
    anchor: str = "",
    label: str = "",
    again: bool = False,
    explain: Callable[[AssistantMessage], str] = explain_answer,
) -> str:
    """An answer of the model with the cards of its calls; with `again`, it continues the last one and has no head."""
    parts = []
    for block in message.content:
        if isinstance(block, TextContent):
            parts.append(formatter.format_prose(block.text) if block.text.strip() else "")
        elif isinstance(block, ThinkingContent):
            parts.append(_thinking_html(block, formatter))
        else:
            parts.append(call_html(block, results.get(block.id), formatter))
    if not isinstance(message.error_message, Absent):
        parts.append(_failure_html(message.error_message, explain(message)))
    if message.stop_reason not in _ORDINARY_ENDS:
        parts.append(f'<p class="note">ended: {escape_html(message.stop_reason)}</p>')
    works = all(isinstance(block, (ThinkingContent, ToolCall)) for block in message.content)
    kind = "assistant work" if works and message.stop_reason in _ORDINARY_ENDS else "assistant"
    if again:
        return _article_html(kind, "", "", "", "".join(parts), anchor, label) if any(parts) else ""
    about = f"{escape_html(message.model)} · {message.usage.output:,} tokens out"
    return _article_html(kind, "Assistant", about, to_iso_time(message.timestamp), "".join(parts), anchor, label)


def _failure_html(text: str, explanation: str) -> str:
    """Why an answer failed: the sentence for people, and folded below it what the server sent."""
    if explanation == text:
        return f'<pre class="bad">{escape_html(text)}</pre>'
    inner = f'<div class="inner"><pre>{escape_html(text)}</pre></div>'
    whole = f"<details><summary>What the server sent</summary>{inner}</details>"
    return f'<p class="bad">{escape_html(explanation)}</p>{whole}'


def _message_html(message: Message, formatter: TextFormatter, anchor: str, label: str) -> str:
    at = to_iso_time(message.timestamp)
    if isinstance(message, UserMessage):
        return _user_html(message, formatter, anchor, label)
    if isinstance(message, AssistantMessage):
        return answer_html(message, formatter, {}, anchor, label)
    if isinstance(message, ToolResultMessage):
        card = card_html(message.tool_name, {}, message, formatter)
        return _article_html("tool", "Tool result", "", at, card, anchor, label)
    if isinstance(message, BashExecutionMessage):
        return _article_html("shell", "Shell", "", at, shell_html(message, formatter), anchor, label)
    if isinstance(message, CustomMessage):
        return _custom_html(message.custom_type, message.content, message.display, at, formatter, anchor, label)
    if isinstance(message, CompactionSummaryMessage):
        return _compaction_html(message.tokens_before, message.summary, at, formatter, anchor, label)
    if isinstance(message, BranchSummaryMessage):
        return _summary_html("Summary of another branch", "", message.summary, at, formatter, anchor, label)
    return _tools_html(message)


def _user_html(message: UserMessage, formatter: TextFormatter, anchor: str, label: str) -> str:
    blocks = [TextContent(text=message.content)] if isinstance(message.content, str) else message.content
    body = "".join(
        formatter.format_prose(block.text, keep_lines=True) if isinstance(block, TextContent) else picture_html(block)
        for block in blocks
        if not isinstance(block, TextContent) or block.text
    )
    files = [] if isinstance(message.attachments, Absent) else [file.file_name for file in message.attachments]
    if names := ", ".join(escape_html(name) for name in files if name):
        body += f'<p class="note">attached: {names}</p>'
    return _article_html("user", "User", "", to_iso_time(message.timestamp), body, anchor, label)


def _thinking_html(block: ThinkingContent, formatter: TextFormatter) -> str:
    if block.redacted is True or not block.thinking.strip():
        return '<p class="note">thinking, kept secret by the provider</p>' if block.redacted is True else ""
    return (
        '<details class="thinking"><summary>Thinking</summary><div class="inner">'
        f"{formatter.format_prose(block.thinking, keep_lines=True)}</div></details>"
    )


def _custom_html(
    kind: str,
    content: str | list[UserBlock],
    shown: bool,
    at: str,
    formatter: TextFormatter,
    anchor: str,
    label: str,
) -> str:
    body = blocks_html(content, ' class="text"')
    if not shown:
        body = f'<details><summary>for the model only</summary><div class="inner">{body}</div></details>'
    return _article_html("custom", "Extension", escape_html(kind), at, body, anchor, label)


def _compaction_html(tokens: int, summary: str, at: str, formatter: TextFormatter, anchor: str, label: str) -> str:
    return _summary_html("Compaction", f"{tokens:,} tokens before", summary, at, formatter, anchor, label)


def _summary_html(
    title: str, about: str, summary: str, at: str, formatter: TextFormatter, anchor: str, label: str
) -> str:
    body = (
        '<details><summary>what came before, in short</summary><div class="inner">'
        f"{formatter.format_prose(summary)}</div></details>"
    )
    return _article_html("summary", title, about, at, body, anchor, label)


def _tools_html(message: SystemMessage) -> str:
    """The tools that the model has from here on."""
    added = value_or_default(message.tools_added, [])
    names = [f"+ {tool.name}" for tool in added] + [
        f"- {tool.name}" for tool in value_or_default(message.tools_removed, [])
    ]
    if not names:
        return ""
    rows = "".join(f"<dt>{escape_html(tool.name)}</dt><dd>{escape_html(tool.description)}</dd>" for tool in added)
    listed = f'<dl class="arguments">{rows}</dl>' if rows else ""
    return (
        f'<details class="changed"><summary>tools: {escape_html(", ".join(names))}</summary><div class="inner">{listed}'
        "</div></details>"
    )


def _unknown_html(item: dict[str, Any], formatter: TextFormatter, anchor: str) -> str:
    """An entry of unknown form is shown as in the file."""
    kind = escape_html(str(item.get("type", "entry")))
    code = formatter.format_code(json_text(item), "json")
    body = f'<details><summary>as kept</summary><div class="inner"><pre>{code}</pre></div></details>'
    return _article_html("custom", "Entry", kind, str(item.get("timestamp", "")), body, anchor, "")


def _article_html(kind: str, title: str, about: str, at: str, body: str, anchor: str, label: str) -> str:
    """`kind`, `title` and `anchor` are our own, `about` and `body` are HTML already, the rest is text."""
    place = f' id="{anchor}"' if anchor else ""
    head = f"<h2>{title}</h2>" if title else ""
    if label:
        head += f'<span class="bookmark">{escape_html(label[:200])}</span>'
    head += f'<span class="about">{about}</span>' if about else ""
    head += moment_html(at, short=True)
    if head:
        link = f'<a href="#{anchor}" title="link to this" aria-label="link to this">#</a>' if anchor else ""
        head = f"<header>{head}{link}</header>"
    return f'<article class="{kind}"{place}>{head}<div class="body" dir="auto">{body}</div></article>'
