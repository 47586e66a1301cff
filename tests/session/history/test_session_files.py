"""Session files in unit size: what is opened, what is copied, what is listed, and what must never be parsed."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.session.context.transcript import context_of, visible_entries
from pigeon.session.history import entry_line, listing
from pigeon.session.history.entry_line import EntryLine, line_from_bytes
from pigeon.session.history.journal import Journal, find_dangling_calls
from pigeon.session.history.reading import InvalidSession, LoadedSession, load_session
from pigeon.session.history.session_folders import SessionFolders
from pigeon.session.history.views import encode_entries, encode_tree, session_name_of
from pigeon.session.model_choice import find_last_choice
from pigeon.session.switching import copy_branch_entries, encode_fork_messages
from pigeon.session.todos import find_plan
from pigeon.wire import codec
from pigeon.wire.entries import CompactionEntry, LabelEntry
from pigeon.wire.errors import Refusal
from support.sessions import NOW, OLD, RECORDED, DiskRepository, raw_entries, recorded_session_names, user
from support.strategies import STORIES, journal_of, json_values

HEADER = b'{"type":"session","version":3,"id":"x","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}\n'
JSON = json_values(size=8)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "compaction", "context_edit", "label", "session", "odd"]) | JSON,
        "id": st.sampled_from(["a", "b", "c"]) | JSON,
        "parentId": st.sampled_from(["a", "b", "c", None]) | JSON,
        "timestamp": JSON,
        "message": JSON
        | st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "toolResult", "x"]), "content": JSON}),
        "targetId": JSON,
        "firstKeptEntryId": st.sampled_from(["a", "b"]) | JSON,
        "summary": JSON,
        "replacement": JSON,
        "label": JSON,
    },
)


@given(st.lists(st.binary(max_size=30) | NEARLY.map(codec.encode), max_size=12))
def test_no_line_of_a_file_can_hurt(lines: list[bytes]) -> None:
    journal = Journal("x", "/", HEADER, None, lambda: NOW)
    pieces = [piece for line in lines for piece in line.split(b"\n") if piece.strip()]
    found = [line for line in map(line_from_bytes, pieces) if line is not None]
    journal.load(_load_lines(found))
    shown = visible_entries(journal.branch)
    codec.encode(list(map(shown.to_host_message, shown.lines)))
    json.loads(b"".join(encode_entries(journal.lines, None)))
    json.loads(b"".join(encode_tree(journal.lines, None)))
    json.loads(b"".join(encode_fork_messages(journal.lines)))
    for line in copy_branch_entries(journal.branch, journal.lines):
        assert line.id is not None
    assert context_of(journal.branch) == shown.messages()
    assert find_dangling_calls(journal.branch) is not None
    assert session_name_of(journal.lines) is None
    journal.append_message(user("still here"))


def _load_lines(lines: list[EntryLine]) -> LoadedSession:
    return LoadedSession({}, b"", lines, needs_newline=False, rewritten=False)


@given(st.binary(max_size=200))
def test_any_file_is_a_session_a_beginning_or_refused(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "file.jsonl"
    path.write_bytes(raw)
    try:
        load_session(str(path))
    except InvalidSession:
        return


@pytest.mark.parametrize("name", recorded_session_names())
def test_a_recorded_session_is_copied_without_loss(name: str, tmp_path: Path) -> None:
    loaded = load_session(str(RECORDED / name))
    assert loaded is not None
    journal = DiskRepository(tmp_path).copy(loaded.lines, "/", "/the/parent.jsonl")
    assert journal.file is not None
    again = load_session(journal.file)
    assert again is not None
    assert [line.raw for line in again.lines] == [line.raw for line in loaded.lines]
    assert again.header["parentSession"] == "/the/parent.jsonl"
    journal.close()


@given(STORIES)
def test_a_copied_path_says_the_same_and_has_no_gap(story: list[Any]) -> None:
    journal = journal_of(story)
    copied = copy_branch_entries(journal.branch, journal.lines)
    assert [line.parent_id for line in copied] == [None, *(line.id for line in copied)][: len(copied)]
    assert context_of(copied) == context_of(journal.branch)
    labels = [line.type == "label" for line in copied]
    assert labels == sorted(labels)


def test_a_compaction_that_kept_from_a_label_on_keeps_the_same_in_a_copy() -> None:
    journal = journal_of([("user", "one"), ("user", "two")])
    label = journal.append(LabelEntry, target_id=journal.lines[0].id, label="here")
    journal.append_message(user("three"))
    journal.append(CompactionEntry, summary="s", first_kept_entry_id=label.id, tokens_before=1)
    copied = copy_branch_entries(journal.branch, journal.lines)
    assert len(context_of(copied)) == len(context_of(journal.branch)) == 2
    assert [line.type for line in copied] == ["message", "message", "message", "compaction", "label"]


def test_labels_that_were_removed_are_not_copied() -> None:
    journal = journal_of([("user", "one")])
    target = journal.lines[0].id
    journal.append(LabelEntry, target_id=target, label="here")
    journal.append(LabelEntry, target_id=target)
    assert [line.type for line in copy_branch_entries(journal.branch, journal.lines)] == ["message"]
    assert b'"children":[]}]' in b"".join(encode_tree(journal.lines, None))


def test_version_1_becomes_a_chain_and_its_index_an_id(tmp_path: Path) -> None:
    before = [json.loads(line) for line in (OLD / "version-1.jsonl").read_bytes().splitlines()]
    loaded = load_session(str(OLD / "version-1.jsonl"))
    assert loaded is not None
    assert loaded.rewritten
    assert loaded.header == {**before[0], "version": 3}
    entries = [line.to_plain() for line in loaded.lines]
    assert [entry["parentId"] for entry in entries] == [None, *(entry["id"] for entry in entries[:-1])]
    assert all(len(entry["id"]) == 8 for entry in entries)
    (compaction,) = [entry for entry in entries if entry["type"] == "compaction"]
    assert compaction["firstKeptEntryId"] == entries[2]["id"]
    assert "firstKeptEntryIndex" not in compaction
    assert entries[5]["payload"] == before[6]["payload"]
    assert len(context_of(loaded.lines)) == 5


def test_version_2_changes_one_word_and_no_other_byte(tmp_path: Path) -> None:
    before = (OLD / "version-2.jsonl").read_bytes().splitlines()
    path = tmp_path / "old.jsonl"
    shutil.copy(OLD / "version-2.jsonl", path)
    DiskRepository(tmp_path).open(str(path), "/").close()
    after = path.read_bytes().splitlines()
    assert json.loads(after[0]) == {**json.loads(before[0]), "version": 3}
    same = [number for number in range(1, len(before)) if before[number] == after[number]]
    assert same == [1, 2, 4, 5]
    assert after[3] == before[3].replace(b"hookMessage", b"custom")
    assert path.stat().st_mode & 0o777 == 0o600


UNKNOWN_VERSIONS = [
    b"4",
    b"9",
    b"99999999999999999999",
    b'"4"',
    b'"3"',
    b"2.5",
    b"true",
    b"0",
    b"-1",
    b"[]",
    b"{}",
    b'""',
]


@pytest.mark.parametrize("version", UNKNOWN_VERSIONS)
def test_an_unknown_version_is_read_and_not_written(tmp_path: Path, version: bytes) -> None:
    path = tmp_path / "new.jsonl"
    header = HEADER.replace(b'"version":3', b'"version":' + version)
    path.write_bytes(header[:-1])
    repository = DiskRepository(tmp_path)
    journal = repository.open(str(path), "/")
    with pytest.raises(Refusal, match=re.escape(f"version {version.decode()} of the format")):
        journal.append_message(user("hello"))
    journal.close()
    assert path.read_bytes() == header[:-1]
    assert len(repository.reports) == 1


@pytest.mark.parametrize("version", UNKNOWN_VERSIONS)
def test_a_file_of_an_unknown_version_that_appears_before_the_first_message_is_not_written(
    tmp_path: Path, version: bytes
) -> None:
    path = tmp_path / "late.jsonl"
    journal = DiskRepository(tmp_path).open(str(path), "/")
    header = HEADER.replace(b'"version":3', b'"version":' + version)
    path.write_bytes(header)
    for _ in range(2):
        with pytest.raises(Refusal, match=re.escape(f"version {version.decode()} of the format")):
            journal.append_message(user("hello"))
    journal.close()
    assert path.read_bytes() == header


@pytest.mark.parametrize(
    "raw", [b"x\n", b"[]\n", b'{"type":"message"}\n', b'{"type":"session"}\n', b"\x00\xff\n", b"null"]
)
def test_what_is_no_session_is_refused_and_left_alone(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(raw)
    path.chmod(0o640)
    with pytest.raises(InvalidSession, match=f"Session file is not a valid pi session: {path}"):
        DiskRepository(tmp_path).open(str(path), "/")
    assert path.read_bytes() == raw
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_second_header_in_a_file_is_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl"
    raw = (RECORDED / "pigeon.jsonl").read_bytes()
    path.write_bytes(raw + HEADER)
    journal = DiskRepository(tmp_path).open(str(path), "/")
    assert len(raw_entries(journal)) == raw.count(b"\n") - 1
    journal.close()


def test_a_folder_that_is_gone_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    path = tmp_path / "gone.jsonl"
    path.write_bytes((OLD / "version-1.jsonl").read_bytes().replace(b'"cwd":"/"', b'"cwd":"/not here"'))
    before = path.read_bytes()
    with pytest.raises(Refusal) as refused:
        DiskRepository(tmp_path).open(str(path), "/somewhere")
    assert str(refused.value) == (
        "Stored session working directory does not exist: /not here\n"
        f"Session file: {path}\nCurrent working directory: /somewhere"
    )
    assert path.read_bytes() == before


def test_places_and_names_are_those_of_pi() -> None:
    assert SessionFolders.from_agent_dir("/a").folder_of("/home/u/p") == "/a/sessions/--home-u-p--"
    assert SessionFolders.from_agent_dir("/a").folder_of("/") == "/a/sessions/----"
    assert SessionFolders.from_agent_dir("/a").folder_of("C:\\x") == "/a/sessions/--C--x--"
    assert SessionFolders.new_file_path("/f", "id", 1_794_765_301_530) == "/f/2026-11-15T17-55-01-530Z_id.jsonl"


def test_the_newest_session_of_a_folder_is_found_and_others_are_passed_over(tmp_path: Path) -> None:
    assert SessionFolders.find_newest(str(tmp_path / "none")) is None
    for number, (name, cwd) in enumerate((("a", "/"), ("b", "/other"), ("c", "/"))):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(HEADER.replace(b'"cwd":"/"', f'"cwd":"{cwd}"'.encode()).replace(b'"x"', f'"{name}0"'.encode()))
        os.utime(path, ns=(0, number))
    (tmp_path / "c.jsonl").write_bytes(b"broken")
    os.utime(tmp_path / "c.jsonl", ns=(0, 9))
    (tmp_path / "d.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / "e.jsonl").mkdir()
    assert SessionFolders.find_newest(str(tmp_path)) == str(tmp_path / "b.jsonl")
    assert SessionFolders.find_newest(str(tmp_path), "/") == str(tmp_path / "a.jsonl")
    assert SessionFolders(str(tmp_path)).resolve("a0", str(tmp_path)) == (str(tmp_path / "a.jsonl"), True)
    assert SessionFolders(str(tmp_path)).resolve("b", str(tmp_path)) == (str(tmp_path / "b.jsonl"), True)
    assert SessionFolders(str(tmp_path)).resolve("z", str(tmp_path)) is None


def test_a_row_is_read_from_the_ends_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.jsonl"
    named = b'{"type":"session_info","id":"n","parentId":null,"timestamp":"","name":"at the end"}\n'
    filler = codec.encode({"type": "custom", "id": "f", "parentId": None, "timestamp": "", "customType": "x"}) + b"\n"
    said = (RECORDED / "pigeon.jsonl").read_bytes().split(b"\n", 1)[1]
    path.write_bytes(HEADER + said + filler * 20_000 + named)
    read = 0
    real = entry_line.line_from_bytes

    def count_call(raw: bytes) -> Any:
        nonlocal read
        read += len(raw)
        return real(raw)

    monkeypatch.setattr(listing, "line_from_bytes", count_call)
    (row,), cursor = SessionFolders.list_sessions([str(tmp_path)], None, 10)
    assert (row.name, row.first_message, cursor) == ("at the end", "What is in notes.txt? Grüße 🕊", None)
    assert read < 3 * listing.PEEK


def test_opening_a_long_session_parses_almost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _long(tmp_path, 5_000)
    parsed = 0
    decoder = entry_line._entry_decoder()

    class Counted:
        def decode(self, raw: bytes) -> Any:
            nonlocal parsed
            parsed += 1
            return decoder.decode(raw)

    monkeypatch.setattr(entry_line, "_entry_decoder", Counted)
    journal = DiskRepository(tmp_path).open(str(path), "/")
    find_last_choice(journal.branch)
    find_plan(journal.branch, ["todo"])
    session_name_of(journal.lines)
    shown = visible_entries(journal.branch)
    codec.encode(list(map(shown.to_host_message, shown.lines)))
    assert len(shown.lines) == 5_000
    assert parsed <= 4
    journal.close()


def test_appending_to_a_long_session_costs_what_it_costs_in_a_short_one(tmp_path: Path) -> None:
    times = []
    for count in (100, 20_000):
        journal = DiskRepository(tmp_path).open(str(_long(tmp_path, count)), "/")
        best = 1.0
        for _ in range(60):
            began = time.perf_counter()
            journal.append_message(user("x"))
            best = min(best, time.perf_counter() - began)
        times.append(best)
        journal.close()
    assert times[1] < 5 * times[0]


def _long(folder: Path, count: int) -> Path:
    path = folder / f"{count}.jsonl"
    template = (RECORDED / "pigeon.jsonl").read_bytes().split(b"\n")
    asked, answered = template[3], template[7]
    with path.open("wb") as file:
        file.write(HEADER)
        for number in range(count):
            entry = json.loads(answered if number % 2 else asked)
            entry["id"], entry["parentId"] = f"{number:08x}", f"{number - 1:08x}" if number else None
            file.write(codec.encode(entry) + b"\n")
    return path
