"""Files with more than one name: what is hidden or kept under one name must not be reachable under another.

A mount covers a name, not a file. A command cannot give a hidden or kept file another name, because hard links do not
cross mounts; but one may exist already, so this is checked before the first command.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

from pigeon.sandbox.plan import MountPlan, plan_of
from pigeon.sandbox.policy import SandboxPolicy, Unprotectable, is_inside

_MOST_ENTRIES = 5000


def make_checked_plan(policy: SandboxPolicy) -> MountPlan:
    """The plan for a policy; raises `Unprotectable`, also if a hidden or kept file has a second name."""
    plan = plan_of(policy)
    hidden = [mount.path for mount in plan.mounts if mount.kind.startswith("hide")]
    # Of a private folder only some files are secret.
    secrets = [path for path in policy.hidden if os.path.dirname(os.path.realpath(path)) in policy.private]
    for path in _list_regular_files([*(path for path in hidden if path not in policy.private), *secrets]):
        if os.lstat(path).st_nlink > 1:
            raise _second_name_error(path, "read")
    kept = [mount.path for mount in plan.mounts if mount.kind == "keep"]
    linked = {_identity(path): path for path in _list_regular_files(kept) if os.lstat(path).st_nlink > 1}
    if linked:
        for other in _walk_files(policy.roots):
            found = linked.get(_identity(other))
            if found is not None and not any(is_inside(other, path) for path in kept):
                raise _second_name_error(found, "write", other)
    return plan


def _list_regular_files(places: Iterable[str]) -> Iterator[str]:
    """These files, and those directly in these folders; only regular files count."""
    for place in places:
        try:
            if stat.S_ISREG(os.lstat(place).st_mode):
                yield place
                continue
            with os.scandir(place) as entries:
                listed = [entry.path for entry, _ in zip(entries, range(_MOST_ENTRIES), strict=False)
                          if entry.is_file(follow_symlinks=False)]  # fmt: skip
        except OSError:
            continue
        yield from listed


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _walk_files(folders: Iterable[str]) -> Iterator[str]:
    for top in folders:
        for folder, _, names in os.walk(top):
            yield from (path for name in names if os.path.lexists(path := os.path.join(folder, name)))


def _second_name_error(path: str, what: str, other: str = "") -> Unprotectable:
    named = f", {other}," if other else ""
    return Unprotectable(
        f"{path} has a second name (a hard link){named} by which commands could {what} it. Remove that name, or make "
        f'it a separate file (cp -p "{path}" "{path}.new" && mv "{path}.new" "{path}"), or start without the '
        "sandbox"
    )
