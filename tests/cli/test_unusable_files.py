"""What the commands say of files that cannot be read or written: which one, why, and nothing is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pigeon.frontends.batch.batch_folder import LOCK_FILE
from support.agent_folders import AgentFolders
from support.agent_process import run_pigeon
from support.batch import write_tasks
from support.sessions import RECORDED


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure()
    write_tasks(made.work / "tasks.jsonl", [{"prompt": "x"}])
    (made.work / "broken.jsonl").write_text("no session\n")
    shutil.copy(RECORDED / "pigeon.jsonl", made.work / "good.jsonl")
    (made.work / "out").mkdir()
    (made.work / "out" / "batch.json").write_text("{")
    (made.work / "empty").mkdir()
    return made


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != LOCK_FILE}


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["replay", "./good.jsonl", "--max-gap", "soon"], '--max-gap must be a number of seconds; got "soon"', 2),
        (["replay", "./good.jsonl", "--max-gap", "-1"], '--max-gap must be a number of seconds; got "-1"', 2),
        (["sessions", "show", "./broken.jsonl"], "There is no session in ", 1),
        (["sessions", "export", "./broken.jsonl"], "There is no session in ", 1),
        (["sessions", "export", "./missing.jsonl"], "missing.jsonl", 1),
        (
            ["batch", "tasks.jsonl", "--out", "new", "--template", "missing.txt"],
            "--template missing.txt: No such file",
            2,
        ),
        (["batch", "tasks.jsonl", "--out", "new", "--template", "empty"], "--template empty: ", 2),
        (["batch", "--resume", "out"], "batch.json cannot be read: ", 1),
        (["batch", "--resume", "empty"], "has no batch", 2),
        (["batch", "--resume", "missing"], "has no batch", 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_file_that_cannot_be_used_is_named(folders: AgentFolders, arguments: list[str], said: str, code: int) -> None:
    before = files_in(folders.work)
    result = run_pigeon(folders, *arguments)
    assert said in result.err, result
    assert result.code == code
    assert "Traceback" not in result.err
    assert files_in(folders.work) == before


@pytest.mark.parametrize("where", ["a folder has its name", "its folder is a file"])
def test_settings_that_cannot_be_written_are_named(folders: AgentFolders, where: str) -> None:
    settings = folders.agent / "settings.json"
    settings.unlink()
    env = {}
    if where == "a folder has its name":
        settings.mkdir()
    else:
        (folders.home / "file").write_text("")
        settings = folders.home / "file" / "agent" / "settings.json"
        env = {"PI_CODING_AGENT_DIR": str(settings.parent)}
    result = run_pigeon(folders, "config", "set", "defaultModel", "demo", env=env)
    assert result.code == 1
    assert f"{settings} cannot be " in result.err, result
    assert "Traceback" not in result.err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 7}'])
def test_a_server_whose_address_is_garbage_is_not_running(folders: AgentFolders, text: str) -> None:
    (folders.agent / "serve").mkdir()
    (folders.agent / "serve" / "address.json").write_text(text)
    result = run_pigeon(folders, "serve", "--link")
    assert result.code == 1
    assert "Traceback" not in result.err
    assert "pigeon serve" in result.err
