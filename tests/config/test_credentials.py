from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from pigeon.config import credentials
from pigeon.config.credentials import AuthFile
from pigeon.wire.errors import StartupError

KEY = {"type": "api_key", "key": "k"}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_missing_file_has_no_credentials(tmp_path: Path) -> None:
    auth = AuthFile(str(tmp_path / "auth.json"))
    assert auth.get("x") is None
    assert auth.problem is None


def test_what_is_stored_is_found_and_private(tmp_path: Path) -> None:
    path = tmp_path / "agent" / "auth.json"
    old = os.umask(0)
    try:
        AuthFile(str(path)).put("anthropic", KEY)
    finally:
        os.umask(old)
    assert AuthFile(str(path)).get("anthropic") == KEY
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["auth.json"]


def test_other_entries_survive_a_change(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    path.write_text(json.dumps({"a": {"type": "oauth", "access": "x", "future": [1]}, "b": KEY}))
    auth = AuthFile(str(path))
    auth.remove("b")
    auth.put("c", KEY)
    assert json.loads(path.read_text()) == {"a": {"type": "oauth", "access": "x", "future": [1]}, "c": KEY}
    assert auth.get("b") is None


def test_a_file_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    path.write_text("{}")
    path.chmod(0o644)
    AuthFile(str(path)).all()
    assert mode(path) == 0o600


def test_a_change_by_another_process_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    mine, other = AuthFile(str(path)), AuthFile(str(path))
    assert mine.get("x") is None
    other.put("x", KEY)
    assert mine.get("x") == KEY


@pytest.mark.parametrize("text", ["{", "[]", "null"])
def test_a_broken_file_is_a_problem_and_is_never_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "auth.json"
    path.write_text(text)
    auth = AuthFile(str(path))
    assert auth.get("x") is None
    assert auth.problem is not None
    assert str(path) in auth.problem
    with pytest.raises(StartupError, match="correct or remove"):
        auth.put("x", KEY)
    assert path.read_text() == text


def test_entries_that_are_no_objects_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    path.write_text('{"a": "just a string", "b": {"type": "api_key", "key": "k"}}')
    assert set(AuthFile(str(path)).all()) == {"b"}


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "auth.json")
    threads = [threading.Thread(target=AuthFile(path).put, args=(f"p{number}", KEY)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(AuthFile(path).all()) == {f"p{number}" for number in range(8)}


def test_a_held_lock_is_reported_and_a_dead_one_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "LOCK_TRIES", 2)
    monkeypatch.setattr(credentials, "LOCK_PAUSE_S", 0)
    path = tmp_path / "auth.json"
    lock = tmp_path / "auth.json.lock"
    lock.mkdir()
    with pytest.raises(StartupError, match=r"auth\.json\.lock"):
        AuthFile(str(path)).put("x", KEY)
    os.utime(lock, (1, 1))
    AuthFile(str(path)).put("x", KEY)
    assert not lock.exists()
