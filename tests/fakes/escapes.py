"""What attempts to get out of a sandbox share: how they are listed, system calls, the shell."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from typing import Any

Targets = dict[str, Any]
libc = ctypes.CDLL(None, use_errno=True)
ATTEMPTS: dict[str, Callable[[Targets], object]] = {}
ROOT_ONLY: set[str] = set()
IS_64 = os.uname().machine == "x86_64"


def attempt(function: Callable[[Targets], object]) -> Callable[[Targets], object]:
    """It escapes if it returns something true; an error means that it did not."""
    ATTEMPTS[function.__name__] = function
    return function


def as_root(function: Callable[[Targets], object]) -> Callable[[Targets], object]:
    """An attempt that only root can make where there is no wall."""
    ROOT_ONLY.add(function.__name__)
    return attempt(function)


def call(number: int, *arguments: Any) -> int:
    """A system call; raises `OSError`."""
    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = libc.syscall(ctypes.c_long(number), *given)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def shell(command: str) -> bool:
    """Whether a command of the shell succeeds."""
    line = ["/bin/bash", "-c", command]
    return subprocess.run(line, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=5).returncode == 0
