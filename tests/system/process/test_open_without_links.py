"""Paths are opened without following links, in one step or part by part."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pigeon.system.process.namespaces import open_part_by_part, open_without_links

WAYS = (open_without_links, open_part_by_part)
pytestmark = pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="a sandbox is only there on Linux")


@pytest.mark.parametrize("open_path", WAYS)
def test_links_are_not_followed(tmp_path: Path, open_path: Callable[[bytes], int]) -> None:
    folder = Path(os.path.realpath(tmp_path))
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    (folder / "link").symlink_to("a")

    def kind_of(path: Path) -> int:
        held = open_path(os.fsencode(path))
        try:
            assert not os.get_inheritable(held)
            return stat.S_IFMT(os.fstat(held).st_mode)
        finally:
            os.close(held)

    assert kind_of(Path("/")) == kind_of(folder / "a" / "b") == stat.S_IFDIR
    assert kind_of(folder / "a" / "b" / "file") == stat.S_IFREG
    # What a link at the end leads to is not opened either.
    assert kind_of(folder / "link") == stat.S_IFLNK
    for unusable in (folder / "link" / "b", folder / "none", folder / "a" / "b" / "file" / "x"):
        with pytest.raises(OSError, match=r"link|directory"):
            kind_of(unusable)
