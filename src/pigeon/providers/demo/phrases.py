"""The phrases that the demo model understands: regular expressions that turn a sentence of the user into records.

A message may hold several phrases (`list the files, then read a.txt`). One that is not understood is `Unclear`, never a
guess. `actions.py` turns those that are actions into tool calls.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct


class Greeting(Struct, frozen=True):
    """The user says hello or thanks."""

    thanks: bool = False


class About(Struct, frozen=True):
    """The user asks what this is."""


class Unclear(Struct, frozen=True):
    """Anything else."""

    text: str


class ListFiles(Struct, frozen=True):
    """Show what is in a folder."""

    path: str = "."


class ReadFile(Struct, frozen=True):
    """Show a file."""

    path: str


class RunCommand(Struct, frozen=True):
    """Run a shell command."""

    command: str


class ReplaceText(Struct, frozen=True):
    """Change a text in a file."""

    old: str
    new: str
    path: str


class WriteFile(Struct, frozen=True):
    """Write a whole file."""

    path: str
    content: str


class SearchText(Struct, frozen=True):
    """Find a text in files."""

    text: str
    path: str = "."


Action = ListFiles | ReadFile | RunCommand | ReplaceText | WriteFile | SearchText
Phrase = Greeting | About | Unclear | Action

MAX_CHARS = 4_000

_QUOTED = r'"(?:\\.|[^"\\])*"|\'[^\']*\'|`[^`]*`|“[^”]*”'
_VERBS = "list|read|show|open|cat|run|execute|write|create|replace|change|search|find|look"
_SPLIT = re.compile(rf"({_QUOTED})|[,;.]?\s+(?:and\s+then|then|and)\s+(?=(?:{_VERBS})\b)|\n+\s*(?=\S)", re.IGNORECASE)
_POLITE = re.compile(
    r"^(?:(?:please|hi|hello|hey|now|ok|okay|so|and|then|can you|could you|would you|i want you to)\b[,:!.]*\s+)+", re.I
)
_HELLO = re.compile(r"^(?:hi|hello|hey|howdy|greetings|good (?:morning|afternoon|evening|day))\b[^?]{0,30}$", re.I)
_THANKS = re.compile(r"^(?:thanks|thank you|cheers|great|nice|well done)\b[^?]{0,30}$", re.I)
_ABOUT = re.compile(
    r"\b(?:who|what) are you\b|\bwhat (?:can|do) you do\b|^help\b|\bhow do (?:i|you) (?:use|work)\b", re.I
)
_VALUE = rf"(?:{_QUOTED}|\S+)"
_FORMS: tuple[tuple[Literal["replace", "write", "create", "run", "list", "search", "read"], re.Pattern[str]], ...] = (
    ("run", re.compile(r"^[!$]\s*(?P<command>.+)$", re.S)),
    (
        "replace",
        re.compile(
            rf"^(?:replace|change|substitute)\s+(?P<old>{_VALUE})\s+(?:with|by|to|into)\s+(?P<new>{_VALUE})"
            rf"\s+in\s+(?:the\s+)?(?:file\s+)?(?P<path>{_VALUE})$",
            re.I | re.S,
        ),
    ),
    (
        "write",
        re.compile(
            rf"^(?:write|put|save)\s+(?P<content>{_QUOTED}|.+?)\s+(?:in)?to\s+(?:the\s+|a\s+)?(?:new\s+)?(?:file\s+)?"
            rf"(?:called\s+|named\s+)?(?P<path>{_VALUE})$",
            re.I | re.S,
        ),
    ),
    (
        "create",
        re.compile(
            rf"^(?:create|make|write)\s+(?:a\s+|the\s+)?(?:new\s+)?(?:file\s+)?(?:called\s+|named\s+)?"
            rf"(?P<path>{_VALUE})\s+(?:with|containing|that says)\s+"
            rf"(?:the\s+)?(?:text\s+|contents?\s+)?(?P<content>{_QUOTED}|.+)$",
            re.I | re.S,
        ),
    ),
    ("run", re.compile(rf"^(?:run|execute)\s+(?:the\s+command\s+)?(?P<command>{_QUOTED}|.+)$", re.I | re.S)),
    (
        "list",
        re.compile(
            r"^(?:(?:list|show)\s+(?:me\s+)?(?:all\s+)?(?:the\s+|my\s+)?(?:files|folder|directory)|list|ls|"
            r"(?:what|which)\s+files\s+(?:are|do)\b(?:\s+there|\s+you\s+see|\s+we\s+have|\s+i\s+have)?|"
            r"what(?:'s|\s+is)\s+(?:in\s+)?(?:this|the)\s+(?:folder|directory))"
            rf"(?:\s+(?:here|in\s+(?:this|the|the\s+current)\s+(?:folder|directory)|(?:(?:in|of|under)\s+)?(?P<path>{_VALUE})))?$",
            re.I,
        ),
    ),
    (
        "search",
        re.compile(
            rf"^(?:search\s+for|search|find|grep|look\s+for)\s+(?P<text>{_VALUE})(?:\s+in\s+(?P<path>{_VALUE}))?$", re.I
        ),
    ),
    (
        "read",
        re.compile(
            r"^(?:read|show|open|cat|print|display|what(?:'s|\s+is)\s+in|what\s+does)\s+(?:me\s+)?(?:the\s+)?"
            rf"(?:contents?\s+of\s+)?(?:the\s+)?(?:file\s+)?(?P<path>{_VALUE})(?:\s+(?:say|contain|file))?$",
            re.I,
        ),
    ),
)


def phrases_of(text: str) -> list[Phrase]:
    """What a message asks for, in order; at least one phrase; a message is understood as a whole or not at all."""
    if len(text) > MAX_CHARS:
        return [Unclear(text=text)]
    parts = [part for part in (_bare(part) for part in _parts(text)) if part]
    phrases = [_phrase(part) for part in parts]
    if len(phrases) == 1 or (phrases and not any(isinstance(phrase, Unclear) for phrase in phrases)):
        return phrases
    return [_phrase(_bare(text))]


def _parts(text: str) -> list[str]:
    parts, at = [], 0
    for found in _SPLIT.finditer(text):
        if found[1] is None:
            parts.append(text[at : found.start()])
            at = found.end()
    return [*parts, text[at:]]


def _bare(text: str) -> str:
    text = _POLITE.sub("", text.strip())
    return re.sub(r"(?:,?\s+please)?[.!?]*$", "", text, flags=re.IGNORECASE) if text[:1] not in "!$" else text


def _phrase(text: str) -> Phrase:
    if _HELLO.match(text):
        return Greeting()
    if _THANKS.match(text):
        return Greeting(thanks=True)
    if _ABOUT.search(text):
        return About()
    for verb, form in _FORMS:
        found = form.match(text)
        if found:
            return _action(verb, {name: _unquoted(value) for name, value in found.groupdict().items() if value})
    return Unclear(text=text)


def _action(verb: str, named: dict[str, str]) -> Action:
    if verb == "replace":
        return ReplaceText(old=named["old"], new=named["new"], path=named["path"])
    if verb in ("write", "create"):
        return WriteFile(path=named["path"], content=named["content"])
    if verb == "run":
        return RunCommand(command=named["command"])
    if verb == "list":
        return ListFiles(path=named.get("path", "."))
    if verb == "search":
        return SearchText(text=named["text"], path=named.get("path", "."))
    return ReadFile(path=named["path"])


def _unquoted(text: str) -> str:
    if len(text) < 2 or not re.fullmatch(_QUOTED, text, re.DOTALL):
        return text
    inner = text[1:-1]
    if text[0] != '"':
        return inner
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), inner, flags=re.DOTALL)
