"""What the base installation leaves out: which modules show it, and how it comes to where Pigeon is installed."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pigeon.system.extras import EXTRAS, find_missing_module, is_installed, make_install_command, require_extra
from pigeon.wire.errors import StartupError
from support.source_tree import ROOT

DECLARED: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
# Of no module of Pigeon: one for everything, one for its developers.
OTHERS = {"all", "dev"}


@pytest.mark.parametrize(
    ("mark", "begins"),
    [("pipx_metadata.json", "pipx inject pigeon-agent"), ("uv-receipt.toml", "uv pip install --python"), ("", "")],
)
def test_the_command_is_that_of_the_program_that_installed_pigeon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, begins: str
) -> None:
    (tmp_path / (mark or "other")).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    told = make_install_command("serve")
    assert told.startswith(begins or f"{shlex.quote(sys.executable)} -m pip install ")
    assert told.endswith(" 'pigeon-agent[serve]'")


def packages_of(extra: str) -> set[str]:
    """The packages that an extra names, also through other extras."""
    found: set[str] = set()
    for requirement in map(Requirement, DECLARED[extra]):
        if requirement.name == "pigeon-agent":
            found = found.union(*map(packages_of, requirement.extras))
        else:
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            # As `psycopg[binary]` has `psycopg-binary`.
            found |= {name, *(f"{name}-{other}" for other in requirement.extras)}
    return found


@pytest.mark.parametrize("extra", sorted(set(DECLARED) - OTHERS | set(EXTRAS)))
def test_the_modules_that_show_an_extra_are_those_of_its_packages(extra: str) -> None:
    known = packages_distributions()
    modules = {known.get(module, [module])[0] for module in EXTRAS[extra]}
    assert {re.sub(r"[-_.]+", "-", name).lower() for name in modules} == packages_of(extra)


def test_everything_includes_every_extra_but_ray() -> None:
    [everything] = map(Requirement, DECLARED["all"])
    assert packages_of("all") == set().union(*(packages_of(extra) for extra in EXTRAS if extra != "ray"))
    assert "ray" not in everything.extras


def test_an_extra_is_missing_if_one_of_its_modules_is(monkeypatch: pytest.MonkeyPatch) -> None:
    require_extra("chat", "The chat")
    monkeypatch.setitem(sys.modules, "rich", None)
    assert not is_installed("rich")
    assert find_missing_module("chat") == "rich"
    assert find_missing_module("pages") is None
    said = r"^The chat needs packages that are not installed \(rich is missing\): .*pip install 'pigeon-agent\[chat\]'$"
    with pytest.raises(StartupError, match=said):
        require_extra("chat", "The chat")
