"""What a restoration has to do: which paths go from which state to which, and which steps that reverts or repeats."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from pigeon.checkpoints.records import Checkpoint, FileState, RestoredPath, Step
from pigeon.checkpoints.restoring import Planned


def select_paths(files: Sequence[str] | None, folder: str) -> Sequence[str] | None:
    """Paths of a client as they are in records; None for all."""
    if files is None:
        return None
    inside = folder.rstrip("/") + "/"
    chosen = []
    for file in files:
        path = os.path.normpath(file.removeprefix(inside) if file != folder else ".")
        if path == ".":
            return None
        chosen.append(path)
    return chosen


def is_selected(name: str, chosen: Sequence[str] | None) -> bool:
    """Whether a path is one of those chosen, or in a folder of them."""
    return chosen is None or any(name == one or name.startswith(f"{one}/") for one in chosen)


def plan_steps(reverted: Iterable[Checkpoint], repeated: Iterable[Checkpoint], since: int) -> list[Planned]:
    """Revert all steps of some checkpoints, then repeat those of others that were reverted after a moment."""
    back: dict[bytes, list[Step]] = {}
    forth: dict[bytes, list[Step]] = {}
    for checkpoint in reverted:
        for step in checkpoint.open_steps:
            back.setdefault(step.path, []).append(step)
    for checkpoint in repeated:
        for step in checkpoint.steps.values():
            if step.reverted > since:
                forth.setdefault(step.path, []).append(step)
    return [_plan_path(path, back.get(path, []), forth.get(path, [])) for path in sorted({*back, *forth})]


def _plan_path(path: bytes, back: list[Step], forth: list[Step]) -> Planned:
    chain: list[tuple[FileState | None, FileState | None]] = []
    back.sort(key=lambda step: -step.number)
    forth.sort(key=lambda step: step.number)
    chain += [(step.after, step.before) for step in back]
    chain += [(step.before, step.after) for step in forth]
    broken = any(one[1] != following[0] for one, following in pairwise(chain))
    numbers = [step.number for step in back], [step.number for step in forth]
    return Planned(RestoredPath(path, chain[0][0], chain[-1][1], *numbers), broken)


def collect_left_out(checkpoints: Iterable[Checkpoint], covered: Collection[str]) -> dict[str, str]:
    """The paths that some checkpoints do not cover, with the reasons."""
    found: dict[str, str] = {}
    for checkpoint in checkpoints:
        found.update({path: why for path, why in checkpoint.left_out.items() if path not in covered})
    return found
