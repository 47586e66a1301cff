"""Runs the whole suite, several tests at a time, and what failed there once more, alone: `make test`.

A machine that stalls for seconds can fail a test that waits for a process, a browser or a disk. Such a test passes
alone; it is named all the same, so that it gets mended. If more than a few fail, or one fails alone too, the run has
failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AT_ONCE = ("-n", "3", "--dist", "worksteal")
TESTS_FAILED = 1
# More failures than this are not the machine's.
FEW = 5


def run_suite(root: Path, options: Sequence[str]) -> int:
    """The exit code of the run, or of the tests that failed in it if they were few."""
    last_failed = root / ".pytest_cache" / "v" / "cache" / "lastfailed"
    last_failed.unlink(missing_ok=True)
    code = run_pytest(root, options)
    failed = read_names(last_failed)
    if code != TESTS_FAILED or not 0 < len(failed) <= FEW:
        return code
    print("\nOnce more, alone:", *failed, sep="\n  ", flush=True)  # noqa: T201
    code = run_pytest(root, failed)
    if code == 0:
        print("\nThese failed beside other tests and passed alone; mend them:", *failed, sep="\n  ", flush=True)  # noqa: T201
    return code


def run_pytest(root: Path, arguments: Sequence[str]) -> int:
    """The exit code of pytest, which keeps the compiled tests: that halves the time before the first one."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=root, env=variables, check=False).returncode


def read_names(last_failed: Path) -> list[str]:
    try:
        return sorted(json.loads(last_failed.read_text()))
    except FileNotFoundError:
        return []


if __name__ == "__main__":
    sys.exit(run_suite(ROOT, AT_ONCE))
