"""What a person wants to know about a tool call: its subject, its outcome, and the few lines that matter.

For a command these are the last lines, for an edit the change, for a new file its beginning, and for a read only the
amount. A failure shows its reason first. Both views use this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from pigeon.frontends.cleaning import clean_text
from pigeon.wire.base import Json

if TYPE_CHECKING:
    from pigeon.frontends.terminal.blocks import ToolCard

RESULT_LINES = 6
DIFF_LINES = 40
DIFF_CONTEXT = 2
LONGEST_TITLE = 80
# The end of the note on a call whose work goes on.
IN_BACKGROUND = "in the background"
LONGEST_LINE = 2000
_MAIN_ARGUMENT = ("command", "pattern", "query", "path", "file_path", "url", "name")
_ENDING = re.compile(r"\s*\bCommand (exited with code (\d+)|aborted|timed out after [^\n]*)\s*\Z")
_REST = re.compile(r"\n\n\[(?:\d+ more lines in file|Showing lines )[^\n]*\]\s*\Z")
# A line of the context of a change that has only its number.
_BLANK = re.compile(r" +\d+ *")
_IMAGE = re.compile(r"Read image file \[([^\]]*)\]")


class ToolDetails(Struct):
    """`lines` are shown, with the numbers of those left out before and after them, or `diff` instead of them for a
    change.

    The message of a failed call is shown in full width, because it is the reason.
    """

    about: str
    note: str = ""
    reason: str = ""
    added: int = 0
    removed: int = 0
    lines: list[str] = []
    before: int = 0
    after: int = 0
    diff: list[str] = []
    first_number: int | None = None
    failed: bool = False


def main_argument(args: Mapping[str, Json]) -> str:
    """The subject of a call in one line."""
    for name in _MAIN_ARGUMENT:
        value = args.get(name)
        if isinstance(value, str) and value.strip():
            return " ".join(clean_text(value[:LONGEST_LINE]).split())
    return " ".join(f"{clean_text(name)}={clean_text(str(value)[:80])}" for name, value in list(args.items())[:4])


def first_line(text: str, cut: str) -> str:
    """The first line of a command, with a sign if there are more."""
    lines = [line.strip() for line in clean_text(text[:LONGEST_LINE]).strip().split("\n")]
    return f"{lines[0]} {cut}" if len(lines) > 1 else lines[0]


def first_words(text: str) -> str:
    """A title in one line, cut if it is long."""
    line = " ".join(clean_text(text[:LONGEST_LINE]).split())
    return line if len(line) <= LONGEST_TITLE else f"{line[: LONGEST_TITLE - 1]}…"


def details_of(card: ToolCard, cut: str) -> ToolDetails:
    """The details of a call that has ended; `cut` is the sign for omitted text."""
    from pigeon.tools.catalog import facts_of

    kind = facts_of(card.name).kind
    details = ToolDetails(subject_of(card, cut), failed=card.failed)
    if kind == "execute":
        _fill_command(details, card)
    elif kind == "agent":
        _fill_agent(details, card)
    elif card.failed:
        _fill_with_first_lines(details, card.output)
    elif card.diff:
        _fill_change(details, card.diff, cut)
    elif kind == "read":
        _fill_from_file_read(details, card)
    elif kind == "edit" and isinstance(content := card.args.get("content"), str):
        details.first_number = 1
        details.note = format_count(_line_count(content), "line")
        _fill_with_first_lines(details, content)
    else:
        _fill_with_first_lines(details, card.output)
    return details


def subject_of(card: ToolCard, cut: str) -> str:
    """What a call is about, in a line."""
    from pigeon.tools.catalog import facts_of

    if isinstance(command := card.args.get("command"), str):
        return first_line(command, cut)
    facts = facts_of(card.name)
    return first_words(facts.title(dict(card.args))) if facts.kind == "agent" else main_argument(card.args)


def format_count(number: int, noun: str) -> str:
    """Returns a number with its noun, in the plural unless it is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def condense_diff(diff: str, cut: str) -> list[str]:
    """The lines of a change with a little of their context; `cut` marks omissions."""
    lines = clean_text(diff).rstrip("\n").split("\n")
    changed = [number for number, line in enumerate(lines) if line[:1] in ("+", "-")]
    if not changed:
        return lines
    shown: list[str] = []
    last = -1
    for number in _lines_near(changed, len(lines)):
        line = lines[number]
        if line[:1] == " " and line.strip() == "...":
            continue
        if shown and number != last + 1:
            shown.append(f" {cut}")
        shown.append(line)
        last = number
    while _BLANK.fullmatch(shown[-1]):
        shown.pop()
    return shown


def _lines_near(changed: Sequence[int], count: int) -> list[int]:
    kept = {near for at in changed for near in range(at - DIFF_CONTEXT, at + DIFF_CONTEXT + 1)}
    return sorted(number for number in kept if 0 <= number < count)


def tail_of_output(output: str, most: int) -> tuple[list[str], int]:
    """The last lines of an output, and how many come before them; blank lines at both ends do not count."""
    text = output.strip("\r\n").rstrip()
    if not text.strip():
        return [], 0
    lines = clean_text(text[-most * LONGEST_LINE :]).rstrip().split("\n")[-most:]
    return lines, text.count("\n") + 1 - len(lines)


def _fill_with_first_lines(details: ToolDetails, output: str) -> None:
    text = output.strip("\r\n").rstrip()
    if text.strip():
        details.lines = clean_text(text[: RESULT_LINES * LONGEST_LINE]).split("\n")[:RESULT_LINES]
        details.after = text.count("\n") + 1 - len(details.lines)


def _fill_command(details: ToolDetails, card: ToolCard) -> None:
    output = card.output
    details.note = clean_text(card.note)
    ending = _ENDING.search(output[-LONGEST_LINE:]) if card.failed else None
    if ending:
        output = output[: len(output) - len(ending[0])]
        details.reason = f"exit code {ending[2]}" if ending[2] else ending[1].replace("aborted", "stopped")
    if output.strip() != "(no output)":
        details.lines, details.before = tail_of_output(output, RESULT_LINES)


def _fill_agent(details: ToolDetails, card: ToolCard) -> None:
    """The beginning of the answer, without the lines for the model that follow it."""
    details.note = clean_text(card.note)
    if card.note.endswith(IN_BACKGROUND):
        return
    answer, found, rest = card.output.rpartition("\n\nAgent: ")
    _fill_with_first_lines(details, answer if found else card.output)
    if found:
        details.lines += [clean_text(line) for line in rest.split("\n")[1:] if line.startswith("Changed files: ")]


def _fill_change(details: ToolDetails, diff: str, cut: str) -> None:
    lines = diff.split("\n")
    details.added = sum(line.startswith("+") for line in lines)
    details.removed = sum(line.startswith("-") for line in lines)
    shown = condense_diff(diff, cut)
    details.diff = shown[:DIFF_LINES]
    details.after = len(shown) - len(details.diff)


def _fill_from_file_read(details: ToolDetails, card: ToolCard) -> None:
    if image := _IMAGE.match(card.output):
        details.note = clean_text(image[1])
        return
    rest = _REST.search(card.output[-LONGEST_LINE:])
    text = card.output[: len(card.output) - len(rest[0])] if rest else card.output
    offset = card.args.get("offset")
    first = int(offset) if isinstance(offset, int | float) and 1 <= offset < 1e9 else 1
    count = _line_count(text)
    details.note = (
        f"lines {first}-{first + count - 1}" if (rest or first > 1) and count else format_count(count, "line")
    )


def _line_count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n")) if text else 0
