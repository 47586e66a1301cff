"""Programs that Pigeon talks to through pipes: other agents."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from pigeon.system.process.peer import LAST_LINES, PeerProcess

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 60 & wait; done"


class Peer:
    """A program with all that it says."""

    def __init__(self) -> None:
        self.output = b""
        self.complaints: list[str] = []
        self.losses = 0
        self.said = asyncio.Event()
        self.process = PeerProcess(self._receive, self._lost, self.complaints.append)

    def _receive(self, data: bytes) -> None:
        self.output += data
        self.said.set()

    def _lost(self) -> None:
        self.losses += 1

    async def start(self, script: str) -> PeerProcess:
        await self.process.start(["/bin/sh", "-c", script], "/", {"PATH": "/usr/bin:/bin"})
        return self.process


async def test_what_is_written_to_a_program_comes_in_and_its_answer_comes_out() -> None:
    peer = Peer()
    process = await peer.start("read line; echo got $line; echo noted >&2; exit 3")
    assert process.exit_code is None
    process.write(b"this\n")
    process.end_input()
    assert await process.wait_until_ended(20)
    assert (peer.output, peer.complaints, process.exit_code) == (b"got this\n", ["noted"], 3)
    assert peer.losses == 1, "its end is told once"
    process.write(b"nobody reads this\n")
    process.end_input()
    process.terminate()
    process.kill()
    process.close()


@pytest.mark.parametrize("way", ["terminate", "kill", "close"])
async def test_a_program_is_ended_in_each_way(way: str) -> None:
    peer = Peer()
    process = await peer.start("echo ready; sleep 60" if way == "terminate" else STUBBORN)
    await peer.said.wait()
    getattr(process, way)()
    assert await process.wait_until_ended(20)
    assert process.exit_code == -(signal.SIGTERM if way == "terminate" else signal.SIGKILL)
    process.close()


async def test_waiting_for_a_program_that_goes_on_says_so() -> None:
    peer = Peer()
    process = await peer.start(STUBBORN)
    await peer.said.wait()
    process.terminate()
    assert await process.wait_until_ended(0.05) is False
    assert process.exit_code is None
    process.kill()
    assert await process.wait_until_ended(20) is True
    process.close()


async def test_what_a_program_has_started_does_not_keep_its_end_from_being_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pigeon.system.process.peer.AFTER_EXIT_SECONDS", 0.05)
    peer = Peer()
    process = await peer.start("sleep 60 & echo $!")
    assert await process.wait_until_ended(20)
    assert process.exit_code == 0
    assert peer.losses == 1
    process.close()
    os.kill(int(peer.output), signal.SIGKILL)


async def test_the_last_complaints_of_a_program_are_kept_and_long_ones_shortened() -> None:
    script = f"import sys; sys.stderr.write('first\\n' + 'x' * 5000 + '\\n' + 'line\\n' * {LAST_LINES - 2} + 'the end')"
    peer = Peer()
    await peer.process.start([sys.executable, "-I", "-c", script], None, None)
    assert await peer.process.wait_until_ended(20)
    kept = peer.process.last_error_lines.split("\n")
    assert kept == ["first", "x" * 2000, *["line"] * (LAST_LINES - 2), "the end"]
    assert len(peer.complaints) == LAST_LINES
    peer.process.close()


async def test_a_program_that_is_not_there_cannot_be_started_and_nothing_is_to_be_ended() -> None:
    process = PeerProcess(lambda data: None, lambda: None)
    with pytest.raises(FileNotFoundError):
        await process.start(["/nowhere/program"], None, None)
    assert (process.pid, process.exit_code, process.last_error_lines) == (None, None, "")
    process.write(b"x")
    process.end_input()
    process.terminate()
    process.kill()
    process.close()
