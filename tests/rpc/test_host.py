"""One host on two pipes, served to the end."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pigeon.dialects.base import Dialect
from pigeon.rpc.host import Host, PipeChannel
from pigeon.session.hooks import NoHooks
from support.session_setup import SessionSetup


class Pipes:
    """Both directions; the host's ends are handed over, ours are closed behind the test."""

    def __init__(self) -> None:
        self.theirs_in, self._ours_in = os.pipe()
        self._ours_out, self.theirs_out = os.pipe()
        self._open = {self._ours_in, self._ours_out, self.theirs_in, self.theirs_out}

    def send(self, *commands: dict[str, Any]) -> None:
        os.write(self._ours_in, b"".join(json.dumps(command).encode() + b"\n" for command in commands))

    def end(self) -> None:
        self._close(self._ours_in)

    def read_everything(self) -> list[dict[str, Any]]:
        """Everything that was written; the host must be gone."""
        self._close(self.theirs_out)
        with open(self._ours_out, "rb", closefd=False) as stream:
            return [json.loads(line) for line in stream]

    def close(self) -> None:
        for descriptor in list(self._open):
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.discard(descriptor)
            os.close(descriptor)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.close()


class Stubborn(NoHooks):
    """An extension that answers for a shell command and takes several turns of the loop to stop."""

    def __init__(self) -> None:
        self.asked = 0

    async def intercept_user_bash(self, command: str, excluded: bool, cwd: str) -> None:
        self.asked += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for _ in range(50):
                await asyncio.sleep(0)


async def nothing(*given: object) -> None:
    return None


async def test_commands_that_take_their_time_to_stop_are_answered_once_before_the_end(pipes: Pipes) -> None:
    hooks = Stubborn()
    setup = SessionSetup(hooks=hooks)
    host = Host(setup.session, Dialect("1"), PipeChannel((pipes.theirs_in, pipes.theirs_out)), lambda: False, nothing)
    serving = asyncio.ensure_future(host.serve(nothing, nothing, nothing))
    pipes.send(*({"id": number, "type": "bash", "command": "x"} for number in (1, 2)))
    await setup.until(lambda: hooks.asked == 2)
    pipes.end()
    assert await asyncio.wait_for(serving, 10) == 0
    responses = [record for record in pipes.read_everything() if record["type"] == "response"]
    assert sorted(record["id"] for record in responses) == [1, 2]
    assert all(record["data"]["cancelled"] for record in responses)


async def test_commands_are_read_from_a_file_to_its_end(pipes: Pipes, tmp_path: Path) -> None:
    file = tmp_path / "commands.jsonl"
    file.write_text("".join(json.dumps({"id": number, "type": "get_state"}) + "\n" for number in range(3)))
    setup = SessionSetup()
    with file.open("rb") as commands:
        host = Host(
            setup.session, Dialect("1"), PipeChannel((commands.fileno(), pipes.theirs_out)), lambda: False, nothing
        )
        assert await asyncio.wait_for(host.serve(nothing, nothing, nothing), 10) == 0
    assert [record["id"] for record in pipes.read_everything()] == [0, 1, 2]


async def test_what_is_warmed_up_waits_until_the_first_commands_were_answered(pipes: Pipes) -> None:
    warmed: list[int] = []

    async def warm() -> None:
        warmed.append(len(answered))

    setup = SessionSetup()
    host = Host(setup.session, Dialect("1"), PipeChannel((pipes.theirs_in, pipes.theirs_out)), lambda: False, warm)
    answered = setup.heard.events
    serving = asyncio.ensure_future(host.serve(nothing, nothing, nothing))
    for _ in range(10):
        await asyncio.sleep(0)
    assert warmed == []
    pipes.send({"id": 1, "type": "set_session_name", "name": "n"})
    await setup.until(lambda: warmed)
    assert warmed == [1], "the event of the command came first"
    pipes.end()
    assert await asyncio.wait_for(serving, 10) == 0
