"""Programs that have the terminal while they run, such as an editor that a person opens."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from pigeon.system.process.run_program import find_program
from pigeon.system.process.variables import ProgramEnvironment


def run_in_foreground(argv: Sequence[str], environment: ProgramEnvironment) -> int:
    """Run a program on our own terminal and wait for its end; returns the exit code, raises `OSError` if it cannot
    start."""
    program = find_program(argv[0], os.curdir, environment)
    return subprocess.run(list(argv), executable=program, env=environment, check=False).returncode
