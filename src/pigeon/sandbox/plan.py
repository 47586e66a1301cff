"""What a command sees of the disk: the policy applied to the current state of the disk, as mounts in order.

    kind          what is mounted                                             on what
    -----------   ---------------------------------------------------------   -----------------------------------
    write         the folder itself, to be written                            roots, and what git writes elsewhere
    pin           the folder itself, to be written                            folders between a root and what is kept
    keep          the file or folder itself, not to be written                hooks, configuration, Pigeon's own
    hide folder   an empty folder                                             secrets
    hide file     an empty file                                               secrets
    show          the folder itself, not to be written                        folders in a private one, which is hidden

A pin keeps a folder from being renamed, which is impossible for a mount point: otherwise a command could replace a
folder that contains something kept or hidden, or another root. What is kept but missing must not be created by
commands; since a mount needs a mount point, an empty folder or a file that changes nothing stands in while commands
run, and is removed afterwards (`stand_ins`). A link can neither be pinned nor kept; `Unprotectable` says so.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal

from msgspec import Struct

from pigeon.sandbox.git_places import GitPlaces, find_data_places, find_git_places, find_shared_places
from pigeon.sandbox.policy import (
    KEPT_AS_THEY_ARE,
    NEVER_MADE,
    SandboxPolicy,
    Unprotectable,
    is_inside,
)

# The modification time of stand-ins, by which every agent recognizes them.
STANDS_IN_SINCE = 1_000_000_000

MountKind = Literal["write", "pin", "keep", "hide folder", "hide file", "show"]


class Mount(Struct, frozen=True):
    """One mount; `root` is the writable folder that contains a pin or something kept.

    `show` mounts `source`, because an agent's folder may be a link; all other kinds mount the path on itself.
    """

    kind: MountKind
    path: str
    root: str = ""
    source: str = ""


class MountPlan(Struct, frozen=True):
    """All mounts in order, and the stand-ins they need: by path, the content of a file, or None for a folder."""

    mounts: tuple[Mount, ...]
    stand_ins: dict[str, bytes | None]


def plan_of(policy: SandboxPolicy, artifacts: str | None = None) -> MountPlan:
    """The plan for the current state of the disk; raises `Unprotectable`."""
    repositories = _repositories(policy)
    written = [path for path in policy.roots if os.path.isdir(path)]
    written += [path for places in repositories for path in places.written if not _is_in_any(written, path)]
    if artifacts is not None and os.path.isdir(artifacts) and not os.path.islink(artifacts):
        written.append(os.path.realpath(artifacts))
    mounts = {Mount("write", path): None for path in written}
    never_made = {path: content for places in repositories for path, content in places.never_made.items()}
    stand_ins: dict[str, bytes | None] = {}
    kept = kept_places(policy, repositories)
    linked = frozenset(_find_link_targets(policy, kept))
    for wanted in kept:
        root = _innermost_folder(written, wanted)
        if wanted in policy.own and wanted in written:
            raise Unprotectable(f"Pigeon itself runs from {wanted}, so commands must not write there. Work elsewhere")
        if root is None or _is_in_private_view(policy, root, wanted):
            continue
        _refuse_links_on_path(root, wanted)
        path = wanted
        at_top = os.path.dirname(wanted) == root and os.path.basename(wanted) in NEVER_MADE
        # Commands must not create what Pigeon would run, nor the target of a link in something kept.
        awaited = (wanted in policy.own or wanted in linked) and not _has_real_file(wanted)
        if wanted in never_made or at_top or awaited:
            path = _first_missing(wanted)
            # Where we cannot create a stand-in, a command cannot create anything either.
            if not os.path.lexists(path) and not os.access(os.path.dirname(path), os.W_OK):
                continue
            stand_ins[path] = never_made.get(wanted) if path == wanted else None
        elif not os.path.lexists(wanted):
            continue
        mounts[Mount("keep", path, root)] = None
    for secret in filter(_is_readable, policy.hidden):
        real = os.path.realpath(secret)
        if os.path.dirname(real) in policy.private:
            # It is hidden with its folder.
            continue
        with suppress(OSError):
            kind: MountKind = "hide folder" if stat.S_ISDIR(os.stat(real).st_mode) else "hide file"
            mounts[Mount(kind, real)] = None
    mounts.update(dict.fromkeys(_make_private_folder_mounts(policy)))
    mounts.update(dict.fromkeys(_make_pin_mounts(mounts)))
    return MountPlan(tuple(sorted(mounts, key=partial(_mount_order, policy.private))), stand_ins)


def kept_places(policy: SandboxPolicy, repositories: list[GitPlaces] | None = None) -> list[str]:
    """What stays as it is inside the writable folders, whether it exists or not."""
    found = [path for places in repositories or _repositories(policy) for path in places.kept]
    for root in policy.roots[:-1]:
        found += [os.path.join(root, name) for name in KEPT_AS_THEY_ARE]
    found += [path for findings in policy.survey.survey_folders(policy.roots[:-1]) for path in findings.agent_files]
    found += _find_link_targets(policy, dict.fromkeys(found))
    found += [path for path in policy.own if any(is_inside(path, root) for root in policy.roots)]
    return list(dict.fromkeys(found))


def _find_link_targets(policy: SandboxPolicy, kept: Iterable[str]) -> list[str]:
    """The targets of links in what is kept; the folders that Pigeon runs from are too large to be searched."""
    waiting = [path for path in kept if path not in policy.own]
    found: dict[str, None] = {}
    while waiting:
        new = [path for path in policy.survey.link_targets(waiting.pop()) if path not in found]
        found.update(dict.fromkeys(new))
        waiting += new
    return list(found)


def _repositories(policy: SandboxPolicy) -> list[GitPlaces]:
    """The repositories at the roots, those in them at startup, and git's shared files; raises `Unprotectable`."""
    roots, survey = policy.roots[:-1], policy.survey
    found = survey.survey_folders(roots)
    tops = dict.fromkeys((*roots, *(path for findings in found for path in findings.repositories)))
    data = dict.fromkeys(path for findings in found for path in findings.data_folders)
    places = [find_git_places(top, survey) for top in tops] + [find_data_places(path, path, survey) for path in data]
    return [one for one in (*places, find_shared_places(survey)) if one.kept]


def _make_private_folder_mounts(policy: SandboxPolicy) -> Iterator[Mount]:
    """Private folders, which are hidden, and the folders in them that are shown nevertheless."""
    secrets = frozenset(policy.hidden)
    for folder in filter(os.path.isdir, policy.private):
        yield Mount("hide folder", folder)
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                # The target of a link would be visible in a second place, where nothing in it would be hidden.
                real, apart = (
                    os.path.realpath(entry.path),
                    () if not entry.is_symlink() else policy.iterate_secret_paths(),
                )
                hidden = any(is_inside(real, secret) or is_inside(secret, real) for secret in apart)
                if entry.is_dir() and entry.path not in secrets and not hidden:
                    yield Mount("show", entry.path, source=real)


def _is_in_private_view(policy: SandboxPolicy, root: str, path: str) -> bool:
    """Whether a path is inside a private folder of this root, of which commands get only a view that is read-only."""
    views = [folder for folder in policy.private if is_inside(folder, root) and os.path.isdir(folder)]
    return any(path != folder and is_inside(path, folder) for folder in views)


def _is_readable(path: str) -> bool:
    """Whether the user can read the folder or make it readable: what the system denies need not be hidden."""
    try:
        owner = os.stat(path).st_uid
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return owner == os.geteuid() or os.access(path, os.R_OK) or os.access(path, os.X_OK)


def _first_missing(path: str) -> str:
    """The path itself if it exists, else its first missing part; a stand-in counts as missing."""
    while not os.path.lexists(path) and not _has_real_file(os.path.dirname(path)):
        path = os.path.dirname(path)
    return path


def _has_real_file(path: str) -> bool:
    """Whether something other than a stand-in exists there."""
    with suppress(OSError):
        return os.lstat(path).st_mtime != STANDS_IN_SINCE
    return False


def _refuse_links_on_path(root: str, path: str) -> None:
    step = root
    for name in os.path.relpath(path, root).split("/"):
        step = os.path.join(step, name)
        if os.path.islink(step):
            raise Unprotectable(
                f"{step} is a link, so the sandbox cannot keep commands from replacing it. "
                "Replace it with its target, or start without the sandbox"
            )


def _make_pin_mounts(mounts: Iterable[Mount]) -> Iterator[Mount]:
    """The folders above these mounts that a command could rename: those inside a root and not in what is kept."""
    others = {mount.path: mount.kind for mount in mounts}
    seen: set[str] = set()
    for path in others:
        step = os.path.dirname(path)
        while step != "/" and step not in seen:
            seen.add(step)
            root = _nearest_mount(others, step)
            if step != root and others.get(root) == "write":
                yield Mount("pin", step, root)
            step = os.path.dirname(step)


def _nearest_mount(mounted: Mapping[str, MountKind], path: str) -> str:
    while path not in mounted and path != "/":
        path = os.path.dirname(path)
    return path


def _innermost_folder(written: list[str], path: str) -> str | None:
    """The innermost writable folder that contains the path."""
    return max((root for root in written if path != root and is_inside(path, root)), key=len, default=None)


def _is_in_any(folders: list[str], path: str) -> bool:
    return any(is_inside(path, folder) for folder in folders)


def _mount_order(private: Sequence[str], mount: Mount) -> tuple[bool, int, int, str]:
    """The sort key: secrets come last, so that nothing uncovers them, but before what is shown of a private folder.

    Within these, a folder comes before what it contains.
    """
    inside = any(mount.path.startswith(f"{folder}/") for folder in private)
    rank = 0 if mount.kind == "show" else 2 if mount.kind.startswith("hide") else 1
    return (inside, rank, mount.path.count("/"), mount.path)
