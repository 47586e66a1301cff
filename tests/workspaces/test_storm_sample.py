"""A small sample of `make workspace-storm`."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from fakes.machines import SshMachine
from stress.workspace_storm import kill_callers, run_rounds


@pytest.mark.timeout(180)
def test_cuts_and_kills_leave_nothing_half_done(ssh: SshMachine, tmp_path: Path) -> None:
    known = (ssh.folder / "known_hosts").read_text()
    try:
        assert kill_callers(ssh, tmp_path, 2, random.Random(5)) == []
        assert asyncio.run(run_rounds(ssh, tmp_path, 8, random.Random(5))) == []
    finally:
        ssh.write_client(known=known)
