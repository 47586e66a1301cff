"""Clients as the documents show them: started by name, nothing configured, reading lines the simple way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fakes.agent_folders import AgentFolders, providers
from fakes.contract_manifest import proves
from fakes.dialect_cases import in_each
from fakes.model_server import Call, Gate, Hang, ModelServer, Text
from fakes.program_alias import folder_with

CLIENTS = Path(__file__).parent / "clients"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no node on this machine")
ODD = "One line\u2028and another\u2029, says the \U0001f426."


class Client:
    """A client in a process of its own, and what it has printed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._printed = bytearray()
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_printed(self, text: str) -> None:
        with self._news:
            assert self._news.wait_for(lambda: text.encode() in self._printed, 20), bytes(self._printed)

    def wait_exit(self) -> int:
        return self._process.wait(20)

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            while data := os.read(stream.fileno(), 65536):
                with self._news:
                    self._printed += data
                    self._news.notify_all()

    def end(self) -> None:
        self._process.kill()
        self._process.wait(20)
        self._reader.join(20)


@contextmanager
def client(folders: AgentFolders, server: ModelServer, dialect: str, *command: str) -> Iterator[Client]:
    """Run a client that finds us under the name of the program it was written for."""
    name = "omp" if dialect == "omp" else "pi"
    folders.configure(providers(server.url), {"defaultProvider": "fake", "defaultModel": "fake-1"})
    path = f"{folder_with(folders, name)}:{os.environ['PATH']}"
    asked = {"PIGEON_DIALECT": dialect} if dialect == "companion" else {}
    process = subprocess.Popen(
        [*command, name],
        env=folders.environment({"PATH": path, **asked}),
        cwd=folders.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    running = Client(process)
    try:
        yield running
    finally:
        running.end()


@proves("example.python", dialects=("pi", "omp"))
@proves("example.python_ends", dialects=("pi",))
@proves("omp/example.python_ends", dialects=("omp",))
@in_each("pi", "omp")
def test_a_small_python_client_prints_the_answer_and_ends(
    folders: AgentFolders, server: ModelServer, dialect: str
) -> None:
    server.answers(Text(ODD, piece=3))
    with client(folders, server, dialect, sys.executable, str(CLIENTS / "plain.py")) as running:
        running.wait_printed(f"{ODD}\n")
        assert running.wait_exit() == 0


@needs_node
@proves("example.node", "example.node_lives", "example.node_abort", dialects=("pi",))
@proves("companion/example.node", "companion/example.node_tool", "companion/example.node_abort",
        dialects=("companion",))  # fmt: skip
@in_each("pi", "companion")
def test_a_line_reading_node_client_prints_waits_and_aborts(
    folders: AgentFolders, server: ModelServer, dialect: str
) -> None:
    gate = Gate()
    server.answers(Text(ODD, piece=3), Call("bash", {"command": "true"}))
    asked = server.answers("and", gate, Hang())
    with client(folders, server, dialect, str(NODE), str(CLIENTS / "lines.js")) as running:
        running.wait_printed(f"{ODD}<bash>a")
        gate.wait_reached()
        gate.open()
        running.interrupt()
        asked.wait_dropped()
        assert running.lives


@needs_node
@proves("omp/example.bun", dialects=("omp",))
@in_each("omp")
def test_a_chunk_reading_client_prints_the_answer(folders: AgentFolders, server: ModelServer, dialect: str) -> None:
    server.answers(Text(ODD, piece=3))
    runtime = shutil.which("bun") or str(NODE)
    with client(folders, server, dialect, runtime, str(CLIENTS / "chunks.mjs")) as running:
        running.wait_printed(ODD)
        assert running.lives
