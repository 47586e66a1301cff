"""Two texts compared line by line: a listing for people, and a unified patch for programs."""

from __future__ import annotations

from msgspec import Struct

CONTEXT = 4
MOST_STEPS = 400
MOST_WORK = 20_000_000
LONGEST_LISTING = 100_000
LONGEST_PATCH = 1_000_000


class Change(Struct, frozen=True):
    """A run of old lines that became a run of new lines."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


class Difference(Struct, frozen=True):
    """What the details of an edit show."""

    listing: str
    patch: str | None
    first_changed_line: int | None


def difference(old: str, new: str, path: str) -> Difference:
    """Compare; lines end at newlines only. A listing that is too long is cut, a patch that is too long left out."""
    before, after = _lines(old), _lines(new)
    changes = changed_runs(before, after)
    listing = _listing(before, after, changes)
    patch = _patch(before, after, changes, path)
    if len(listing) > LONGEST_LISTING:
        listing = listing[: listing.rfind("\n", 0, LONGEST_LISTING)] + "\n ... (cut)"
    return Difference(
        listing=listing,
        patch=patch if len(patch) <= LONGEST_PATCH else None,
        first_changed_line=changes[0].new_start + 1 if changes else None,
    )


def changed_runs(old: list[str], new: list[str]) -> list[Change]:
    """The shortest set of changes, or one change for a stretch that differs too much to look for it."""
    start = 0
    while start < len(old) and start < len(new) and old[start] == new[start]:
        start += 1
    tail = 0
    most = min(len(old), len(new)) - start
    while tail < most and old[len(old) - 1 - tail] == new[len(new) - 1 - tail]:
        tail += 1
    middle_old, middle_new = old[start : len(old) - tail], new[start : len(new) - tail]
    if not middle_old and not middle_new:
        return []
    trace = _trace(middle_old, middle_new)
    if trace is None:
        return [Change(start, start + len(middle_old), start, start + len(middle_new))]
    return _runs(trace, len(middle_old), len(middle_new), start)


def _trace(old: list[str], new: list[str]) -> list[dict[int, int]] | None:
    """Myers' greedy search: the furthest points per number of steps, or nothing if it takes too many steps."""
    furthest = {1: 0}
    trace: list[dict[int, int]] = []
    size = len(old) + len(new)
    for steps in range(min(size, MOST_STEPS, 10 + MOST_WORK // max(1, size)) + 1):
        trace.append(dict(furthest))
        for diagonal in range(-steps, steps + 1, 2):
            down = diagonal == -steps or (
                diagonal != steps and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)
            )
            x = furthest[diagonal + 1] if down else furthest[diagonal - 1] + 1
            y = x - diagonal
            while x < len(old) and y < len(new) and old[x] == new[y]:
                x += 1
                y += 1
            furthest[diagonal] = x
            if x >= len(old) and y >= len(new):
                return trace
    return None


def _runs(trace: list[dict[int, int]], x: int, y: int, start: int) -> list[Change]:
    """Walk the search back and join neighbouring steps."""
    changes: list[Change] = []
    for steps in range(len(trace) - 1, 0, -1):
        furthest = trace[steps]
        diagonal = x - y
        down = diagonal == -steps or (
            diagonal != steps and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)
        )
        before = diagonal + 1 if down else diagonal - 1
        from_x = furthest[before]
        from_y = from_x - before
        to_x, to_y = (from_x, from_y + 1) if down else (from_x + 1, from_y)
        step = Change(start + from_x, start + to_x, start + from_y, start + to_y)
        if changes and changes[-1].old_start == step.old_end and changes[-1].new_start == step.new_end:
            last = changes.pop()
            step = Change(step.old_start, last.old_end, step.new_start, last.new_end)
        changes.append(step)
        x, y = from_x, from_y
    changes.reverse()
    return changes


def _listing(old: list[str], new: list[str], changes: list[Change]) -> str:
    width = len(str(max(len(old), len(new))))
    lines: list[str] = []
    shown_to = 0
    for index, change in enumerate(changes):
        begin = max(shown_to, change.old_start - CONTEXT)
        if begin > shown_to:
            lines.append(f" {'':>{width}} ...")
        lines.extend(f" {n + 1:>{width}} {_shown(old[n])}" for n in range(begin, change.old_start))
        lines.extend(f"-{n + 1:>{width}} {_shown(old[n])}" for n in range(change.old_start, change.old_end))
        lines.extend(f"+{n + 1:>{width}} {_shown(new[n])}" for n in range(change.new_start, change.new_end))
        following = changes[index + 1].old_start if index + 1 < len(changes) else len(old)
        shown_to = min(change.old_end + CONTEXT, following)
        lines.extend(f" {n + 1:>{width}} {_shown(old[n])}" for n in range(change.old_end, shown_to))
    if changes and shown_to < len(old):
        lines.append(f" {'':>{width}} ...")
    return "\n".join(lines)


def _patch(old: list[str], new: list[str], changes: list[Change], path: str) -> str:
    lines = [f"--- {path}\n", f"+++ {path}\n"]
    for group in _hunks(changes):
        begin = max(0, group[0].old_start - CONTEXT)
        end = min(len(old), group[-1].old_end + CONTEXT)
        new_begin = group[0].new_start - (group[0].old_start - begin)
        new_end = group[-1].new_end + (end - group[-1].old_end)
        lines.append(f"@@ -{_range(begin, end)} +{_range(new_begin, new_end)} @@\n")
        at = begin
        for change in group:
            lines.extend(_patch_line(" ", old[n]) for n in range(at, change.old_start))
            lines.extend(_patch_line("-", old[n]) for n in range(change.old_start, change.old_end))
            lines.extend(_patch_line("+", new[n]) for n in range(change.new_start, change.new_end))
            at = change.old_end
        lines.extend(_patch_line(" ", old[n]) for n in range(at, end))
    return "".join(lines)


def _hunks(changes: list[Change]) -> list[list[Change]]:
    groups: list[list[Change]] = []
    for change in changes:
        if groups and change.old_start - groups[-1][-1].old_end <= 2 * CONTEXT:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _range(begin: int, end: int) -> str:
    size = end - begin
    return f"{begin + 1 if size else begin},{size}"


def _patch_line(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    *whole, rest = text.split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines


def _shown(line: str) -> str:
    return line.removesuffix("\n")
