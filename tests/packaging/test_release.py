"""A release can be made: the sdist builds a wheel, which runs where only what it requires is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from release_check import required_distributions

from support.source_tree import ROOT


@pytest.mark.timeout(180)
def test_wheel_and_sdist_run_where_only_their_requirements_are(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "release_check.py"), "--offline", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(".whl: installs and runs") == 1
    assert {path.suffix for path in tmp_path.iterdir()} == {".gz", ".whl"}


@pytest.mark.parametrize(
    ("required", "found"),
    [
        ("httpcore2", {"httpcore2", "h11", "truststore"}),
        ("httpcore2[asyncio]", {"httpcore2", "h11", "truststore", "anyio", "idna", "typing_extensions"}),
        ("h11; extra == 'dev'", set()),
        ("h11; python_version < '3'", set()),
    ],
)
def test_nothing_is_installed_but_what_is_declared(tmp_path: Path, required: str, found: set[str]) -> None:
    (tmp_path / "METADATA").write_text(f"Metadata-Version: 2.1\nName: x\nVersion: 1\nRequires-Dist: {required}\n")
    of_newer_pythons = {"typing_extensions"} if sys.version_info >= (3, 13) else set()
    assert required_distributions(metadata.PathDistribution(tmp_path)) == found - of_newer_pythons
