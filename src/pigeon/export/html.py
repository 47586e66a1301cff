"""The page of a conversation, and the file it is written to.

The page loads nothing and runs nothing: its content security policy allows one style sheet, by its hash, and images
that are inside the page. The style sheet follows the reader's system (light or dark), narrow screens and paper.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pigeon.export.entry_html import Item, conversation_html
from pigeon.export.escaping import escaped, moment_html, plain
from pigeon.system import files
from pigeon.wire.answers import SessionStats
from pigeon.wire.content import text_of
from pigeon.wire.entries import MessageEntry
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import AssistantMessage, UserMessage

CSS = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --text: #1c2127; --dim: #66707c; --line: #dde1e6;
  --user: #e9f1fd; --code: #f1f3f5; --link: #1a5fb4; --bad: #b3261e; --good: #1b7f3b; }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --card: #1d2125; --text: #e3e6e9; --dim: #98a2ad;
  --line: #333a41; --user: #1c2a3d; --code: #15181b; --link: #8ab8ff; --bad: #ff8a80; --good: #6fd08c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0 0 1rem; overflow-wrap: anywhere; }
article h1, article h2, article h3 { font-size: 1.1rem; margin: 1.2em 0 .4em; }
a { color: var(--link); }
code, pre, dd.mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .86em; }
pre { margin: .5rem 0; padding: .7rem .85rem; background: var(--code); border-radius: 6px; overflow-x: auto;
  max-height: 40rem; overflow-y: auto; white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4; }
pre code { font-size: 1em; }
:not(pre) > code { background: var(--code); padding: .1em .3em; border-radius: 4px; overflow-wrap: anywhere; }
pre.text { font: inherit; background: none; padding: 0; margin: 0; max-height: none; }
.facts, nav, article { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: .9rem 1.1rem; margin: 0 0 1rem; overflow-wrap: anywhere; unicode-bidi: isolate; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 0; }
dt { color: var(--dim); }
dd { margin: 0; }
article > header { display: flex; flex-wrap: wrap; gap: .2rem .7rem; align-items: baseline; margin-bottom: .3rem;
  font-size: .84rem; color: var(--dim); }
article > header b { color: var(--text); font-size: .95rem; }
article > header a { margin-left: auto; color: inherit; text-decoration: none; }
article.user { background: var(--user); }
article p:first-child { margin-top: 0; }
article p:last-child { margin-bottom: 0; }
article img { display: block; max-width: 100%; max-height: 40rem; margin: .5rem 0; border-radius: 6px; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left; }
blockquote { margin: .5rem 0; padding-left: .9rem; border-left: 3px solid var(--line); color: var(--dim); }
details { border: 1px solid var(--line); border-radius: 8px; padding: .4rem .8rem; margin: .6rem 0; }
nav details { border: 0; padding: 0; margin: 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
summary code { background: none; }
.thinking, .note, .change { color: var(--dim); }
.thinking pre { font-style: italic; }
.change { text-align: center; font-size: .86rem; margin: 0 0 1rem; overflow-wrap: anywhere; }
.bad { color: var(--bad); }
.good, .added { color: var(--good); }
.removed { color: var(--bad); }
.label { font-size: .8rem; color: var(--dim); margin: .6rem 0 0; }
:target { outline: 2px solid var(--link); }
footer { color: var(--dim); font-size: .84rem; text-align: center; }
@media (max-width: 36rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } }
@media print { body { background: none; } pre { max-height: none; } article, .facts { break-inside: avoid-page; } }
"""


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


def write_page(path: str, text: str, protected: str | None = None, called: str | None = None) -> None:
    """Put the page into a file, whole or not at all; its folder must exist, and `protected` is never overwritten.

    Errors name the path as `called`: the host's way to write it. No link is followed at the name of the page, and a
    relative `called` does not leave the folder that it begins in by a link: a project may have planted either.
    """
    called = called or path
    if "\0" in path:
        raise Refusal("The path of the page cannot contain a NUL character")
    if protected is not None and _is_same_file(path, protected):
        raise Refusal(f"The page cannot be written over the session itself: {called}")
    asked = os.path.normpath(called)
    if not os.path.isabs(asked) and not asked.startswith(".."):
        start = os.path.realpath(path.removesuffix(asked))
        if os.path.commonpath([start, os.path.realpath(os.path.dirname(path))]) != start:
            raise Refusal(f"The page cannot be written to {called}: a link leads out of {start}. Give an absolute path")
    try:
        files.put_file(path, text.encode("utf-8", "replace"), PRIVATE)
    except OSError as error:
        raise Refusal(files.error_text(error, "open", called)) from None


def _is_same_file(path: str, other: str) -> bool:
    """True for every spelling of a file, for links to it and for its other names."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return os.path.realpath(path) == os.path.realpath(other)


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
