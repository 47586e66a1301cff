"""A unified diff between two states of files, as git writes it."""

from __future__ import annotations

from msgspec import Struct

from pigeon.checkpoints.records import FileState, shown_path
from pigeon.tools.editing.changed_lines import find_changes
from pigeon.tools.editing.diff import hunks_of

# What is shown of all files together; the rest is only named.
LONGEST = 1_000_000
_BINARY_WITHIN = 8192
_KINDS = {"file": 0o100000, "link": 0o120000, "folder": 0o040000, "special": 0}


class Side(Struct, frozen=True):
    """A state and its bytes, which may be unknown."""

    state: FileState | None
    data: bytes | None


def format_diff(path: str, old: Side, new: Side, at_most: int = LONGEST) -> str:
    """What makes the new state of the old one; a content that is not text, or too long, is only mentioned."""
    name = shown_path(path)
    lines = [f"diff --git a/{name} b/{name}\n"]
    if old.state is None and new.state is not None:
        lines.append(f"new file mode {_format_mode(new.state)}\n")
    elif new.state is None and old.state is not None:
        lines.append(f"deleted file mode {_format_mode(old.state)}\n")
    elif old.state is not None and new.state is not None and _format_mode(old.state) != _format_mode(new.state):
        lines += (f"old mode {_format_mode(old.state)}\n", f"new mode {_format_mode(new.state)}\n")
    before, after = old.data or b"", new.data or b""
    if before == after:
        return "".join(lines)
    names = ("/dev/null" if old.state is None else f"a/{name}", "/dev/null" if new.state is None else f"b/{name}")
    if _is_binary(before) or _is_binary(after):
        lines.append(f"Binary files {names[0]} and {names[1]} differ\n")
    elif len(before) + len(after) > at_most:
        lines.append(f"Files {names[0]} and {names[1]} differ; they are too long to be shown\n")
    else:
        first, second = _split_lines(before), _split_lines(after)
        lines += (f"--- {names[0]}\n", f"+++ {names[1]}\n")
        lines += hunks_of(first, second, find_changes(first, second))
    return "".join(lines)


def _format_mode(state: FileState) -> str:
    return f"{_KINDS[state.kind] | (0 if state.kind == 'link' else state.mode):06o}"


def _is_binary(data: bytes) -> bool:
    return b"\0" in data[:_BINARY_WITHIN]


def _split_lines(data: bytes) -> list[str]:
    *whole, rest = data.decode("utf-8", "replace").split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines
