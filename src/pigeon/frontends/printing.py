"""Output of the command line: lines on stdout and stderr, tables, colours at a terminal, and suggestions for misspelt
words."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from pigeon.frontends.cleaning import clean_text

NEAR = 0.7
# The width at which texts are laid out.
WIDTH = 100
COLOURS = {"plain": "0", "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


# Lone surrogates, which cannot be encoded; those that represent a byte of a file name are printed as that byte.
_HALVES = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def print_line(text: str = "") -> None:
    """Print a line on stdout; at a terminal, control characters are removed."""
    text = _HALVES.sub("\ufffd", text)
    print(clean_text(text) if sys.stdout.isatty() else text)  # noqa: T201


def print_to_stderr(text: str) -> None:
    """Print a line on stderr, if there is one."""
    if sys.stderr is not None:
        print(clean_text(text), file=sys.stderr, flush=True)  # noqa: T201


def colour_text(text: str, colour: str, stream: TextIO | None = None) -> str:
    """The text in a colour, where the stream is a terminal that shows colours; cleaned first."""
    text = clean_text(text)
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if has_colours(stream or sys.stdout) else text


def print_coloured(text: str) -> None:
    print(text)  # noqa: T201


def has_colours(stream: TextIO) -> bool:
    """True for a terminal with colours; `NO_COLOR` switches them off."""
    return stream.isatty() and colour_system_of(os.environ) is not None


def colour_system_of(variables: Mapping[str, str]) -> str | None:
    """The number of colours of a terminal as rich names it; None if it has none or they are not wanted."""
    if variables.get("NO_COLOR") or variables.get("TERM", "") in ("", "dumb"):
        return None
    if variables.get("COLORTERM", "") in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256" in variables.get("TERM", "") else "standard"


def format_table(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Rows as lines with aligned columns; the last column is not padded."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"{indent}{line}".rstrip() for line in lines)


def find_closest_match(word: str, known: Iterable[str], near: float = NEAR) -> str | None:
    """The known word that a misspelt one was probably meant to be."""
    from difflib import get_close_matches

    found = get_close_matches(word.lower(), list(known), n=3, cutoff=near)
    # Swapped letters are the commonest mistake.
    swapped = [one for one in found if sorted(one) == sorted(word.lower())]
    return next(iter(swapped or found), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean X?`, or an empty string if no known word is near."""
    found = find_closest_match(word, known)
    return f" Did you mean {found}?" if found else ""
