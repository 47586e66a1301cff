"""The wheel stays below a megabyte: its files, compressed one by one as a wheel has them."""

from __future__ import annotations

import tomllib
import zlib
from pathlib import Path

from fakes.source_tree import ROOT

PACKAGE = ROOT / "src" / "pigeon"
MOST = 1_000_000
ENTRY = 300  # what an archive adds to each file: two headers with its name


def packed_files() -> list[Path]:
    """What setuptools puts into the wheel."""
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    patterns = configured["tool"]["setuptools"]["package-data"]["pigeon"]
    # `docs` is a link, which the patterns of Python do not follow and those of setuptools do.
    folders = (PACKAGE, (PACKAGE / "docs").resolve())
    return [path for folder in folders for pattern in ("**/*.py", *patterns) for path in folder.glob(pattern)]


def test_the_wheel_is_smaller_than_a_megabyte() -> None:
    files = packed_files()
    size = sum(len(zlib.compress(path.read_bytes(), 6)) + ENTRY for path in files)
    assert len(files) > 300
    assert size < MOST, f"the wheel would have about {size:,} bytes"
