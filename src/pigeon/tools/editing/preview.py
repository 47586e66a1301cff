"""The change that a call would make to a file, shown to a person before the call is allowed.

Computed in a thread from the file that the call holds, with limits on reading, comparing and showing; beyond a limit,
or if the change is impossible, the text is a note about that. `write` and `edit` use it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from pigeon.agent.interfaces import PathSubject, Subject
from pigeon.system.files import run_in_thread
from pigeon.tools.editing.diff import Difference
from pigeon.tools.file_access import FileAccess
from pigeon.wire.errors import ToolFailed

LARGEST = 1 << 20
_TOO_LARGE = f"[too large to show: more than {LARGEST >> 20} MB; look at the arguments and the file]"


async def preview_changes(
    files: FileAccess, subject: Subject, given: bytes, compare: Callable[[bytes], Difference]
) -> str | None:
    """The listing of `compare(old)`, or a note in brackets; `given` is the call's new text, for its size."""
    if not isinstance(subject, PathSubject):
        return None
    if len(given) > LARGEST:
        return _TOO_LARGE
    note = ""
    try:
        old = await files.read_for_preview(subject.path, LARGEST)
    except FileNotFoundError:
        old, note = b"", "[a new file]\n"
    except OSError as error:
        if error.errno == errno.EFBIG:
            return _TOO_LARGE
        return f"[the file cannot be read: {error.strerror or error}]"
    return note + await run_in_thread(lambda: _list_changes(old, compare))


def _list_changes(old: bytes, compare: Callable[[bytes], Difference]) -> str:
    try:
        listing = compare(old).listing
    except ToolFailed as failure:
        return f"[the call would fail: {failure}]"
    return listing or "[no line changes]"
