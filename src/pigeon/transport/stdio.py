"""Claims the protocol's descriptors.

The real stdin and stdout move to private descriptors that no child inherits. Descriptor 0 then reads /dev/null and
descriptor 1 writes to stderr, for the whole process: a `print`, a C library or a child process cannot dirty the stream.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

PIPE_SIZE = 1024 * 1024
_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)


def claim_stdio() -> tuple[int, int]:
    """Private descriptors for stdin and stdout; afterwards 0 is /dev/null and 1 is stderr."""
    _open_missing_stdio()
    protocol_in = _duplicate_descriptor(0)
    protocol_out = _duplicate_descriptor(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0, inheritable=True)
    os.close(null)
    os.dup2(2, 1, inheritable=True)
    if is_pipe(protocol_out):
        _enlarge_pipe(protocol_out)
    return protocol_in, protocol_out


def is_pipe(descriptor: int) -> bool:
    """True for a pipe, where a ready poll promises room for a small write."""
    return stat.S_ISFIFO(os.fstat(descriptor).st_mode)


def _open_missing_stdio() -> None:
    """Fill closed descriptors 0 to 2, with which a host may start us, so that no other file gets their numbers."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)


def _duplicate_descriptor(descriptor: int) -> int:
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    except OSError as error:
        # The kernel reports a number beyond the limit of the process with this error.
        number = errno.EMFILE if error.errno == errno.EINVAL else error.errno
        raise OSError(number, os.strerror(number or 0)) from None


def _enlarge_pipe(descriptor: int) -> None:
    """Enlarge a pipe to save wake-ups; the kernel may refuse, which does no harm."""
    try:
        fcntl.fcntl(descriptor, _F_SETPIPE_SZ, PIPE_SIZE)
    except OSError:
        return
