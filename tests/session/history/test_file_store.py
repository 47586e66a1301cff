"""Session files as a session store: the files stay pi's, and an agent that writes one owns it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pigeon
from pigeon.system.append_file import AppendFile
from pigeon.wire.errors import Refusal

HEADER = json.dumps(
    {"type": "session", "version": 3, "id": "a", "timestamp": "2026-11-19T10:00:00.000Z", "cwd": "/home/ada"}
).encode()
LINE = b'{"type":"custom","id":"1","parentId":null}'


def find_file(folder: Path) -> Path:
    return next(folder.glob("*/*_a.jsonl"))


async def test_a_session_is_the_file_that_pi_would_write(tmp_path: Path) -> None:
    store = pigeon.FileStore(tmp_path)
    await store.create("a", HEADER)
    lease = await store.acquire("a", "one", 60)
    assert lease is not None
    await store.append("a", [LINE], epoch=lease.epoch, position=0)
    file = tmp_path / "--home-ada--" / "2026-11-19T10-00-00-000Z_a.jsonl"
    assert file.read_bytes() == HEADER + b"\n" + LINE + b"\n"
    found = await pigeon.FileStore(tmp_path).find("a")
    assert found is not None
    assert (found.cwd, found.entries) == ("/home/ada", 1)


async def test_a_file_that_an_agent_writes_has_an_owner(tmp_path: Path) -> None:
    store = pigeon.FileStore(tmp_path)
    await store.create("a", HEADER)
    lease = await store.acquire("a", "one", 60)
    assert lease is not None
    agent = AppendFile(str(find_file(tmp_path)), False)
    with pytest.raises(pigeon.StaleEpoch, match="agent of this machine"):
        await store.append("a", [LINE], epoch=lease.epoch, position=0)
    await store.release(lease)
    assert await store.acquire("a", "two", 60) is None
    agent.close()
    assert await store.acquire("a", "two", 60) is not None


async def test_an_incomplete_last_line_stays_a_line(tmp_path: Path) -> None:
    store = pigeon.FileStore(tmp_path)
    await store.create("a", HEADER)
    file = find_file(tmp_path)
    file.write_bytes(file.read_bytes() + b'{"type":"cus')
    lease = await store.acquire("a", "one", 60)
    assert lease is not None
    await store.append("a", [LINE], epoch=lease.epoch, position=1)
    assert await store.read("a") == [HEADER, b'{"type":"cus', LINE]


async def test_leases_hold_across_processes(tmp_path: Path) -> None:
    await pigeon.FileStore(tmp_path).create("a", HEADER)
    lease = await pigeon.FileStore(tmp_path).acquire("a", "one", 60)
    other = pigeon.FileStore(tmp_path)
    assert await other.acquire("a", "two", 60) is None
    assert [one for one, _ in await other.list_leases()] == [lease]


@pytest.mark.parametrize("session_id", ["", "../x", "a/b", ".hidden", "a\0b"])
async def test_ids_that_are_no_file_names_are_refused(tmp_path: Path, session_id: str) -> None:
    with pytest.raises(Refusal, match="id of a session"):
        await pigeon.FileStore(tmp_path / "s").create(session_id, HEADER)


async def test_a_deleted_session_is_in_the_trash(tmp_path: Path) -> None:
    store = pigeon.FileStore(tmp_path / "sessions")
    await store.create("a", HEADER)
    lease = await store.acquire("a", "one", 60)
    assert lease is not None
    await store.delete("a", epoch=lease.epoch)
    assert find_file(tmp_path / "trash").exists()
