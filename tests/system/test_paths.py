from __future__ import annotations

import os
from pathlib import Path

import pytest

from pigeon.system.paths import absolute, expand_home, resolved, resolved_for_reading
from pigeon.wire.errors import ToolFailed


def test_paths_are_relative_to_the_working_directory(tmp_path: Path) -> None:
    cwd = str(tmp_path)
    assert resolved("a/../b", cwd) == f"{cwd}/b"
    assert resolved("/etc/./x", cwd) == "/etc/x"
    assert resolved(".", cwd) == cwd


def test_the_home_directory_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert resolved("~", str(tmp_path)) == "/home/me"
    assert resolved("~/x", str(tmp_path)) == "/home/me/x"
    assert resolved("~x", str(tmp_path)) == f"{tmp_path}/~x"


def test_file_urls_are_paths(tmp_path: Path) -> None:
    assert resolved("file:///tmp/a%20b", str(tmp_path)) == "/tmp/a b"


def test_a_mention_sign_is_dropped_unless_the_file_has_it(tmp_path: Path) -> None:
    assert resolved("@x", str(tmp_path)) == f"{tmp_path}/x"
    (tmp_path / "@x").touch()
    assert resolved("@x", str(tmp_path)) == f"{tmp_path}/@x"


def test_a_new_file_in_a_directory_with_a_sign_goes_there(tmp_path: Path) -> None:
    (tmp_path / "@types").mkdir()
    assert resolved("@types/new.d.ts", str(tmp_path)) == f"{tmp_path}/@types/new.d.ts"
    assert resolved("@src/new.ts", str(tmp_path)) == f"{tmp_path}/src/new.ts"


def test_odd_spaces_are_spaces_unless_the_file_has_them(tmp_path: Path) -> None:
    assert resolved("a\u00a0b", str(tmp_path)) == f"{tmp_path}/a b"
    (tmp_path / "a\u00a0b").touch()
    assert resolved("a\u00a0b", str(tmp_path)) == f"{tmp_path}/a\u00a0b"


@pytest.mark.parametrize(
    ("written", "real"),
    [
        ("Shot at 9.41 AM.png", "Shot at 9.41\u202fAM.png"),
        ("caf\u00e9.txt", "cafe\u0301.txt"),
        ("Anna's.txt", "Anna\u2019s.txt"),
        ("caf\u00e9's.txt", "cafe\u0301\u2019s.txt"),
    ],
)
def test_other_spellings_are_tried_for_reading(tmp_path: Path, written: str, real: str) -> None:
    (tmp_path / real).touch()
    assert resolved_for_reading(written, str(tmp_path)) == f"{tmp_path}/{real}"
    assert resolved_for_reading("other", str(tmp_path)) == f"{tmp_path}/other"


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800"])
def test_what_cannot_be_a_path_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ToolFailed, match="path"):
        resolved(path, str(tmp_path))


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("a/b", "/base/a/b"),
        ("../a/./b", "/a/b"),
        ("/a//b/", "/a/b"),
        ("~", "/home/me"),
        ("~/x", "/home/me/x"),
        ("x/~", "/base/x/~"),
        ("~no-such-user/x", "/base/~no-such-user/x"),
        ("", "/base"),
    ],
)
def test_a_path_of_the_options_is_meant_from_its_base_and_with_the_given_home(path: str, meant: str) -> None:
    assert absolute(path, "/base", "/home/me") == meant


def test_the_home_of_another_user_is_that_of_the_system() -> None:
    assert expand_home("~root/x", "/home/me") == os.path.join(os.path.expanduser("~root"), "x")
    assert expand_home("~", "/") == "/"
    assert expand_home("~/x", "/") == "/x"
