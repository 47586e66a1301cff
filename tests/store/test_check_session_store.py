"""`check_session_store` accepts stores that keep their promises, and names the promise that one breaks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import pigeon
from pigeon.store import checks
from pigeon.store.checks import BrokenPromise
from pigeon.store.lines import has_all_words, read_entry_facts, read_header_facts, split_words
from pigeon.testing import check_session_store
from support.postgres import make_store


class DictStore:
    """A store in memory, as another program would write it."""

    def __init__(self) -> None:
        self.sessions: dict[str, list[bytes]] = {}
        self.changed: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.owners: dict[str, tuple[str, float]] = {}
        self.changes = 0

    def touch(self, session_id: str) -> None:
        self.changes += 1
        self.changed[session_id] = self.changes

    def require(self, session_id: str) -> list[bytes]:
        if session_id not in self.sessions:
            raise pigeon.SessionNotFound
        return self.sessions[session_id]

    def owner_of(self, session_id: str) -> str | None:
        owner, until = self.owners.get(session_id, ("", 0.0))
        return owner if until > time.monotonic() else None

    async def create(self, session_id: str, header: bytes) -> None:
        if session_id in self.sessions:
            raise pigeon.SessionExists
        self.sessions[session_id] = [header]
        self.touch(session_id)

    async def acquire(self, session_id: str, owner: str, seconds: float) -> pigeon.Lease | None:
        self.require(session_id)
        if self.owner_of(session_id) not in (None, owner):
            return None
        self.epochs[session_id] = self.epochs.get(session_id, 0) + 1
        self.owners[session_id] = (owner, time.monotonic() + seconds)
        return pigeon.Lease(session_id, owner, self.epochs[session_id])

    async def renew(self, lease: pigeon.Lease, seconds: float) -> bool:
        if self.epochs.get(lease.session_id) != lease.epoch or lease.session_id not in self.owners:
            return False
        self.owners[lease.session_id] = (lease.owner, time.monotonic() + seconds)
        return True

    async def release(self, lease: pigeon.Lease) -> None:
        if self.epochs.get(lease.session_id) == lease.epoch:
            self.owners.pop(lease.session_id, None)

    async def append(self, session_id: str, lines: Sequence[bytes], *, epoch: int, position: int) -> int:
        there = self.require(session_id)
        if self.epochs.get(session_id) != epoch:
            raise pigeon.StaleEpoch
        if position == len(there) - 1:
            there.extend(lines)
            self.touch(session_id)
        elif position < 0 or there[1 + position : 1 + position + len(lines)] != list(lines):
            raise pigeon.PositionMismatch
        return position + len(lines)

    async def read(self, session_id: str, after: int = 0) -> list[bytes]:
        lines = self.require(session_id)
        return lines[after + 1 :] if after else list(lines)

    def rows(self, cwd: str | None) -> list[pigeon.StoredSession]:
        newest = sorted(self.sessions, key=lambda one: self.changed[one], reverse=True)
        found = [(one, read_header_facts(self.sessions[one][0]).cwd) for one in newest]
        return [
            pigeon.StoredSession(one, folder, "", len(self.sessions[one]) - 1)
            for one, folder in found
            if cwd in (None, folder)
        ]

    async def list(
        self, *, cwd: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[pigeon.StoredSession], str | None]:
        start = int(cursor or 0)
        rows = self.rows(cwd)
        return rows[start : start + limit], str(start + limit) if len(rows) > start + limit else None

    async def search(self, text: str, *, cwd: str | None = None, limit: int = 50) -> list[pigeon.StoredSession]:
        words = split_words(text)
        return [
            row
            for row in self.rows(cwd)
            if any(has_all_words(read_entry_facts(line).text, words) for line in self.sessions[row.session_id][1:])
        ][:limit]

    async def delete(self, session_id: str, *, epoch: int) -> None:
        self.require(session_id)
        if self.epochs.get(session_id) != epoch:
            raise pigeon.StaleEpoch
        del self.sessions[session_id]


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """For stores that are as fast as memory."""
    monkeypatch.setattr(checks, "_SHORT_SECONDS", 0.1)
    monkeypatch.setattr(checks, "_MOST_WAITING", 0.5)


async def test_a_store_in_memory_passes() -> None:
    store = DictStore()
    await check_session_store(lambda: store)
    assert store.sessions == {}, "the check removes what it has made"


async def test_the_store_of_files_passes(tmp_path: Path) -> None:
    await check_session_store(lambda: pigeon.FileStore(tmp_path))


async def test_the_store_in_postgres_passes(postgres_url: str) -> None:
    async with await make_store(postgres_url) as store:
        await check_session_store(lambda: store)


async def keep_old_epoch(store: DictStore, session_id: str, owner: str, seconds: float) -> pigeon.Lease | None:
    lease = await DictStore.acquire(store, session_id, owner, seconds)
    if lease is not None:
        store.epochs[session_id] = 7
    return None if lease is None else pigeon.Lease(session_id, owner, 7)


class Broken(DictStore):
    """One promise of each is broken by a method of a subclass below."""


class CreatesTwice(Broken):
    async def create(self, session_id: str, header: bytes) -> None:
        self.sessions[session_id] = [header]
        self.touch(session_id)


class LeasesToAnybody(Broken):
    async def acquire(self, session_id: str, owner: str, seconds: float) -> pigeon.Lease | None:
        self.require(session_id)
        self.owners.pop(session_id, None)
        return await super().acquire(session_id, owner, seconds)


class KeepsItsEpoch(Broken):
    async def acquire(self, session_id: str, owner: str, seconds: float) -> pigeon.Lease | None:
        return await keep_old_epoch(self, session_id, owner, seconds)


class NeverEndsALease(Broken):
    def owner_of(self, session_id: str) -> str | None:
        return self.owners.get(session_id, (None, 0.0))[0]


class RenewsAnything(Broken):
    async def renew(self, lease: pigeon.Lease, seconds: float) -> bool:
        return True


class DoesNotExtend(Broken):
    async def renew(self, lease: pigeon.Lease, seconds: float) -> bool:
        return self.epochs.get(lease.session_id) == lease.epoch and lease.session_id in self.owners


class ReleasesForOthers(Broken):
    async def release(self, lease: pigeon.Lease) -> None:
        self.owners.pop(lease.session_id, None)


class WritesUnderAnyEpoch(Broken):
    async def append(self, session_id: str, lines: Sequence[bytes], *, epoch: int, position: int) -> int:
        return await super().append(session_id, lines, epoch=self.epochs.get(session_id, 0), position=position)


class WritesTwice(Broken):
    async def append(self, session_id: str, lines: Sequence[bytes], *, epoch: int, position: int) -> int:
        there = await super().append(session_id, lines, epoch=epoch, position=position)
        if there < len(self.sessions[session_id]) - 1:
            self.sessions[session_id].extend(lines)
        return there


class WritesAtAnyPosition(Broken):
    async def append(self, session_id: str, lines: Sequence[bytes], *, epoch: int, position: int) -> int:
        return await super().append(session_id, lines, epoch=epoch, position=len(self.require(session_id)) - 1)


class WritesHalf(Broken):
    async def append(self, session_id: str, lines: Sequence[bytes], *, epoch: int, position: int) -> int:
        try:
            return await super().append(session_id, lines, epoch=epoch, position=position)
        except pigeon.PositionMismatch:
            self.sessions[session_id].extend(lines[:1])
            raise


class ChangesBytes(Broken):
    async def read(self, session_id: str, after: int = 0) -> list[bytes]:
        lines = await super().read(session_id, after)
        return [line.decode("utf-8", "replace").encode() for line in lines]


class ListsOldestFirst(Broken):
    def rows(self, cwd: str | None) -> list[pigeon.StoredSession]:
        return super().rows(cwd)[::-1]


class LosesTheCursor(Broken):
    async def list(self, **options: Any) -> tuple[list[pigeon.StoredSession], str | None]:
        return (await super().list(**options))[0], None


class SearchesEverywhere(Broken):
    async def search(self, text: str, *, cwd: str | None = None, limit: int = 50) -> list[pigeon.StoredSession]:
        return await super().search(text, limit=limit)


class DeletesUnderAnyEpoch(Broken):
    async def delete(self, session_id: str, *, epoch: int) -> None:
        await super().delete(session_id, epoch=self.epochs[session_id])


class ListsDeleted(Broken):
    async def delete(self, session_id: str, *, epoch: int) -> None:
        rows = self.rows(None)
        await super().delete(session_id, epoch=epoch)
        self.rows = lambda cwd: rows  # type: ignore[method-assign]


@pytest.mark.usefixtures("short_leases")
@pytest.mark.parametrize("kind", Broken.__subclasses__(), ids=lambda kind: kind.__name__)
async def test_each_broken_promise_is_found(kind: type[Broken]) -> None:
    with pytest.raises(BrokenPromise):
        await check_session_store(kind)
