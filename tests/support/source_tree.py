"""This checkout for tests: its folder, its source as syntax trees, and how a rule about the source is checked.

A rule is a list of offenders (from `scripts/house_measures.py`). Two kinds of offenders are let through: exceptions,
each with its reason, and what was there when the rule came (`known`). Neither may outlive its need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from house_measures import SourceTree

ROOT = Path(__file__).parents[2]
TREE = SourceTree(ROOT)
# A program that runs on other machines, alone: it has no event loop, and nobody who could give it what it needs.
FOR_OTHER_MACHINES = "pigeon.workspaces.remote.helper."


def hold(offenders: Iterable[str], allowed: Mapping[str, str], known: Iterable[str] = ()) -> None:
    """Fail on new offenders, and on exceptions and known offenders that offend no more."""
    found, old, exceptions = set(offenders), set(known), set(allowed)
    assert not (new := found - exceptions - old), f"new offenders: {_list_names(new)}"
    assert not (idle := exceptions - found), (
        f"exceptions that are not needed any more, remove them: {_list_names(idle)}"
    )
    assert not (mended := old - found), f"no longer offending, remove them from the known ones: {_list_names(mended)}"


def _list_names(names: set[str]) -> str:
    return "".join(f"\n    {name}" for name in sorted(names))
