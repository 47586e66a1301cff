"""A task environment of Harbor on this machine: what it calls `/app`, `/logs` and so on are folders below one root.

For tests only: commands run as the user of the test. `--environment-import-path harbor_local:LocalEnvironment` uses it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

PLACES = ("installed-agent", "logs", "opt", "app", "tests", "solution")
_ABSOLUTE = re.compile(rf"(?<![\w./-])/({'|'.join(PLACES)})(?=[/\s'\";:,)]|$)")


class LocalEnvironment(BaseEnvironment):
    """Runs the commands of a task in folders of its own."""

    @staticmethod
    def type() -> str:
        return "local"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities()

    def _validate_definition(self) -> None:
        pass

    @property
    def _root(self) -> Path:
        return Path(os.environ["HARBOR_LOCAL_ROOT"])

    def _here(self, text: str) -> str:
        return _ABSOLUTE.sub(lambda found: f"{self._root}/{found[1]}", text)

    async def start(self, force_build: bool) -> None:
        for place in PLACES:
            (self._root / place).mkdir(parents=True, exist_ok=True)
        for folder in ("agent", "verifier", "artifacts"):
            (self._root / "logs" / folder).mkdir(parents=True, exist_ok=True)

    async def stop(self, delete: bool) -> None:
        pass

    async def prepare_logs_for_host(self) -> None:
        pass

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = Path(self._here(target_path))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, target)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._here(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._here(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._here(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
        **more: Any,
    ) -> ExecResult:
        if "apt-get" in command:
            # Everything that the agent needs to be installed is on this machine.
            return ExecResult(stdout="", stderr="", return_code=0)
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", self._here(command),
            cwd=self._here(cwd) if cwd else self._root / "app",
            env={**os.environ, **{name: self._here(value) for name, value in (env or {}).items()}},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode or 0)
