"""What a call of the program and a warm parent know of each other: where the parent listens, what both must have in
common, and the records of their link.

Every call that finds a folder of warm parents imports this, so it imports next to nothing.
"""

from __future__ import annotations

import os
import sys

from pigeon.system.process.messages import LinkMessage

SUFFIX = ".sock"
# Grows when the link changes: program and parent may be of different installations.
FORMAT = 1
# How a forked process ends that has not taken its call; none of the program's own exit codes.
NOT_TAKEN = 113
# The interpreter and the libraries below it read these when they start, which a forked process does not do.
READ_AT_START = (
    *(b"LD_", b"LC_", b"LANG", b"LOCPATH", b"NLSPATH", b"GCONV_PATH", b"TZ"),
    *(b"MALLOC_", b"GLIBC_", b"OPENSSL_", b"SSL_", b"COVERAGE_"),
)
# Those that only say where modules are found are left out: the folders themselves are compared.
FLAGS = (
    *("debug", "inspect", "interactive", "optimize", "verbose", "bytes_warning", "quiet", "no_site"),
    *("hash_randomization", "dev_mode", "utf8_mode", "warn_default_encoding", "int_max_str_digits"),
    *("gil", "context_aware_warnings", "thread_inherit_context"),
)


# From the program that was called; it also sends `ForkRequest`


class CallFacts(LinkMessage):
    """What the interpreter of the caller is (`describe_interpreter`)."""

    facts: bytes


class StatusRequest(LinkMessage):
    """Asks what the parent has done; answered by `WarmStatus`."""


class StopServer(LinkMessage):
    """End the parent; what it has forked stays."""


# From the warm parent, which also sends `ServerReady`, `ForkDone`, `NotForked` and `Ended`


class WarmStatus(LinkMessage):
    """What the parent has done; the times are in seconds."""

    pid: int
    calls: int
    running: int
    age: float
    idle: float
    idle_limit: float


# From the forked process, which reports its exit code by `Ended`, too: the parent may be gone by then


class CallTaken(LinkMessage):
    """Everything is handed over; the work begins when the caller agrees."""


class StartCold(LinkMessage):
    """Nothing was done, and the caller must do all of it itself."""


def is_read_at_start(name: bytes) -> bool:
    """True for a variable that decides how an interpreter, or a library below it, behaves."""
    return name.startswith(READ_AT_START) or (name.startswith(b"PYTHON") and not sys.flags.ignore_environment)


def describe_interpreter() -> bytes:
    """What a warm parent must have in common with a caller, as text that can be compared.

    Raises `ValueError` where it says too little: a relative folder of modules means another one for each caller.
    """
    for folder in sys.path:
        if not os.path.isabs(folder):
            raise ValueError(f"Python looks for modules in {folder or 'the working directory'!r}")
    facts = (
        FORMAT,
        os.path.dirname(__file__),
        tuple(os.uname()),
        (sys.executable, sys.version, sys.prefix),
        [getattr(sys.flags, name, None) for name in FLAGS],
        sys.path,
        (sys.warnoptions, sorted(sys._xoptions.items())),
        sorted(item for item in os.environb.items() if is_read_at_start(item[0])),
    )
    return repr(facts).encode("utf-8", "backslashreplace")


def name_socket(facts: bytes) -> str:
    """The name of the socket of the parent with these facts, which it compares once more."""
    import _imp

    return _imp.source_hash(FORMAT, facts).hex() + SUFFIX
