"""A shell in an empty folder whose PATH has nothing but programs that note how they were called.

Programs that run other programs (`env`, `xargs`, `find` ...) are the real ones, or scripts that run their words; since
nothing else can be found through PATH, whatever a generated command does ends in one of the notes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from msgspec import Struct

NOTING = ("zap", "ok", "pre", "cat", "git")
REAL = ("env", "nice", "nohup", "timeout", "stdbuf", "setsid", "xargs", "find", "time", "bash", "sh", "dash", "flock")
PASSING_ON = ("sudo", "doas", "busybox", "ionice", "chroot")
SECONDS = 2


class ShellRun(Struct, frozen=True):
    """What a command really did: the programs that ran, each with its arguments, and the files that it left."""

    programs: tuple[tuple[str, ...], ...]
    files: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(program[0] for program in self.programs)


class StubShell:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notes = folder / "notes"
        self._bin = folder / "bin"
        self._bin.mkdir()
        self._scripts: dict[Path, str] = {}
        for name in NOTING:
            self._add_script(name, "[ -t 0 ] || while read -r _; do :; done" if name == "cat" else ":")
        for name in PASSING_ON:
            self._add_script(name, 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"')
        for name in REAL:
            found = shutil.which(name, path="/usr/bin:/bin")
            if found is not None:
                (self._bin / name).symlink_to(found)

    def _add_script(self, name: str, rest: str) -> None:
        script = self._bin / name
        self._scripts[script] = f"#!/bin/sh\nprintf '%s\\1' {name} \"$@\" '\2' >> {self._notes}\n{rest}\n"
        script.write_text(self._scripts[script])
        script.chmod(0o755)

    def run(self, command: str, shell: str = "bash") -> ShellRun:
        work = self._folder / "work"
        work.mkdir()
        self._notes.unlink(missing_ok=True)
        for script, text in self._scripts.items():
            if script.stat().st_size != len(text):  # a redirection has overwritten it
                script.write_text(text)
        environment = {"PATH": str(self._bin), "HOME": str(work), "FUNCNEST": "6"}
        process = subprocess.Popen(
            [f"/bin/{shell}", "-c", command],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        notes = self._notes.read_text(errors="replace") if self._notes.exists() else ""
        programs = tuple(tuple(note.split("\1")[:-1]) for note in notes.split("\2\1") if note)
        files = frozenset(str(path.relative_to(work)) for path in work.rglob("*"))
        shutil.rmtree(work)
        return ShellRun(programs, files)
