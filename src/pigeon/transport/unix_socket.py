"""A Unix socket in place of stdin and stdout: one connection, from our own user only."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from socket import socket


def listen(path: str) -> socket:
    """A socket that listens at this path, which only our user may open; raises `OSError` that names the path.

    The socket of a process that has ended is replaced; one that is in use, or another kind of file, is not. The path
    appears once a connection is accepted there.
    """
    from socket import AF_UNIX, SOCK_STREAM, socket

    listener = socket(AF_UNIX, SOCK_STREAM)
    unready = os.path.join(os.path.dirname(path), f".{os.getpid():x}")
    try:
        _remove_left_over(path)
        # The mask is that of the whole process; there are no other threads yet.
        before = os.umask(0o177)
        try:
            listener.bind(unready)
        finally:
            os.umask(before)
        try:
            listener.listen(8)
            os.link(unready, path)
        finally:
            os.unlink(unready)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror or str(error), path) from None
    return listener


def _remove_left_over(path: str) -> None:
    from socket import AF_UNIX, SOCK_DGRAM, socket

    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise OSError(errno.EEXIST, "it exists and is no socket")
    except FileNotFoundError:
        return
    # A socket of another type cannot connect and so use up the only connection; it only detects whether a socket is
    # there.
    with socket(AF_UNIX, SOCK_DGRAM) as probe:
        if probe.connect_ex(path) != errno.ECONNREFUSED:
            raise OSError(errno.EADDRINUSE, "another process listens there")
    os.unlink(path)


async def accept_own_user(listener: socket, path: str) -> tuple[int, int]:
    """Descriptors for reading and writing the first connection of our own user; then listening ends.

    Connections of other users are closed.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    with listener:
        while True:
            connection, _ = await loop.sock_accept(listener)
            with connection:
                if user_of(connection) in (None, os.geteuid()):
                    os.unlink(path)
                    connection.setblocking(True)
                    return os.dup(connection.fileno()), os.dup(connection.fileno())


def user_of(connection: socket) -> int | None:
    """The user at the other end; None if the system does not tell, so that only the file mode protects."""
    import socket
    import struct

    if not hasattr(socket, "SO_PEERCRED"):
        return None
    size = struct.calcsize("3i")
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", raw)[1])
