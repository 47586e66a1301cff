"""What an agent that has ended leaves: nothing of what its commands wrote beside the project."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.in_process_agent import InProcessAgent


@pytest.mark.skipif(sys.platform != "linux", reason="the walls of Linux")
async def test_the_temporary_files_of_commands_in_a_sandbox_are_gone_with_the_agent(tmp_path: Path) -> None:
    agent, temporary = InProcessAgent(tmp_path), tmp_path / "temporary"
    temporary.mkdir()
    agent.variables["TMPDIR"] = str(temporary)
    command = 'echo kept > "$TMPDIR/of-a-command" && cat "$TMPDIR/of-a-command"'
    agent.configure(replies=[{"toolCalls": [{"name": "bash", "arguments": {"command": command}}]}, "Done."])
    await agent.start(sandbox="workspace")
    await agent.ask("go")
    await agent.wait_until_settled()
    assert agent.results() == ["kept\n"]
    [written] = temporary.rglob("of-a-command")
    await agent.stop()
    assert not written.exists()
    assert list(temporary.iterdir()) == []
