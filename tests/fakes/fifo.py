"""A handshake with a shell command over a named pipe: neither side goes on before the other has come to its place."""

from __future__ import annotations

import os
from pathlib import Path


class Fifo:
    """One named pipe in the folder of the command; its two commands are written into what the test runs."""

    def __init__(self, folder: Path, name: str = "go") -> None:
        self._path = folder / name
        self.waits = f"read _ <{name}"
        self.tells = f"echo >{name}"
        os.mkfifo(self._path)

    def release(self) -> None:
        """Let a command go on that `waits`; blocks until it is there."""
        self._path.write_text("\n")

    def wait(self) -> None:
        """Block until a command `tells` that it has come so far."""
        self._path.read_text()
