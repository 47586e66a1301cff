"""The output of commands as a terminal shows it: colours in spans, all other escape sequences removed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from pigeon.export.escaping import escape_html, to_plain_text
from pigeon.system.shell.terminal_text import apply_overwrites

MOST_COLOUR_CHANGES = 2_000
_SELECT = re.compile(r"\x1b\[([0-9;:]{0,60})m")
_STYLES = {1: "bold", 2: "dim", 3: "italic", 4: "under", 7: "inverse", 9: "struck"}
_ENDS = {22: ("bold", "dim"), 23: ("italic",), 24: ("under",), 27: ("inverse",), 29: ("struck",)}
# The sixteen colours that every terminal has, as red, green and blue; others are shown as the nearest of them.
_COLOURS = (
    (0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229),
    (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255),
    (255, 255, 255),
)  # fmt: skip


def terminal_html(text: str, mask: Callable[[str], str] = str) -> str:
    """The output with its colours; if a colour code splits a key, it is shown masked and plain."""
    text = apply_overwrites(text)
    if "\x1b" not in text or text.count("\x1b[") > MOST_COLOUR_CHANGES:
        return escape_html(text)
    shown = to_plain_text(text)
    if mask(shown) != shown:
        return escape_html(mask(shown))
    return "".join(_coloured_spans(text))


def _coloured_spans(text: str) -> Iterator[str]:
    classes: dict[str, str] = {}
    at = 0
    for found in (*_SELECT.finditer(text), None):
        piece = escape_html(text[at : found.start() if found else len(text)])
        if piece:
            names = " ".join(classes.values())
            yield f'<span class="{names}">{piece}</span>' if names else piece
        if found:
            at = found.end()
            _apply_codes(classes, found[1])


def _apply_codes(classes: dict[str, str], codes: str) -> None:
    """Change the style of the following text: `classes` has its colour (`fg`), its background (`bg`) and styles by
    name."""
    numbers = [int(code[:6] or 0) for code in re.split("[;:]", codes)]
    while numbers:
        number = numbers.pop(0)
        if number == 0:
            classes.clear()
        elif number in _STYLES:
            classes[_STYLES[number]] = f"t-{_STYLES[number]}"
        elif number in _ENDS:
            for name in _ENDS[number]:
                classes.pop(name, None)
        elif number in (38, 48):
            colour = _pop_nearest_colour(numbers)
            if colour is not None:
                _set_colour(classes, "fg" if number == 38 else "bg", colour)
        elif number in (39, 49):
            classes.pop("fg" if number == 39 else "bg", None)
        elif number // 10 in (3, 4, 9, 10) and number % 10 < 8:
            _set_colour(classes, "fg" if number // 10 in (3, 9) else "bg", number % 10 + (8 if number >= 90 else 0))


def _set_colour(classes: dict[str, str], place: str, colour: int) -> None:
    classes[place] = f"{place}{colour}"


def _pop_nearest_colour(numbers: list[int]) -> int | None:
    """Remove the numbers of a 256-colour or true-colour code from the list; returns the nearest of the sixteen
    colours."""
    kind = numbers.pop(0) if numbers else 0
    if kind == 5 and numbers:
        number = numbers.pop(0)
        if number < 16:
            return number
        if number > 231:
            return _nearest_colour(*[8 + 10 * (min(number, 255) - 232)] * 3)
        cube = [0, 95, 135, 175, 215, 255]
        return _nearest_colour(cube[(number - 16) // 36], cube[(number - 16) // 6 % 6], cube[(number - 16) % 6])
    if kind == 2 and len(numbers) >= 3:
        red, green, blue = numbers[:3]
        del numbers[:3]
        return _nearest_colour(red, green, blue)
    return None


def _nearest_colour(red: int, green: int, blue: int) -> int:
    def distance(at: int) -> int:
        r, g, b = _COLOURS[at]
        return (r - red) ** 2 + (g - green) ** 2 + (b - blue) ** 2

    return min(range(len(_COLOURS)), key=distance)
