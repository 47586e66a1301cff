"""Makes texts of models, tools and files harmless: they can neither control a terminal nor hide anything.

The chat and the command line show nothing that `clean_text` has not cleaned. Characters that only change how others
look are removed too, because terminals disagree about their width: a joined emoji is shown as its parts. Joiners
between letters stay, since some scripts are wrong without them.
"""

from __future__ import annotations

import re
import unicodedata

from pigeon.system.shell.terminal_text import apply_overwrites, remove_sequences
from pigeon.wire.errors import to_printable

TAB_CELLS = 4
# Soft hyphens, direction marks, byte order marks, variation selectors, skin tones.
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]")
_SPACE = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u2028\u2029\u205f]")
_JOINER = re.compile("([\u200c\u200d])")


def clean_text(text: str) -> str:
    """A text without anything that a terminal would interpret; tabs become spaces."""
    if text.isascii() and text.isprintable():
        return text
    # `printable` makes what is left of a broken sequence visible.
    text = apply_overwrites(remove_sequences(text)).expandtabs(TAB_CELLS)
    if text.isascii():
        return to_printable(text)
    text = _SPACE.sub(" ", _INVISIBLE.sub("", text)).replace("\u3000", "  ")
    if not _JOINER.search(text):
        return to_printable(text)
    return _to_printable_with_joiners(text)


def _to_printable_with_joiners(text: str) -> str:
    """The output of `printable`, with the joiners that follow a letter."""
    made: list[str] = []
    for part in _JOINER.split(text):
        if _JOINER.fullmatch(part):
            if made and made[-1] and unicodedata.category(made[-1][-1])[0] in "LM":
                made.append(part)
        else:
            made.append(to_printable(part))
    return "".join(made)
