"""Texts of models, tools and files made harmless: nothing in them is acted upon by a terminal, or hides something.

The chat and the command line show nothing that `clean_text` has not cleaned.

What only changes how a sign looks goes too, because terminals do not agree on the width of it: a joined emoji is shown
as its parts. Joiners between letters stay, as some scripts are wrong without them.
"""

from __future__ import annotations

import re
import unicodedata

from pigeon.system.shell.terminal_text import apply_overwrites, remove_sequences
from pigeon.wire.errors import to_printable

TAB_CELLS = 4
# Soft hyphens, marks of direction without effect on other text, byte order marks, selectors of a sign's look, skin.
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]")
_SPACE = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u2028\u2029\u205f]")
_JOINER = re.compile("([\u200c\u200d])")


def clean_text(text: str) -> str:
    """A text without anything that a terminal would act upon; tabs are spaces."""
    if text.isascii() and text.isprintable():
        return text
    # What is left of a broken sequence is made visible by `printable`.
    text = apply_overwrites(remove_sequences(text)).expandtabs(TAB_CELLS)
    if text.isascii():
        return to_printable(text)
    text = _SPACE.sub(" ", _INVISIBLE.sub("", text)).replace("\u3000", "  ")
    if not _JOINER.search(text):
        return to_printable(text)
    return _with_joiners(text)


def _with_joiners(text: str) -> str:
    """As `printable` makes it, with the joiners that follow a letter."""
    made: list[str] = []
    for part in _JOINER.split(text):
        if _JOINER.fullmatch(part):
            if made and made[-1] and unicodedata.category(made[-1][-1])[0] in "LM":
                made.append(part)
        else:
            made.append(to_printable(part))
    return "".join(made)
