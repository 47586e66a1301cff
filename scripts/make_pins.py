"""Writes the versions of `constraints.txt` with hashes of their files into three files, each of which includes the one
before: `requirements.txt` (the base), `requirements-chat.txt` (the extras of people: chat and images), and
`requirements-dev.txt` (all other packages).

`make pins` runs it after a change of `constraints.txt`. It asks the package indexes that pip is configured for, so it
names none, and takes the hashes of all files of a version that they list: the source and the wheels of every system.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from importlib.metadata import requires
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin
from urllib.request import Request, urlopen

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
VERSIONS = ROOT / "constraints.txt"
OF_PEOPLE = ("chat", "images")
HEAD = "# Made by scripts/make_pins.py from constraints.txt. Install with pip --require-hashes."


def normal(name: str) -> str:
    """The name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> dict[str, str]:
    """The version of each package."""
    lines = [line for line in VERSIONS.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def indexes() -> list[str]:
    """The simple indexes that pip is configured for, by its own files and variables."""
    found = []
    for setting in ("index-url", "extra-index-url"):
        variable = os.environ.get(f"PIP_{setting.upper().replace('-', '_')}", "")
        asked = subprocess.run(
            [sys.executable, "-m", "pip", "config", "get", f"global.{setting}"],
            capture_output=True,
            text=True,
            check=False,
        )
        found += (variable or asked.stdout).split()
        if setting == "index-url" and not found:
            default = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
            found = subprocess.check_output([sys.executable, "-c", default], text=True).split()
    return found


class Links(HTMLParser):
    """The addresses that a page links to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember the address of a link."""
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def hashes(name: str, version: str, places: list[str]) -> set[str]:
    """The hashes of all files of a version: wheels for every system, and the source."""
    found = set()
    for place in places:
        page = urljoin(
            place.rstrip("/") + "/", f"{normal(name)}/" + ("index.html" if place.startswith("file:") else "")
        )
        try:
            with urlopen(Request(page, headers={"Accept": "text/html"})) as answer:
                links = Links()
                links.feed(answer.read().decode("utf-8"))
        except OSError:
            continue
        for link in links.found:
            address, fragment = urldefrag(link)
            if fragment.startswith("sha256=") and version_of(unquote(address.rpartition("/")[2]), name) == version:
                found.add(fragment.removeprefix("sha256="))
    return found


def version_of(file: str, name: str) -> str | None:
    """The version in the name of a wheel or a source archive of a package."""
    match = re.fullmatch(r"(?P<name>.+?)-(?P<version>\d[^-]*)(?:-.+\.whl|\.tar\.gz|\.zip)", file)
    return match["version"] if match and normal(match["name"]) == normal(name) else None


def needed_to_run(*extras: str) -> set[str]:
    """The packages that Pigeon with these extras needs, with what those need, and what builds it."""
    built = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = built["project"]
    waiting = [*map(Requirement, project["dependencies"] + built["build-system"]["requires"])]
    waiting += [Requirement(f"{project['name']}[{extra}]") for extra in extras]
    found: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        if requirement.name == project["name"]:  # an extra that is made of others
            waiting += [
                Requirement(line) for extra in requirement.extras for line in project["optional-dependencies"][extra]
            ]
            continue
        found.add(normal(requirement.name))
        for extra in ("", *requirement.extras):
            more = map(Requirement, requires(requirement.name) or ())
            waiting += [
                one
                for one in more
                if normal(one.name) not in found and (one.marker is None or one.marker.evaluate({"extra": extra}))
            ]
    return found


def make() -> None:
    """Write the files."""
    places, runs, chats = indexes(), needed_to_run(), needed_to_run(*OF_PEOPLE)
    running, chatting, developing = [HEAD], [HEAD, "-r requirements.txt"], [HEAD, "-r requirements-chat.txt"]
    for name, version in pinned().items():
        known = sorted(hashes(name, version, places))
        if not known:
            sys.exit(f"The index lists no file of {name} {version} with a hash")
        entry = " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in known)])
        needing = running if normal(name) in runs else chatting if normal(name) in chats else developing
        needing.append(entry)
    files = {"requirements.txt": running, "requirements-chat.txt": chatting, "requirements-dev.txt": developing}
    for file, lines in files.items():
        (ROOT / file).write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    make()
