"""Pyright sees what mypy sees of a program that uses the library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.installed_programs import node, npm_package, only_on_request

pytestmark = only_on_request
PROGRAM = Path(__file__).parents[1] / "sdk" / "typed_program.py"


def test_pyright_sees_the_type_of_every_answer_and_event() -> None:
    package = npm_package("pyright", "1.1.414")
    command = [node(), str(package / "index.js"), "--pythonpath", sys.executable, str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "0 errors, 0 warnings" in done.stdout, done.stdout
