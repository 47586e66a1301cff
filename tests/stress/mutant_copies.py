"""Copies of the tree to damage, each with a virtual environment of its own, and test runs in them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# The rules of the source and its pages are not about what it does; the last two need network or a wheel.
LEFT_OUT = ("tests/architecture", "tests/docs", "tests/interop", "tests/packaging")
NOT_FOUND = re.compile(r"^ERROR: not found: ([^\[\n]+)", re.MULTILINE)
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TestRun:
    """What pytest said: `failed` names the first test that noticed, a hang counts as one."""

    failed: str | None
    output: str


def take_snapshot(folder: Path) -> Path:
    """The files of the repository as they are now, so that work on it can go on."""
    for name in _listed_files():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


class Copy:
    """One copy of a snapshot, which can be damaged."""

    def __init__(self, snapshot: Path, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(snapshot, folder)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        _copy_environment(ROOT / ".venv", folder / ".venv", folder)

    def write(self, path: str, text: bytes) -> None:
        """Replace a module, and forget what it was compiled to: it may have the same size and time."""
        file = self.folder / path
        file.write_bytes(text)
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()

    def run(self, tests: list[str], seconds: float, each: float, *more: str) -> TestRun:
        """Run tests until the first that fails, each and all of them for at most so long."""
        chosen = self.folder / "chosen-tests.txt"
        chosen.write_text("\n".join(tests) + "\n")
        command = [
            ".venv/bin/python",
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-x",
            "--tb=no",
            "-rfE",
            "--hypothesis-seed=0",
        ]
        output = self.folder / "output.txt"
        with output.open("wb") as out:
            run = subprocess.Popen(
                [*command, f"--timeout={each:.0f}", *more, f"@{chosen}"],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONHASHSEED": "0", "HYPOTHESIS_PROFILE": "default"},
                start_new_session=True,
            )
            try:
                code = run.wait(seconds)
            except subprocess.TimeoutExpired:
                code = -1
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(run.pid, signal.SIGKILL)
        self.kill_processes()
        text = output.read_text(errors="replace")
        if code in (0, 5):
            return TestRun(None, text)
        if code == 4:
            missing = set(NOT_FOUND.findall(text))
            if missing:  # what is known of the tests is older than they are
                there = [test for test in tests if f"{self.folder}/{test.partition('[')[0]}" not in missing]
                return self.run(there, seconds, each, *more) if 0 < len(there) < len(tests) else TestRun(None, text)
            return TestRun("cannot be collected", text)
        failed = FAILED.search(text)
        return TestRun(failed[1] if failed else "took too long" if code == -1 else f"pytest ended with {code}", text)

    def kill_processes(self) -> None:
        """Nothing that a damaged run has left behind stays: all that runs the copy's own Python."""
        mine = str(self.folder).encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mine + b"/" in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)


def run_side_by_side(work: Callable[..., None], arguments: list[tuple[Any, ...]], copies: list[Copy]) -> None:
    """Call `work` in a thread for each of these; an interrupt ends what runs in the copies."""
    threads = [threading.Thread(target=work, args=given, daemon=True) for given in arguments]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for copy in copies:
            copy.kill_processes()


def _listed_files() -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    return sorted(set(filter(None, listed.split("\0"))))


def _copy_environment(source: Path, target: Path, folder: Path) -> None:
    """The same files by hard links, except for the few that name the folder."""
    command = ["cp", "-a", "--link", str(source), str(target)]
    if subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode:
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)
    for file in [*(target / "bin").iterdir(), *target.glob("lib/python*/site-packages/__editable__*.pth")]:
        if file.is_file() and not file.is_symlink():
            text = file.read_bytes()
            if str(ROOT).encode() in text:
                mode = file.stat().st_mode
                file.unlink()
                file.write_bytes(text.replace(str(ROOT).encode(), str(folder).encode()))
                file.chmod(mode)
