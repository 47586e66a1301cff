from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.tool_run import paths_in
from pigeon.system.files import replace_file
from pigeon.system.paths import PathResolver, absolute_path, expand_home
from pigeon.wire.errors import ToolFailed


def place_of(paths: PathResolver, path: str, for_reading: bool = True) -> str:
    """Where the file is that a tool would open."""
    with paths.hold_path(path, for_reading) as held:
        return held.place


def for_writing(cwd: Path, path: str) -> str:
    return place_of(paths_in(cwd, home="/home/me"), path, for_reading=False)


def test_paths_are_relative_to_the_working_directory(tmp_path: Path) -> None:
    cwd = str(tmp_path)
    assert for_writing(tmp_path, "a/../b") == f"{cwd}/b"
    assert for_writing(tmp_path, "/etc/./x") == "/etc/x"
    assert for_writing(tmp_path, ".") == cwd


def test_the_home_directory_is_expanded(tmp_path: Path) -> None:
    assert for_writing(tmp_path, "~") == "/home/me"
    assert for_writing(tmp_path, "~/x") == "/home/me/x"
    assert for_writing(tmp_path, "~x") == f"{tmp_path}/~x"


def test_file_urls_are_paths(tmp_path: Path) -> None:
    assert for_writing(tmp_path, "file:///tmp/a%20b") == "/tmp/a b"


def test_a_mention_sign_is_dropped_unless_the_file_has_it(tmp_path: Path) -> None:
    assert for_writing(tmp_path, "@x") == f"{tmp_path}/x"
    (tmp_path / "@x").touch()
    assert for_writing(tmp_path, "@x") == f"{tmp_path}/@x"


def test_a_new_file_in_a_directory_with_a_sign_goes_there(tmp_path: Path) -> None:
    (tmp_path / "@types").mkdir()
    assert for_writing(tmp_path, "@types/new.d.ts") == f"{tmp_path}/@types/new.d.ts"
    assert for_writing(tmp_path, "@src/new.ts") == f"{tmp_path}/src/new.ts"


def test_a_mentioned_file_that_exists_wins_over_a_new_one_in_a_directory_with_the_sign(tmp_path: Path) -> None:
    for folder in ("@types", "types"):
        (tmp_path / folder).mkdir()
    (tmp_path / "types" / "old.d.ts").touch()
    assert for_writing(tmp_path, "@types/old.d.ts") == f"{tmp_path}/types/old.d.ts"


def test_odd_spaces_are_spaces_unless_the_file_has_them(tmp_path: Path) -> None:
    assert for_writing(tmp_path, "a\u00a0b") == f"{tmp_path}/a b"
    (tmp_path / "a\u00a0b").touch()
    assert for_writing(tmp_path, "a\u00a0b") == f"{tmp_path}/a\u00a0b"


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
    assert place_of(paths_in(tmp_path), written) == f"{tmp_path}/{real}"
    assert place_of(paths_in(tmp_path), "other") == f"{tmp_path}/other"


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800"])
def test_what_cannot_be_a_path_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ToolFailed, match="path"):
        for_writing(tmp_path, path)


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
    assert absolute_path(path, "/base", "/home/me") == meant


def test_the_home_of_another_user_is_that_of_the_system() -> None:
    assert expand_home("~root/x", "/home/me") == os.path.join(os.path.expanduser("~root"), "x")
    assert expand_home("~", "/") == "/"
    assert expand_home("~/x", "/") == "/x"


def test_a_file_url_with_a_mention_sign_is_a_path_too(tmp_path: Path) -> None:
    assert for_writing(tmp_path, "@file:///tmp/x") == "/tmp/x"
    (tmp_path / "file:").mkdir()
    assert for_writing(tmp_path, "file://[/x") == f"{tmp_path}/file:/[/x"
    with pytest.raises(ToolFailed, match="NUL"):
        for_writing(tmp_path, "file:///a%00b")


@pytest.mark.parametrize(
    "path",
    [
        "/proc/self/environ",
        "/proc/self/cmdline",
        "/proc/1/mem",
        "/proc/1/maps",
        "/proc/self/root/proc/self/cmdline",
        "/proc/self/task/1/environ",
        "/proc/self/fd/0",
        "/proc/kcore",
        "/proc/thread-self/auxv",
        "/proc//self/./cmdline",
        "file:///proc/self/cmdline",
        "link",
        "@link",
    ],
)
def test_the_memory_of_a_process_is_no_file_to_open(tmp_path: Path, path: str) -> None:
    (tmp_path / "link").symlink_to("/proc/self/environ")
    with pytest.raises(ToolFailed, match="memory, arguments or environment"):
        for_writing(tmp_path, path)
    assert for_writing(tmp_path, "/proc/self/status") == f"/proc/{os.getpid()}/status"


def test_a_second_mount_of_proc_is_known_by_files_without_a_size(tmp_path: Path) -> None:
    process = tmp_path / "proc/self"
    process.mkdir(parents=True)
    (process / "environ").touch()
    with pytest.raises(ToolFailed, match="memory, arguments or environment"):
        for_writing(tmp_path, "proc/self/environ")
    with pytest.raises(ToolFailed, match="memory, arguments or environment"):
        for_writing(tmp_path, "proc/self/cmdline")
    (process / "environ").write_text("made for a test\n")
    assert for_writing(tmp_path, "proc/self/environ") == f"{process}/environ"


def test_a_resolved_path_names_every_place_that_is_meant(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to("real")
    (real / "Anna\u2019s.txt").touch()
    with paths_in(tmp_path).hold_path("@link/Anna's.txt") as held:
        assert held.names == (
            f"{tmp_path}/@link/Anna's.txt",
            f"{tmp_path}/link/Anna's.txt",
            f"{tmp_path}/link/Anna\u2019s.txt",
        )
        assert held.place == f"{real}/Anna\u2019s.txt"


def test_what_is_held_is_opened_whatever_takes_its_place_meanwhile(tmp_path: Path) -> None:
    for name in ("open", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text(name)
    with paths_in(tmp_path).hold_path("open/key") as held:
        (tmp_path / "open").rename(tmp_path / "moved")
        (tmp_path / "open").symlink_to("secret")
        with open(held.open(os.O_RDONLY)) as file:
            assert file.read() == "open"
        replace_file(held, b"changed")
    assert (tmp_path / "moved" / "key").read_text() == "changed"
    assert (tmp_path / "secret" / "key").read_text() == "secret"


@pytest.mark.parametrize("planted", ["new", "new/deep", "new/deep/file"])
def test_a_link_that_is_planted_where_something_is_to_be_made_is_not_followed(tmp_path: Path, planted: str) -> None:
    (tmp_path / "secret").mkdir()
    with paths_in(tmp_path).hold_path("new/deep/file", for_reading=False) as held:
        (tmp_path / planted).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / planted).symlink_to(tmp_path / "secret")
        with pytest.raises(OSError, match=r"Not a|Too many"):
            replace_file(held, b"x")
    assert os.listdir(tmp_path / "secret") == []


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["a", "b", "..", ".", "link", "up", "@a", "~root"]), min_size=1, max_size=6))
def test_the_place_of_a_path_is_where_the_system_opens_it(tmp_path: Path, parts: list[str]) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True, exist_ok=True)
    if not (tmp_path / "link").is_symlink():
        (tmp_path / "link").symlink_to("a")
        (tmp_path / "~root").symlink_to("a/b")
        (below / "up").symlink_to("../..")
    with paths_in(tmp_path).hold_path("/".join(parts)) as held:
        assert held.place == os.path.realpath(held.place)
        if held.is_folder:
            assert os.path.samestat(os.stat(held.open_folder()), os.stat(held.place))


def test_a_path_that_is_let_go_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    held = paths_in(tmp_path).hold_path("x")
    held.close()
    with pytest.raises(OSError, match="Bad file"):
        held.open(os.O_RDONLY)
    held.close()
