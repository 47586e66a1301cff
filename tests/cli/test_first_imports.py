"""What is imported before the first answer: hosts wait for it, so nothing that the answer does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.agent_folders import AgentFolders

# The standard library's part comes with asyncio and argparse; these would come on top.
FORBIDDEN = {
    "PIL",
    "anyio",
    "email",
    "h11",
    "ipaddress",
    "importlib.metadata",
    "json",
    "jsonschema_rs",
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
    "pigeon.secrets.shapes",
    "pigeon.wire.partial_json",
    "pigeon.wire.schema",
    "platform",
    "regex",
    "shutil",
    "tempfile",
    "typing_extensions",
    "urllib.parse",
    "urllib.request",
    "yaml",
}


# Runs the program and prints, in place of its first line, which modules there are by then.
WATCHED = """
import builtins, os, sys

really_import = builtins.__import__

def put(self, *given, **more):
    os.write(2, " ".join(sorted(sys.modules)).encode())
    os._exit(0)

def watched_import(name, *rest, **more):
    module = really_import(name, *rest, **more)
    writer = sys.modules.get("pigeon.transport.writer")
    if hasattr(writer, "Writer"):
        writer.Writer.put = put
        builtins.__import__ = really_import
    return module

builtins.__import__ = watched_import
sys.argv = ["pigeon", "--mode", "rpc"]
from pigeon.cli.main import main

main()
"""


def test_the_first_answer_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure()
    environment = folders.environment()
    environment.pop("COVERAGE_PROCESS_START", None)  # what measures coverage imports modules of its own
    ran = subprocess.run(
        [sys.executable, "-c", WATCHED],
        env=environment,
        cwd=folders.work,
        input='{"type":"get_state"}\n',
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    imported = set(ran.stderr.split())
    assert "pigeon.rpc.handlers.state" in imported
    assert sorted(imported & FORBIDDEN) == []


# The chat draws before it has what talks to the agent, and what paints its answers.
BEHIND_THE_FIRST_DRAWING = {
    "markdown_it",
    "pigeon.sdk.conversation",
    "pigeon.frontends.terminal.chat",
    "pigeon.frontends.terminal.plain",
    "pigeon.wire.answers",
    "pigeon.wire.commands",
    "pigeon.wire.events",
    "pygments",
    "rich",
}
DRAWN = """
import sys

import pigeon.cli.main
import pigeon.cli.running
import pigeon.frontends.terminal.chat_mode
import pigeon.frontends.terminal.screen.completion
import pigeon.frontends.terminal.screen.screen

print(" ".join(sorted(sys.modules)))
"""


def test_the_screen_of_the_chat_stands_before_what_talks_to_the_agent_is_imported() -> None:
    ran = subprocess.run([sys.executable, "-c", DRAWN], capture_output=True, text=True, timeout=30, check=True)
    imported = set(ran.stdout.split())
    assert "pigeon.frontends.terminal.screen.screen" in imported
    assert sorted(imported & BEHIND_THE_FIRST_DRAWING) == []


# A call that a warm parent runs ends in the process that was called: all that costs is what it imports.
CALLED = """
import sys
before = set(sys.modules)
import pigeon.cli.main
from pigeon.system.process.warm import call, link
from pigeon.system.process import messages
print(" ".join(sorted(set(sys.modules) - before)))
"""


def test_a_call_that_runs_warm_imports_next_to_nothing() -> None:
    ran = subprocess.run([sys.executable, "-I", "-c", CALLED], capture_output=True, text=True, timeout=30, check=True)
    others = {name for name in ran.stdout.split() if not name.startswith("pigeon")}
    assert others <= {"__future__", "_socket", "_struct", "errno", "gc", "marshal", "struct"}
    assert len(ran.stdout.split()) - len(others) <= 9
