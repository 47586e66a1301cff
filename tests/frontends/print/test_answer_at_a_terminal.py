"""`-p` at a terminal: the text as it comes, progress between, and nothing that steers the screen."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from fakes.model_server import Call, ModelServer, Text
from support.agent_folders import AgentFolders, providers

KEY = ("--api-key", "dummy-key-of-mine")


def test_a_person_sees_every_turn_and_what_is_done_between(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    ours, theirs = pty.openpty()
    with ModelServer() as server, os.fdopen(ours, "rb", buffering=0) as screen:
        folders.configure(providers(server.url))
        server.answers("Let me look.", Call("bash", {"command": "echo one\necho two"}), Call("read", {"path": "none"}))
        server.answers(Call("task", {"prompt": "Look around", "title": "Look", "agent": "none"}))
        server.answers("It is \x1b[31mred\x07. The key is dummy-", Text("key-of"), Text("-mine. Bye, dummy"))
        process = subprocess.Popen(
            [sys.executable, "-m", "pigeon", "-p", "--no-session", "--model", "fake/fake-1", *KEY, "what is it?"],
            env=folders.environment(),
            cwd=folders.work,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        seen = b""
        try:
            while piece := screen.read(4096):
                seen += piece
        except OSError:
            pass  # the other end is closed
        assert process.wait(20) == 0
    assert seen.decode().replace("\r\n", "\n") == (
        "Let me look.\n• bash echo one …\n• read none\n• read failed\n• task Look\n• task failed\n\n"
        "It is red�. The key is ***. Bye, dummy\n"
    )
