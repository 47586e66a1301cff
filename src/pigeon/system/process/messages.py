"""The messages between Pigeon and the processes that fork for it: the records of two links, and how they are sent.

    control link     between Pigeon and a fork server (`fork_server`)
    call link        between one call of the program and a warm parent; it has further records (`warm/link`)
    reaper's link    between Pigeon and one reaper, which runs commands (`helper_main`)

A packet is a record. A record with descriptors is written to a file whose descriptor is the last of them, because
packets are short. Both ends are the same interpreter. The helper starts as a bare interpreter that every agent waits
for, so this imports next to nothing; `marshal` is built in.
"""

from __future__ import annotations

import _socket as socket
import errno
import marshal
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, dataclass_transform

    Left = Literal["nothing", "wall", "processes"]
else:

    def dataclass_transform():
        return lambda kind: kind


MSG_CMSG_CLOEXEC = 0x40000000
MOST_DESCRIPTORS = 8
LONGEST_PACKET = 128 * 1024
_FD_SIZE = 4
_kinds: dict[str, type[LinkMessage]] = {}


@dataclass_transform()
class LinkMessage:
    """The base of all records: the annotations of a class are its fields, in order."""

    def __init__(self, *values: Any) -> None:
        for name, value in zip(type(self).__annotations__, values, strict=True):
            setattr(self, name, value)

    def __init_subclass__(cls) -> None:
        _kinds[cls.__name__] = cls


# Control link, from Pigeon


class ForkRequest(LinkMessage):
    """Fork a process for this request; the descriptors of the packet are for that process."""

    request: bytes


class KillChild(LinkMessage):
    """Kill a process that was forked, if it has not ended."""

    pid: int


class BeginPreparation(LinkMessage):
    """Begin what makes later processes cheaper, a step at a time; requests are answered between the steps."""


# Control link, from the server


class ServerReady(LinkMessage):
    """Requests are accepted; sent once."""

    pid: int


class PreparationDone(LinkMessage):
    """The preparation is complete; sent once."""


class ForkDone(LinkMessage):
    """The answer to `ForkRequest`; answers come in the order of the requests."""

    pid: int


class NotForked(LinkMessage):
    """The answer to `ForkRequest` if no process can be created."""

    errno: int


class Ended(LinkMessage):
    """A process has ended; the code is the negative signal number if it was killed."""

    pid: int
    code: int


# A reaper's link, from Pigeon


class StartCommand(LinkMessage):
    """Run a command. Descriptors: output, errors, the input if it `has_input`, and the folder if `cwd` is None.

    `wall` is an encoded `BubblewrapWall` or `LandlockWall`, or empty.
    """

    program: bytes
    argv: list[bytes]
    cwd: bytes | None
    environment: dict[bytes, bytes]
    has_input: bool
    wall: bytes


class Terminate(LinkMessage):
    """Send SIGTERM to the process group of the command."""


class Kill(LinkMessage):
    """Kill everything that is left of the command; a command that has not begun is not run at all."""


# A reaper's link, from the reaper


class Waiting(LinkMessage):
    """The reaper was forked and waits for its first command."""

    pid: int


class NotStarted(LinkMessage):
    """The command could not be started; the reaper waits for the next one."""

    errno: int


class Exited(LinkMessage):
    """The command has ended, and whether anything is left of it; if nothing is, the reaper waits for the next one."""

    code: int
    left: Left


class NothingLeft(LinkMessage):
    """The rest of the command has ended too; the reaper waits for the next one."""


# Walls, which a reaper builds around a command (`sandbox/wall`)


class BubblewrapWall(LinkMessage):
    """Contents and paths whose files are passed to `bwrap` as descriptors from 3 on.

    With `apart` it runs in a namespace where later mounts do not appear.
    """

    contents: list[bytes]
    paths: list[bytes]
    apart: bool


class LandlockWall(LinkMessage):
    """The data from which `namespaces` builds a wall.

    A mount is its kind, its path and, if that differs, its source; `calls` is the filter of system calls.
    """

    mounts: list[tuple[str, bytes, bytes]]
    empty_file: bytes
    network: bool
    folder: bytes
    calls: bytes


class Attached(LinkMessage):
    """The number of descriptors that belong to a record; the record is in the last of them, or here if large files are
    forbidden."""

    count: int
    record: bytes


def encode(record: LinkMessage) -> bytes:
    return marshal.dumps((type(record).__name__, *vars(record).values()))


def decode(data: bytes) -> LinkMessage:
    name, *values = marshal.loads(data)
    return _kinds[name](*values)


def send(link: socket.socket, record: LinkMessage, descriptors: Sequence[int] = ()) -> None:
    """Send a record with descriptors; raises `OSError`."""
    if not descriptors:
        link.send(encode(record))
        return
    encoded = encode(record)
    file = os.memfd_create("record", os.MFD_CLOEXEC)
    try:
        is_in_file = _try_write_whole(file, encoded)
        given = [*descriptors, file] if is_in_file else descriptors
        rights = struct.pack(f"{len(given)}i", *given)
        packet = encode(Attached(len(given), b"" if is_in_file else encoded))
        link.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    finally:
        os.close(file)


def _try_write_whole(file: int, data: bytes) -> bool:
    """Returns False if the process may not write files of this size (RLIMIT_FSIZE)."""
    try:
        return os.write(file, data) == len(data)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        return False


def receive(link: socket.socket, most: int = MOST_DESCRIPTORS) -> tuple[LinkMessage | None, list[int]]:
    """The next record and its descriptors, `most` of them at most; None when the other end is closed.

    Raises `BlockingIOError`, and another `OSError` if there was no room for the descriptors: the record is lost then.
    """
    record, descriptors = receive_unopened(link, most)
    if not isinstance(record, Attached):
        return record, []
    return (decode(record.record), descriptors) if record.record else open_attached(descriptors)


def receive_unopened(link: socket.socket, most: int) -> tuple[LinkMessage | None, list[int]]:
    """The same, but a record with descriptors stays in its file, for another process to read: `open_attached`."""
    try:
        data, ancillary, _, _ = link.recvmsg(LONGEST_PACKET, socket.CMSG_SPACE(_FD_SIZE * most), MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return None, []
    if not data:
        return None, []
    record = decode(data)
    if not isinstance(record, Attached):
        return record, []
    descriptors = [descriptor for _, _, raw in ancillary for (descriptor,) in struct.iter_unpack("i", raw)]
    if len(descriptors) < record.count:
        close_descriptors(descriptors)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return record, descriptors


def open_attached(descriptors: Sequence[int]) -> tuple[LinkMessage, list[int]]:
    """The record in the last of these descriptors, and the others."""
    *given, file = descriptors
    content = os.pread(file, os.fstat(file).st_size, 0)
    os.close(file)
    return decode(content), given


def close_descriptors(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
