"""A handshake with a shell command over a named pipe: a command waits until the test lets it go on, or the reverse.

The test keeps the pipe open for both directions, so that nothing it does here blocks: what one side says waits in the
pipe for the other.
"""

from __future__ import annotations

import os
import select
import weakref
from pathlib import Path

DEADLINE = 15.0


class Fifo:
    """One named pipe in the folder of the command; `waits` and `tells` are written into what the test runs."""

    def __init__(self, folder: Path, name: str = "go") -> None:
        os.mkfifo(folder / name)
        self.path = folder / name
        self.waits = f"read _ <{name}"
        self.tells = f"echo >{name}"
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)

    def release(self) -> None:
        """Let one command go on that `waits` or will wait."""
        os.write(self._descriptor, b"\n")

    def wait(self) -> None:
        """Block until a command `tells` that it has come so far."""
        assert select.select([self._descriptor], [], [], DEADLINE)[0], "the command never came so far"
        os.read(self._descriptor, 1)
