"""Tool calls with their results, each a line that can be opened, and images as data inside the page.

What a session says about an image is not trusted: only bytes that begin like PNG, JPEG, GIF or WebP are shown.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from pigeon.export.escaping import escaped
from pigeon.wire import codec
from pigeon.wire.base import Absent
from pigeon.wire.content import ImageContent, TextContent, ToolCall, UserBlock
from pigeon.wire.errors import BadRecord
from pigeon.wire.messages import BashExecutionMessage, ToolResultMessage

_BEGINNINGS = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF87a", "gif"), (b"GIF89a", "gif"))


def picture_html(image: ImageContent) -> str:
    """The picture, if its bytes are of a kind that cannot hold a program; else a line that says what is missing."""
    try:
        data = base64.b64decode("".join(image.data.split()), validate=True)
    except (binascii.Error, ValueError):
        return _missing(image, "its data is not valid base64")
    kind = _kind_of(data)
    if kind is None:
        return _missing(image, "only PNG, JPEG, GIF and WebP are shown")
    encoded = base64.b64encode(data).decode("ascii")
    return f'<img alt="picture ({kind}, {len(data):,} bytes)" src="data:image/{kind};base64,{encoded}">'


def _kind_of(data: bytes) -> str | None:
    """The kind by the first bytes, whatever type the session names."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((kind for beginning, kind in _BEGINNINGS if data.startswith(beginning)), None)


def _missing(image: ImageContent, why: str) -> str:
    return f'<p class="note">[picture of type {escaped(image.mime_type[:100])} left out: {why}]</p>'


OPEN_UP_TO_LINES = 8
LONGEST_SUMMARY = 160
_TELLING = ("command", "path", "file_path", "pattern", "query", "url")


def call_html(call: ToolCall, result: ToolResultMessage | None) -> str:
    """The call with its arguments, and what came of it."""
    if result is None:
        state, body = ' <span class="note">no result</span>', ""
    else:
        state = ' <span class="bad">failed</span>' if result.is_error else ""
        body = result_html(result)
    gist = _gist(call.arguments)
    summary = f"<b>{escaped(call.name)}</b> <code>{escaped(gist)}</code>{state}"
    body = _arguments(call.arguments, gist) + body
    opened = " open" if result is not None and _is_short(result) else ""
    return f'<details class="tool"{opened}><summary>{summary}</summary>{body}</details>'


def result_html(result: ToolResultMessage) -> str:
    """What the model got to see, and the change that an edit made."""
    kind = ' class="bad"' if result.is_error else ""
    parts = ['<p class="label">result</p>', blocks_html(result.content, kind)]
    diff = result.details.get("diff") if isinstance(result.details, dict) else None
    if isinstance(diff, str) and diff:
        parts.append(f"<pre>{_coloured(diff)}</pre>")
    return "".join(parts)


def shell_html(message: BashExecutionMessage) -> str:
    """A command that the host ran, and its output."""
    parts = [f"<pre>$ {escaped(message.command)}</pre>"]
    if message.output:
        parts.append(f"<pre>{escaped(message.output)}</pre>")
    notes = []
    if message.cancelled:
        notes.append("cancelled")
    elif not isinstance(message.exit_code, Absent) and message.exit_code != 0:
        notes.append(f"exit code {message.exit_code}")
    if message.truncated:
        notes.append("output shortened")
    if message.exclude_from_context is True:
        notes.append("not shown to the model")
    if notes:
        parts.append(f'<p class="note">{escaped(", ".join(notes))}</p>')
    return "".join(parts)


def blocks_html(blocks: str | list[UserBlock], kind: str = "") -> str:
    """Text as it was, and pictures."""
    if isinstance(blocks, str):
        return f"<pre{kind}>{escaped(blocks)}</pre>" if blocks else ""
    parts = []
    for block in blocks:
        if not isinstance(block, TextContent):
            parts.append(picture_html(block))
        elif block.text:
            parts.append(f"<pre{kind}>{escaped(block.text)}</pre>")
    return "".join(parts)


def json_text(value: Any) -> str:
    """A value as JSON, indented; whatever cannot be printed as JSON is printed as Python has it."""
    import msgspec

    try:
        return msgspec.json.format(codec.encode(value), indent=2).decode("utf-8", "replace")
    except (BadRecord, msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return repr(value)


def _arguments(arguments: dict[str, Any], seen: str) -> str:
    """Texts stand for themselves, since that is how they are read; the rest is JSON. What was seen is not repeated."""
    parts = []
    for name, value in arguments.items():
        if value == seen:
            continue
        parts.append(f'<p class="label">{escaped(str(name))}</p>')
        parts.append(f"<pre>{escaped(value if isinstance(value, str) else json_text(value))}</pre>")
    return "".join(parts)


def _gist(arguments: dict[str, Any]) -> str:
    """The argument that says most, on one line."""
    values = [value for value in (arguments.get(name) for name in _TELLING) if isinstance(value, str) and value]
    text = values[0] if values else next((value for value in arguments.values() if isinstance(value, str)), "")
    line = " ".join(text[: LONGEST_SUMMARY * 4].split())
    return line if len(line) <= LONGEST_SUMMARY else line[:LONGEST_SUMMARY] + "…"


def _is_short(result: ToolResultMessage) -> bool:
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    return sum(text.count("\n") + 1 for text in texts) <= OPEN_UP_TO_LINES and sum(map(len, texts)) <= 2000


def _coloured(diff: str) -> str:
    lines = []
    for line in diff.split("\n"):
        kind = {"+": "added", "-": "removed"}.get(line[:1])
        lines.append(f'<span class="{kind}">{escaped(line)}</span>' if kind else escaped(line))
    return "\n".join(lines)
