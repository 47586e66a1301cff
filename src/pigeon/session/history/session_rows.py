"""The rows behind a journal that a store keeps: written in the background, in order, and announced only when they are
there.

The counterpart of `session_file.py` for any `SessionStore`. An entry is in memory at once; `is_pending` is true until
the store has confirmed it, and the bus holds back everything that comes meanwhile (`Bus.hold_until_saved`). While the
store is away nothing is lost and nothing is announced; a run waits with its next step. All entries of one step of the
event loop are one call of the store.

One process owns the session, by a lease that is renewed while the process lives. Once two thirds of it have passed
without a renewal, counted from before the last one was sent, nothing more is announced until one succeeds. Another
owner in the meantime means the end: `on_lost` is called, and what was not confirmed is never announced.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import uniform

from msgspec import Struct, field

from pigeon.session.history.reading import LoadedSession, is_known_version, parse_session
from pigeon.store.protocol import Lease, SessionExists, SessionStore, StoreUnavailable
from pigeon.wire.errors import Refusal

Everything = Callable[[], Iterable[bytes]]
# The part of a lease after which an owner that was not confirmed stops, and how often it is renewed before.
TRUSTED, RENEWED = 2 / 3, 4
_LONGEST_PAUSE = 1.0
_CLOSING_SECONDS = 30.0


class StoredRows(Struct, frozen=True, kw_only=True):
    """A session as it was read under a lease; without a lease another process owns it."""

    session_id: str
    loaded: LoadedSession
    position: int
    lease: Lease | None


class Ownership(Struct, frozen=True, kw_only=True):
    """Who owns the sessions of this process, and for how long without a renewal."""

    store: SessionStore
    owner: str
    seconds: float
    loop: asyncio.AbstractEventLoop
    report: Callable[[str], None]
    closes_store: bool = False
    closing: set[asyncio.Task[None]] = field(default_factory=set)


class SessionRows:
    """The rows of one session; the same calls as on a `SessionFile`."""

    path: str | None = None

    def __init__(self, own: Ownership, session_id: str, opened: StoredRows | None = None) -> None:
        self._own = own
        self._session_id = session_id
        self._header = b""
        self._unsaved: list[bytes] = []
        self._position = 0 if opened is None else opened.position
        self._lease = None if opened is None else opened.lease
        self._begun = opened is not None
        self._reading = opened is not None and (
            opened.lease is None or opened.loaded.rewritten or not is_known_version(opened.loaded.header["version"])
        )
        self._lost = False
        self._closed = False
        self._away = False
        self._trusted_until = time.monotonic() + own.seconds * TRUSTED
        self._listeners: tuple[Callable[[], None], Callable[[str], None]] = (lambda: None, lambda problem: None)
        self._writing: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        if self._lease is not None:
            self._renewing = own.loop.create_task(self._keep_lease(), name="pigeon-lease")

    def set_listeners(self, changed: Callable[[], None], lost: Callable[[str], None]) -> None:
        """`changed` is called when `is_pending` may have become false, `lost` when another process owns the session."""
        self._listeners = changed, lost

    @property
    def is_pending(self) -> bool:
        """True while something waits for the store, or the lease may have ended: nothing must be announced then."""
        if self._lease is None and not self._unsaved:
            return self._lost
        return bool(self._unsaved) or self._lost or time.monotonic() > self._trusted_until

    @property
    def has_begun(self) -> bool:
        return self._begun

    @property
    def is_read_only(self) -> bool:
        return self._reading or self._lost

    @property
    def is_writable(self) -> bool:
        return not self.is_read_only

    def make_refusal(self) -> Refusal:
        """The reason why a session that is only read cannot be written."""
        return Refusal(
            f"Session is in use by another process: {self._session_id}. Here it is open for reading; write to it when "
            "the other process has ended, or to a copy (fork, clone)"
        )

    def claim_file(self, begins: bool) -> str:
        """Raises `Refusal` if another process owns the session; nothing else has to be done."""
        if self.is_read_only:
            raise self.make_refusal()
        return "ours"

    def repair_file(self, needs_newline: bool, outdated: bool, everything: Everything) -> None:
        """Rows need no repair; those of an older version stay as they are, and are read as the new one."""

    def switch_to_reading(self) -> None:
        self._reading = True

    def release(self) -> None:
        """Called for a session that cannot be used; the lease is given up when it is closed."""
        self._reading = True

    def append(self, line: bytes, everything: Everything) -> None:
        """Keep one line; the first one brings everything that came before it."""
        if self._begun:
            self._unsaved.append(line)
        else:
            self._begun = True
            self._header, *self._unsaved = everything()
        self._own.loop.call_soon_threadsafe(self._start_writing)

    def sync(self) -> None:
        """What the store has confirmed needs nothing more."""

    def close(self) -> None:
        """The journal is not used any more: what is left is saved in the background (`close_store` waits for it)."""
        if not self._closed:
            self._closed = True
            closing = self._own.loop.create_task(self.finish(), name="pigeon-store-end")
            self._own.closing.add(closing)
            closing.add_done_callback(self._own.closing.discard)

    async def finish(self) -> None:
        """Save what is left, as long as the store is not away for too long, and give the lease up."""
        self._closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self.wait_until_saved()
        for task in (self._renewing, self._writing):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        if self._unsaved and not self._lost:
            self._own.report(f"{len(self._unsaved)} entries of the session {self._session_id} could not be stored")
        if self._lease is not None and not self._lost:
            lease, self._lease = self._lease, None
            with suppress(Refusal):
                await self._own.store.release(lease)

    async def wait_until_saved(self) -> None:
        while self._unsaved and not self._lost:
            self._start_writing()
            assert self._writing is not None
            await asyncio.wait({self._writing})

    # In the event loop

    def _start_writing(self) -> None:
        if (self._writing is None or self._writing.done()) and self._unsaved and not self._lost:
            self._writing = self._own.loop.create_task(self._write_all(), name="pigeon-store")

    async def _write_all(self) -> None:
        pause = 0.05
        while self._unsaved and not self._lost:
            try:
                await self._write_once()
                pause = 0.05
                self._report_return()
            except StoreUnavailable as error:
                self._report_absence(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            except Refusal as error:
                self._lose(str(error))
        self._listeners[0]()

    async def _write_once(self) -> None:
        own = self._own
        if self._lease is None:
            await self._create()
        assert self._lease is not None
        batch = list(self._unsaved)
        self._position = await own.store.append(
            self._session_id, batch, epoch=self._lease.epoch, position=self._position
        )
        del self._unsaved[: len(batch)]

    async def _create(self) -> None:
        """Create the session and become its owner; an id that is taken belongs to another conversation."""
        own = self._own
        try:
            await own.store.create(self._session_id, self._header)
        except SessionExists:
            if await own.store.read(self._session_id) != [self._header]:
                raise
        sent = time.monotonic()
        self._lease = await own.store.acquire(self._session_id, own.owner, own.seconds)
        if self._lease is None:
            raise self.make_refusal()
        self._trusted_until = sent + own.seconds * TRUSTED
        self._renewing = own.loop.create_task(self._keep_lease(), name="pigeon-lease")

    async def _keep_lease(self) -> None:
        """Renew the lease as long as the process lives; jitter keeps many processes apart."""
        own = self._own
        while not self._lost:
            await asyncio.sleep(own.seconds / RENEWED * uniform(0.8, 1.0))
            assert self._lease is not None
            sent = time.monotonic()
            try:
                async with asyncio.timeout(own.seconds):
                    renewed = await own.store.renew(self._lease, own.seconds)
            except (StoreUnavailable, TimeoutError) as error:
                self._report_absence(error)
                continue
            except Refusal as error:
                self._lose(str(error))
                return
            if not renewed:
                self._lose("Another process has taken over this session")
                return
            self._trusted_until = sent + own.seconds * TRUSTED
            self._report_return()
            self._listeners[0]()

    def _lose(self, problem: str) -> None:
        if self._lost:
            return
        self._lost = True
        if not self._closed:
            self._own.report(
                f"The session {self._session_id} cannot be continued here: {problem}. What was not stored is only in "
                "memory; open the session again, or keep it as a copy (fork, clone)"
            )
            self._listeners[1](problem)

    def _report_absence(self, error: BaseException) -> None:
        if not self._away:
            self._away = True
            self._own.report(f"The conversation waits for the session store: {error or type(error).__name__}")

    def _report_return(self) -> None:
        if self._away:
            self._away = False
            self._own.report("The session store answers again, and nothing was lost")


async def open_stored_rows(own: Ownership, session_id: str) -> StoredRows:
    """A session with its lease. One whose owner has just died is waited for until its lease has ended; raises
    `Refusal` for an unknown session."""
    give_up = time.monotonic() + own.seconds + 1
    lease = await own.store.acquire(session_id, own.owner, own.seconds)
    while lease is None and time.monotonic() < give_up:
        await asyncio.sleep(min(0.2, own.seconds / 10))
        lease = await own.store.acquire(session_id, own.owner, own.seconds)
    try:
        header, *lines = await own.store.read(session_id)
        loaded = parse_session(header, lines, session_id)
    except BaseException:
        if lease is not None:
            await own.store.release(lease)
        raise
    return StoredRows(session_id=session_id, loaded=loaded, position=len(lines), lease=lease)
