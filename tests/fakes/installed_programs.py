"""Programs that others wrote, installed beside the repository; a test that cannot have one is skipped with the reason.

They go into the folder named by `PIGEON_INTEROP_DIR`, else into the user's cache, and are used again from there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import venv
from pathlib import Path

import pytest

from fakes.rpc_process import command_line

WANTED = bool(os.environ.get("PIGEON_INTEROP"))
SHIM = Path(__file__).parents[1] / "interop" / "clients" / "shim.cjs"
only_on_request = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not WANTED, reason="installs programs of others; set PIGEON_INTEROP=1 to run"),
]


def node() -> str:
    """Node itself."""
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


def shimmed(environment: dict[str, str]) -> dict[str, str]:
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
