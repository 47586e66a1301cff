"""A worker that an earlier supervisor has left is ended by what it holds: the lock of its log, not its number."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator

import pytest

from pigeon.frontends.serve import worker_process
from pigeon.frontends.serve.worker_process import end_log_owner


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"]) as running:
        yield running
        running.kill()


def make_owners(monkeypatch: pytest.MonkeyPatch, *owners: int | None) -> list[int | None]:
    """The process that has the lock, each time that somebody asks; returns those that are left."""
    left = list(owners)
    monkeypatch.setattr(worker_process, "log_owner", lambda folder: left.pop(0))
    return left


async def test_the_owner_of_a_log_is_ended(monkeypatch: pytest.MonkeyPatch, process: subprocess.Popen[bytes]) -> None:
    left = make_owners(monkeypatch, process.pid, process.pid)
    await end_log_owner("/log")
    assert process.wait(20) == -15
    assert left == []


async def test_a_process_that_only_has_the_number_of_the_owner_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, process: subprocess.Popen[bytes]
) -> None:
    for now in (None, process.pid + 1):
        make_owners(monkeypatch, process.pid, now)
        await end_log_owner("/log")
        assert process.poll() is None


async def test_an_owner_that_has_ended_meanwhile_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    over = await asyncio.create_subprocess_exec("true")
    await over.wait()
    left = make_owners(monkeypatch, over.pid, None)
    await end_log_owner("/log")
    assert left == [None], "there is nothing left to ask about"


async def test_a_log_without_an_owner_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    left = make_owners(monkeypatch, None)
    await end_log_owner("/log")
    assert left == []
