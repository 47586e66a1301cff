"""Tool calls that may change files: what stood at a path before and after, as far as a call names one."""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec import Struct, field

from pigeon.checkpoints.descriptors import Content, read_path
from pigeon.session.checkpoints import MessagePlace


class PathChange(Struct):
    """A call that changes one file: `path` is relative to the workspace, None outside of it."""

    message: MessagePlace
    answer: str
    place: str
    path: str | None
    before: dict[str, Content] = field(default_factory=dict)
    after: dict[str, Content] = field(default_factory=dict)
    failed: bool = False

    @property
    def size(self) -> int:
        contents = (*self.before.values(), *self.after.values())
        return sum(len(one.data) for one in contents if one.data is not None)


def relative_path(folder: str, place: str) -> str | None:
    """The path of a file from a folder; None for one outside, or inside the repository's own folder."""
    inside = folder.rstrip("/") + "/"
    if not place.startswith(inside):
        return None
    path = place[len(inside) :]
    return None if ".git" in path.split("/") else path


def look_before(folder: str, path: str, at_most: int) -> dict[str, Content]:
    """The path, and the folders above it that are missing; for a thread."""
    return _with_root(folder, lambda root: _look_upwards(root, path, at_most))


def look_after(folder: str, paths: list[str], at_most: int) -> dict[str, Content]:
    """The same paths later; for a thread."""
    return _with_root(folder, lambda root: {path: read_path(root, path, at_most) for path in paths})


def _with_root(folder: str, work: Callable[[int], dict[str, Content]]) -> dict[str, Content]:
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return work(root)
    finally:
        os.close(root)


def _look_upwards(root: int, path: str, at_most: int) -> dict[str, Content]:
    found = {path: read_path(root, path, at_most)}
    above = path.rpartition("/")[0]
    while above and found[path].state is None:
        content = read_path(root, above, 0)
        if content.state is not None:
            break
        found[above] = content
        above = above.rpartition("/")[0]
    return found
