"""The changes of a session to files: those of its tools, combined file by file.

Each result of an edit shows some lines before and after it, and a write is a whole file. Combined, they show a file
before the first change and after the last one, as far as its lines are known: a `_Stretch` is a range of such lines,
and everything between stretches is unchanged. Reading a whole file makes all of it known. Where a change does not fit
what came before, something else has changed the file meanwhile, and a new diff begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from pigeon.export.diff_html import DiffLine, count_changed_lines, diff_html, lines_of_patch
from pigeon.export.markdown import TextFormatter
from pigeon.export.tool_html import lines_of_edit, lines_of_result, path_in, whole_text_of_read
from pigeon.export.tree import Line
from pigeon.session.checkpoints import RecordedChanges
from pigeon.system.paths import absolute_path
from pigeon.tools.catalog import facts_of_recorded
from pigeon.tools.editing.changed_lines import find_changes
from pigeon.tools.editing.diff import hunks_of
from pigeon.wire.commands.changes import ChangedFile
from pigeon.wire.content import ToolCall
from pigeon.wire.entries import MessageEntry
from pigeon.wire.messages import AssistantMessage, ToolResultMessage


class FileNames(Struct, frozen=True):
    """How files are named: those in the folder `cwd` by the path from there, all others by their whole path."""

    cwd: str
    home: str

    def name_of(self, path: str) -> str:
        """The name of a file in a call, however its path was written."""
        place = absolute_path(path, self.cwd, self.home)
        inside = self.cwd.rstrip("/") + "/"
        return place.removeprefix(inside) if place.startswith(inside) else place


class _Step(Struct):
    """A successful call, with the entries of its answer and of its result; `place` is the user's message before it."""

    entry_id: str
    call: ToolCall
    result_id: str
    result: ToolResultMessage
    place: str = ""


class _Stretch(Struct, frozen=True):
    """Lines of a file before and after, and where they begin, counted from 0."""

    old_start: int
    old: list[str]
    new_start: int
    new: list[str]

    @property
    def end(self) -> int:
        """The position after it in the current file."""
        return self.new_start + len(self.new)

    def shift_down(self, by: int) -> _Stretch:
        """The same stretch further down in the current file."""
        return _Stretch(self.old_start, self.old, self.new_start + by, self.new)


class _Comparison(Struct):
    """Changes in a row of which each fits the one before; `whole` if the only stretch is the whole file.

    `loose` are lines of a change with an unknown place, to which nothing can be added.
    """

    stretches: list[_Stretch] = field(default_factory=list)
    whole: bool = False
    loose: str = ""

    def set_known_text(self, lines: list[str]) -> None:
        """Set the known text of the whole file; kept if it fits."""
        old: list[str] = []
        place = 0
        for one in self.stretches:
            if lines[one.new_start : one.end] != one.new:
                return
            old += lines[place : one.new_start] + one.old
            place = one.end
        self.stretches = [_Stretch(0, old + lines[place:], 0, lines)]
        self.whole = True

    def replace_all(self, lines: list[str]) -> bool:
        """Replace the whole file; returns False if its previous text is unknown."""
        if not self.whole:
            return False
        self.stretches = [_Stretch(0, self.stretches[0].old, 0, lines)]
        return True

    def replace_lines(self, lines: list[DiffLine]) -> bool:
        """Replace lines; returns False, without changes, if they differ from the known ones there."""
        stretches = self.stretches
        shift = 0
        for group in _split_at_gaps(lines):
            gone = [line.text for line in group if line.sign != "+"]
            come = [line.text for line in group if line.sign != "-"]
            first = group[0]
            # Places refer to the file with the groups before this one applied.
            at = (int(first.new) if first.new else int(first.old) + shift) - 1
            shift += len(come) - len(gone)
            made = (
                None if self.whole and at + len(gone) > stretches[0].end else _replace_lines(stretches, at, gone, come)
            )
            if made is None:
                return False
            stretches = made
        self.stretches = stretches
        return True

    def to_patch(self) -> str:
        """All of it as the hunks of a unified diff."""
        parts = [self.loose]
        for one in self.stretches:
            old, new = [f"{line}\n" for line in one.old], [f"{line}\n" for line in one.new]
            parts += hunks_of(old, new, find_changes(old, new), one.old_start, one.new_start)
        return "".join(parts)


class _FileHistory(Struct):
    """One file: its changes, and its text if it was read as a whole since the last change."""

    name: str
    comparisons: list[_Comparison] = field(default_factory=list)
    seen: list[str] | None = None
    entry_id: str = ""
    unknown: bool = False

    def apply_step(self, step: _Step) -> None:
        """Add what one tool call read or changed in the file."""
        kind, arguments = facts_of_recorded(step.call.name).kind, step.call.arguments
        if kind == "read":
            text = whole_text_of_read(arguments, step.result)
            self.seen = self.seen if text is None else _split_lines(text)
            return
        content = arguments.get("content")
        lines = lines_of_result(step.result)
        if lines and all(line.sign == "@" or line.old or line.new for line in lines):
            self._apply_edit(lines)
        elif kind == "edit" and isinstance(content, str):
            self._apply_write(_split_lines(content))
        elif loose := lines or (lines_of_edit(arguments) if kind == "edit" else []):
            self.comparisons.append(_Comparison(loose=_format_unplaced_patch(loose)))
        else:
            return
        self.entry_id, self.seen = step.entry_id, None

    def make_diffs(self) -> list[str]:
        """The changes, oldest first, without those that were undone."""
        head = f"--- {self.name}\n+++ {self.name}\n"
        return [head + patch for patch in (one.to_patch() for one in self.comparisons) if patch]

    def _open_comparison(self, another: bool = False) -> _Comparison:
        if another or not self.comparisons or self.comparisons[-1].loose:
            self.comparisons.append(_Comparison())
        last = self.comparisons[-1]
        if self.seen is not None:
            last.set_known_text(self.seen)
        return last

    def _apply_edit(self, lines: list[DiffLine]) -> None:
        if self._open_comparison().replace_lines(lines) or self._open_comparison(another=True).replace_lines(lines):
            return
        self.seen = None
        self.comparisons.pop()
        self._open_comparison(another=True).replace_lines(lines)

    def _apply_write(self, lines: list[str]) -> None:
        if self._open_comparison().replace_all(lines):
            return
        last = self._open_comparison(another=bool(self._open_comparison().stretches))
        if not last.replace_all(lines):
            self.unknown = True
            last.stretches, last.whole = [_Stretch(0, [], 0, lines)], True


def find_file_entries(lines: Iterable[Line], names: FileNames, recorded: RecordedChanges | None = None) -> set[str]:
    """The ids of answers and results that change files, or read files that are changed elsewhere; without those whose
    changes were recorded."""
    places: dict[str, set[str]] = {}
    changed: set[str] = set()
    for step, name in _find_file_steps(lines, names):
        if recorded is not None and step.place in recorded.places and name not in recorded.left_out:
            continue
        places.setdefault(name, set()).update((step.entry_id, step.result_id))
        if facts_of_recorded(step.call.name).kind == "edit" or lines_of_result(step.result):
            changed.add(name)
    return {id for name in changed for id in places[name]}


def list_changed_files(
    lines: Iterable[Line], names: FileNames, wanted: str | None, formatter: TextFormatter | None
) -> list[ChangedFile]:
    """The files that a branch has changed, by name, those outside of the folder last.

    A `wanted` file is returned alone with its diffs, which are HTML if there is a `formatter`.
    """
    made = []
    only = None if wanted is None else names.name_of(wanted)
    for history in _build_histories(lines, names):
        if not history.entry_id or only not in (None, history.name):
            continue
        diffs = history.make_diffs()
        counts = [count_changed_lines(lines_of_patch(diff)) for diff in diffs]
        row = ChangedFile(
            path=history.name,
            added=sum(added for added, _ in counts),
            removed=sum(removed for _, removed in counts),
            entry_id=history.entry_id,
            whole=history.unknown,
        )
        if only is not None:
            row.diffs = diffs if formatter is None else [diff_to_html(diff, formatter) for diff in diffs]
        made.append(row)
    return sorted(made, key=lambda row: (row.path.startswith("/"), row.path))


def diff_to_html(diff: str, formatter: TextFormatter) -> str:
    return diff_html(lines_of_patch(diff), formatter.try_spend_budget)


def _build_histories(lines: Iterable[Line], names: FileNames) -> Iterable[_FileHistory]:
    found: dict[str, _FileHistory] = {}
    for step, name in _find_file_steps(lines, names):
        found.setdefault(name, _FileHistory(name)).apply_step(step)
    return found.values()


def _find_file_steps(lines: Iterable[Line], names: FileNames) -> Iterator[tuple[_Step, str]]:
    """The calls about files that have succeeded, in the order of their results; ids of calls may come again."""
    waiting: dict[str, tuple[str, ToolCall]] = {}
    place = ""
    for line in lines:
        place = line.id if line.role == "user" else place
        entry = line.parse_uncached() if line.role in ("assistant", "toolResult") else None
        message = entry.message if isinstance(entry, MessageEntry) else None
        if isinstance(message, AssistantMessage):
            waiting = {block.id: (line.id, block) for block in message.content if isinstance(block, ToolCall)}
        elif isinstance(message, ToolResultMessage):
            entry_id, call = waiting.pop(message.tool_call_id, ("", None))
            path = "" if call is None or message.is_error else path_in(call.arguments)
            if call is not None and path:
                yield _Step(entry_id, call, line.id, message, place), names.name_of(path)


def _replace_lines(stretches: list[_Stretch], at: int, gone: list[str], come: list[str]) -> list[_Stretch] | None:
    """The stretches with lines replaced at a place; None if other lines are known to be there."""
    end = at + len(gone)
    before = [one for one in stretches if one.end < at]
    touched = [one for one in stretches if one.end >= at and one.new_start <= end]
    start = place = min([at, *(one.new_start for one in touched)])
    old: list[str] = []
    now: list[str] = []
    for one in touched:
        # Between two stretches, the replaced lines show what was there before.
        between = gone[max(0, place - at) : max(0, one.new_start - at)]
        old += between + one.old
        now += between + one.new
        place = one.end
    rest = gone[place - at :]
    old += rest
    now += rest
    if now[at - start : end - start] != gone:
        return None
    shift = sum(len(one.new) - len(one.old) for one in before)
    made = _Stretch(start - shift, old, start, now[: at - start] + come + now[end - start :])
    after = [one.shift_down(len(come) - len(gone)) for one in stretches if one.new_start > end]
    return [*before, made, *after]


def _split_at_gaps(lines: list[DiffLine]) -> Iterator[list[DiffLine]]:
    """Consecutive lines, without the marks between them."""
    group: list[DiffLine] = []
    for line in lines:
        if line.sign != "@":
            group.append(line)
        elif group:
            yield group
            group = []
    if group:
        yield group


def _format_unplaced_patch(lines: list[DiffLine]) -> str:
    """A change without a place, as hunks that begin with the first line."""
    parts = []
    for group in _split_at_gaps(lines):
        old, new = sum(line.sign != "+" for line in group), sum(line.sign != "-" for line in group)
        parts.append(f"@@ -1,{old} +1,{new} @@\n" + "".join(f"{line.sign}{line.text}\n" for line in group))
    return "".join(parts)


def _split_lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []
