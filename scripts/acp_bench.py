"""What `pigeon acp` costs: the time to the answer of initialize, and what 200 sessions of a connection leave behind.

    make acp-bench

Each start is a process of its own in fresh folders; the model is a scripted one, and every fourth session is prompted.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fakes.editor_client import Editor
from support.agent_folders import AgentFolders
from support.agent_process import command_line

STARTS = 15
SESSIONS = 200
ASKED = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1, "clientCapabilities": {}}}


def first_answer(folders: AgentFolders) -> float:
    """Seconds from the start of a process to its answer."""
    began = time.perf_counter()
    with subprocess.Popen(
        [*command_line(), "acp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=folders.environment(),
        cwd=folders.work,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(ASKED).encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        took = time.perf_counter() - began
        process.stdin.close()
        process.wait()
    return took


def held(editor: Editor) -> dict[str, int]:
    """What the process has now."""
    pid = editor.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {
        "rss KB": editor.resident() >> 10,
        "descriptors": editor.descriptors(),
        "children": len(children),
        "threads": len(os.listdir(f"/proc/{pid}/task")),
    }


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as place:
        folders = AgentFolders(Path(place))
        folders.configure()
        script = folders.temp / "script.json"
        script.write_text(json.dumps({"default": "ok"}))
        first_answer(folders)
        times = [first_answer(folders) for _ in range(STARTS)]
        shown = f"median {statistics.median(times):.3f}, from {min(times):.3f} to {max(times):.3f}"
        say(f"initialize answered after (s): {shown}")
        with Editor(folders, "--model", f"scripted/{script}", by_exec=True) as editor:
            editor.initialize()
            used(editor, 5)
            before, began = held(editor), time.perf_counter()
            used(editor, SESSIONS)
            say(f"{SESSIONS} sessions in {time.perf_counter() - began:.1f} s; before: {before}")
            say(f"after: {held(editor)}")
            used(editor, SESSIONS)
            say(f"after {SESSIONS} more: {held(editor)}")


def used(editor: Editor, count: int) -> None:
    """Open and close so many sessions."""
    for number in range(count):
        session = editor.new()
        if number % 4 == 0:
            editor.prompt(session, "hi")
        editor.call("session/close", sessionId=session)


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")


main()
