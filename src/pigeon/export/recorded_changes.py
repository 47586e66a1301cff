"""The changes of a session to files as they were recorded: those of commands, too, and without what was undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pigeon.export.diff_html import count_changed_lines, lines_of_patch
from pigeon.export.markdown import TextFormatter
from pigeon.export.session_changes import diff_to_html
from pigeon.session.checkpoints import RecordedChange, RecordedChanges
from pigeon.tools.editing.changed_lines import find_changes
from pigeon.tools.editing.diff import hunks_of
from pigeon.wire.commands.changes import ChangedFile

_SNIFFED = 8192


def list_recorded_files(
    recorded: RecordedChanges,
    only: str | None,
    mask: Callable[[str], str],
    formatter: TextFormatter | None,
    others: Iterable[ChangedFile] = (),
) -> list[ChangedFile]:
    """A row for each file, with diffs if it is the `only` one; `others` were found in another way."""
    rows: dict[str, ChangedFile] = {row.path: row for row in others}
    for change in recorded.changes:
        if only not in (None, change.path):
            continue
        diff = mask(_make_diff(change))
        added, removed = count_changed_lines(lines_of_patch(diff))
        row = rows.get(change.path)
        if row is None:
            row = rows[change.path] = ChangedFile(path=change.path, added=0, removed=0, entry_id="", whole=False)
        row.added += added
        row.removed += removed
        row.entry_id = change.answer
        if only is not None:
            shown = diff if formatter is None else diff_to_html(diff, formatter)
            row.diffs = [*(row.diffs or []), shown]
    return sorted(rows.values(), key=lambda row: (row.path.startswith("/"), row.path))


def _make_diff(change: RecordedChange) -> str:
    head = f"--- {change.path}\n+++ {change.path}\n"
    before, after = change.before or b"", change.after or b""
    if b"\0" in before[:_SNIFFED] or b"\0" in after[:_SNIFFED]:
        return head
    old, new = _split_lines(before), _split_lines(after)
    return head + "".join(hunks_of(old, new, find_changes(old, new)))


def _split_lines(data: bytes) -> list[str]:
    *whole, rest = data.decode("utf-8", "replace").split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines
