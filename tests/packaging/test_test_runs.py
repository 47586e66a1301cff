"""`make test`: what it does with a test that failed beside the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_tests import FEW, run_suite

# Fails in the first run, and in the second only if the name says so.
FLAKY = """
import pathlib, pytest

@pytest.mark.parametrize("number", range({count}))
def test_something(number):
    mark = pathlib.Path(__file__).with_name(f"ran-{{number}}")
    first = not mark.exists()
    mark.touch()
    assert not ({always} or first)

def test_that_passes():
    with pathlib.Path(__file__).with_name("passed").open("a") as file:
        file.write("x")
"""


def run_tests_of(folder: Path, count: int, always: bool) -> int:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_flaky.py").write_text(FLAKY.format(count=count, always=always))
    return run_suite(folder, ["-q"])


def test_a_test_that_passes_alone_fails_no_run_but_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_tests_of(tmp_path, 1, always=False) == 0
    assert "passed alone; mend them:\n  test_flaky.py::test_something[0]" in capfd.readouterr().out
    assert (tmp_path / "passed").read_text() == "x"


def test_a_test_that_fails_alone_too_fails_the_run(tmp_path: Path) -> None:
    assert run_tests_of(tmp_path, 1, always=True) == 1


def test_many_failures_are_not_tried_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_tests_of(tmp_path, FEW + 1, always=False) == 1
    assert "Once more" not in capfd.readouterr().out
