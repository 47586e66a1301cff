"""The wheel stays small: an archive of what setuptools packs, with its list of files."""

from __future__ import annotations

import hashlib
import io
import tomllib
import zipfile
from pathlib import Path

from support.source_tree import ROOT

PACKAGE = ROOT / "src" / "pigeon"
# A few percent above what it has: a large file or a dependency that is copied in is noticed.
MOST = 2_000_000


def packed_files() -> list[Path]:
    """What setuptools puts into the wheel; `docs` is a link, which it follows."""
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    patterns = configured["package-data"]["pigeon"]
    return sorted({path for pattern in ("**/*.py", *patterns) for path in PACKAGE.glob(pattern)})


def test_the_wheel_is_small_with_every_door_in_it() -> None:
    files = packed_files()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as wheel:
        rows = []
        for path in files:
            name = path.relative_to(PACKAGE.parent).as_posix()
            wheel.writestr(name, path.read_bytes())
            rows.append(f"{name},sha256={hashlib.sha256(path.read_bytes()).hexdigest()},{path.stat().st_size}")
        wheel.writestr("pigeon.dist-info/RECORD", "\n".join(rows))
        wheel.writestr("pigeon.dist-info/METADATA", (ROOT / "README.md").read_bytes())
    size = len(archive.getvalue())
    assert len(files) > 300
    assert PACKAGE / "docs" / "extensions.md" in files
    assert size < MOST, f"the wheel would have {size:,} bytes"
