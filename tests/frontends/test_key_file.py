"""`--api-key-file`: from which descriptors a key is read, and how long that is waited for."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pigeon.cli.args import parse_arguments
from pigeon.frontends import starting
from pigeon.system.environment import Environment
from pigeon.wire.errors import StartupError

AROUND = Environment(variables={}, home="/", cwd="/")


def key_from(path: str) -> str | None:
    return starting.with_key_from_file(parse_arguments(["--api-key-file", path]), AROUND).agent.api_key


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_a_socket_that_the_host_passes_is_read_and_left_open(folder: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"the-key\nwhat follows")
        assert key_from(f"{folder}/{theirs.fileno()}") == "the-key"
        assert theirs.recv(100) == b"what follows"


def test_a_pipe_that_says_nothing_or_half_a_line_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "KEY_SECONDS", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StartupError, match="no complete line arrived"):
        key_from(str(tmp_path / "pipe"))
    reading, writing = os.pipe()
    os.write(writing, b"half")
    with pytest.raises(StartupError, match="no complete line arrived"):
        key_from(f"/dev/fd/{reading}")
    os.close(reading)
    os.close(writing)


def test_an_endless_file_is_given_up() -> None:
    with pytest.raises(StartupError, match="longer than"):
        key_from("/dev/zero")


def test_two_keys_are_one_too_many() -> None:
    with pytest.raises(StartupError, match="cannot be combined"):
        starting.with_key_from_file(parse_arguments(["--api-key-file", "x", "--api-key", "y"]), AROUND)


def test_without_the_option_nothing_is_read() -> None:
    line = parse_arguments(["--api-key", "y"])
    assert starting.with_key_from_file(line, AROUND) is line
