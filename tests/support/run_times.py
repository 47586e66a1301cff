"""How long the files of tests took last time: the long ones are run first, and a run says how long it will take.

The figures are in pytest's cache. A run of a part of the tests keeps its natural order and says nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from time import monotonic
from typing import Any

import pytest

FILES, WHOLE = "pigeon/seconds_of_files", "pigeon/seconds_of_whole_run"
# What is said where the whole was never run; on two idle cores.
USUAL_SECONDS = 200.0
# Its tests share one parsed source, so they stay together.
TOGETHER = "tests/architecture"


def is_whole(config: pytest.Config) -> bool:
    chosen = config.getoption("keyword") or config.getoption("markexpr") or config.getoption("lf", False)
    return list(config.args) == config.getini("testpaths") and not chosen


def is_controller(config: pytest.Config) -> bool:
    """Whether this process starts the tests of others, or is the only one."""
    return not hasattr(config, "workerinput")


def unit_of(node_id: str) -> str:
    """What is run in one piece: a file, or a folder whose tests share something costly."""
    return TOGETHER if node_id.startswith(f"{TOGETHER}/") else node_id.partition("::")[0]


def sort_longest_first(items: list[pytest.Item], seconds: Mapping[str, float]) -> None:
    """Put files that took long before the others; those that are not known come first, in their order."""
    items.sort(key=lambda item: -seconds.get(unit_of(item.nodeid), float("inf")))


class RunTimes:
    """The plugin of the process that starts the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._cache = getattr(config, "cache", None)
        self._is_whole = is_whole(config)
        self._began = monotonic()
        self._spent: dict[str, float] = defaultdict(float)
        before = None if self._cache is None else self._cache.get(FILES, None)
        self.before: dict[str, float] = before if isinstance(before, dict) else {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Workers must agree on the order, so they get the figures from here."""
        node.workerinput["seconds"] = self.before

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if self._is_whole and self._cache is not None and reporter is not None:
            last = self._cache.get(WHOLE, None)
            minutes = (USUAL_SECONDS if last is None else last) / 60
            known = "on two idle cores" if last is None else "as last time"
            reporter.write_line(f"All tests take about {minutes:.1f} minutes ({known}).")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up what each file takes."""
        self._spent[unit_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Keep the figures; those of a run that was interrupted say little."""
        if self._cache is None or not self._is_whole or exitstatus not in (0, 1):
            return
        self._cache.set(FILES, {name: round(seconds, 2) for name, seconds in self._spent.items()})
        self._cache.set(WHOLE, round(monotonic() - self._began, 1))
