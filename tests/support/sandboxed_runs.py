"""Programs behind the walls of Pigeon, started by a process that may run as another user: the attempts to get out.

`python -m support.sandboxed_runs FOLDER BUILDER...` makes the targets of `sandbox_escapes` in a new folder for each
builder (`none` stands for no wall), runs the attempts there, and prints a JSON object with what escaped by builder. It
is a program because a process cannot become another user and come back.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pigeon.sandbox.policy import SandboxPolicy, private_folders, secret_places
from pigeon.sandbox.survey import FolderSurvey
from pigeon.sandbox.wall import Wall, find_bubblewrap
from pigeon.system.process.run_program import ProgramResult, run_program
from pigeon.system.process.start import ProcessOwner

TESTS = Path(__file__).parents[1]
PRIVATE = (".ssh/id_rsa", ".aws/credentials", ".npmrc", ".pigeon/agent/auth.json", ".bash_history", ".codex/auth.json")
_IPC_CREATE = 0o1000


def policy_for(folder: Path, home: Path, scratch: Path, **more: Any) -> SandboxPolicy:
    """A policy for a working folder; `workspace` without a network unless told otherwise."""
    (scratch / "tmp").mkdir(parents=True, exist_ok=True)
    (scratch / "empty").touch()
    chosen: dict[str, Any] = {"mode": "workspace", "network": False, "host_shell_outside": False, "writable": ()}
    chosen["hidden"] = secret_places([str(home)], str(home / ".pigeon" / "agent"))
    chosen["private"] = private_folders([str(home)], str(home / ".pigeon" / "agent"))
    chosen["survey"] = FolderSurvey([str(home)], [str(home / ".gitconfig")])
    return SandboxPolicy(**{**chosen, **more}, root=os.path.realpath(folder), scratch=os.path.realpath(scratch))


def wall_of(builder: str, policy: SandboxPolicy, artifacts: str | None = None, apart: bool = False) -> Wall | None:
    """The wall that a builder makes; `none` makes none."""
    if builder == "none":
        return None
    program = find_bubblewrap(os.environ.get("PATH"), policy.roots) if builder == "bubblewrap" else ""
    return Wall(policy, builder, program or "/nowhere/bwrap", platform.machine(), lambda: artifacts, apart)  # type: ignore[arg-type]


def make_folders(place: Path) -> tuple[Path, Path]:
    """A home with secrets in it, and a working folder with a repository."""
    home, folder = place / "home", place / "work"
    for name in PRIVATE:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("PRIVATE")
    for name in (".bashrc", "document", "to-delete"):
        (home / name).write_text("the user's")
    deep = folder / "a" / "b" / "deep"
    for repository in (folder, folder / "nested", folder / "part", deep):
        subprocess.run(["git", "init", "-q", str(repository)], check=True, env={**os.environ, "HOME": str(home)})
    (folder / ".git" / "modules").mkdir()
    shutil.move(folder / "part" / ".git", folder / ".git" / "modules" / "part")
    (folder / "part" / ".git").write_text("gitdir: ../.git/modules/part\n")
    with open(deep / ".git" / "config", "a") as config:
        config.write('[include] path = ../shared # remark\n[filter "x"]\n clean = ./filter \\\n %f\n')
    (deep / "shared").touch()
    (deep / "filter").touch()
    (deep / ".pigeon").mkdir()
    (home / ".gitconfig").write_text('[CORE] hooksPath = "git-hooks"\n')
    (folder / ".pi" / "extensions").mkdir(parents=True)
    (folder / "scripts").mkdir()
    for link, target in (
        (".git/hooks/pre-push", "scripts/pre-push"),
        (".git/hooks/pre-merge-commit", "scripts/later/pre-merge-commit"),
        (".pi/extensions/extension.py", "a/extension.py"),
    ):
        os.symlink(f"../../{target}", folder / link)
    for name in ("scripts/pre-push", "a/extension.py"):
        (folder / name).touch()
    (folder / "own").mkdir()
    (folder / "file").write_text("x")
    os.symlink(home, folder / "link-to-home")
    return home, folder


class Outside:
    """What is there to be reached: servers, a process, memory, a terminal of the user who runs this."""

    def __init__(self, place: Path, name: str) -> None:
        self._kept: list[Any] = []
        self.targets: dict[str, Any] = {"name": name, "as_root": os.environ.get("AS_ROOT", "/nowhere")}
        self.targets["port"] = self._serve(socket.create_server(("127.0.0.1", 0)), b"hello")
        answer = b"HTTP/1.0 200 OK\r\n\r\nhello"
        self.targets["http"] = self._serve(socket.create_server(("127.0.0.1", 0)), answer)
        self.targets["udp"] = self._answer_datagrams()
        self.targets["abstract"] = name
        self._serve(_unix("\0" + name), b"hello")
        self.targets["socket"] = str(place / "socket")
        self._serve(_unix(self.targets["socket"]), b"hello")
        self.targets["http_socket"] = str(place / "docker.sock")
        self._serve(_unix(self.targets["http_socket"]), answer)
        self.targets["datagrams"] = str(place / "datagrams")
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        receiver.bind(self.targets["datagrams"])
        self._kept.append(receiver)
        master, slave = os.openpty()
        self.targets["terminal"] = os.ttyname(slave)
        self._victim = subprocess.Popen(
            ["sleep", "600"], env={"SECRET": "PRIVATE", "PATH": "/usr/bin:/bin"}, stdin=slave
        )
        self.targets["victim"] = self._victim.pid
        self._memory = Path(f"/dev/shm/{name}")
        self._memory.write_text("PRIVATE")
        self.targets["shm_key"] = key = 0x50000 + os.getpid()
        ctypes.CDLL(None).shmget(key, 4096, _IPC_CREATE | 0o600)
        self._segment = ctypes.CDLL(None).shmget(key, 0, 0)
        self.targets["spool"] = f"/var/spool/{name}"
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        self.targets["mounted"] = next((row[4] for row in mounts if row[4] not in ("/", "/proc")), "/")
        self.targets["cgroup"] = next((row[4] for row in mounts if "cgroup2" in row), "/sys/fs/cgroup")
        disks = sorted(Path("/sys/block").glob("*")) if os.path.isdir("/sys/block") else []
        self.targets["disk"] = next((f"/dev/{disk.name}" for disk in disks if Path(f"/dev/{disk.name}").exists()), "")
        self.targets["below_sys"] = next(
            (str(path) for path in Path("/sys/block").glob("*/queue/read_ahead_kb")), "/sys/nothing"
        )
        self._master = master

    def _serve(self, listener: socket.socket, answer: bytes) -> int:
        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    if answer.startswith(b"HTTP"):
                        connection.recv(4096)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        self._kept.append(listener)
        return 0 if listener.family == socket.AF_UNIX else int(listener.getsockname()[1])

    def _answer_datagrams(self) -> int:
        answering = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        answering.bind(("127.0.0.1", 0))

        def answer() -> None:
            while True:
                _, asker = answering.recvfrom(5)
                answering.sendto(b"hello", asker)

        threading.Thread(target=answer, daemon=True).start()
        return int(answering.getsockname()[1])

    def close(self) -> None:
        self._victim.kill()
        self._victim.wait()
        self._memory.unlink()
        ctypes.CDLL(None).shmctl(self._segment, 0, None)


def _unix(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    return listener


async def attempts_behind(builder: str, place: Path, outside: Outside) -> tuple[dict[str, bool], str]:
    """What the attempts did behind one wall, and what they printed as errors."""
    os.mkdir(place)
    home, folder = make_folders(place)
    mount_point = folder / "mount-point"
    mount_point.mkdir()
    more = {"home": str(home), "folder": str(folder), "mount_point": str(mount_point), "walled": builder != "none"}
    (place / "targets.json").write_text(json.dumps({**outside.targets, **more}))
    policy = policy_for(
        folder, home, place / "scratch", own=(str(folder / "own"), str(folder / "not-yet/extension.py"))
    )
    ran = await run_behind(
        builder,
        policy,
        [sys.executable, "-S", "-P", "-m", "support.sandbox_escapes", str(place / "targets.json"), "-v"],
        {"SSH_AUTH_SOCK": outside.targets["socket"], "HOME": str(home), "PYTHONPATH": str(TESTS)},
    )
    errors = ran.stderr.decode("utf-8", "replace")
    if ran.code != 0:
        raise SystemExit(f"{builder}: {ran.code} {errors}")
    return json.loads(ran.stdout.splitlines()[-1]), errors


async def run_behind(
    builder: str, policy: SandboxPolicy, argv: list[str], variables: dict[str, str], timeout: float = 60
) -> ProgramResult:
    """Run a program behind a wall to its end, and everything that it has left."""
    owner = ProcessOwner(wall_of(builder, policy))
    environment = {"PATH": os.environ.get("PATH", os.defpath), **variables}
    try:
        return await run_program(owner, argv, cwd=policy.root, environment=environment, timeout=timeout)
    finally:
        await owner.kill_everything()


async def _all(folder: Path, builders: list[str]) -> dict[str, Any]:
    outside = Outside(folder, f"pigeon-test-{os.getpid()}")
    try:
        return {builder: await attempts_behind(builder, folder / builder, outside) for builder in builders}
    finally:
        outside.close()


async def _mounts(place: Path, apart: bool) -> str:
    """What a command behind bubblewrap sees of the mounts of this process."""
    home, folder = place / "home", place / "work"
    home.mkdir(parents=True)
    folder.mkdir()
    owner = ProcessOwner(wall_of("bubblewrap", policy_for(folder, home, place / "scratch"), apart=apart))
    try:
        line = ["/bin/cat", "/proc/self/mountinfo"]
        return (await run_program(owner, line, cwd=str(folder), environment={})).stdout.decode()
    finally:
        await owner.kill_everything()


def main(run: Callable[[Any], Any] = asyncio.run) -> None:
    if sys.argv[1] == "--mounts":
        sys.stdout.write(run(_mounts(Path(sys.argv[2]), sys.argv[3] == "1")))
        return
    sys.stdout.write(json.dumps(run(_all(Path(sys.argv[1]), sys.argv[2:]))))


if __name__ == "__main__":
    main()
