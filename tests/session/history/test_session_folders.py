"""Where sessions are and what they are called; lists of them, and finding one by its id without reading whole files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.session.history import listing
from pigeon.session.history.session_folders import SessionFolders
from pigeon.wire import codec
from pigeon.wire.answers import SessionRow
from pigeon.wire.base import ABSENT
from pigeon.wire.entries import CustomEntry, SessionInfo
from pigeon.wire.errors import Refusal
from support.sessions import DiskRepository, user


def write_session(folder: Path, number: int, *, name: str = "", first: str = "hello", **header: Any) -> Path:
    """A session file, changed so many milliseconds after 1970."""
    journal = DiskRepository(folder).create_journal(
        "/", header.get("parent", ABSENT), session_id=header.get("id", f"s{number}")
    )
    if name:
        journal.append(SessionInfo, name=name)
    journal.append_message(user(first))
    journal.append_message(user("and more"))
    journal.close()
    path = folder / f"{number}.jsonl"
    os.rename(str(journal.file), path)
    os.utime(path, ns=(0, number * 1_000_000))
    return path


def ids(rows: Any) -> list[str]:
    return [row.id for row in rows]


def test_a_page_is_newest_first_and_says_where_the_next_begins(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for number in (1, 2, 3, 5):
        write_session(tmp_path, number)
    write_session(other, 4)
    folders = [str(tmp_path), str(other)]
    first, cursor = SessionFolders.list_sessions(folders, None, 2)
    assert ids(first) == ["s5", "s4"]
    second, cursor = SessionFolders.list_sessions(folders, cursor, 2)
    assert ids(second) == ["s3", "s2"]
    third, end = SessionFolders.list_sessions(folders, cursor, 2)
    assert (ids(third), end) == (["s1"], None)
    everything, end = SessionFolders.list_sessions(folders, None, 5)
    assert (len(everything), end) == (5, None), "a full page that is the last one says so"
    assert SessionFolders.list_sessions(folders, "0", 2) == ([], None)
    assert SessionFolders.list_sessions([str(tmp_path / "none")], None, 2) == ([], None)


def test_what_is_not_wanted_takes_no_place_on_a_page_either(tmp_path: Path) -> None:
    for number in range(1, 7):
        write_session(tmp_path, number)

    def is_even(row: SessionRow) -> bool:
        return int(row.id[1:]) % 2 == 0

    first, cursor = SessionFolders.list_sessions([str(tmp_path)], None, 2, is_even)
    assert ids(first) == ["s6", "s4"]
    second, end = SessionFolders.list_sessions([str(tmp_path)], cursor, 2, is_even)
    assert (ids(second), end) == (["s2"], None)


def test_what_is_no_session_takes_no_place_on_a_page(tmp_path: Path) -> None:
    write_session(tmp_path, 1)
    (tmp_path / "9.jsonl").write_text('{"type":"other","id":"x"}\n')
    (tmp_path / "8.jsonl").write_text('{"type":"session","id":7}\n')
    (tmp_path / "7.jsonl").write_text("[1]\n")
    (tmp_path / "6.jsonl").write_text("no json\n")
    (tmp_path / "5.txt").write_text('{"type":"session","id":"text"}\n')
    (tmp_path / "4.jsonl").mkdir()
    rows, cursor = SessionFolders.list_sessions([str(tmp_path)], None, 1)
    assert (ids(rows), cursor) == (["s1"], None)


def test_a_row_says_what_its_file_says(tmp_path: Path) -> None:
    path = write_session(tmp_path, 7_000, name="the name", first="  hello there  ", id="own", parent="/before.jsonl")
    (row,), _ = SessionFolders.list_sessions([str(tmp_path)], None, 9)
    assert (row.path, row.id, row.cwd, row.name, row.first_message, row.parent_session) == (
        str(path), "own", "/", "the name", "hello there", "/before.jsonl",
    )  # fmt: skip
    assert row.modified == "1970-01-01T00:00:07.000Z"
    assert row.created == codec.decode(path.read_bytes().split(b"\n", 1)[0])["timestamp"]


def test_a_row_without_name_words_or_parent_has_none(tmp_path: Path) -> None:
    path = tmp_path / "bare.jsonl"
    path.write_bytes(b'{"type":"session","id":"bare"}\n')
    (row,), _ = SessionFolders.list_sessions([str(tmp_path)], None, 9)
    assert (row.name, row.first_message, row.parent_session) == (ABSENT, ABSENT, ABSENT)
    assert (row.cwd, row.created) == ("", "")


def test_the_preview_is_cut_and_passes_over_messages_that_say_nothing(tmp_path: Path) -> None:
    journal = DiskRepository(tmp_path).create_journal("/")
    for words in ("", "  \n ", "x" * 999, "later"):
        journal.append_message(user(words))
    journal.close()
    (row,), _ = SessionFolders.list_sessions([str(tmp_path)], None, 9)
    assert row.first_message == "x" * listing.PREVIEW


@pytest.mark.parametrize("size", [listing.PEEK // 2, listing.PEEK * 3 // 2, listing.PEEK * 3])
def test_the_last_name_counts_however_long_the_file_is(tmp_path: Path, size: int) -> None:
    journal = DiskRepository(tmp_path).create_journal("/")
    journal.append(SessionInfo, name="old")
    journal.append_message(user("hello"))
    while journal.lines[-1].type != "session_info":
        journal.append(CustomEntry, custom_type="filler", data="x" * 990)
        if sum(len(line.raw) for line in journal.lines) > size:
            journal.append(SessionInfo, name="new")
    journal.close()
    (row,), _ = SessionFolders.list_sessions([str(tmp_path)], None, 9)
    assert (row.name, row.first_message) == ("new", "hello")


def test_an_id_is_found_whole_before_its_beginning_and_here_before_elsewhere(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    long = write_session(here, 2, id="abcd")
    exact = write_session(there, 1, id="abc")
    only = write_session(there, 3, id="xyz")
    write_session(here, 4, id="abce")

    def find(reference: str) -> Any:
        return SessionFolders(str(tmp_path)).resolve(reference, str(here))

    assert find("abc") == (str(exact), False)
    assert find("abcd") == (str(long), True)
    with pytest.raises(Refusal, match=r"'ab' is the beginning of several sessions.*\n  abce  .*\n  abcd  "):
        find("ab")
    assert find("xy") == (str(only), False)
    assert find("q") is None
    assert SessionFolders(str(tmp_path / "none")).resolve("xy", str(here)) is None


def test_folders_are_listed_once_and_files_beside_them_are_none(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("")
    assert SessionFolders(str(tmp_path)).folders() == [str(tmp_path / "a"), str(tmp_path / "b")]
    repository = DiskRepository(tmp_path / "b")
    assert repository.folders() == [str(tmp_path / "b"), str(tmp_path / "a")]


@given(
    st.text(alphabet=st.characters(codec="ascii", categories=("L", "N")), min_size=1), st.integers(0, 4_000_000_000_000)
)
def test_what_a_file_is_called_says_whose_it_is(session_id: str, now: int) -> None:
    file = SessionFolders.new_file_path("/sessions/one", session_id, now)
    assert SessionFolders.id_in_name(file) == session_id
    assert SessionFolders.is_file_reference(file)
    assert SessionFolders.is_file_reference(os.path.basename(file))
    assert not SessionFolders.is_file_reference(session_id)
    assert SessionFolders.outputs_folder_of(file) == f"/sessions/one/{SessionFolders.name_of(file)}"


def test_a_session_is_found_by_the_name_of_its_file_in_every_folder(tmp_path: Path) -> None:
    store = SessionFolders.from_agent_dir(str(tmp_path))
    for cwd, session_id in (("/a", "one"), ("/b", "two"), ("/b", "wo")):
        file = Path(store.new_file_path(store.folder_of(cwd), session_id, 0))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'{{"type":"session","id":"{session_id}","version":3}}\n')
        assert store.contains(str(file.resolve()))
    assert store.find_by_id_in_name("two") == store.new_file_path(store.folder_of("/b"), "two", 0)
    assert store.find_by_id_in_name("o") is None
    assert not store.contains(str(tmp_path.resolve() / "sessions"))
    assert store.trash == str(tmp_path / "trash")


@given(st.text())
def test_a_deleted_session_stays_inside_the_trash_whatever_its_id_is(session_id: str) -> None:
    store = SessionFolders.from_agent_dir("/agent")
    folder = store.new_trash_path(session_id, "2026-11-15T17:55:01.530Z")
    assert os.path.dirname(os.path.normpath(folder)) == store.trash


def test_only_files_that_can_have_an_id_are_opened_to_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    read = listing.header_of
    monkeypatch.setattr(
        "pigeon.session.history.session_folders.header_of", lambda path: opened.append(path) or read(path)
    )
    store = SessionFolders.from_agent_dir(str(tmp_path / "agent"))
    folder = Path(store.folder_of("/a"))
    folder.mkdir(parents=True)
    paths = {}
    for session_id in ("one", "only_two", "three"):
        paths[session_id] = Path(store.new_file_path(str(folder), session_id, 0))
        paths[session_id].write_text(f'{{"type":"session","id":"{session_id}","version":3}}\n')
    kept = folder / "kept.jsonl"
    kept.write_text('{"type":"session","id":"four","version":3}\n')
    assert SessionFolders.find_by_id(str(folder), "only_two") == str(paths["only_two"])
    assert set(opened) <= {str(paths["only_two"]), str(kept)}
    assert SessionFolders.find_by_id(str(folder), "four") == str(kept)
    assert SessionFolders.find_by_id(str(folder), "on") is None
    opened.clear()
    assert store.resolve("thr", str(folder)) == (str(paths["three"]), True)
    assert set(opened) == {str(paths["three"]), str(kept)}
    with pytest.raises(Refusal, match="several sessions"):
        store.resolve("on", str(folder))
