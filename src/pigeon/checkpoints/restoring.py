"""Restoring paths: what would happen, the deed itself, and its completion after a crash.

A restoration is written down as a whole before the first file is touched, and each file changes in one step. So a
process that is killed midway leaves every file as it was or as it is to be, and the next start completes the rest.
No link is followed: each file is reached from the descriptor of the workspace, folder by folder.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from pigeon.checkpoints.descriptors import FOLDER, Content, held_folder, make_mark, read_path, signature_of
from pigeon.checkpoints.objects import ObjectFolder, object_id
from pigeon.checkpoints.records import FileState, RestoredPath

CHANGED, DELETED, CREATED = "changed by someone else", "deleted by someone else", "created by someone else"
BETWEEN = "changed by someone else in between"
NO_FOLDER = "its folder is a link or a file now"
LOST = "its earlier content is not stored any more"
NOT_EMPTY = "a folder is there that is not empty"
NOT_KEPT = "what is there now cannot be kept: it is too large or cannot be read"
_NO_FOLDER_ERRORS = (errno.ELOOP, errno.ENOTDIR)
_NO_SECOND_NAMES = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_HELD_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Planned(Struct):
    """A path that is to be restored; `broken` if it was changed by others between the steps to revert."""

    path: RestoredPath
    broken: bool = False
    now: Content = field(default_factory=lambda: Content(None))

    @property
    def is_folder(self) -> bool:
        """Whether it is about a folder alone, which is listed nowhere."""
        states = (self.path.was, self.path.now, self.now.state)
        return all(state is None or state.kind == "folder" for state in states)


def read_now(root: int, path: str, at_most: int) -> Content:
    """What stands at a path, with the id of its content."""
    content = read_path(root, path, at_most)
    if content.state is None or content.data is None:
        return content
    state = replace(content.state, content=object_id(content.data))
    return Content(state, content.data, content.signature)


def find_conflict(planned: Planned) -> str | None:
    """Why a path must not be touched without force; None if only the agent has changed it."""
    now, expected = planned.now.state, planned.path.was
    if now == planned.path.now:
        return None
    if not _is_expected(planned.now, expected):
        if now is None:
            return DELETED
        return CREATED if expected is None else CHANGED
    return BETWEEN if planned.broken else None


def _is_expected(now: Content, expected: FileState | None) -> bool:
    if expected is not None and expected.unsaved and now.signature is not None:
        return make_mark(now.signature) == expected.mark
    return now.state == expected


class Deed:
    """One restoration: applies paths in an order in which none is in the way of another. For a thread."""

    def __init__(self, root: int, objects: ObjectFolder, temporary: str) -> None:
        self._root = root
        self._objects = objects
        self._temporary = temporary
        self.failed: dict[str, str] = {}

    def apply(self, paths: Iterable[tuple[str, FileState | None, Content]]) -> None:
        """Bring paths from what they are now to other states; reasons of those that could not be are in `failed`."""
        todo = list(paths)
        folders = [(path, target.mode) for path, target, _ in todo if target is not None and target.kind == "folder"]
        for path, mode in folders:
            self._try(path, partial(self._set_mode, path, mode | 0o700), quiet=True)
        for path, target, now in todo:
            if now.state is not None and now.state.kind != "folder" and (target is None or target.kind == "folder"):
                self._try(path, partial(self._remove, path, now))
        for path, target, now in sorted(todo, key=lambda one: one[0], reverse=True):
            if now.state is not None and now.state.kind == "folder" and (target is None or target.kind != "folder"):
                self._try(path, partial(self._remove_folder, path), quiet=target is None)
        for path, _ in sorted(folders):
            self._try(path, partial(self._make_folder, path))
        for path, target, now in todo:
            if target is not None and target.kind != "folder" and path not in self.failed:
                self._try(path, partial(self._put, path, target, now))
        for path, mode in sorted(folders, reverse=True):
            self._try(path, partial(self._set_mode, path, mode), quiet=True)

    def _try(self, path: str, work: Callable[[], None], quiet: bool = False) -> None:
        try:
            work()
        except OSError as error:
            if quiet:
                return
            if error.errno in _NO_FOLDER_ERRORS:
                self.failed[path] = NO_FOLDER
            elif error.errno in (errno.ENOTEMPTY, errno.EISDIR):
                self.failed[path] = NOT_EMPTY
            elif error.errno == errno.EEXIST:
                self.failed[path] = CREATED
            else:
                self.failed[path] = error.strerror or str(error)

    def _set_mode(self, path: str, mode: int) -> None:
        folder, _, name = path.rpartition("/")
        with held_folder(self._root, folder) as above:
            descriptor = os.open(name, _HELD_FOLDER, dir_fd=above)
            try:
                if hasattr(os, "O_PATH"):
                    # Reaches a folder that may not be read, too.
                    os.chmod(f"/proc/self/fd/{descriptor}", mode)
                else:
                    os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)

    def _remove(self, path: str, now: Content) -> None:
        folder, _, name = path.rpartition("/")
        with held_folder(self._root, folder) as descriptor:
            _check_same(descriptor, name, now)
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=descriptor)

    def _remove_folder(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        with held_folder(self._root, folder) as descriptor, suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=descriptor)

    def _make_folder(self, path: str) -> None:
        current = os.open(".", FOLDER, dir_fd=self._root)
        try:
            for name in path.split("/") if path else ():
                with suppress(FileExistsError):
                    os.mkdir(name, 0o777, dir_fd=current)
                below = os.open(name, FOLDER, dir_fd=current)
                os.close(current)
                current = below
        finally:
            os.close(current)

    def _put(self, path: str, target: FileState, now: Content) -> None:
        data = self._objects.read(target.content)
        if data is None:
            self.failed[path] = LOST
            return
        folder, _, name = path.rpartition("/")
        self._make_folder(folder)
        with held_folder(self._root, folder) as descriptor:
            with suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=descriptor)
            try:
                self._write(descriptor, target, data)
                if now.state is None:
                    self._move_to_free_name(descriptor, name)
                else:
                    _check_same(descriptor, name, now)
                    os.replace(self._temporary, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
            except OSError:
                with suppress(OSError):
                    os.unlink(self._temporary, dir_fd=descriptor)
                raise

    def _move_to_free_name(self, folder: int, name: str) -> None:
        """Fails if there is something by now."""
        try:
            os.link(self._temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_SECOND_NAMES:
                raise
            os.replace(self._temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.unlink(self._temporary, dir_fd=folder)

    def _write(self, folder: int, target: FileState, data: bytes) -> None:
        if target.kind == "link":
            os.symlink(os.fsdecode(data), self._temporary, dir_fd=folder)
            return
        with open(os.open(self._temporary, _WRITE, 0o600, dir_fd=folder), "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fchmod(file.fileno(), target.mode)

    def remove_leftovers(self, paths: Iterable[str]) -> None:
        """Remove what a killed process has not finished writing."""
        for folder in {path.rpartition("/")[0] for path in paths}:
            with suppress(OSError), held_folder(self._root, folder) as descriptor:
                os.unlink(self._temporary, dir_fd=descriptor)


def _check_same(folder: int, name: str, now: Content) -> None:
    """Fails if the file was changed since it was looked at."""
    if now.signature is None:
        return
    try:
        found = signature_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return
    if found != now.signature:
        raise OSError(errno.EBUSY, CHANGED)
