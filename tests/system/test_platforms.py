"""How more packages come to where Pigeon is installed."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from pigeon.system.platforms import make_install_command


@pytest.mark.parametrize(
    ("mark", "begins"),
    [("pipx_metadata.json", "pipx inject pigeon-agent"), ("uv-receipt.toml", "uv pip install --python"), ("", "")],
)
def test_the_command_is_that_of_the_program_that_installed_pigeon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, begins: str
) -> None:
    (tmp_path / (mark or "other")).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    told = make_install_command("websockets", "ray>=2.9")
    assert told.startswith(begins or f"{shlex.quote(sys.executable)} -m pip install ")
    assert told.endswith(" websockets 'ray>=2.9'")
