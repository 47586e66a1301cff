"""Whether a session store keeps its promises: each is tried, and the first broken one is raised with its name."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any
from uuid import uuid4

from pigeon.store.protocol import (
    Lease,
    PositionMismatch,
    SessionExists,
    SessionNotFound,
    SessionStore,
    StaleEpoch,
    StoredSession,
)

_ENTRIES = [
    b'{"type":"message","id":"a1","parentId":null,"timestamp":"2026-11-19T10:00:01.000Z",'
    b'"message":{"role":"user","content":[{"type":"text","text":"please find the quetzal"}],"timestamp":1}}',
    b'{ "id":"a2" , "type":"message","parentId":"a1","number":1.50e2,"big":12345678901234567890,"nul":"\\u0000",'
    b'"half":"\\ud83d","message":{"role":"assistant","content":[{"type":"text","text":"It is here"}]}}',
    '{"type":"something_new","id":"a3","parentId":"a2","data":{"b":1,"a":[null,""]},"text":"ä\\u00e4 鳥"}'.encode(),
    b'{"type":"custom","customType":"x","id":"a4","parentId":"a3","data":{}}',
]
_SHORT_SECONDS = 1.0
_LONG_SECONDS = 600.0
_MOST_WAITING = 10.0


class BrokenPromise(AssertionError):
    """A session store does not do what it must."""


async def check_session_store(factory: Callable[[], SessionStore | Awaitable[SessionStore]]) -> None:
    """Try everything that a session store promises, in a few seconds; raises at the first promise that is broken.

    The store may hold other sessions; those of the check are new, and deleted again when all is well.

    Args:
        factory: returns the store, or a coroutine that returns it

    Example:
        import asyncio
        import tempfile

        import pigeon
        from pigeon.testing import check_session_store

        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(check_session_store(lambda: pigeon.FileStore(folder)))
    """
    made = factory()
    store = await made if inspect.isawaitable(made) else made
    check = _Check(store)
    for promise in (
        check.creates_and_reads,
        check.leases_to_one_owner,
        check.lets_a_lease_end,
        check.appends_all_or_nothing,
        check.accepts_a_repeated_append,
        check.refuses_old_epochs,
        check.decides_between_two_at_once,
        check.keeps_every_byte,
        check.lists_newest_first,
        check.searches,
        check.deletes,
    ):
        await promise()
    await check.clean_up()


class _Check:
    """The store, and what was created in it; `mark` is in every id, folder and searched word."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._mark = uuid4().hex[:12]
        self._numbers = count(1)
        self._created: dict[str, bytes] = {}

    async def creates_and_reads(self) -> None:
        id = self._new_id()
        await self._expect(SessionNotFound, self._store.read(id), "read of an unknown session")
        await self._expect(SessionNotFound, self._store.acquire(id, "one", 1), "acquire of an unknown session")
        header = await self._create(id)
        _hold(await self._store.read(id) == [header], "a new session has its header, as it was given, and no entries")
        await self._expect(SessionExists, self._store.create(id, header), "create of a session that exists")
        _hold(await self._store.read(id) == [header], "a refused create changes nothing")

    async def leases_to_one_owner(self) -> None:
        id = self._new_id()
        await self._create(id)
        first = await self._acquire(id, "one")
        _hold((first.session_id, first.owner) == (id, "one"), "a lease names its session and its owner")
        _hold(await self._store.acquire(id, "two", 1) is None, "acquire is None while the lease of another owner lives")
        again = await self._acquire(id, "one")
        _hold(again.epoch > first.epoch, "the epoch grows when the same owner acquires again")
        _hold(await self._store.renew(again, _LONG_SECONDS), "the owner of a lease can renew it")
        _hold(await self._store.acquire(id, "two", 1) is None, "a renewed lease keeps others out")
        await self._store.release(again)
        second = await self._acquire(id, "two")
        _hold(second.epoch > again.epoch, "the epoch grows when another owner acquires")
        _hold(not await self._store.renew(again, _LONG_SECONDS), "a lease that another owner has taken is not renewed")
        await self._store.release(again)
        _hold(
            await self._store.acquire(id, "three", 1) is None, "release of an old lease does not release the newest one"
        )
        await self._store.release(second)

    async def lets_a_lease_end(self) -> None:
        id = self._new_id()
        await self._create(id)
        short = await self._acquire(id, "one", _SHORT_SECONDS)
        began = time.monotonic()
        taken = None
        while taken is None and time.monotonic() < began + _MOST_WAITING:
            taken = await self._store.acquire(id, "two", _LONG_SECONDS)
            if taken is not None:
                break
            await asyncio.sleep(0.05)
        _hold(taken is not None, "a lease that was not renewed ends after its seconds")
        assert taken is not None
        _hold(time.monotonic() - began > _SHORT_SECONDS / 2, "a lease lasts for its seconds")
        _hold(taken.epoch > short.epoch, "the epoch grows when a lease has ended")
        _hold(not await self._store.renew(short, _LONG_SECONDS), "a lease that ended and was taken is not renewed")
        await self._store.release(taken)
        longer = await self._acquire(id, "one", _SHORT_SECONDS)
        await self._store.renew(longer, _LONG_SECONDS)
        await asyncio.sleep(_SHORT_SECONDS * 1.2)
        _hold(await self._store.acquire(id, "two", 1) is None, "renew extends a lease beyond its first seconds")
        await self._store.release(longer)

    async def appends_all_or_nothing(self) -> None:
        id, lease, header = await self._begin()
        after = await self._store.append(id, _ENTRIES[:2], epoch=lease.epoch, position=0)
        _hold(after == 2, "append returns the position behind the new entries, the header not counted")
        for wrong in (1, 3, 0, -1):
            work = self._store.append(id, [_ENTRIES[3], _ENTRIES[2]], epoch=lease.epoch, position=wrong)
            await self._expect(PositionMismatch, work, f"append at position {wrong} of a session with 2 entries")
        _hold(await self._store.read(id) == [header, *_ENTRIES[:2]], "a refused append writes nothing")
        _hold(await self._store.append(id, _ENTRIES[2:3], epoch=lease.epoch, position=2) == 3, "append goes on")
        rest = await self._store.read(id, after=2)
        _hold(rest[-1:] == _ENTRIES[2:3] and _ENTRIES[1] not in rest, "read after a position omits the entries before")
        unknown = self._store.append(self._new_id(), _ENTRIES[:1], epoch=1, position=0)
        await self._expect((SessionNotFound, StaleEpoch), unknown, "append to an unknown session")

    async def accepts_a_repeated_append(self) -> None:
        id, lease, header = await self._begin()
        for _ in range(2):
            there = await self._store.append(id, _ENTRIES[:2], epoch=lease.epoch, position=0)
            _hold(there == 2, "the same lines at the same position again are accepted")
        await self._store.append(id, _ENTRIES[2:3], epoch=lease.epoch, position=2)
        await self._store.append(id, _ENTRIES[2:3], epoch=lease.epoch, position=2)
        await self._store.append(id, _ENTRIES[:2], epoch=lease.epoch, position=0)
        _hold(await self._store.read(id) == [header, *_ENTRIES[:3]], "lines that are repeated are not written twice")
        other = self._store.append(id, _ENTRIES[3:], epoch=lease.epoch, position=2)
        await self._expect(PositionMismatch, other, "append of other lines at a position that is taken")
        await self._store.append(id, _ENTRIES[2:3], epoch=lease.epoch, position=3)
        _hold(await self._store.read(id) == [header, *_ENTRIES[:3], _ENTRIES[2]], "equal lines may follow each other")

    async def refuses_old_epochs(self) -> None:
        id, old, header = await self._begin()
        await self._store.append(id, _ENTRIES[:1], epoch=old.epoch, position=0)
        own = await self._acquire(id, "one")
        stale = self._store.append(id, _ENTRIES[1:2], epoch=old.epoch, position=1)
        await self._expect(StaleEpoch, stale, "append under an epoch before the newest of the same owner")
        await self._store.release(own)
        new = await self._acquire(id, "two")
        for epoch in (old.epoch, own.epoch, new.epoch + 1):
            stale = self._store.append(id, _ENTRIES[1:2], epoch=epoch, position=1)
            await self._expect(StaleEpoch, stale, "append under another epoch than the newest")
        _hold(await self._store.read(id) == [header, _ENTRIES[0]], "an old owner writes nothing")
        await self._store.append(id, _ENTRIES[1:2], epoch=new.epoch, position=1)
        _hold(await self._store.read(id) == [header, *_ENTRIES[:2]], "the new owner goes on where the old one was")

    async def decides_between_two_at_once(self) -> None:
        id = self._new_id()
        await self._create(id)
        taken = await asyncio.gather(*(self._store.acquire(id, f"o{n}", _LONG_SECONDS) for n in range(5)))
        leases = [lease for lease in taken if lease is not None]
        _hold(len(leases) == 1, "of several owners who acquire at once, one gets the lease")
        rivals = [
            self._store.append(
                id, [b'{"type":"custom","id":"r%d","parentId":null}' % n], epoch=leases[0].epoch, position=0
            )
            for n in range(5)
        ]
        ended = await asyncio.gather(*rivals, return_exceptions=True)
        kinds = sorted(type(one).__name__ for one in ended)
        _hold(
            kinds == ["PositionMismatch"] * 4 + ["int"], f"of several appends at one position, one counts; got {kinds}"
        )
        _hold(len(await self._store.read(id)) == 2, "of several appends at one position, one is written")

    async def keeps_every_byte(self) -> None:
        id, lease, header = await self._begin()
        long = b'{"type":"custom","id":"long","parentId":null,"data":"' + b"x" * 300_000 + b'"}'
        lines = [*_ENTRIES, long, b'{"raw":"\xff\xfe\x00"}', b"not JSON at all \\ ' \" %s"]
        await self._store.append(id, lines, epoch=lease.epoch, position=0)
        read = await self._store.read(id)
        _hold(all(isinstance(line, bytes) for line in read), "lines are bytes")
        _hold(read == [header, *lines], "every line comes back with exactly its bytes")

    async def lists_newest_first(self) -> None:
        folder = self._folder("list")
        ids = [self._new_id() for _ in range(5)]
        for id in ids:
            await self._create(id, folder)
            await asyncio.sleep(0.02)
        lease = await self._acquire(ids[1], "one")
        await self._store.append(ids[1], _ENTRIES[:2], epoch=lease.epoch, position=0)
        expected = [ids[1], *(id for id in reversed(ids) if id != ids[1])]
        rows, cursor = await self._store.list(cwd=folder)
        _hold([row.session_id for row in rows] == expected, "a list begins with the session that was changed last")
        _hold(cursor is None, "a list that is complete has no cursor")
        _hold({row.cwd for row in rows} == {folder}, "a row has the working directory of the header")
        _hold([row.entries for row in rows] == [2, 0, 0, 0, 0], "a row has the number of entries, without the header")
        pages, cursor = await self._store.list(cwd=folder, limit=2)
        _hold(len(pages) == 2 and cursor is not None, "a list has at most `limit` rows, and a cursor if there are more")
        while cursor is not None and len(pages) < 10:
            more, cursor = await self._store.list(cwd=folder, limit=2, cursor=cursor)
            pages += more
        _hold([row.session_id for row in pages] == expected, "pages together have every session once")
        everywhere = await self._find_listed(ids[1])
        _hold(everywhere is not None, "a list without a working directory has all sessions")

    async def searches(self) -> None:
        folder, other, word = self._folder("search"), self._folder("other"), f"zebra{self._mark}"
        texts = {folder: f"Where did the {word} go", other: f"A {word} again"}
        found_in: dict[str, str] = {}
        for place, text in texts.items():
            id, lease, _ = await self._begin(place)
            message = {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1}
            line = {"type": "message", "id": "m", "parentId": None, "message": message}
            await self._store.append(id, [json.dumps(line).encode()], epoch=lease.epoch, position=0)
            found_in[place] = id
            await asyncio.sleep(0.02)
        found = [row.session_id for row in await self._store.search(word)]
        _hold(found == [found_in[other], found_in[folder]], "search finds the sessions with a word, newest first")
        _hold(
            [row.session_id for row in await self._store.search(word, limit=1)] == found[:1], "search obeys its limit"
        )
        here = await self._store.search(word, cwd=folder)
        _hold([row.session_id for row in here] == [found_in[folder]], "search can be limited to a working directory")
        _hold(await self._store.search(f"absent{self._mark}") == [], "search finds nothing for a word that nobody said")

    async def deletes(self) -> None:
        id, old, _ = await self._begin()
        await self._store.append(id, _ENTRIES[:1], epoch=old.epoch, position=0)
        new = await self._acquire(id, "one")
        await self._expect(StaleEpoch, self._store.delete(id, epoch=old.epoch), "delete under an old epoch")
        _hold(len(await self._store.read(id)) == 2, "a refused delete changes nothing")
        await self._store.delete(id, epoch=new.epoch)
        del self._created[id]
        await self._expect(SessionNotFound, self._store.read(id), "read of a deleted session")
        _hold(await self._find_listed(id) is None, "a deleted session is not listed")
        gone = self._store.append(id, _ENTRIES[1:2], epoch=new.epoch, position=1)
        await self._expect((SessionNotFound, StaleEpoch), gone, "append to a deleted session")

    async def clean_up(self) -> None:
        for id in list(self._created):
            for owner in ("one", "two", *(f"o{n}" for n in range(5))):
                lease = await self._store.acquire(id, owner, _LONG_SECONDS)
                if lease is not None:
                    await self._store.delete(id, epoch=lease.epoch)
                    break

    # Steps

    def _new_id(self) -> str:
        return f"check-{self._mark}-{next(self._numbers)}"

    def _folder(self, name: str) -> str:
        return f"/check/{self._mark}/{name}"

    async def _create(self, id: str, folder: str | None = None) -> bytes:
        header = json.dumps(
            {
                "type": "session",
                "version": 3,
                "id": id,
                "timestamp": "2026-11-19T10:00:00.000Z",
                "cwd": folder or self._folder("work"),
            }
        ).encode()
        await self._store.create(id, header)
        self._created[id] = header
        return header

    async def _acquire(self, id: str, owner: str, seconds: float = _LONG_SECONDS) -> Lease:
        lease = await self._store.acquire(id, owner, seconds)
        _hold(lease is not None, f"{owner} can acquire a session that nobody else owns")
        assert lease is not None
        return lease

    async def _begin(self, folder: str | None = None) -> tuple[str, Lease, bytes]:
        """A new session with an owner."""
        id = self._new_id()
        header = await self._create(id, folder)
        return id, await self._acquire(id, "one"), header

    async def _find_listed(self, id: str) -> StoredSession | None:
        cursor = None
        for _ in range(1000):
            rows, cursor = await self._store.list(cursor=cursor)
            found = next((row for row in rows if row.session_id == id), None)
            if found is not None or cursor is None:
                return found
        return None

    @staticmethod
    async def _expect(kinds: Any, work: Awaitable[Any], deed: str) -> None:
        names = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        try:
            answer = await work
        except kinds:
            return
        except Exception as error:
            raise BrokenPromise(f"{deed} must raise {names}; it raised {error!r}") from error
        raise BrokenPromise(f"{deed} must raise {names}; it returned {answer!r}")


def _hold(kept: bool, promise: str) -> None:
    if not kept:
        raise BrokenPromise(f"Broken promise of the session store: {promise}")
