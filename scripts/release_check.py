"""Build the sdist, and from it the wheel; install both into empty virtual environments, and use them there.

`make release-check` installs them with pip, which finds the dependencies. `--offline` unpacks the wheel and links what
it declares from the environment that runs this script, which is how the tests do it: what `pyproject.toml` does not
name is not there either. `--out DIR` keeps the two files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
# The base package may take so much disk space, with byte code and with all that it needs.
MOST_BYTES = 47 << 20
_IMPORT_ALL = "import pigeon.frontends.agent_imports as all; all.import_agent_modules()"
# What is used after an installation with these extras. Imports are also those inside functions.
USES = {
    "": (
        ["bin/pigeon", "--version"],
        ["bin/pigeon", "-p", "--model", "demo", "--no-session", "hello"],
        ["bin/python", "-c", "import pigeon, pigeon.testing, pigeon.extensions; pigeon.Agent, pigeon.Client"],
        ["bin/python", "-c", _IMPORT_ALL],
    ),
    "chat": (
        ["bin/pigeon", "--version"],
        ["bin/python", "-c", f"import pigeon.frontends.terminal.chat; {_IMPORT_ALL}"],
    ),
}


def main() -> int:
    """Build, install and use both; the exit code is 0 if everything worked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--offline", action="store_true", help="use the dependencies of this environment")
    parser.add_argument("--out", type=Path, help="where to put the wheel and the sdist")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        built = build_files(Path(folder))
        # The wheel was made from the sdist, so offline it stands for both.
        for file in built if not options.offline else built[-1:]:
            size = use_in_empty_environment(file, Path(folder), offline=options.offline)
            if size > MOST_BYTES:
                sys.exit(
                    f"{file.name}: with what it needs it takes {_megabytes(size)}, more than {_megabytes(MOST_BYTES)}"
                )
            use_in_empty_environment(file, Path(folder), "chat", offline=options.offline)
            print(f"{file.name}: installs and runs, {_megabytes(size)}", flush=True)  # noqa: T201
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
    _call_backend("sdist", copy, out)
    [sdist] = out.iterdir()
    with tarfile.open(sdist) as archive:
        # It is our own; Python before 3.11.4 has no filter.
        archive.extractall(folder / "unpacked", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    [unpacked] = (folder / "unpacked").iterdir()
    _call_backend("wheel", unpacked, out)
    [wheel] = out.glob("*.whl")
    return [sdist, wheel]


def _call_backend(kind: str, source: Path, out: Path) -> None:
    call = f"from setuptools import build_meta; build_meta.build_{kind}({str(out)!r})"
    subprocess.run([sys.executable, "-c", call], cwd=source, check=True, stdout=subprocess.DEVNULL)


def use_in_empty_environment(file: Path, folder: Path, extra: str = "", *, offline: bool) -> int:
    """Install one file into a new virtual environment, and run the program, one answer and imports from it.

    Returns how many bytes the installation takes, with byte code.
    """
    venv = folder / f"venv-{file.name}-{extra}"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    before = measure_disk_use(venv)
    if offline:
        unpack_wheel(file, venv, extra)
    else:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", f"{venv}/bin/python"]
        subprocess.run([*pip, "install", f"{file}[{extra}]" if extra else str(file)], check=True)
    # What is only linked has its byte code, from the installer.
    subprocess.run([f"{venv}/bin/python", "-m", "compileall", "-q", str(venv)], check=True)
    size = measure_disk_use(venv) - before
    home = folder / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "TMPDIR", "LANG", "LC_ALL")}
    for program, *arguments in USES[extra]:
        command = [str(venv / program), *arguments]
        subprocess.run(command, cwd=home, env={**kept, "HOME": str(home)}, check=True, stdin=subprocess.DEVNULL)
    return size


def measure_disk_use(folder: Path) -> int:
    """The bytes that a folder takes on the disk, as `du` counts; what is linked counts like what is there."""
    # Each file once: `lib64` is a link to `lib`.
    found = {}
    for place, folders, files in os.walk(folder, followlinks=True):
        for name in (*folders, *files):
            about = os.stat(os.path.join(place, name))
            found[about.st_dev, about.st_ino] = about.st_blocks * 512
    return sum(found.values())


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MB"


def unpack_wheel(wheel: Path, venv: Path, extra: str = "") -> None:
    """Do what an installer does with a wheel of Python modules, and link the distributions that it requires."""
    [site] = venv.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    [about] = site.glob("*.dist-info")
    for script in site.glob("*.data/scripts/*"):
        install_script(script, venv / "bin" / script.name, f"{venv}/bin/python")
    link_distributions(required_distributions(metadata.PathDistribution(about), extra), venv)


def install_script(script: Path, place: Path, python: str) -> None:
    """Install a script of a wheel; an installer writes into the first line which Python it is for."""
    text = script.read_text()
    place.write_text(f"#!{python}\n{text.partition(chr(10))[2]}" if text.startswith("#!python") else text)
    place.chmod(0o755)


def link_distributions(names: Iterable[str], venv: Path) -> None:
    """Link what is installed for this Python into another environment."""
    [site] = venv.glob("lib/python*/site-packages")
    for name in names:
        _link_distribution(metadata.distribution(name), venv, site)


def required_distributions(of: metadata.Distribution, extra: str = "") -> set[str]:
    """The names of all distributions that this one needs with an extra; raises for one that is not installed."""
    found: set[tuple[str, str]] = set()
    waiting = [(of, chosen) for chosen in {"", extra}]
    while waiting:
        about, extra = waiting.pop()
        for needed in map(Requirement, about.requires or ()):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                new = {(needed.name, chosen) for chosen in ("", *needed.extras)} - found
                found |= new
                # An extra may be made of others of the same distribution.
                waiting += [
                    (of if name == of.name else metadata.distribution(name), chosen) for name, chosen in sorted(new)
                ]
    return {name for name, _ in found} - {of.name}


def _link_distribution(about: metadata.Distribution, venv: Path, site: Path) -> None:
    """Link what a distribution has installed: its packages and modules, and its programs."""
    for file in about.files or ():
        # A program is beside the folder of modules; of a package the folder is linked, not each file.
        name = Path(*file.parts) if file.parts[0] == ".." else Path(file.parts[0])
        place = Path(os.path.normpath(site / name))
        if name.name != "__pycache__" and place.is_relative_to(venv) and not os.path.lexists(place):
            place.symlink_to(os.path.normpath(str(about.locate_file(name))))


if __name__ == "__main__":
    sys.exit(main())
