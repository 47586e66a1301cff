"""The page of a conversation, and the file it is written to.

The page needs nothing from anywhere and can do nothing: its policy allows one style sheet, by its hash, and pictures
that are inside the page. There is no script, so there is none to be fooled.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pigeon.export.entry_html import Item, conversation_html
from pigeon.export.escaping import escaped, plain
from pigeon.export.moments import moment_html
from pigeon.export.style import CSS
from pigeon.system import files
from pigeon.wire.answers import SessionStats
from pigeon.wire.content import text_of
from pigeon.wire.entries import MessageEntry
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import AssistantMessage, UserMessage

LONGEST_TITLE = 100
PRIVATE = 0o600
MONO = ' class="mono"'


def page(header: Mapping[str, Any], items: Sequence[Item], stats: SessionStats, name: str | None = None) -> str:
    """The whole page; `items` are the entries of one branch, oldest first, a dict for one of unknown form."""
    title = _title(header, items, name)
    return "".join(
        (
            "<!DOCTYPE html>\n",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">',
            '<meta name="referrer" content="no-referrer"><meta name="robots" content="noindex">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{CSS}</style></head>\n<body><main>\n",
            f"<h1>{title}</h1>\n{_facts(header, items, stats)}\n{_contents(items)}\n",
            "\n".join(conversation_html(items)),
            "\n<footer>A Pigeon session</footer>\n</main></body></html>\n",
        )
    )


def write_page(path: str, text: str, protected: str | None = None) -> None:
    """Put the page into a file, whole or not at all; its folder must exist, and `protected` is never overwritten."""
    if protected is not None and os.path.realpath(path) == os.path.realpath(protected):
        raise Refusal(f"The page cannot be written over the session itself: {path}")
    try:
        if not os.path.isdir(os.path.dirname(path) or os.curdir):
            raise FileNotFoundError(2, "", path)
        files.replace_file(path, text.encode("utf-8", "replace"), PRIVATE if not os.path.exists(path) else None)
    except OSError as error:
        raise Refusal(files.error_text(error, "open", path)) from None


def _policy() -> str:
    digest = base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; script-src 'none'; base-uri 'none'; "
        "form-action 'none'"
    )


def _title(header: Mapping[str, Any], items: Sequence[Item], name: str | None) -> str:
    said = name or next(iter(_prompts(items).values()), "") or f"Session {header.get('id', '')}"
    return _one_line(said)


def _facts(header: Mapping[str, Any], items: Sequence[Item], stats: SessionStats) -> str:
    tokens = stats.tokens
    rows = [
        ("session", escaped(str(header.get("id", ""))), True),
        ("began", moment_html(str(header.get("timestamp", ""))), False),
        ("folder", escaped(str(header.get("cwd", ""))), True),
        ("forked from", escaped(str(header.get("parentSession") or "")), True),
        ("models", "<br>".join(_models(items)), False),
        ("messages", f"{stats.total_messages:,} ({stats.user_messages:,} by the user)", False),
        ("tool calls", f"{stats.tool_calls:,}", False),
        (
            "tokens",
            f"{tokens.input:,} in, {tokens.output:,} out, {tokens.cache_read:,} from cache, "
            f"{tokens.cache_write:,} to cache",
            False,
        ),
        ("cost", f"${stats.cost:,.4f}", False),
    ]
    shown = (f"<dt>{label}</dt><dd{MONO if mono else ''}>{value}</dd>" for label, value, mono in rows if value)
    return f'<dl class="facts">{"".join(shown)}</dl>'


def _models(items: Sequence[Item]) -> list[str]:
    answers = (item.message for item in items if isinstance(item, MessageEntry))
    names = (f"{answer.provider}/{answer.model}" for answer in answers if isinstance(answer, AssistantMessage))
    return [escaped(name) for name in dict.fromkeys(names)]


def _contents(items: Sequence[Item]) -> str:
    """What the user asked, as links; a short conversation needs none."""
    prompts = _prompts(items)
    if len(prompts) < 3:
        return ""
    rows = "".join(f'<li><a href="#m{index}">{_one_line(text)}</a></li>' for index, text in prompts.items())
    return f"<nav><details><summary>{len(prompts)} prompts</summary><ol>{rows}</ol></details></nav>"


def _prompts(items: Sequence[Item]) -> dict[int, str]:
    texts = {
        index: text_of(item.message.content)
        for index, item in enumerate(items)
        if isinstance(item, MessageEntry) and isinstance(item.message, UserMessage)
    }
    return {index: text for index, text in texts.items() if text.strip()}


def _one_line(text: str) -> str:
    line = " ".join(plain(text[: LONGEST_TITLE * 8]).split())
    return escaped(line if len(line) <= LONGEST_TITLE else line[:LONGEST_TITLE] + "…")
