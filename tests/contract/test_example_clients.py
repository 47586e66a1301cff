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

from fakes.model_server import Call, Gate, Hang, ModelServer, Text
from support.agent_folders import AgentFolders, providers
from support.agent_process import folder_with
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario

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

    @property
    def printed(self) -> str:
        with self._news:
            return self._printed.decode(errors="replace")

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


@scenario
def python_client(stage: Stage) -> Seen:
    """A small client in Python, to its end."""
    stage.server.answers(Text(ODD, piece=3))
    script = str(CLIENTS / "plain.py")
    with client(stage.folders, stage.server, stage.dialect, sys.executable, script) as running:
        running.wait_printed(f"{ODD}\n")
        return Seen(printed=running.printed, code=running.wait_exit())


@proves("example.python")
def test_a_small_python_client_prints_the_answer(python_client: Seen) -> None:
    assert f"{ODD}\n" in python_client.printed


@proves("example.python_ends", same=("omp/example.python_ends",))
def test_a_small_python_client_ends_with_the_run(python_client: Seen) -> None:
    assert python_client.code == 0


@scenario
def node_client(stage: Stage) -> Seen:
    """A client that reads lines in Node, interrupted in its second answer."""
    gate = Gate()
    stage.server.answers(Text(ODD, piece=3), Call("bash", {"command": "true"}))
    asked = stage.server.answers("and", gate, Hang())
    with client(stage.folders, stage.server, stage.dialect, str(NODE), str(CLIENTS / "lines.js")) as running:
        running.wait_printed(f"{ODD}<bash>a")
        gate.wait_reached()
        gate.open()
        running.interrupt()
        asked.wait_dropped()
        return Seen(printed=running.printed, asked=asked, lives=running.lives)


@needs_node
@proves("example.node", same=("companion/example.node",))
def test_a_line_reading_node_client_prints_the_answer(node_client: Seen) -> None:
    assert ODD in node_client.printed


@needs_node
@proves("companion/example.node_tool")
def test_a_line_reading_node_client_prints_the_name_of_the_tool(node_client: Seen) -> None:
    assert f"{ODD}<bash>a" in node_client.printed


@needs_node
@proves("example.node_abort", same=("companion/example.node_abort",))
def test_an_interrupt_of_a_node_client_aborts_the_run(node_client: Seen) -> None:
    node_client.asked.wait_dropped()


@needs_node
@proves("example.node_lives")
def test_a_node_client_keeps_waiting(node_client: Seen) -> None:
    assert node_client.lives


@needs_node
@proves("omp/example.bun")
def test_a_chunk_reading_client_prints_the_answer(folders: AgentFolders, server: ModelServer, dialect: str) -> None:
    server.answers(Text(ODD, piece=3))
    runtime = shutil.which("bun") or str(NODE)
    with client(folders, server, dialect, runtime, str(CLIENTS / "chunks.mjs")) as running:
        running.wait_printed(ODD)
        assert running.lives
