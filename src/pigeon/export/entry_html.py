"""Each entry of a conversation as a piece of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pigeon.export.escaping import escaped, moment_html, moment_of
from pigeon.export.markdown import markdown_html
from pigeon.export.tool_html import blocks_html, call_html, json_text, result_html, shell_html
from pigeon.wire.base import Absent
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
    ToolResultMessage,
    UserMessage,
)

Item = Entry | dict[str, Any]
_ORDINARY_ENDS = ("stop", "toolUse", "pending")


def conversation_html(items: Sequence[Item]) -> list[str]:
    """One piece per entry that says something; results stand with their calls."""
    pieces = []
    results: dict[str, ToolResultMessage] = {}
    for index, item in enumerate(items):
        message = item.message if isinstance(item, MessageEntry) else None
        if isinstance(message, AssistantMessage):
            results = _results_behind(items, index)
            called = {block.id for block in message.content if isinstance(block, ToolCall)}
            pieces.append(_assistant(message, results, f"m{index}"))
            results = {call_id: result for call_id, result in results.items() if call_id in called}
        elif isinstance(message, ToolResultMessage) and results.get(message.tool_call_id) is message:
            continue
        else:
            pieces.append(_piece(item, f"m{index}"))
    return [piece for piece in pieces if piece]


def _results_behind(items: Sequence[Item], index: int) -> dict[str, ToolResultMessage]:
    """The results up to the next answer; ids may come again in later turns."""
    results: dict[str, ToolResultMessage] = {}
    for at in range(index + 1, len(items)):
        item = items[at]
        message = item.message if isinstance(item, MessageEntry) else None
        if isinstance(message, AssistantMessage):
            break
        if isinstance(message, ToolResultMessage):
            results.setdefault(message.tool_call_id, message)
    return results


def _piece(item: Item, anchor: str) -> str:
    if isinstance(item, dict):
        return _unknown(item, anchor)
    if isinstance(item, MessageEntry):
        return _message(item.message, anchor)
    if isinstance(item, CompactionEntry):
        return _summary("Compaction", f"{item.tokens_before:,} tokens before", item.summary, item.timestamp, anchor)
    if isinstance(item, BranchSummaryEntry):
        return _summary("Summary of another branch", "", item.summary, item.timestamp, anchor)
    if isinstance(item, CustomMessageEntry):
        return _custom(item.custom_type, item.content, item.display, item.timestamp, anchor)
    if isinstance(item, ModelChange):
        return f'<p class="change">model: {escaped(item.provider)}/{escaped(item.model_id)}</p>'
    if isinstance(item, ThinkingLevelChange):
        return f'<p class="change">thinking: {escaped(item.thinking_level)}</p>'
    return ""


def _message(message: Message, anchor: str) -> str:
    if isinstance(message, UserMessage):
        return _user(message, anchor)
    at = moment_of(message.timestamp)
    if isinstance(message, ToolResultMessage):
        about = f"{escaped(message.tool_name)}{' failed' if message.is_error else ''}"
        return _article("tool", "Tool result", about, at, result_html(message), anchor)
    if isinstance(message, BashExecutionMessage):
        return _article("shell", "Shell", "", at, shell_html(message), anchor)
    if isinstance(message, CustomMessage):
        return _custom(message.custom_type, message.content, message.display, at, anchor)
    if isinstance(message, CompactionSummaryMessage):
        return _summary("Compaction", f"{message.tokens_before:,} tokens before", message.summary, at, anchor)
    if isinstance(message, BranchSummaryMessage):
        return _summary("Summary of another branch", "", message.summary, at, anchor)
    return _assistant(message, {}, anchor) if isinstance(message, AssistantMessage) else ""


def _user(message: UserMessage, anchor: str) -> str:
    body = blocks_html(message.content, ' class="text"')
    files = [] if isinstance(message.attachments, Absent) else [file.file_name for file in message.attachments]
    if names := ", ".join(escaped(name) for name in files if name):
        body += f'<p class="note">attached: {names}</p>'
    return _article("user", "User", "", moment_of(message.timestamp), body, anchor)


def _assistant(message: AssistantMessage, results: dict[str, ToolResultMessage], anchor: str) -> str:
    parts = []
    for block in message.content:
        if isinstance(block, TextContent):
            parts.append(markdown_html(block.text))
        elif isinstance(block, ThinkingContent):
            parts.append(_thinking(block))
        else:
            parts.append(call_html(block, results.get(block.id)))
    if not isinstance(message.error_message, Absent):
        parts.append(f'<pre class="bad">{escaped(message.error_message)}</pre>')
    if message.stop_reason not in _ORDINARY_ENDS:
        parts.append(f'<p class="note">ended: {escaped(message.stop_reason)}</p>')
    about = f"{escaped(message.model)} · {message.usage.output:,} tokens out"
    return _article("assistant", "Assistant", about, moment_of(message.timestamp), "".join(parts), anchor)


def _thinking(block: ThinkingContent) -> str:
    if block.redacted is True or not block.thinking.strip():
        return '<p class="note">thinking, kept secret by the provider</p>' if block.redacted is True else ""
    return (
        f'<details class="thinking"><summary>Thinking</summary><pre class="text">{escaped(block.thinking)}'
        "</pre></details>"
    )


def _custom(kind: str, content: str | list[UserBlock], shown: bool, at: str, anchor: str) -> str:
    body = blocks_html(content, ' class="text"')
    if not shown:
        body = f"<details><summary>for the model only</summary>{body}</details>"
    return _article("custom", "Extension", escaped(kind), at, body, anchor)


def _summary(title: str, about: str, summary: str, at: str, anchor: str) -> str:
    body = f"<details><summary>what came before, in short</summary>{markdown_html(summary)}</details>"
    return _article("summary", title, about, at, body, anchor)


def _unknown(item: dict[str, Any], anchor: str) -> str:
    """An entry of unknown form is shown as it stands in the file."""
    kind = escaped(str(item.get("type", "entry")))
    body = f"<details><summary>as kept</summary><pre>{escaped(json_text(item))}</pre></details>"
    return _article("custom", "Entry", kind, str(item.get("timestamp", "")), body, anchor)


def _article(kind: str, title: str, about: str, at: str, body: str, anchor: str) -> str:
    """`about` and `body` are HTML already, the rest is text or our own."""
    head = f"<b>{title}</b><span>{about}</span>{moment_html(at)}"
    return (
        f'<article class="{kind}" id="{anchor}"><header>{head}<a href="#{anchor}" title="link to this">#</a></header>'
        f'<div dir="auto">{body}</div></article>'
    )
