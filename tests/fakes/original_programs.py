"""The originals as programs, where they are installed, and the conversation that the recorded sessions hold.

They are taken from the folder named by `PIGEON_PEERS`, which has one npm project per original (`pi073`, `pi087`; of
`pi15` the package alone, which is a bundle) and perhaps a newer Node (`node`); what is not there is installed as
`fakes/installed_programs.py` does it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fakes.agent_folders import AgentFolders, providers
from fakes.installed_programs import node, npm_package
from fakes.model_server import Call, ModelServer, Thinking
from fakes.rpc_process import RpcProcess

PACKAGES = {
    "pi-0.73.1": ("pi073", "@mariozechner"),
    "pi-0.87.1": ("pi087", "@earendil-works"),
    "pi-1.5.0": ("pi15", "@earendil-works"),
}
SETTINGS = {
    "compaction": {"keepRecentTokens": 20, "reserveTokens": 1000},
    "retry": {"enabled": True, "maxRetries": 2, "baseDelayMs": 10, "provider": {"maxRetries": 0}},
}


def program(name: str) -> list[str]:
    """How to start an original; skips the test with the reason where that cannot be."""
    folder, scope = PACKAGES[name]
    peers = Path(os.environ.get("PIGEON_PEERS") or Path.home() / ".cache" / "pigeon-peers")
    package = peers / folder / "node_modules" / scope / "pi-coding-agent"
    if not package.exists():
        package = peers / folder / "package"
    if not package.exists():
        package = npm_package(f"{scope}/pi-coding-agent", name.removeprefix("pi-"))
    own = peers / "node" / "node_modules" / ".bin" / "node"
    script = json.loads((package / "package.json").read_text())["bin"]["pi"]
    return [str(own) if own.exists() else node(), str(package / script)]


def begin(folders: AgentFolders, server: ModelServer, program: list[str] | None, *args: str) -> RpcProcess:
    """Start a program, one of the originals or ours, in these folders."""
    folders.configure(providers(server.url), SETTINGS)
    process = RpcProcess(folders, "--provider", "fake", "--model", "fake-1", *args, program=program)
    process.last_event = "agent_settled" if program is None or "@mariozechner" not in program[-1] else "agent_end"
    return process


def converse(agent: RpcProcess, server: ModelServer) -> str:
    """Have the conversation; the file that keeps it."""
    (agent.folders.work / "notes.txt").write_text("one\ntwo\n")
    server.answers(
        Thinking("let me see"), "I will look.", Call("read", {"path": "notes.txt"}, id="toolu_a"),
        Call("bash", {"command": "echo hallo"}, id="toolu_b"),
    )  # fmt: skip
    server.answers("It says one and two. 🕊 and \u2028 too.")
    agent.run("What is in notes.txt? Grüße 🕊")
    agent.ask("set_session_name", name="the notes")
    agent.ask("bash", command="echo from the host")
    server.fails(529, "overloaded", kind="overloaded_error")
    server.answers("Second answer.")
    mark = agent.mark()
    agent.ask("prompt", message="And now?")
    agent.wait_event("auto_retry_end", mark)
    agent.wait_count("agent_end", 2, mark)
    if agent.last_event != "agent_end":
        agent.wait_event(agent.last_event, mark)
    server.answers("THE SUMMARY")
    agent.ask("compact", customInstructions="short")
    server.answers(Call("bash", {"command": "false"}, id="toolu_c"))
    server.answers("After it all.")
    agent.run("go on")
    agent.ask("set_thinking_level", level="high")
    return str(agent.ask("get_state")["sessionFile"])


def without_our_paths(raw: bytes, folders: AgentFolders) -> bytes:
    """A session file without the folders of the machine that made it, and without the prompt of its program."""
    lines = raw.replace(str(folders.work).encode(), b"/").split(b"\n")
    return b"\n".join(_shortened(line) if b'"role":"system"' in line else line for line in lines)


def _shortened(line: bytes) -> bytes:
    entry: dict[str, Any] = json.loads(line)
    message = entry.get("message") or entry["systemMessage"]
    message["sections"] = {name: "..." for name in message.get("sections", {})}
    for tool in message.get("toolsAdded", []):
        tool["description"] = "..."
        tool["parameters"] = {"type": "object"}
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode()
