"""What a session store does, as a protocol that other programs can implement, and the records and errors of it.

A session is a header and entries; each is a line of bytes that the store keeps as it is. One process at a time owns a
session, by a lease with an epoch: each later owner has a greater epoch, and only lines under the newest epoch
are accepted. So a process that was away for long can write nothing any more, whatever it believes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from pigeon.wire.errors import Refusal


@dataclass(frozen=True)
class Lease:
    """The right to write a session, until it ends or another owner has a newer one.

    Args:
        session_id: the session
        owner: who has it: the name of a machine or process
        epoch: grows with each `acquire` of this session, and never goes back
    """

    session_id: str
    owner: str
    epoch: int


@dataclass(frozen=True)
class StoredSession:
    """What a list shows of a session.

    Args:
        session_id: its id
        cwd: its working directory, from the header
        name: the name that it was given last; empty without one
        entries: the number of its entries, the header not counted
        created: when it began, as in the header; the rest is for lists and may be left empty
        modified: when the last entry came, in the same form
        first_message: the beginning of the first message
        parent_session: what it was copied from, as in the header
        owner: who has its lease now; empty if it has no owner
    """

    session_id: str
    cwd: str
    name: str
    entries: int
    created: str = field(default="", compare=False)
    modified: str = field(default="", compare=False)
    first_message: str = field(default="", compare=False)
    parent_session: str = field(default="", compare=False)
    owner: str = field(default="", compare=False)


class SessionExists(Refusal):
    """There is a session with this id already."""

    def __init__(self, text: str = "There is a session with this id already") -> None:
        super().__init__(text)


class SessionNotFound(Refusal):
    """The store has no session with this id."""

    def __init__(self, text: str = "There is no session with this id") -> None:
        super().__init__(text)


class StaleEpoch(Refusal):
    """Another owner has acquired the session since: nothing was written, and nothing more can be."""

    def __init__(self, text: str = "Another process has taken over this session") -> None:
        super().__init__(text)


class PositionMismatch(Refusal):
    """The lines do not follow the last entry: nothing was written."""

    def __init__(self, text: str = "The entries do not follow the last one that is stored") -> None:
        super().__init__(text)


class StoreUnavailable(Refusal):
    """The store cannot be reached now, or cannot write; the same call may work later."""

    def __init__(self, text: str = "The session store cannot be reached") -> None:
        super().__init__(text)


# Inside the class, `list` is the method.
_Sessions = list[StoredSession]


@runtime_checkable
class SessionStore(Protocol):
    """Where conversations are kept. `pigeon.testing.check_session_store` tests an implementation.

    Every method may be called by several tasks at once. A method that fails has changed nothing, or exactly what it
    would have changed if it had succeeded: an answer that is lost on the way is not an error of the store.
    """

    async def create(self, session_id: str, header: bytes) -> None:
        """Create a session without entries; raises `SessionExists`."""
        ...

    async def acquire(self, session_id: str, owner: str, seconds: float) -> Lease | None:
        """Become the owner for so many seconds, with an epoch greater than any before; None while the lease of another
        owner lives. The same owner may acquire again. Raises `SessionNotFound`."""
        ...

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Extend a lease from now on; False if it was released or the session has another owner since."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give the lease up, so that others need not wait for its end; nothing happens if it is not the newest."""
        ...

    async def append(self, session_id: str, lines: Sequence[bytes], *, epoch: int, position: int) -> int:
        """Add these entries, all or none, behind the first `position` ones; returns the position behind them.

        The same lines at the same position again are accepted, and not written twice. Raises `StaleEpoch` unless
        `epoch` is the newest one, `PositionMismatch` for a position that is not the end, and `SessionNotFound`.
        """
        ...

    async def read(self, session_id: str, after: int = 0) -> list[bytes]:
        """The header and all entries; or, with `after`, only the entries behind the first `after` ones. Raises
        `SessionNotFound`."""
        ...

    async def list(
        self, *, cwd: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[StoredSession], str | None]:
        """Sessions of one working directory or of all, those changed last first, and where the next page begins; None
        after the last page."""
        ...

    async def search(self, text: str, *, cwd: str | None = None, limit: int = 50) -> _Sessions:
        """Sessions with a message that has all words of the text, those changed last first."""
        ...

    async def delete(self, session_id: str, *, epoch: int) -> None:
        """Delete a session; raises `StaleEpoch` unless `epoch` is the newest one, and `SessionNotFound`."""
        ...
