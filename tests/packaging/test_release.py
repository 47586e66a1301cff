"""A release can be made: wheel and sdist install into an empty environment and run there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.source_tree import ROOT


@pytest.mark.timeout(180)
def test_wheel_and_sdist_install_into_an_empty_environment_and_answer(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "release_check.py"), "--offline", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("installs and runs") == 2
    assert {path.suffix for path in tmp_path.iterdir()} == {".gz", ".whl"}
