"""`pigeon.batch` and `pigeon.batch_sync`: results as they come, and errors before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

import pigeon
from support.batch import write_script


async def test_results_come_to_a_program_and_what_was_finished_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "agent"))
    model = write_script(tmp_path / "say.json", default="${user}")
    tasks = [pigeon.Task(id="one", prompt="1"), "2", {"prompt": "3", "id": "three", "check": "exit 1"}]
    found = {}
    async for result in pigeon.batch(tasks, out=tmp_path / "out", model=model, concurrency=2):
        found[result.id] = result
    assert {one.text: one.status for one in found.values()} == {"1": "done", "2": "done", "3": "failed"}
    again = [one async for one in pigeon.batch(out=tmp_path / "out", resume=True)]
    assert again == [found[one.id] for one in again]
    assert len(again) == 3


def test_a_program_without_a_loop_is_told_what_is_wrong_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(pigeon.StartupError, match=r"task 2: unknown field .promt.") as caught:
        list(pigeon.batch_sync(["fine", {"promt": 1}], out=tmp_path / "out", model="demo"))
    assert "nothing was started" in str(caught.value)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    with pytest.raises(pigeon.StartupError, match="nothing was started"):
        list(pigeon.batch_sync([{"promt": 1}], out=tmp_path / "out", model="demo"))
    model = write_script(tmp_path / "say.json", default="Said.")
    (said,) = pigeon.batch_sync(["fine"], out=tmp_path / "out", model=model)
    assert said.text == "Said.", "the folder is free again after a call that was wrong"
    with pytest.raises(pigeon.StartupError, match="to a single conversation"):
        list(pigeon.batch_sync(["x"], out=tmp_path / "out", model="demo", session_id="x"))
    with pytest.raises(pigeon.StartupError, match="record applies to a single conversation"):
        list(pigeon.batch_sync(["x"], out=tmp_path / "out", model="demo", record="x.recording"))
    with pytest.raises(pigeon.StartupError, match="cwd applies to a single conversation"):
        list(pigeon.batch_sync(["x"], out=tmp_path / "out", model="demo", cwd=str(tmp_path)))
