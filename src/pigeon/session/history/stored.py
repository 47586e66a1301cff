"""Sessions of a store in the form in which hosts get lists of them."""

from __future__ import annotations

from pigeon.store.protocol import StoredSession
from pigeon.wire.answers import SessionRow
from pigeon.wire.base import ABSENT


def row_of_stored(stored: StoredSession) -> SessionRow:
    """The list row of a session that has no file."""
    return SessionRow(
        id=stored.session_id,
        cwd=stored.cwd,
        created=stored.created,
        modified=stored.modified,
        name=stored.name or ABSENT,
        first_message=stored.first_message or ABSENT,
        parent_session=stored.parent_session or ABSENT,
    )
