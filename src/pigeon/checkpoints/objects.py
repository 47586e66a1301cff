"""Objects of our own git repositories: small numbers are written here, one file each; git packs large ones, and reads
packs."""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from hashlib import sha1

from pigeon.system.append_file import make_private_folder
from pigeon.system.files import write_new_private_file
from pigeon.system.git import OwnRepository

LEVEL = 1
# As much as one process of git gets or gives at once.
AT_ONCE = 24 * 1024 * 1024
# From here on a pack is cheaper than a file for each.
MANY = 400


def object_id(data: bytes) -> str:
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def create_repository(folder: str) -> None:
    """An empty bare repository; what exists stays."""
    make_private_folder(f"{folder}/objects/pack")
    make_private_folder(f"{folder}/refs")
    for name, text in (
        ("HEAD", "ref: refs/heads/none\n"),
        ("config", "[core]\nrepositoryformatversion = 0\nbare = true\n"),
    ):
        with suppress(FileExistsError):
            write_new_private_file(f"{folder}/{name}", text.encode())


class ObjectFolder:
    """The objects of one repository; its methods are for threads."""

    def __init__(self, repository: str) -> None:
        self._objects = f"{repository}/objects"

    def write(self, data: bytes) -> str:
        """Write an object unless it is there; returns its id."""
        name = object_id(data)
        place = self._place_of(name)
        if os.path.exists(place):
            return name
        make_private_folder(os.path.dirname(place))
        temporary = f"{place}.{os.urandom(6).hex()}.tmp"
        packed = zlib.compressobj(LEVEL)
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(packed.compress(b"blob %d\0" % len(data)))
                file.write(packed.compress(data))
                file.write(packed.flush())
            os.replace(temporary, place)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        return name

    def read(self, name: str) -> bytes | None:
        """The bytes of an object that has a file of its own; None for any other, or if the file is damaged."""
        try:
            with open(self._place_of(name), "rb") as file:
                data = zlib.decompress(file.read())
        except (OSError, zlib.error):
            return None
        content = data[data.find(b"\0") + 1 :]
        return content if object_id(content) == name else None

    def has(self, name: str) -> bool:
        return os.path.exists(self._place_of(name))

    def link_from(self, other: ObjectFolder, name: str) -> bool:
        """Take over an object that has a file of its own there; False if it has none."""
        if self.has(name):
            return True
        place = self._place_of(name)
        make_private_folder(os.path.dirname(place))
        try:
            os.link(other._place_of(name), place)
        except FileExistsError:
            return True
        except OSError:
            data = other.read(name)
            if data is None:
                return False
            self.write(data)
        return True

    def _place_of(self, name: str) -> str:
        return f"{self._objects}/{name[:2]}/{name[2:]}"


async def pack_objects(repository: OwnRepository, contents: list[bytes]) -> None:
    """Write many objects as one pack."""
    parts: list[bytes] = []
    for data in contents:
        parts += (b"blob\ndata %d\n" % len(data), data, b"\n")
    parts.append(b"done\n")
    await repository.run("-c", "fastimport.unpackLimit=0", "fast-import", "--quiet", "--done", stdin=b"".join(parts))


async def read_packed(repository: OwnRepository, names: list[str]) -> dict[str, bytes]:
    """The bytes of objects, wherever they are; missing ones are left out."""
    found: dict[str, bytes] = {}
    listed = await repository.run("cat-file", "--batch-check", stdin="".join(f"{name}\n" for name in names).encode())
    group: list[str] = []
    size = 0
    for line in [*listed.decode().splitlines(), ""]:
        words = line.split()
        if group and (not words or size > AT_ONCE):
            _split_batch(
                await repository.run("cat-file", "--batch", stdin="".join(f"{name}\n" for name in group).encode()),
                found,
            )
            group, size = [], 0
        if len(words) == 3 and words[1] == "blob":
            group.append(words[0])
            size += int(words[2])
    return found


def _split_batch(output: bytes, found: dict[str, bytes]) -> None:
    at = 0
    while at < len(output):
        end = output.index(b"\n", at)
        words = output[at:end].split()
        at = end + 1
        if len(words) != 3:
            continue
        size = int(words[2])
        found[words[0].decode()] = output[at : at + size]
        at += size + 1
