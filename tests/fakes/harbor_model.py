"""Harbor's own model of trajectories, taken from its wheel on PyPI without what the rest of Harbor needs."""

from __future__ import annotations

import subprocess
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest

VERSION = "0.25.0"
PARTS = ("harbor/models/trajectories/", "harbor/utils/trajectory_validator.py")


def harbor_validator(folder: Path) -> Any:
    """A `TrajectoryValidator`; skips the test where the wheel cannot be had."""
    unpacked = folder / f"harbor-{VERSION}"
    if not unpacked.exists():
        # It asks for a newer Python than ours; the model itself does not.
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        command = [*pip, "--python-version", "3.12", "-d", str(folder), f"harbor=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(folder.glob("harbor-*.whl"))
        if done.returncode or not wheels:
            pytest.skip(f"Harbor cannot be had here: {done.stderr.strip().splitlines()[-1:]}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(unpacked, [name for name in wheel.namelist() if name.startswith(PARTS)])
    for name in ("harbor", "harbor.models", "harbor.utils"):
        module = types.ModuleType(name)
        module.__path__ = [str(unpacked / name.replace(".", "/"))]
        sys.modules[name] = module
    from importlib import import_module

    return import_module("harbor.utils.trajectory_validator").TrajectoryValidator()
