"""What a command sees of the disk: the policy, put against what is there now, as mounts in the order they are made.

    kind          what is mounted                                             on what
    -----------   ---------------------------------------------------------   -----------------------------------
    write         the folder itself, to be written                            roots, and what git writes elsewhere
    pin           the folder itself, to be written                            folders between a root and what is kept
    keep          the file or folder itself, not to be written                hooks, configuration, Pigeon's own
    hide folder   an empty folder                                             secrets
    hide file     an empty file                                               secrets

A pin is there because a mounted folder cannot be renamed: else a command could put a folder of its own in the place of
one that holds something kept. What is kept and missing is made as an empty folder while commands run, for a mount needs
something to stand on, and taken away after. A link can neither be pinned nor kept; `Unprotectable` says so.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

from msgspec import Struct

from pigeon.system.sandbox.git_places import GitPlaces, git_places
from pigeon.system.sandbox.policy import KEPT_AS_THEY_ARE, NEVER_MADE, SandboxPolicy, is_inside

MountKind = Literal["write", "pin", "keep", "hide folder", "hide file"]
_MOST_REPOSITORIES = 200


class Unprotectable(OSError):
    """Something that must stay as it is cannot be kept so; the text says why."""


class Mount(Struct, frozen=True):
    """One of the mounts; `root` is the writable folder that a pin or something kept is in."""

    kind: MountKind
    path: str
    root: str = ""


class MountPlan(Struct, frozen=True):
    """All mounts in order, what has to be made for them, and what must not be there when a command has ended."""

    mounts: tuple[Mount, ...]
    missing: tuple[str, ...]
    unwanted: tuple[str, ...]

    @property
    def written(self) -> list[str]:
        """The folders that commands write."""
        return [mount.path for mount in self.mounts if mount.kind == "write"]


def plan_of(policy: SandboxPolicy, artifacts: str | None = None) -> MountPlan:
    """What commands see now; looks at the disk. Raises `Unprotectable`."""
    repositories = _repositories(policy)
    written = [path for path in policy.roots if os.path.isdir(path)]
    written += [path for places in repositories for path in places.written if not _any_holds(written, path)]
    if artifacts is not None and os.path.isdir(artifacts) and not os.path.islink(artifacts):
        written.append(os.path.realpath(artifacts))
    mounts = {Mount("write", path): None for path in written}
    hooks = [path for places in repositories for path in places.hooks]
    missing: list[str] = []
    for wanted in kept_places(policy, repositories):
        root = _holder(written, wanted)
        if root is None:
            continue
        _check_way(root, wanted)
        path = wanted
        if not os.path.lexists(wanted):
            path = _first_missing(wanted)
            # What we cannot make, a command cannot make either.
            if not (_may_be_made(wanted, root, hooks) and os.access(os.path.dirname(path), os.W_OK)):
                continue
            missing.append(path)
        mounts.update({pin: None for pin in _pins(root, path)})
        mounts[Mount("keep", path, root)] = None
    for secret in filter(os.path.lexists, policy.hidden):
        real = os.path.realpath(secret)
        with suppress(OSError):
            kind: MountKind = "hide folder" if stat.S_ISDIR(os.stat(real).st_mode) else "hide file"
            mounts[Mount(kind, real)] = None
    unwanted = tuple(path for places in repositories for path in places.unwanted)
    return MountPlan(tuple(sorted(mounts, key=_position)), tuple(dict.fromkeys(missing)), unwanted)


def kept_places(policy: SandboxPolicy, repositories: list[GitPlaces] | None = None) -> list[str]:
    """What stays as it is inside the folders that may be written, whether it is there or not."""
    found = [path for places in repositories or _repositories(policy) for path in places.kept]
    for root in policy.roots[:-1]:
        found += [os.path.join(root, name) for name in KEPT_AS_THEY_ARE]
    found += [path for path in policy.own if any(is_inside(path, root) for root in policy.roots)]
    return list(dict.fromkeys(found))


def _repositories(policy: SandboxPolicy) -> list[GitPlaces]:
    """Those of the roots, and of the folders right in them."""
    tops: list[str] = []
    for root in policy.roots[:-1]:
        tops.append(root)
        with suppress(OSError), os.scandir(root) as entries:
            tops += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    found = (git_places(top) for top in tops[:_MOST_REPOSITORIES])
    return [places for places in found if places.kept]


def _may_be_made(path: str, root: str, hooks: list[str]) -> bool:
    """Whether something empty is made where this is missing: the agent's own folders, and hooks."""
    return path in hooks or (os.path.dirname(path) == root and os.path.basename(path) in NEVER_MADE)


def _first_missing(path: str) -> str:
    """The folder above a missing file, or the file, that is missing itself while what it is in is there."""
    while not os.path.lexists(os.path.dirname(path)):
        path = os.path.dirname(path)
    return path


def _check_way(root: str, path: str) -> None:
    step = root
    for name in os.path.relpath(path, root).split("/"):
        step = os.path.join(step, name)
        if os.path.islink(step):
            raise Unprotectable(
                f"{step} is a link, so the sandbox cannot keep commands from replacing it. "
                "Put what it leads to in its place, or start without the sandbox"
            )


def _pins(root: str, path: str) -> Iterator[Mount]:
    step = os.path.dirname(path)
    while step != root and is_inside(step, root):
        yield Mount("pin", step, root)
        step = os.path.dirname(step)


def _holder(written: list[str], path: str) -> str | None:
    """The innermost of the written folders that this is in."""
    return max((root for root in written if path != root and is_inside(path, root)), key=len, default=None)


def _any_holds(folders: list[str], path: str) -> bool:
    return any(is_inside(path, folder) for folder in folders)


def _position(mount: Mount) -> tuple[int, int, str]:
    """Secrets last, so that nothing uncovers them; before them what is above comes first."""
    return (1 if mount.kind.startswith("hide") else 0, mount.path.count("/"), mount.path)
