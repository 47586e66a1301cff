"""Ray for tests and storms of `pigeon batch`: its variables, its processes, and clusters on this machine."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from support.agent_folders import AgentFolders


def processes() -> Iterator[tuple[int, int, str]]:
    """Every process with its parent and its command."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                parent = int(Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[1])
                command = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                yield int(name), parent, command


def ray_environment(folders: AgentFolders) -> dict[str, str]:
    """The variables of drivers and nodes: the clusters have a folder and a token of their own."""
    token = folders.home / "ray-token"
    if not token.exists():
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
    own = {"RAY_TMPDIR": str(folders.temp), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    return folders.environment(own)


def ray_processes(folders: AgentFolders) -> list[tuple[str, int]]:
    """Raylets and workers of Ray that belong to these folders."""
    mark = str(folders.temp)
    table = list(processes())
    raylets = [pid for pid, _, command in table if "raylet/raylet" in command and mark in command]
    workers = [pid for pid, parent, command in table if parent in raylets and command.startswith("ray::run_remotely")]
    return [*(("ray worker", pid) for pid in workers), *(("raylet", pid) for pid in raylets)]


def kill_ray(folders: AgentFolders) -> None:
    """End all processes of Ray that belong to these folders."""
    mark = str(folders.temp)
    for pid, _, command in processes():
        if mark in command and "ray" in command and pid != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class RayNodes:
    """Nodes of a cluster on this machine; `prefix` is a command that they are started with."""

    def __init__(self, folders: AgentFolders, port: int, prefix: Sequence[str] = ()) -> None:
        self._folders = folders
        self._port = port
        self._ray = [*prefix, sys.executable, "-m", "ray.scripts.scripts"]
        self.address = f"127.0.0.1:{port}"

    def _call_ray(self, *words: str) -> None:
        subprocess.run(
            [*self._ray, *words],
            env=ray_environment(self._folders),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=120,
        )

    def start_head(self) -> None:
        temp = str(self._folders.temp / "ray")
        self._call_ray(
            "start", "--head", "--node-ip-address=127.0.0.1", f"--port={self._port}", "--num-cpus=2",
            "--include-dashboard=false", f"--temp-dir={temp}", "--disable-usage-stats",
        )  # fmt: skip

    def join(self) -> None:
        self._call_ray(
            "start", f"--address={self.address}", "--node-ip-address=127.0.0.1", "--num-cpus=2", "--disable-usage-stats"
        )

    def raylets(self) -> list[int]:
        """The raylets that there are, oldest first."""
        return sorted(pid for kind, pid in ray_processes(self._folders) if kind == "raylet")

    def restore_two_nodes(self) -> None:
        """See that there are two nodes again."""
        raylets = self.raylets()
        if len(raylets) == 0:
            kill_ray(self._folders)
            self.start_head()
            self.join()
        elif len(raylets) == 1:
            self.join()
