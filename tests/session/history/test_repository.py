"""Where sessions are kept: new ones, opened ones, copies, and what is refused before anything is touched."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from pigeon.session.history import journal as journal_module
from pigeon.session.history.journal import Journal
from pigeon.session.history.reading import InvalidSession, load_session, read_header
from pigeon.session.history.repository import READ_AHEAD, SessionRepository
from pigeon.session.history.session_folders import SessionFolders
from pigeon.wire.base import ABSENT
from pigeon.wire.entries import ThinkingLevelChange
from pigeon.wire.errors import Refusal
from support.sessions import NOW, DiskRepository, user

ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
HEADER = {"type": "session", "version": 3, "id": "own", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/"}


def write_session(path: Path, *entries: dict[str, Any], **changes: Any) -> Path:
    header = {name: value for name, value in {**HEADER, **changes}.items() if value is not ABSENT}
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *entries)))
    return path


def test_a_file_comes_with_the_first_message_and_holds_what_was_before_it(tmp_path: Path) -> None:
    journal = DiskRepository(tmp_path).create_journal("/work")
    journal.append(ThinkingLevelChange, thinking_level="off")
    file = Path(str(journal.file))
    assert (file.exists(), journal.is_saved) == (False, False)
    journal.append_message(user("hello"))
    assert (file.exists(), journal.is_saved) == (True, True)
    journal.append(ThinkingLevelChange, thinking_level="low")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["type"] for line in lines] == ["session", "thinking_level_change", "message", "thinking_level_change"]
    assert lines[0] == {"type": "session", "version": 3, "id": journal.session_id, "cwd": "/work",
                        "timestamp": "2026-11-01T10:00:00.000Z"}  # fmt: skip
    assert str(file) == SessionFolders.new_file_path(str(file.parent), journal.session_id, NOW)
    journal.close()


def test_without_a_disk_nothing_is_written_until_a_file_is_opened(tmp_path: Path) -> None:
    repository = DiskRepository(tmp_path / "sessions", persistent=False)
    memory = repository.create_journal("/")
    memory.append_message(user("hello"))
    assert (memory.file, memory.is_saved) == (None, False)
    memory.sync()
    memory.save_all()
    memory.close()
    opened = repository.open(str(write_session(tmp_path / "a.jsonl")), "/")
    opened.close()
    following = repository.create_journal("/")
    assert os.path.dirname(str(following.file)) == str(tmp_path), "from now on beside the file that was opened"


@pytest.mark.parametrize("content", [None, "", "\n \n", '{"type":"sess', '{"type":"session","vers'])
def test_a_path_without_a_session_is_bound_to_a_new_one(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "deep" / "er" / "new.jsonl"
    if content is not None:
        path.parent.mkdir(parents=True)
        path.write_text(content)
    repository = DiskRepository(tmp_path)
    journal = repository.open(str(path), "/work")
    assert (journal.file, journal.cwd, journal.lines, journal.is_saved) == (str(path), "/work", [], False)
    assert (tmp_path / "deep").exists() == (content is not None), "nothing is made before there is something to keep"
    journal.append_message(user("hello"))
    assert (path.parent.stat().st_mode & 0o777 == 0o700) == (content is None)
    journal.close()
    loaded = load_session(str(path))
    assert loaded is not None
    assert (loaded.header["id"], loaded.header["cwd"], len(loaded.lines)) == (journal.session_id, "/work", 1)
    assert repository.folder == str(path.parent)


def test_a_folder_that_cannot_be_made_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere/at/all")
    repository = DiskRepository(tmp_path)
    with pytest.raises(Refusal, match=f"Session folder cannot be made: {tmp_path}/link/below: {tmp_path}/link is not"):
        repository.open(str(tmp_path / "link" / "below" / "new.jsonl"), "/")
    assert repository.folder == str(tmp_path), "nothing has changed"


@pytest.mark.parametrize(
    ("cwd", "where"),
    [
        ("/", "/"),
        (ABSENT, "/tmp"),
        ("", "/tmp"),
        (5, "/tmp"),
        # Always a path that other processes understand, too.
        (".", os.getcwd()),
        ("..", os.path.dirname(os.getcwd())),
        pytest.param("/proc/self/cwd", os.path.realpath(os.curdir), marks=ONLY_LINUX),
    ],
)
def test_a_session_has_its_folder_from_the_file_or_from_the_process(tmp_path: Path, cwd: Any, where: str) -> None:
    journal = DiskRepository(tmp_path).open(str(write_session(tmp_path / "a.jsonl", cwd=cwd)), "/tmp")
    assert (journal.cwd, journal.session_id) == (where, "own")
    journal.close()


@pytest.mark.parametrize("version", [None, ABSENT])
def test_a_session_without_a_version_is_of_the_first(tmp_path: Path, version: Any) -> None:
    path = write_session(tmp_path / "a.jsonl", {"type": "custom", "customType": "x"}, version=version)
    journal = DiskRepository(tmp_path).open(str(path), "/")
    assert [line.parent_id for line in journal.lines] == [None]
    assert journal.lines[0].id != ""
    journal.close()
    header = read_header(str(path))
    assert header is not None
    assert header["version"] == 3, "written anew"


@pytest.mark.parametrize(
    "line",
    [b"[]\n", b'{"type":"other","id":"x"}\n', b'{"type":"session"}\n', b'{"type":"session","id":5}\n', b"\xff\n"],
)
def test_a_file_of_another_kind_is_refused_and_its_lock_is_let_go(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(line)
    with pytest.raises(InvalidSession, match="Session file is not a valid pi session"):
        DiskRepository(tmp_path).open(str(path), "/")
    assert path.read_bytes() == line


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="it is not a file"):
        DiskRepository(tmp_path).open(str(tmp_path), "/")
    (tmp_path / "a").write_text("")
    with pytest.raises(Refusal, match=r"Session file cannot be read: .*: Not a directory"):
        DiskRepository(tmp_path).open(str(tmp_path / "a" / "b.jsonl"), "/")


def test_a_file_that_changes_while_it_is_opened_is_refused_and_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_session(tmp_path / "a.jsonl")
    repository = DiskRepository(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(journal_module, "load_session", lambda given: None)
        with pytest.raises(InvalidSession):
            repository.open(str(path), "/")
    DiskRepository(tmp_path).open(str(path), "/").close()


def test_a_second_journal_of_the_same_file_reads_unless_it_takes_the_place_of_the_first(tmp_path: Path) -> None:
    path = write_session(tmp_path / "a.jsonl")
    repository = DiskRepository(tmp_path)
    first = repository.open(str(path), "/")
    assert not first.is_read_only
    assert repository.open(str(path), "/").is_read_only
    assert repository.open(str(path), "/", repository.create_journal("/")).is_read_only
    again = repository.open(str(path), "/", first)
    assert not again.is_read_only
    again.close()


def test_a_journal_knows_its_file_by_any_path(tmp_path: Path) -> None:
    path = write_session(tmp_path / "a.jsonl")
    (tmp_path / "link.jsonl").symlink_to(path)
    write_session(tmp_path / "b.jsonl")
    repository = DiskRepository(tmp_path)
    journal = repository.open(str(path), "/")
    names = ("a.jsonl", "link.jsonl", "b.jsonl", "none.jsonl")
    assert [repository.is_file_of(str(tmp_path / name), journal) for name in names] == [True, True, False, False]
    in_memory = DiskRepository(tmp_path, persistent=False).create_journal("/")
    assert not repository.is_file_of(str(path), in_memory)
    journal.close()


def test_paths_are_made_absolute_by_the_agent(tmp_path: Path) -> None:
    write_session(tmp_path / "a.jsonl")
    repository = SessionRepository(
        str(tmp_path),
        SessionFolders(str(tmp_path)),
        True,
        lambda: NOW,
        lambda text: None,
        lambda path: str(tmp_path / path),
    )
    journal = repository.open("a.jsonl", "/")
    assert journal.file == str(tmp_path / "a.jsonl")
    assert repository.is_file_of("a.jsonl", journal)
    journal.close()


def test_a_copy_is_saved_at_once_only_if_something_was_said(tmp_path: Path) -> None:
    repository = DiskRepository(tmp_path)
    source = repository.create_journal("/")
    source.append(ThinkingLevelChange, thinking_level="off")
    quiet = repository.copy(source.lines, "/work", "/parent.jsonl", "chosen")
    assert (quiet.session_id, quiet.is_saved, quiet.cwd) == ("chosen", False, "/work")
    source.append_message(user("hello"))
    copied = repository.copy(source.lines, "/work", "/parent.jsonl")
    header = read_header(str(copied.file))
    assert header is not None
    assert (header["parentSession"], copied.is_saved) == ("/parent.jsonl", True)
    assert copied.leaf_id == source.leaf_id
    for journal in (source, quiet, copied):
        journal.close()


def test_outputs_are_kept_beside_the_session() -> None:
    assert SessionFolders.outputs_folder_of("/sessions/a.jsonl") == "/sessions/a"


def test_an_id_that_is_taken_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal("x", "/", b"", None, lambda: NOW)
    numbers = iter([b"a", b"a", b"a", b"b"])
    monkeypatch.setattr(os, "urandom", lambda size: next(numbers))
    assert [journal.append_message(user(text)).id for text in ("1", "2")] == ["61", "62"]
    monkeypatch.setattr(os, "urandom", lambda size: b"a" * (1 if size == 4 else size))
    assert len(journal.append_message(user("3")).id) > 2, "where the short ones are used up, a long one"


def test_a_link_that_leads_in_a_circle_ends_the_path(tmp_path: Path) -> None:
    entries = [
        {"type": "custom", "id": "a", "parentId": "b", "timestamp": "", "customType": "x"},
        {"type": "custom", "id": "b", "parentId": "a", "timestamp": "", "customType": "x"},
    ]
    journal = DiskRepository(tmp_path).open(str(write_session(tmp_path / "a.jsonl", *entries)), "/")
    assert [line.id for line in journal.branch] == ["a", "b"]
    assert journal.path_to("gone") == []
    assert journal.path_to(None) == []
    journal.close()


def test_moving_the_leaf_writes_nothing_and_is_another_version(tmp_path: Path) -> None:
    journal = DiskRepository(tmp_path).create_journal("/")
    first = journal.append_message(user("one")).id
    journal.append_message(user("two"))
    size, version = os.path.getsize(str(journal.file)), journal.version
    journal.set_leaf(first)
    assert (journal.leaf_id, os.path.getsize(str(journal.file))) == (first, size)
    assert journal.version != version
    assert journal.append_message(user("three")).parent_id == first
    journal.set_leaf(None)
    assert (journal.leaf_id, journal.branch) == (None, [])
    journal.close()


def test_what_was_read_ahead_is_read_again_if_the_file_has_changed(tmp_path: Path) -> None:
    repository = DiskRepository(tmp_path)
    first = repository.create_journal("/")
    first.append_message(user("x" * READ_AHEAD))
    assert first.file is not None
    path = first.file
    first.close()
    used, outdated = repository.preload_session(path), repository.preload_session(path)
    assert used is not None
    same = repository.open(path, "/", ahead=used)
    assert same.lines is used.lines
    same.append_message(user("later"))
    same.close()
    fresh = repository.open(path, "/", ahead=outdated)
    assert len(fresh.lines) == 2
    fresh.close()
    short = tmp_path / "short.jsonl"
    short.write_bytes(b"{}")
    assert repository.preload_session(str(short)) is None
    assert repository.preload_session(str(tmp_path / "none.jsonl")) is None
