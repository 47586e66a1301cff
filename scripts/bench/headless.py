"""An agent's command that answers one prompt and ends, in a home of its own, and what its processes cost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import tree_meter
from bench.model_formats import Record
from bench.model_server import ModelServer
from bench.peers import PROMPT, Peer

METER = Path(tree_meter.__file__)
SAMPLE_MS = 10
COMMAND_SECONDS = 300
PROOF = "proof.txt"


class RunFailed(Exception):
    """An agent did not do what it was asked to; its figures do not count."""


@dataclass
class Cost:
    cpu: float
    wall: float
    peak_mb: float


class Site:
    """A home and a working folder of one agent, and the model that it talks to."""

    def __init__(self, peer: Peer, folder: Path, name: str = "") -> None:
        self.peer = peer
        self.name = name or peer.name
        self.home, self.work = folder / self.name / "home", folder / self.name / "work"
        self.home.mkdir(parents=True)
        self.work.mkdir()
        self.model = ModelServer()
        peer.write_settings(self.home, self.model.port)
        self.variables = peer.environment(self.home, self.model.port)

    def close(self) -> None:
        self.model.stop()

    def answer(self, command: Sequence[str] = (), needles: Sequence[str] = (), with_memory: bool = False) -> Cost:
        """One answer without a tool; every needle must be in a request."""
        self.model.play(last=self.peer.last_reply, needles=list(needles))
        cost = measure(command or self.peer.command(PROMPT), self, with_memory)
        found = max((request["found"] for request in self.model.requests()), default=0)
        if found < len(needles):
            raise RunFailed(f"the model got {found} of {len(needles)} samples of the history")
        return cost

    def run_shell(self, commands: Sequence[str], lines: int, with_memory: bool = False) -> Cost:
        """Have the model call these commands, each in a turn of its own; they must add so many lines to the proof."""
        return self.run_calls([self.peer.shell_call(command) for command in commands], lines, with_memory)

    def run_calls(self, calls: Sequence[Record], lines: int, with_memory: bool = False) -> Cost:
        """The same for any calls."""
        proof = self.work / PROOF
        proof.unlink(missing_ok=True)
        self.model.play(replies=[{"calls": [call]} for call in calls], last=self.peer.last_reply)
        cost = measure(self.peer.command(PROMPT), self, with_memory)
        written = len(proof.read_text().splitlines()) if proof.exists() else 0
        if written != lines:
            raise RunFailed(f"{written} of {lines} lines were written by its tools")
        return cost


def measure(command: Sequence[str], site: Site, with_memory: bool = False) -> Cost:
    """Run a command that must print the answer and end with 0."""
    found, printed = run_metered(command, site.variables, site.work, SAMPLE_MS if with_memory else 0)
    if found["code"] != 0:
        raise RunFailed(f"it ended with {found['code']}: {printed[-300:]}")
    if "42" not in printed:
        raise RunFailed(f"it printed no answer: {printed[-300:]}")
    return Cost(found["cpu"], found["wall"], found["peak_mb"])


def run_metered(
    command: Sequence[str], variables: dict[str, str], folder: Path, every_ms: int = 0
) -> tuple[dict[str, Any], str]:
    """What the meter has found, and what the command has printed."""
    report, theirs = os.pipe()
    meter = [sys.executable, "-I", "-S", str(METER), str(theirs), str(every_ms), *command]
    with subprocess.Popen(
        meter,
        env=variables,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[theirs],
    ) as program:
        os.close(theirs)
        try:
            printed, _ = program.communicate(timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            for pid in tree_meter.descendants(program.pid):
                os.kill(pid, signal.SIGKILL)
            program.communicate(timeout=30)
            raise RunFailed(f"it did not end within {COMMAND_SECONDS} seconds") from None
        finally:
            with os.fdopen(report) as file:
                found = file.read()
    return json.loads(found), printed.decode("utf-8", "replace")
