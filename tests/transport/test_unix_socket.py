"""A unix socket for one connection of our own user."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from pigeon.transport import unix_socket
from pigeon.transport.unix_socket import accept_own_user, listen


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "socket")


async def test_the_first_connection_is_taken_and_nothing_listens_afterwards(path: str) -> None:
    listener = listen(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        reading, writing = await accept_own_user(listener, path)
        assert "socket" not in os.listdir(os.path.dirname(path))
        client.sendall(b"in\n")
        os.write(writing, b"out\n")
        assert (os.read(reading, 10), client.recv(10)) == (b"in\n", b"out\n")
        client.shutdown(socket.SHUT_WR)
        assert os.read(reading, 10) == b""
        os.close(reading)
        os.close(writing)


async def test_a_connection_of_another_user_is_closed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    users = [os.geteuid() + 1, os.geteuid()]
    monkeypatch.setattr(unix_socket, "user_of", lambda connection: users.pop(0))
    listener = listen(path)
    accepting = asyncio.ensure_future(accept_own_user(listener, path))
    with socket.socket(socket.AF_UNIX) as stranger, socket.socket(socket.AF_UNIX) as own:
        stranger.connect(path)
        own.connect(path)
        reading, writing = await accepting
        assert stranger.recv(10) == b""
        os.write(writing, b"hello")
        assert own.recv(10) == b"hello"
        os.close(reading)
        os.close(writing)


def test_the_user_at_the_other_end_is_known() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert unix_socket.user_of(one) == os.geteuid()


def test_looking_whether_a_socket_is_in_use_does_not_connect_to_it(path: str) -> None:
    with listen(path) as listener:
        with pytest.raises(OSError, match="another process listens there"):
            listen(path)
        with pytest.raises(BlockingIOError):
            listener.accept()
    listen(path).close()


@pytest.mark.parametrize("make", [lambda path: Path(path).write_text("x"), lambda path: Path(path).mkdir()])
def test_what_is_no_socket_is_left_alone(path: str, make: object) -> None:
    make(path)  # type: ignore[operator]
    with pytest.raises(OSError, match="is no socket"):
        listen(path)
    assert os.path.exists(path)


@pytest.mark.parametrize("name", ["no/such/folder", "x" * 300])
def test_a_path_that_cannot_be_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError) as error:  # noqa: PT011
        listen(str(tmp_path / name))
    assert error.value.filename == str(tmp_path / name)
    assert not list(tmp_path.iterdir())
