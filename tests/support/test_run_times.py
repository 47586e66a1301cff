"""The order of a whole run, and what is kept of it."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.run_times import sort_longest_first, unit_of
from support.source_tree import ROOT

CONFTEST = """
import pytest
from support.run_times import RunTimes, is_controller, is_whole, sort_longest_first

def pytest_configure(config):
    if is_controller(config):
        config.pluginmanager.register(RunTimes(config), "run_times")

def pytest_collection_modifyitems(config, items):
    if not is_controller(config) and is_whole(config):
        sort_longest_first(items, config.workerinput["seconds"])
"""


def _items(*names: str) -> list[Any]:
    return [SimpleNamespace(nodeid=name) for name in names]


def test_long_files_come_first_unknown_ones_before_them_and_a_file_stays_in_one_piece() -> None:
    items = _items("tests/a.py::one", "tests/b.py::one", "tests/b.py::two", "tests/c.py::one", "tests/new.py::one")
    sort_longest_first(items, {"tests/a.py": 1.0, "tests/b.py": 9.5, "tests/c.py": 2.0})
    order = [item.nodeid for item in items]
    assert order == ["tests/new.py::one", "tests/b.py::one", "tests/b.py::two", "tests/c.py::one", "tests/a.py::one"]


def test_the_tests_that_share_a_parsed_source_stay_together() -> None:
    names = [f"tests/architecture/test_{name}.py::one" for name in "abc"]
    assert {unit_of(name) for name in names} == {"tests/architecture"}
    items = _items(*names, "tests/x.py::one", *(f"tests/{n}.py::one" for n in range(5)))
    random.Random(1).shuffle(items)
    sort_longest_first(items, {"tests/architecture": 5.0, "tests/x.py": 7.0} | {f"tests/{n}.py": n for n in range(5)})
    assert [unit_of(item.nodeid) for item in items[:4]] == ["tests/x.py", *["tests/architecture"] * 3]


def test_a_whole_run_says_how_long_it_takes_and_a_part_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "conftest.py").write_text(CONFTEST)
    (tests / "test_a_short.py").write_text("def test_one(): pass\n")
    (tests / "test_b_long.py").write_text("def test_one(): sum(range(5_000_000))\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly"]

    def output(*options: str) -> str:
        environment = {"PYTHONPATH": str(ROOT / "tests"), "PATH": "/usr/bin:/bin"}
        ran = subprocess.run(
            [*command, *options], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    assert "All tests take about" not in output("tests/test_a_short.py")
    assert "(on two idle cores)" in output("-n", "1", "-vv")
    second = output("-n", "1", "-vv")
    assert re.search(r"All tests take about 0\.\d minutes \(as last time\)", second)
    assert second.index("test_b_long.py::") < second.index("test_a_short.py::")
