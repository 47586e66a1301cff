"""Programs that have the terminal while they run, such as an editor that a person opens."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence


def run_in_foreground(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program on our own terminal and wait for its end; returns the exit code, raises `OSError` if it cannot
    start."""
    return subprocess.run(list(argv), env=dict(environment), check=False).returncode
