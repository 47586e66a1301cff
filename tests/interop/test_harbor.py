"""Trajectories as Harbor reads them: its own validator takes every one that we write.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`. The sessions are ours (`support.sessions`,
`support.sessions`), and those in the folders that `PIGEON_SESSIONS` names, separated by colons.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pigeon.app.pages import export_trajectory
from pigeon.export.page_writer import NothingSaid
from support.installed_programs import harbor_validator
from support.sessions import SESSIONS, environment_in, rich_session

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not os.environ.get("PIGEON_INTEROP"), reason="installs Harbor's model; set PIGEON_INTEROP=1"),
]


@pytest.fixture(scope="module")
def validator(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return harbor_validator(Path(os.environ.get("PIGEON_INTEROP_DIR") or tmp_path_factory.mktemp("interop")))


def valid(validator: Any, session: Path, folder: Path) -> None:
    path = folder / f"{session.stem}.json"
    export_trajectory(environment_in(folder), str(session), str(path))
    assert validator.validate(path), (session, validator.errors)


@pytest.mark.parametrize("name", ["rich", *SESSIONS])
def test_harbor_takes_the_trajectory_of_each_session(name: str, validator: Any, tmp_path: Path) -> None:
    session = tmp_path / "session.jsonl"
    session.write_text(rich_session() if name == "rich" else SESSIONS[name])
    valid(validator, session, tmp_path)


def test_harbor_takes_the_trajectories_of_given_sessions(validator: Any, tmp_path: Path) -> None:
    given = [Path(folder) for folder in os.environ.get("PIGEON_SESSIONS", "").split(":") if folder]
    taken = 0
    for session in sorted(file for folder in given for file in folder.rglob("*.jsonl")):
        if not session.read_bytes().startswith(b'{"type":"session"'):
            continue
        with suppress(NothingSaid):
            valid(validator, session, tmp_path)
            taken += 1
    if not taken:
        pytest.skip("PIGEON_SESSIONS names no folder with sessions")
