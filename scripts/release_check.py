"""Build the wheel and the sdist, install each into an empty virtual environment, and use it there.

`make release-check` does it with the dependencies that pip finds for it; `--offline` takes them from the environment
that runs this script instead, which is how the tests do it. `--out DIR` keeps the two files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
USES = (
    ["bin/pigeon", "--version"],
    ["bin/pigeon", "-p", "--model", "demo", "--no-session", "hello"],
    ["bin/python", "-c", "import pigeon, pigeon.testing, pigeon.extensions; pigeon.Agent, pigeon.Client"],
)


def main() -> int:
    """Build, install and use both; the exit code is 0 if everything worked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--offline", action="store_true", help="use the dependencies of this environment")
    parser.add_argument("--out", type=Path, help="where to put the wheel and the sdist")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        built = build_files(Path(folder))
        for file in built:
            use_in_empty_environment(file, Path(folder), offline=options.offline)
            print(f"{file.name}: installs and runs", flush=True)  # noqa: T201
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            for file in built:
                shutil.copy2(file, options.out)
    return 0


def build_files(folder: Path) -> list[Path]:
    """Build sdist and wheel from a copy of what git tracks, so that nothing is left in the checkout."""
    copy, out = folder / "source", folder / "dist"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in tracked.decode().split("\0"):
        if name and os.path.lexists(ROOT / name):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    out.mkdir()
    for kind in ("sdist", "wheel"):
        call = f"from setuptools import build_meta; build_meta.build_{kind}({str(out)!r})"
        subprocess.run([sys.executable, "-c", call], cwd=copy, check=True, stdout=subprocess.DEVNULL)
    return sorted(out.iterdir())


def use_in_empty_environment(file: Path, folder: Path, *, offline: bool) -> None:
    """Install one file into a new virtual environment and run the program, one answer and an import from it."""
    venv = folder / f"venv-{file.name}"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    install = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", f"{venv}/bin/python"]
    if offline:
        # A path file adds our packages, but not the files in there that make this checkout importable.
        site = next(venv.glob("lib/python*/site-packages"))
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
        install += ["install", "--no-deps", "--no-build-isolation"]
    else:
        install += ["install"]
    subprocess.run([*install, str(file)], check=True)
    home = folder / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "TMPDIR", "LANG", "LC_ALL")}
    for program, *arguments in USES:
        command = [str(venv / program), *arguments]
        subprocess.run(command, cwd=home, env={**kept, "HOME": str(home)}, check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
