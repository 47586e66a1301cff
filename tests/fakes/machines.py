"""Other machines for tests, all real: an OpenSSH server on loopback, and containers of podman.

Both are kept for the whole test run by the fixtures in `tests/workspaces/conftest.py`. A program that cannot be
installed here skips the test that needs it, with a message.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.processes import eventually

PODMAN_OPTIONS = ("--cgroup-manager=cgroupfs", "--storage-driver=vfs", "--runtime", "runc")
# Where a test may not raise its limits, and has no network of its own to give away.
RUN_OPTIONS = ("--network=host", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=1000:1000")


def require_program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, within: float = 20.0) -> None:
    def accepts() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
        return False

    assert eventually(accepts, within), f"nothing listens on port {port}"


class SshMachine:
    """An ssh server of its own on loopback, and a program `ssh` in `bin` that knows its key and ours."""

    def __init__(self, folder: Path, port: int, config: Path) -> None:
        self.folder = folder
        self.port = port
        self.config = config
        self.bin = folder / "bin"

    @property
    def host(self) -> str:
        return "127.0.0.1"

    def url(self, path: str | Path) -> str:
        return f"ssh://{getpass.getuser()}@{self.host}:{self.port}{path}"

    def variables(self, **more: str) -> dict[str, str]:
        """The environment of a Pigeon that finds this `ssh` first."""
        return {**os.environ, "PATH": f"{self.bin}:{os.environ.get('PATH', os.defpath)}", **more}

    def write_client(self, *lines: str, known: str | None = None) -> None:
        """Set the client's config: `lines` come first."""
        known_hosts = self.folder / "known_hosts"
        if known is not None:
            known_hosts.write_text(known)
        self.config.write_text(
            "\n".join([
                *lines,
                "Host alias-of-machine",
                f"  HostName {self.host}",
                f"  Port {self.port}",
                f"  User {getpass.getuser()}",
                "Host *",
                f"  IdentityFile {self.folder}/client_key",
                "  IdentitiesOnly yes",
                f"  UserKnownHostsFile {known_hosts}",
                "  GlobalKnownHostsFile /dev/null",
                "",
            ])
        )  # fmt: skip


def make_key(path: Path) -> str:
    """A new pair of keys; returns the public one."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, stdin=subprocess.DEVNULL
    )
    return path.with_suffix(".pub").read_text().strip()


@contextlib.contextmanager
def ssh_machine(folder: Path, options: Mapping[str, str] | None = None) -> Iterator[SshMachine]:
    """Run `sshd` as the user of the tests; skips the test where that is not possible."""
    sshd = require_program("sshd")
    ssh = require_program("ssh")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    host_key = make_key(folder / "host_key")
    (folder / "authorized_keys").write_text(make_key(folder / "client_key") + "\n")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    port = free_port()
    settings = {
        "Port": str(port),
        "ListenAddress": "127.0.0.1",
        "HostKey": str(folder / "host_key"),
        "AuthorizedKeysFile": str(folder / "authorized_keys"),
        "PidFile": str(folder / "pid"),
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "PermitRootLogin": "yes",
        "AcceptEnv": "*",
        "MaxStartups": "200",
        "MaxSessions": "100",
        "PrintMotd": "no",
        # Login shells read what a person has set up for themselves from there: nothing.
        "SetEnv": f"HOME={folder / 'home'}",
        **(options or {}),
    }
    config = folder / "sshd_config"
    config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    machine = SshMachine(folder, port, folder / "client_config")
    machine.bin.mkdir(exist_ok=True)
    (folder / "home").mkdir(exist_ok=True)
    wrapper = machine.bin / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {ssh} -F {machine.config} "$@"\n')
    wrapper.chmod(0o755)
    machine.write_client(known=f"[127.0.0.1]:{port} {host_key}\n")
    log = folder / "log"
    server = subprocess.Popen(
        [sshd, "-D", "-f", str(config), "-E", str(log)], stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        wait_for_port(port)
        yield machine
    finally:
        server.terminate()
        server.wait()


# fmt: off
BUSYBOX_PROGRAMS = (
    "awk", "base64", "cat", "chmod", "chown", "cp", "cut", "dd", "dirname", "env", "expr", "find", "grep", "head", "id",
    "kill", "ln", "ls", "mkdir", "mkfifo", "mktemp", "mv", "od", "printf", "ps", "pwd", "readlink", "rm", "sed",
    "setsid", "sh", "sleep", "sort", "stat", "tail", "tar", "test", "touch", "tr", "true", "uname", "wc",
)
# fmt: on


class PodmanMachine:
    """Containers of podman, whose root is a folder: busybox alone, or with the programs of this machine."""

    def __init__(self, folder: Path, podman: str) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.names: list[str] = []
        self._podman = podman

    def variables(self, **more: str) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.bin}:{os.environ.get('PATH', os.defpath)}", **more}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._podman, *PODMAN_OPTIONS, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self, name: str, *, with_python: bool, options: tuple[str, ...] = ()) -> str:
        """A container that does nothing; returns its name. Its folder `/work` is `folder/NAME/work` here."""
        root = self.folder / name
        make_root(root, with_python)
        usr = ("--volume", "/usr:/usr:ro") if with_python else ()
        started = self.run(
            *("run", "--detach", "--name", name, *RUN_OPTIONS, *usr, *options),
            *("--rootfs", str(root), "/bin/sleep", "100000"),
        )
        if started.returncode != 0:
            pytest.skip(f"podman cannot run containers here: {started.stderr.strip()[-300:]}")
        self.names.append(name)
        return name

    def close(self) -> None:
        for name in self.names:
            self.run("rm", "--force", "--time", "0", name)


def make_root(root: Path, with_python: bool) -> None:
    """The files of a container: busybox, or links to a `/usr` that is mounted."""
    for folder in ("proc", "dev", "sys", "etc", "tmp", "work", "root", "run", "usr", "var"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    if with_python:
        for name in ("bin", "lib", "lib64", "sbin"):
            (root / name).symlink_to(f"usr/{name}")
        return
    (root / "bin").mkdir()
    shutil.copy(require_program("busybox"), root / "bin/busybox")
    for name in BUSYBOX_PROGRAMS:
        (root / "bin" / name).symlink_to("busybox")


@contextlib.contextmanager
def podman_machine(folder: Path) -> Iterator[PodmanMachine]:
    """Podman with the options that it needs where there is no systemd; skips where it cannot be used."""
    podman = require_program("podman")
    require_program("runc")
    if os.getuid() != 0:
        pytest.skip("podman is only tried as root here")
    machine = PodmanMachine(folder, podman)
    machine.bin.mkdir(parents=True, exist_ok=True)
    wrapper = machine.bin / "podman"
    options, limits = " ".join(PODMAN_OPTIONS), " ".join(RUN_OPTIONS)
    wrapper.write_text(
        f'#!/bin/sh\nif [ "$1" = run ]; then shift; exec {podman} {options} run {limits} "$@"; fi\n'
        f'exec {podman} {options} "$@"\n'
    )
    wrapper.chmod(0o755)
    try:
        yield machine
    finally:
        machine.close()
