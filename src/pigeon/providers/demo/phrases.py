"""What a message asks of the demo model: sentences of the user, matched with the forms of `guide`.

A message may hold several phrases (`list the files, then read a.txt`). It is understood as a whole or not at all.
"""

from __future__ import annotations

import re

from msgspec import Struct

from pigeon.providers.demo.guide import (
    ACTIONS,
    CANNOT,
    NOT_ASKED,
    NOT_UNDERSTOOD,
    POLITENESS,
    QUOTED,
    REPLIES,
    SEPARATOR,
    DemoAction,
)

MAX_CHARS = 4_000
LONGEST_SHOWN = 80


class DemoStep(Struct, frozen=True):
    """One action with the values of its form."""

    action: DemoAction
    named: dict[str, str]


class DemoReply(Struct, frozen=True):
    text: str
    is_understood: bool = True


def phrases_of(text: str) -> list[DemoStep | DemoReply]:
    """What a message asks for, in order; at least one phrase."""
    if len(text) > MAX_CHARS:
        return [_make_not_understood_reply(text)]
    parts = [part for part in (_strip_politeness(part) for part in _split_requests(text)) if part]
    phrases = [_parse_phrase(part) for part in parts]
    if len(phrases) == 1 or (phrases and all(isinstance(one, DemoStep) or one.is_understood for one in phrases)):
        return phrases
    return [_parse_phrase(_strip_politeness(text))]


def _split_requests(text: str) -> list[str]:
    parts, at = [], 0
    for found in SEPARATOR.finditer(text):
        if found[1] is None:
            parts.append(text[at : found.start()])
            at = found.end()
    return [*parts, text[at:]]


def _strip_politeness(text: str) -> str:
    text = POLITENESS.sub("", text.strip())
    return re.sub(r"(?:,?\s+please)?[.!?]*$", "", text, flags=re.IGNORECASE) if text[:1] not in "!$" else text


def _parse_phrase(text: str) -> DemoStep | DemoReply:
    for form, reply in REPLIES:
        if form.search(text):
            return DemoReply(reply)
    for action in ACTIONS:
        for form in action.forms:
            if found := form.match(text):
                named = {name: _strip_quotes(value) for name, value in found.groupdict().items() if value}
                return DemoStep(action, named)
    return _make_not_understood_reply(text)


def _make_not_understood_reply(text: str) -> DemoReply:
    request = text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"
    said = NOT_UNDERSTOOD.format(request=request) if request else NOT_ASKED
    return DemoReply(said + CANNOT, is_understood=False)


def _strip_quotes(text: str) -> str:
    if len(text) < 2 or not re.fullmatch(QUOTED, text, re.DOTALL):
        return text
    inner = text[1:-1]
    if text[0] != '"':
        return inner
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), inner, flags=re.DOTALL)
