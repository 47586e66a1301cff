from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from pigeon.config.credentials import AuthFile

KEY = {"type": "api_key", "key": "k"}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_missing_file_has_no_credentials(tmp_path: Path) -> None:
    auth = AuthFile(str(tmp_path / "auth.json"))
    assert auth.read_all().get("x") is None
    assert auth.problem is None


def test_what_is_stored_is_found(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    path.write_text('// mine\n{"anthropic": {"type": "api_key", "key": "k"},}')
    assert AuthFile(str(path)).read_all().get("anthropic") == KEY
    assert AuthFile(str(path)).read_all().get("openai") is None


def test_a_file_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    path.write_text("{}")
    path.chmod(0o644)
    AuthFile(str(path)).read_all()
    assert mode(path) == 0o600


def test_a_change_by_another_process_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    auth = AuthFile(str(path))
    assert auth.read_all().get("x") is None
    path.write_text(json.dumps({"x": KEY}))
    assert auth.read_all().get("x") == KEY
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"x": {"type": "api_key", "key": "K"}}))
    os.replace(other, path)
    assert auth.read_all().get("x") == {"type": "api_key", "key": "K"}
    path.unlink()
    assert auth.read_all().get("x") is None


def test_a_file_that_did_not_change_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "auth.json"
    path.write_text(json.dumps({"x": KEY}))
    path.chmod(0o600)
    auth = AuthFile(str(path))
    auth.read_all().get("x")
    monkeypatch.setattr("pigeon.config.credentials.read_json", None)
    assert auth.read_all().get("x") == KEY


@pytest.mark.parametrize("text", ["{", "[]", "null"])
def test_a_broken_file_is_a_problem_until_it_is_corrected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "auth.json"
    path.write_text(text)
    auth = AuthFile(str(path))
    assert auth.read_all().get("x") is None
    assert auth.problem is not None
    assert str(path) in auth.problem
    path.write_text(json.dumps({"x": KEY}))
    assert auth.problem is None
    assert auth.read_all().get("x") == KEY


def test_entries_that_are_no_objects_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    path.write_text('{"a": "just a string", "b": {"type": "api_key", "key": "k"}}')
    assert set(AuthFile(str(path)).read_all()) == {"b"}


def test_a_pipe_in_its_place_is_a_problem_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "auth.json")
    problem = AuthFile(str(tmp_path / "auth.json")).problem
    assert problem is not None
    assert "Not a regular file" in problem


def test_a_file_that_cannot_be_closed_to_others_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "auth.json"
    path.write_text(json.dumps({"x": KEY}))
    path.chmod(0o640)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chmod", refuse)
    auth = AuthFile(str(path))
    assert auth.read_all().get("x") == KEY
    assert "run chmod 600" in str(auth.problem)
