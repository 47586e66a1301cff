"""The file behind a journal: created with the first message, appended to with each entry.

While writing fails, entries wait in memory and are written, in order, as soon as it works again; the failure is
reported once, and so is its end. A file that was deleted is made anew. A file that was put in its place gets the
entries it lacks if it is this session, and is left alone if it is anything else.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable

from pigeon.session.history.reading import is_unfinished
from pigeon.system.append_file import PRIVATE_FILE, AppendFile, FileInUse
from pigeon.system.files import swap_file
from pigeon.wire.errors import Refusal

Opener = Callable[[str, bool], AppendFile]
Everything = Callable[[], Iterable[bytes]]


class SessionInUse(Refusal):
    """A second process wants a session that one already writes."""

    def __init__(self, path: str) -> None:
        super().__init__(f"Session is in use by another process: {path}")


class SessionFile:
    """One session file."""

    def __init__(self, path: str, report: Callable[[str], None], opener: Opener = AppendFile) -> None:
        self.path = path
        self._report = report
        self._opener = opener
        self._file: AppendFile | None = None
        self._everything: Everything = tuple
        self._unsaved: list[bytes] = []
        self._lead = b""
        self._outdated = False
        self._failing = False
        self._unconfirmed: OSError | None = None
        self._begun = False

    @property
    def begun(self) -> bool:
        """True once there is, or should be, a file."""
        return self._begun

    def adopt(self) -> None:
        """Take over an existing file; raises `SessionInUse` if another process writes it.

        A file that can be read but not written is reported; writing is tried again with each entry.
        """
        self._begun = True
        try:
            self._file = self._opener(self._real, False)
        except FileInUse:
            raise SessionInUse(self.path) from None
        except OSError as error:
            self._failed(error)

    def mend(self, needs_newline: bool, outdated: bool, everything: Everything) -> None:
        """Close a last line that was cut off; write a file of an older version anew."""
        self._everything = everything
        self._lead = b"\n" if needs_newline else b""
        self._outdated = outdated
        if self._file is not None and (needs_newline or outdated):
            self._try_to_write()

    def append(self, line: bytes, everything: Everything) -> None:
        """Save one line; `everything` gives the whole session, should the file have to be made anew."""
        self._everything = everything
        if not self._begun:
            self._begun = True
            self._unsaved = list(everything())
        else:
            self._unsaved.append(line)
        self._try_to_write()

    def sync(self) -> None:
        """Make sure that the disk has everything; runs beside the rest, so the next write tells of a failure."""
        file = self._file
        if file is None or self._failing:
            return
        try:
            file.sync()
        except OSError as error:
            if self._file is file:
                self._unconfirmed = error

    def close(self) -> None:
        """Let go of the file, after a last try to save what is not saved yet."""
        if self._unsaved:
            self._try_to_write()
        if self._unsaved:
            self._report(f"The session could not be saved completely: {self.path}")
        self._let_go()

    @property
    def _real(self) -> str:
        return os.path.realpath(self.path)

    def _try_to_write(self) -> None:
        try:
            self._write()
        except OSError as error:
            self._failed(error)
        else:
            self._saved()
        if self._unconfirmed is not None:
            self._report(f"The disk has not confirmed the session file {self.path}: {_reason(self._unconfirmed)}")
            self._unconfirmed = None

    def _write(self) -> None:
        if self._file is not None and self._file.is_gone():
            self._let_go()
        if self._outdated:
            self._renew()
        if self._file is None:
            self._open()
        elif self._file.torn:
            self._take_stock(self._file)
        assert self._file is not None
        self._file.append(self._lead + b"".join(line + b"\n" for line in self._unsaved))
        self._lead = b""
        self._unsaved.clear()

    def _renew(self) -> None:
        """Put the whole session in place of its file."""
        swap_file(self._real, b"".join(line + b"\n" for line in self._everything()), PRIVATE_FILE)
        self._outdated = False
        self._let_go()

    def _open(self) -> None:
        """Hold the file again, or a new one, and find out what it lacks."""
        if not os.path.exists(self._real):
            self._file = self._opener(self._real, True)
            self._unsaved, self._lead = list(self._everything()), b""
            return
        file = self._opener(self._real, False)
        try:
            self._take_stock(file)
        except OSError:
            file.close()
            raise
        self._file = file

    def _take_stock(self, file: AppendFile) -> None:
        """What the file has need not be written again, and half a line must not grow."""
        # A failed write may have left part of a line, or all of it: what counts is what can be read back.
        every = list(self._everything())
        with open(self._real, "rb") as there:
            raw = there.read()
        if is_unfinished(raw):
            file.clear()
            raw = b""
        known = set(raw.split(b"\n"))
        if raw and every[0] not in known:
            raise OSError(errno.EEXIST, "another file has taken its place")
        self._unsaved = [line for line in every if line not in known]
        self._lead = b"\n" if raw and not raw.endswith(b"\n") else b""
        file.mended()

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _failed(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            self._report(
                f"The session cannot be saved to {self.path}: {_reason(error)}. The conversation goes on in memory and "
                "will be saved when writing works again."
            )

    def _saved(self) -> None:
        if self._failing:
            self._failing = False
            self._report(f"The session is saved again: {self.path}")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
