"""Interleaved rounds: everybody takes a turn in each, so that what else the machine does falls on all alike."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from bench.headless import RunFailed

Figures = dict[str, float]
Made = TypeVar("Made")
# What a program that misbehaves can cause; none of it may end the rounds of the others.
FAULTS = (RunFailed, OSError, LookupError, ValueError, AttributeError, TypeError, EOFError, subprocess.SubprocessError)


def interleave(rounds: int, works: Mapping[str, Callable[[], Figures]], what: str) -> dict[str, Figures]:
    """The median of every figure of everybody. What fails twice in a row is left out and named.

    The first round fills caches and does not count.
    """
    found: dict[str, list[Figures]] = {name: [] for name in works}
    failures = dict.fromkeys(works, 0)
    for number in range(rounds + 1):
        order = list(works) if number % 2 else list(works)[::-1]
        for name in order:
            if failures[name] > 1:
                continue
            try:
                figures = works[name]()
            except FAULTS as error:
                failures[name] += 1
                report(f"{what}: {name}: {type(error).__name__}: {error}")
                continue
            failures[name] = 0
            if number or not rounds:
                found[name].append(figures)
    return {
        name: {figure: statistics.median(one[figure] for one in some) for figure in some[0]}
        for name, some in found.items()
        if some
    }


def report(line: str) -> None:
    """Tell whoever waits for the benchmark."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def try_each(names: Iterable[str], make: Callable[[str], Made], what: str) -> dict[str, Made]:
    """What can be made for each name; who fails is left out and named."""
    made = {}
    for name in names:
        try:
            made[name] = make(name)
        except FAULTS as error:
            report(f"{what}: {name}: {type(error).__name__}: {error}")
    return made
