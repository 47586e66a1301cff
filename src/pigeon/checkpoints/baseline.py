"""What is known of one folder between conversations: the state of its files, and their bytes.

A conversation takes over what it needs: this folder can be removed whenever no process uses it.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from hashlib import sha256

import msgspec
from msgspec import Struct

from pigeon.checkpoints.objects import ObjectFolder, create_repository, read_packed
from pigeon.checkpoints.tree import KnownTree
from pigeon.system.files import run_in_thread, write_new_private_file
from pigeon.system.git import Git, GitError, OwnRepository

WORKSPACES = "workspaces"
LOCK = "lock"
_KNOWN, _PLACE = "known", "place"
_encode = msgspec.msgpack.Encoder().encode


class _Kept(Struct, array_like=True):
    """The file: what was covered how, and what is known."""

    setup: str
    tree: KnownTree


_decode = msgspec.msgpack.Decoder(_Kept).decode


class Baseline:
    """The store of one folder; `setup` says under which settings it was made: others begin anew."""

    def __init__(self, store: str, place: str, git: Git, setup: str) -> None:
        self.folder = baseline_folder(store, place)
        self._place = place
        self._setup = setup
        self._lock: int | None = None
        self.objects = ObjectFolder(self.folder)
        self.repository = OwnRepository(git, self.folder, self.folder, (), git.own_settings())

    def open_store(self) -> KnownTree | None:
        """Use the store from here on; returns what is known. For a thread."""
        create_repository(self.folder)
        self._lock = os.open(f"{self.folder}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        with suppress(FileExistsError):
            write_new_private_file(f"{self.folder}/{_PLACE}", os.fsencode(self._place))
        try:
            with open(f"{self.folder}/{_KNOWN}", "rb") as kept:
                known = _decode(kept.read())
        except (OSError, msgspec.MsgspecError):
            return None
        return known.tree if known.setup == self._setup else None

    def save(self, known: KnownTree) -> None:
        """Write down what is known, for later conversations; for a thread."""
        kept = _Kept(self._setup, known)
        try:
            data = _encode(kept)
        except UnicodeEncodeError:
            data = _encode(_Kept(self._setup, _without_odd_names(known)))
        temporary = f"{self.folder}/{_KNOWN}.{os.urandom(6).hex()}.tmp"
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
        os.replace(temporary, f"{self.folder}/{_KNOWN}")

    async def copy_objects(self, names: set[str], target: ObjectFolder) -> None:
        """Give objects to a conversation; those that are missing are left out."""

        def link() -> list[str]:
            return [name for name in names if not target.link_from(self.objects, name)]

        packed = await run_in_thread(link)
        if packed:
            try:
                found = await read_packed(self.repository, packed)
            except GitError:
                return
            await run_in_thread(lambda: [target.write(data) for data in found.values()])

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def baseline_folder(store: str, place: str) -> str:
    return f"{store}/{WORKSPACES}/{sha256(os.fsencode(place)).hexdigest()[:32]}"


def _without_odd_names(known: KnownTree) -> KnownTree:
    """What can be written: names that are not UTF-8 are looked at anew."""

    def is_plain(path: str) -> bool:
        return path.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in path)

    return KnownTree(
        folders={
            folder: {name: one for name, one in here.items() if is_plain(name)}
            for folder, here in known.folders.items()
            if is_plain(folder)
        },
        states={path: state for path, state in known.states.items() if is_plain(path)},
        ignored=set(filter(is_plain, known.ignored)),
        again=set(filter(is_plain, known.again)),
        fading=set(filter(is_plain, known.fading)),
        rules=tuple(filter(is_plain, known.rules)),
    )
