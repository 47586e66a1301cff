"""The file behind a journal: created with the first message, appended to with each entry, written by one process.

While writing fails, entries wait in memory and are written, in order, as soon as it works again; the failure is
reported once, and so is its end. A deleted file is created again. A file that replaced it gets the missing entries if
it is this session, and is left alone otherwise.

Which process writes is decided by the lock of the file (`system/append_file`):

| state | how it is left |
|---|---|
| not begun: there is no file yet | `claim_file` makes it, or finds that another process did |
| reading: another process writes the file | `claim_file` takes over once the lock is free, and refuses until then |
| reading: the file has a version of the format that is not known here | never |
| writing: the lock is ours | `close` |

Programs that use no lock, such as pi, may write the same file: their entries stay, and entries that they overwrote are
written again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Literal, NamedTuple

from pigeon.session.history.entry_line import line_from_bytes
from pigeon.session.history.reading import has_unfinished_header, is_known_version, is_of_session, read_header
from pigeon.system.append_file import PRIVATE_FILE, AppendFile, FileInUse, agree_on_path, remove_agreement_link
from pigeon.system.files import replace_file_atomically
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.entries import SESSION_VERSION
from pigeon.wire.errors import Refusal

Opener = Callable[[str, bool], AppendFile]
Everything = Callable[[], Iterable[bytes]]
Claim = Literal["ours", "taken", "changed"]
_ATTEMPTS = 10


class SessionInUse(Refusal):
    """A second process wants to write a session that one already writes."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"Session is in use by another process: {path}. Here it is open for reading; write to it when the other "
            "process has ended, or to a copy (fork, clone)"
        )


class UnknownVersion(Refusal):
    """The file has an unknown version of the format, which writing might damage."""

    def __init__(self, path: str, version: Json) -> None:
        shown = codec.encode(version).decode()
        super().__init__(
            f"Session has version {shown} of the format, and this program knows {SESSION_VERSION}: {path}. "
            "Here it is open for reading; write to a copy (fork, clone), or with a newer program"
        )


class Namesake(NamedTuple):
    """How a session with a given id finds a file that already has it. Two processes may have been given the same id,
    and would choose different names for its file; they agree on one by the `link`."""

    link: str
    find: Callable[[], str | None]


class SessionFile:
    """One session file. `namesake` is for a session with a given id that has no file yet."""

    def __init__(
        self,
        path: str,
        report: Callable[[str], None],
        opener: Opener = AppendFile,
        namesake: Namesake | None = None,
    ) -> None:
        self._path = path
        self._report = report
        self._opener = opener
        self._namesake = namesake
        self._file: AppendFile | None = None
        self._everything: Everything = tuple
        self._unsaved: list[bytes] = []
        self._lead = b""
        self._outdated = False
        self._failing = False
        self._unconfirmed: OSError | None = None
        self._begun = False
        self._reading = False
        self._unknown_version: Json = None

    @property
    def path(self) -> str:
        return self._path

    @property
    def has_begun(self) -> bool:
        """True once there is, or should be, a file."""
        return self._begun

    @property
    def is_read_only(self) -> bool:
        """True while the file must not be written: as far as is known, another process writes it, or its version is
        unknown."""
        return self._reading

    def make_refusal(self) -> Refusal:
        """The reason why a file that is only read cannot be written."""
        unknown = self._unknown_version
        return SessionInUse(self._path) if unknown is None else UnknownVersion(self._path, unknown)

    @property
    def is_writable(self) -> bool:
        """True if entries can be appended without `claim_file`: the file is ours, or at least of no other process."""
        return self._file is not None or (self._begun and not self._reading)

    def adopt(self, version: Json = SESSION_VERSION) -> None:
        """Take over an existing file, or only read it if another process writes it or its version is unknown.

        A file that can be read but not written is reported; writing is tried again with each entry.
        """
        self._begun = True
        if not is_known_version(version):
            self._unknown_version = version
            self._reading = True
            return
        try:
            self._file = self._opener(self._real_path, False)
        except FileInUse:
            self._reading = True
        except OSError as error:
            self._report_failure(error)

    def claim_file(self, begins: bool) -> Claim:
        """Become the process that writes; raises `Refusal`, or returns what prevents the creation of a file that was
        not begun.

        `begins` means that there is something to keep: the file is created, and what programs without a lock have
        written is noticed. The journal has to be read again when the file was `taken` over or `changed`.
        """
        if self._file is not None:
            return "changed" if begins and self._begun and self._file.has_foreign_changes else "ours"
        if not (begins or self._reading):
            return "ours"
        if self._unknown_version is not None:
            raise self.make_refusal()
        try:
            return self._require_unlocked() if self.is_writable else self._lock_file()
        except FileInUse:
            self._reading = self._reading or not self._begun
            raise SessionInUse(self._path) from None
        except OSError as error:
            self._report_failure(error)
            was_reading, self._reading = self._reading, False
            return "taken" if was_reading else "ours"

    def _lock_file(self) -> Claim:
        """Lock the file that another process wrote, or create the one that was not begun."""
        if self._namesake is None or self._begun:
            file = self._open_locked()
        else:
            path = agree_on_path(self._namesake.link, self._path)
            try:
                self._path = self._namesake.find() or path
                file = self._open_locked()
            finally:
                remove_agreement_link(self._namesake.link)
        try:
            header = None if file.is_empty else read_header(self._real_path)
            self._begun = header is not None
            if header is not None:
                self._require_known_version(header["version"])
            elif not file.is_empty:
                file.clear()
        except BaseException:
            file.close()
            raise
        self._file = file
        self._reading = False
        return "taken" if self._begun else "ours"

    def _require_known_version(self, version: Json) -> None:
        """Switch to reading and raise `Refusal` if another program has written an unknown version."""
        if not is_known_version(version):
            self._unknown_version = version
            self._reading = True
            raise self.make_refusal()

    def _require_unlocked(self) -> Claim:
        """Refuse further entries if another process by now writes where unsaved ones would go."""
        with suppress(FileNotFoundError):
            self._opener(self._real_path, False).close()
        return "ours"

    def _open_locked(self) -> AppendFile:
        """The file, created if missing; others may create and remove it at the same time."""
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError, FileExistsError):
                return self._opener(self._real_path, not os.path.exists(self._real_path))
        raise FileInUse(errno.EBUSY, "other processes make and remove the file again and again", self._path)

    def switch_to_reading(self) -> None:
        """Switch to reading, because another process has begun the file."""
        self._begun = self._reading = True

    def release(self) -> None:
        """Release a file that was taken over and cannot be used."""
        self._reading = True
        self._close_file()

    def repair_file(self, needs_newline: bool, outdated: bool, everything: Everything) -> None:
        """Terminate an incomplete last line; rewrite a file of an older version."""
        self._everything = everything
        self._lead = b"\n" if needs_newline else b""
        self._outdated = outdated
        if self._file is not None and (needs_newline or outdated):
            self._try_to_write()

    def append(self, line: bytes, everything: Everything) -> None:
        """Save one line; `everything` returns the whole session in case the file has to be written again."""
        self._everything = everything
        if not self._begun:
            self._begun = True
            self._unsaved = list(everything())
        else:
            self._unsaved.append(line)
        self._try_to_write()

    def sync(self) -> None:
        """Make sure that the disk has everything; runs beside the rest, so the next write reports a failure."""
        file = self._file
        if file is None or self._failing:
            return
        try:
            file.sync()
        except OSError as error:
            if self._file is file:
                self._unconfirmed = error

    def close(self) -> None:
        """Close the file, after a last attempt to save what is missing on disk."""
        file = self._file
        if self._unsaved or (file is not None and self._begun and file.has_foreign_changes):
            self._try_to_write()
        elif file is not None and not self._begun and file.is_empty:
            file.remove()
        if self._unsaved:
            self._report(f"The session could not be saved completely: {self.path}")
        self._close_file()

    @property
    def _real_path(self) -> str:
        return os.path.realpath(self.path)

    def _try_to_write(self) -> None:
        try:
            self._write()
        except OSError as error:
            self._report_failure(error)
        else:
            self._report_recovery()
        if self._unconfirmed is not None:
            self._report(f"The disk has not confirmed the session file {self.path}: {_reason_of(self._unconfirmed)}")
            self._unconfirmed = None

    def _write(self) -> None:
        if self._file is not None and self._file.is_gone():
            self._close_file()
            self._unconfirmed = None  # referred to the lost file; everything is written again
        if self._outdated:
            self._rewrite_file()
        if self._file is None:
            self._reopen_file()
        elif self._file.has_torn_line or self._file.has_foreign_changes:
            self._queue_missing_lines(self._file)
        assert self._file is not None
        self._file.append(self._lead + b"".join(line + b"\n" for line in self._unsaved))
        self._lead = b""
        self._unsaved.clear()

    def _rewrite_file(self) -> None:
        """Replace the file with the whole session."""
        replace_file_atomically(self._real_path, b"".join(line + b"\n" for line in self._everything()), PRIVATE_FILE)
        self._outdated = False
        self._close_file()

    def _reopen_file(self) -> None:
        """Open the file again, or a new one, and find out what it lacks."""
        if not os.path.exists(self._real_path):
            self._file = self._opener(self._real_path, True)
            self._unsaved, self._lead = list(self._everything()), b""
            return
        file = self._opener(self._real_path, False)
        try:
            self._queue_missing_lines(file)
        except OSError:
            file.close()
            raise
        self._file = file

    def _queue_missing_lines(self, file: AppendFile) -> None:
        """Queue the lines that the file lacks; an incomplete line at its end is terminated or dropped first."""
        # A failed write may have left part of a line, or all of it: only what can be read back counts.
        every = list(self._everything())
        with open(self._real_path, "rb") as there:
            raw = there.read()
        if has_unfinished_header(raw):
            file.clear()
            raw = b""
        if raw and not is_of_session(raw, every[0]):
            raise OSError(errno.EEXIST, "another file has taken its place")
        self._unsaved = _missing_lines(every, raw) if raw else every
        self._lead = b"\n" if raw and not raw.endswith(b"\n") else b""
        file.accept_content()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _report_failure(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            self._report(
                f"The session cannot be saved to {self.path}: {_reason_of(error)}. The conversation goes on in memory "
                "and will be saved when writing works again."
            )

    def _report_recovery(self) -> None:
        if self._failing:
            self._failing = False
            self._report(f"The session is saved again: {self.path}")


def _missing_lines(every: list[bytes], raw: bytes) -> list[bytes]:
    """The entries that are not in the file in any form: another program may have formatted them differently."""
    known = set(raw.split(b"\n"))
    lacking = [line for line in every[1:] if line not in known]
    if not lacking:
        return []
    ids = {found.id for line in known.difference(every) if (found := line_from_bytes(line)) is not None}
    return [line for line in lacking if (entry := line_from_bytes(line)) is None or entry.id not in ids]


def _reason_of(error: OSError) -> str:
    return error.strerror or str(error)
