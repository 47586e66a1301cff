"""What is imported before the first answer: hosts wait for it, so nothing that the answer does not need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from fakes.agent_folders import AgentFolders

# The standard library's part comes with asyncio and argparse; these would come on top.
FORBIDDEN = {
    "PIL",
    "anyio",
    "email",
    "httpcore2",
    "importlib.metadata",
    "json",
    "jsonschema",
    "markdown_it",
    "nh3",
    "pathlib",
    "pathspec",
    "pigeon.export.html",
    "pigeon.extensions.runner",
    "pigeon.providers.demo.model",
    "pigeon.providers.scripted.model",
    "pigeon.resources.skills",
    "pigeon.resources.system_prompt",
    "pigeon.wire.schema",
    "regex",
    "shutil",
    "tempfile",
    "typing_extensions",
    "urllib.request",
    "yaml",
}


def test_the_first_answer_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure()
    ran = subprocess.run(
        [sys.executable, "-v", "-m", "pigeon", "--mode", "rpc"],
        env=folders.environment(),
        cwd=folders.work,
        input='{"type":"get_state"}\n',
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert '"success":true' in ran.stdout
    imported = set(re.findall(r"^import '(\S+)' #", ran.stderr, re.MULTILINE))
    assert "pigeon.rpc.host" in imported
    assert sorted(imported & FORBIDDEN) == []
