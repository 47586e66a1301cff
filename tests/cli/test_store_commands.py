"""`pigeon store`, and `pigeon sessions` with a database: what is printed, and that copies keep every byte."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pigeon.cli.running import run
from pigeon.store.schema import program_version
from pigeon.wire.errors import StartupError, UsageError
from support.agent_folders import AgentFolders
from support.postgres import run_sql

Run = Callable[..., str]
STRANGE = [
    b'{"type":"message","id":"a1","parentId":null,"timestamp":"2026-11-19T10:00:01.000Z",'
    b'"message":{"role":"user","content":"find the quetzal","timestamp":1}}',
    b'{ "id":"a2" , "type":"message","parentId":"a1","number":1.50e2,"big":12345678901234567890,"nul":"\\u0000",'
    b'"half":"\\ud83d","message":{"role":"assistant","content":[{"type":"text","text":"It is here"}]}}',
    '{"type":"something_new","id":"a3","parentId":"a2","data":{"b":1,"a":[null,""]},"text":"ä\\u00e4 鳥"}'.encode(),
    b'{"raw":"\xff\xfe"}',
    b"no JSON at all",
]


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure()
    return made


@pytest.fixture
def pigeon(folders: AgentFolders, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Calls a command in this process, and gives what it printed."""
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in folders.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folders.work)

    def run_command(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run("pigeon", list(arguments)) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    return run_command


@pytest.fixture
def files(folders: AgentFolders) -> Path:
    """A folder of session files with two sessions, one of them with lines that JSON libraries would change."""
    root = folders.work.parent / "kept"
    for name, lines in (("strange", STRANGE), ("plain", STRANGE[:1])):
        header = {
            "type": "session",
            "version": 3,
            "id": f"id-{name}",
            "timestamp": "2026-11-19T10:00:00.000Z",
            "cwd": str(folders.work),
        }
        folder = root / "--work--"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"2026-11-19T10-00-00-000Z_id-{name}.jsonl"
        file.write_bytes(b"".join(line + b"\n" for line in (json.dumps(header).encode(), *lines)))
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.glob("--*/*.jsonl")}


def dump(pigeon: Run, url: str, *more: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in pigeon("store", "dump", "--jsonl", "--store", url, *more).splitlines()]


def test_init_and_migrate_do_nothing_to_a_store_that_is_in_order(pigeon: Run, postgres_url: str) -> None:
    assert "Created" in pigeon("store", "init", "--store", postgres_url)
    for action in ("init", "migrate"):
        assert f"version {program_version()} already" in pigeon("store", action, "--store", postgres_url)
    assert run_sql(postgres_url, "SELECT version FROM pigeon_schema") == [(program_version(),)]
    assert "survive a crash" in pigeon("store", "check", "--store", postgres_url) or run_sql(
        postgres_url, "SHOW fsync"
    ) == [("off",)]


@pytest.mark.parametrize("action", ["check", "migrate", "dump", "audit"])
def test_a_database_without_a_store_is_refused(pigeon: Run, postgres_url: str, action: str) -> None:
    with pytest.raises(StartupError, match="pigeon store init"):
        pigeon("store", action, "--store", postgres_url, "--jsonl")


def test_the_variable_names_the_store_and_the_option_takes_precedence(
    pigeon: Run, postgres_url: str, monkeypatch: pytest.MonkeyPatch, files: Path
) -> None:
    monkeypatch.setenv("PIGEON_STORE", postgres_url)
    pigeon("store", "init")
    assert "no sessions" in pigeon("sessions")
    assert "quetzal" in pigeon("sessions", "--all", "--store", f"file:{files}")


def test_a_copy_keeps_every_byte_both_ways_and_a_second_one_changes_nothing(
    pigeon: Run, postgres_url: str, files: Path, tmp_path: Path
) -> None:
    pigeon("store", "init", "--store", postgres_url)
    copy = ("sessions", "copy", "--all", "--store", f"file:{files}", "--to", postgres_url)
    assert "2 sessions" in pigeon(*copy)
    before = dump(pigeon, postgres_url)
    assert " 0 entries" in pigeon(*copy)
    assert dump(pigeon, postgres_url) == before
    back = tmp_path / "back"
    pigeon("sessions", "copy", "--all", "--store", postgres_url, "--to", f"file:{back}")
    assert contents(back) == contents(files)
    assert " 0 entries" in pigeon("sessions", "copy", "id-strange", "--store", postgres_url, "--to", f"file:{back}")
    assert contents(back) == contents(files)


def test_a_copy_adds_what_is_new_and_leaves_what_went_on_differently(
    pigeon: Run, postgres_url: str, files: Path
) -> None:
    pigeon("store", "init", "--store", postgres_url)
    copy = ("sessions", "copy", "id-plain", "--store", f"file:{files}", "--to", postgres_url)
    pigeon(*copy)
    file = next(files.glob("*/*_id-plain.jsonl"))
    file.write_bytes(file.read_bytes() + STRANGE[1] + b"\n")
    assert " 1 entries" in pigeon(*copy)
    pigeon("sessions", "rename", "id-plain", "elsewhere", "--store", postgres_url)
    file.write_bytes(file.read_bytes() + STRANGE[2] + b"\n")
    with pytest.raises(StartupError, match="left as it is"):
        pigeon(*copy)
    assert "elsewhere" in pigeon("sessions", "--store", postgres_url)


def test_a_dump_has_positions_without_holes_and_the_bytes_of_each_entry(
    pigeon: Run, postgres_url: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pigeon("store", "init", "--store", postgres_url)
    pigeon("sessions", "copy", "--all", "--store", f"file:{files}", "--to", postgres_url)
    rows = dump(pigeon, postgres_url, "--session", "id-strange")
    entries = [row for row in rows if row["kind"] == "entry"]
    assert [row["position"] for row in entries] == list(range(len(STRANGE)))
    assert entries[0]["entry"]["message"]["content"] == "find the quetzal"
    assert STRANGE[1].decode() in pigeon("store", "dump", "--jsonl", "--store", postgres_url)
    assert [row["sessionId"] for row in rows if row["kind"] == "session"] == ["id-strange"]
    assert [row["position"] for row in dump(pigeon, f"file:{files}", "--session", "id-plain")[1:]] == [0]


def test_stored_sessions_are_listed_searched_shown_renamed_and_deleted(
    pigeon: Run, postgres_url: str, files: Path, folders: AgentFolders
) -> None:
    pigeon("store", "init", "--store", postgres_url)
    pigeon("sessions", "copy", "--all", "--store", f"file:{files}", "--to", postgres_url)
    stored = ("--store", postgres_url)
    listed = json.loads(pigeon("sessions", "--json", *stored))
    assert {row["id"] for row in listed} == {"id-strange", "id-plain"}
    assert not any("path" in row for row in listed)
    assert "quetzal" in pigeon("sessions", "search", "QUETZ", *stored)
    assert "No session" in pigeon("sessions", "search", "absent", *stored, code=1)
    assert "quetzal" in pigeon("sessions", "show", "id-s", *stored)
    pigeon("sessions", "rename", "id-s", "Birds", "of", "Guatemala", *stored)
    assert "Birds of Guatemala" in pigeon("sessions", "--all", *stored)
    pigeon("sessions", "delete", "id-s", *stored)
    assert "Birds" not in pigeon("sessions", *stored)
    assert "Birds" in pigeon("sessions", "trash", *stored)
    pigeon("sessions", "undelete", *stored)
    assert "Birds" in pigeon("sessions", *stored)
    pigeon("sessions", "export", "id-s", "page.html", *stored)
    assert "quetzal" in (folders.work / "page.html").read_text("utf-8")
    with pytest.raises(StartupError, match="several sessions"):
        pigeon("sessions", "show", "id-", *stored)
    with pytest.raises(StartupError, match="no session"):
        pigeon("sessions", "show", "unknown", *stored)


def test_an_unusable_store_is_never_replaced_by_files(pigeon: Run) -> None:
    with pytest.raises(StartupError, match="cannot be reached") as failure:
        pigeon("sessions", "--store", "postgresql://ada:geheim@127.0.0.1:1/x")
    assert "geheim" not in str(failure.value)
    with pytest.raises(StartupError, match="does not know"):
        pigeon("sessions", "--store", "mysql://db")


@pytest.mark.parametrize(
    "words",
    [
        ("sessions", "copy", "--all"),
        ("sessions", "copy", "--to", "file:/x"),
        ("sessions", "copy", "id", "--all", "--to", "file:/x"),
        ("store", "dump"),
    ],
)
def test_a_call_that_lacks_something_says_what(pigeon: Run, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="needs"):
        pigeon(*words)
