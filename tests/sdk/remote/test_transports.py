"""An agent that is started before there is a client to hear it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import pigeon
from pigeon.sdk.remote.transports import ProgramChoices, SubprocessTransport


def early(folder: Path, program: str) -> SubprocessTransport:
    """A program that writes a file when it has said what it says."""
    done = f"import pathlib; pathlib.Path({str(folder / 'done')!r}).touch()"
    return SubprocessTransport([sys.executable, "-S", "-c", f"{program}\n{done}\n"], ProgramChoices())


async def wait_for_end(folder: Path) -> None:
    """Have the event loop go round until the program has come to its end."""
    async with asyncio.timeout(20):
        while not (folder / "done").exists():  # noqa: ASYNC110 - nothing tells of a file
            await asyncio.sleep(0)


async def test_what_it_says_before_it_is_opened_is_heard_then(tmp_path: Path) -> None:
    transport = early(tmp_path, "print('early', flush=True)")
    await transport.start()
    await wait_for_end(tmp_path)
    heard: list[bytes] = []
    lost = asyncio.Event()
    await transport.open(heard.append, lost.set)
    async with asyncio.timeout(20):
        await lost.wait()
    assert b"".join(heard) == b"early\n"
    await transport.close()


async def test_its_death_before_it_is_opened_is_told_to_the_client(tmp_path: Path) -> None:
    transport = early(tmp_path, "import sys; sys.stderr.write('no luck')")
    await transport.start()
    await wait_for_end(tmp_path)
    assert "no luck" in (await transport.explain_death()).last_words
    client = pigeon.Client(connect=lambda going_on: transport)
    with pytest.raises(pigeon.ProcessDied, match="has ended"):
        await client.open()
