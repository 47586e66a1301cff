"""The file behind a journal: created with the first message, appended per entry, honest about failures.

While writing fails, entries wait in memory and are written, in order, as soon as it works again; the host is told once
when it begins to fail and once when everything is safe again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from pigeon.system.append_file import AppendFile, FileInUse
from pigeon.wire.errors import Refusal

Opener = Callable[[str, bool], AppendFile]


class SessionInUse(Refusal):
    """A second process wants a session that one already writes."""

    def __init__(self, path: str) -> None:
        super().__init__(f"Session is in use by another process: {path}")


class SessionStore:
    """One session file."""

    def __init__(self, path: str, report: Callable[[str], None], opener: Opener = AppendFile) -> None:
        self.path = path
        self._report = report
        self._opener = opener
        self._file: AppendFile | None = None
        self._unsaved: list[bytes] = []
        self._failing = False
        self._begun = False

    @property
    def begun(self) -> bool:
        """True once there is, or should be, a file."""
        return self._begun

    def adopt(self, needs_newline: bool) -> None:
        """Take over an existing file; raises `SessionInUse` if somebody else has it."""
        try:
            self._file = self._opener(self.path, False)
        except FileInUse:
            raise SessionInUse(self.path) from None
        self._begun = True
        if needs_newline:
            self._file.append(b"\n")

    def append(self, line: bytes, everything: Callable[[], Iterable[bytes]]) -> None:
        """Save one line; `everything` gives the whole session, should the file have to be made anew."""
        if not self._begun:
            self._begun = True
            self._unsaved = list(everything())
        else:
            self._unsaved.append(line)
        try:
            self._write(everything)
        except OSError as error:
            self._failed(error)
        else:
            self._saved()

    def sync(self) -> None:
        """Make sure that the disk has everything."""
        file = self._file
        if file is None or self._failing:
            return
        try:
            file.sync()
        except OSError as error:
            if self._file is file:
                self._failed(error)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, everything: Callable[[], Iterable[bytes]]) -> None:
        if self._file is not None and self._file.is_gone():
            self.close()
        if self._file is None:
            self._unsaved = list(everything())
            self._file = self._opener(self.path, not os.path.exists(self.path))
        self._file.append(b"".join(line + b"\n" for line in self._unsaved))
        self._unsaved.clear()

    def _failed(self, error: OSError) -> None:
        if self._file is not None and self._failing:
            return
        if not self._failing:
            self._failing = True
            reason = error.strerror or str(error)
            self._report(
                f"The session cannot be saved to {self.path}: {reason}. The conversation goes on in memory and will be "
                "saved when writing works again."
            )

    def _saved(self) -> None:
        if self._failing:
            self._failing = False
            self._report(f"The session is saved again: {self.path}")
