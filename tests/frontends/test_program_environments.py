"""What each program that Pigeon starts sees of the environment: every kind is started for real, in an environment that
has keys under many names, and notes what it sees."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.model_server import Call, ModelServer
from pigeon.frontends.terminal.clipboard import Clipboard
from pigeon.frontends.terminal.persons_editor import edit_file
from support.agent_folders import AgentFolders, model
from support.agent_process import RpcProcess, command_line
from support.contract import calls, results

KEY, OTHER = "canary-Zq7+Xw9-known", "canary-Qy3+Tm5-other"
# Known by its name; known because models.json refers to it; under another name, and in another form; no key at all.
KEYS = {
    "OPENAI_API_KEY": KEY,
    "OF_MY_COMPANY": OTHER,
    "SAME_AS_KNOWN": KEY,
    "SAME_AS_OTHER": f"Bearer {OTHER}",
}
NEEDED = {"HARMLESS": "stays"}
REAL = {"bash": "/bin/bash", "git": shutil.which("git") or "", "rg": shutil.which("rg") or ""}
EXTENSION = """
from pigeon.extensions import Extension, ToolContext

ext = Extension("running")


@ext.tool()
async def run_spy(ctx: ToolContext) -> str:
    \"\"\"Run a program.\"\"\"
    return (await ctx.exec("of-extension", [])).stdout
"""


class Spies:
    """Programs that note what they see, and then are the real ones."""

    def __init__(self, folder: Path) -> None:
        self.bin, self._notes = folder / "spies", folder / "notes"
        self.bin.mkdir()
        self._notes.mkdir()

    def add(self, name: str, then: str = "") -> str:
        script = self.bin / name
        real = f'exec {REAL[name]} "$@"' if REAL.get(name) else then or "exit 0"
        script.write_text(f"#!/bin/sh\n/usr/bin/env -0 > {self._notes}/{name}.$$.new\n"
                          f"/bin/mv {self._notes}/{name}.$$.new {self._notes}/{name}.$$\n{real}\n")  # fmt: skip
        script.chmod(0o755)
        return str(script)

    def seen_by(self, name: str) -> list[set[str]]:
        """The names of variables that hold a key, or are harmless, for each start of a program."""
        return [
            {one.partition("=")[0] for one in note.read_text().split("\0") if set(one.partition("=")[::2]) & WATCHED}
            for note in sorted(self._notes.glob(f"{name}.*"))
        ]


WATCHED = {*KEYS, *KEYS.values(), *NEEDED}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    return AgentFolders(tmp_path)


@pytest.fixture
def spies(tmp_path: Path) -> Spies:
    return Spies(tmp_path)


@pytest.fixture
def environment(spies: Spies) -> dict[str, str]:
    return {**KEYS, **NEEDED, "PATH": f"{spies.bin}:/usr/bin:/bin"}


@pytest.fixture
def keys(folders: AgentFolders, server: ModelServer, spies: Spies) -> AgentFolders:
    """Providers whose keys come from a variable of the user's choice, and from a command."""
    common = {"baseUrl": server.url, "api": "anthropic-messages", "models": [model("m")]}
    printing = f"!{spies.add('prints-key')}"
    spies.add("prints-key", "echo printed-by-a-command")
    named = f"!{spies.add('prints-named', 'echo printed-too')} $OF_MY_COMPANY"
    folders.configure(
        {
            "providers": {
                "mine": {**common, "apiKey": "$OF_MY_COMPANY"},
                "printed": {**common, "apiKey": printing},
                "named": {**common, "apiKey": named},
            }
        },
        {"shellPath": spies.add("bash"), "extensions": [str(folders.temp / "running.py")]},
    )
    (folders.temp / "running.py").write_text(EXTENSION)
    spies.add("of-extension")
    (folders.agent / "mcp.json").write_text(json.dumps({"mcpServers": {"one": {"command": spies.add("tool-server")}}}))
    return folders


def test_no_program_of_an_agent_sees_a_key(
    keys: AgentFolders, server: ModelServer, spies: Spies, environment: dict[str, str]
) -> None:
    spies.add("rg")
    (keys.work / "a.txt").write_text("needle\n")
    with RpcProcess(
        keys, "--tools", "+grep,+find,+run_spy,+mcp__one__nothing", "--model", "printed/m", env=environment
    ) as agent:
        made = [Call("bash", {"command": "true"}), Call("grep", {"pattern": "needle"}), Call("find", {"pattern": "*"})]
        begun = calls(agent, server, *made, Call("run_spy", {}), Call("mcp__one__nothing", {}))
        assert [failed for failed, _ in results(agent, begun)][:4] == [False] * 4
        agent.ask("bash", command="true")
        agent.ask("set_model", provider="named", modelId="m")
        server.answers("Done.")
        agent.run("go on")
    table = {"bash": {"HARMLESS"}, "of-extension": {"HARMLESS"}, "prints-key": {"HARMLESS"}, "tool-server": set()}
    assert {name: spies.seen_by(name)[0] for name in table} == table
    assert all(seen == table[name] for name in table for seen in spies.seen_by(name))
    # Those that Pigeon has chosen see what it has chosen; a command for a key sees the variable that it names.
    assert all(seen <= {"HARMLESS"} for seen in spies.seen_by("rg"))
    [*_, last] = spies.seen_by("prints-named")
    assert last == {"HARMLESS", "OF_MY_COMPANY"}


def test_no_program_of_a_batch_sees_a_key(
    keys: AgentFolders, server: ModelServer, spies: Spies, environment: dict[str, str]
) -> None:
    if not REAL["git"]:
        pytest.skip("there is no git on this machine")
    origin = keys.home / "origin"
    for command in (["init", "-q", str(origin)], ["-C", str(origin), "commit", "-q", "--allow-empty", "-m", "first"]):
        author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(
            [REAL["git"], *author, *command], check=True, env={"HOME": str(keys.home), "PATH": "/usr/bin:/bin"}
        )
    spies.add("git")
    server.answers(Call("bash", {"command": "echo changed > new"}))
    server.answers("Done.")
    tasks = keys.temp / "tasks.jsonl"
    task = {"id": "a", "prompt": "go", "workspace": {"git": str(origin)}, "check": {"command": "true"}}
    tasks.write_text(json.dumps(task))
    line = ["batch", str(tasks), "--model", "mine/m", "--out", str(keys.temp / "out")]
    done = subprocess.run(
        [*command_line(), *line], cwd=keys.work, env=keys.environment(environment), capture_output=True, text=True,
        timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(spies.seen_by("git")) > 3
    assert all(seen <= {"HARMLESS"} for seen in spies.seen_by("git")), spies.seen_by("git")
    assert spies.seen_by("bash"), "neither the tool nor the check was run"
    assert all(seen == {"HARMLESS"} for seen in spies.seen_by("bash"))


async def test_no_program_of_the_terminal_sees_a_key(
    keys: AgentFolders, spies: Spies, environment: dict[str, str]
) -> None:
    editor = spies.add("editor")
    assert edit_file("text", {**environment, "VISUAL": editor}, str(keys.agent))
    assert spies.seen_by("editor") == [{"HARMLESS"}]
    variables = keys.environment({**environment, "EDITOR": editor})
    line = [*command_line(), "config", "edit"]
    await asyncio.to_thread(subprocess.run, line, cwd=keys.work, env=variables, check=True, capture_output=True)
    assert spies.seen_by("editor") == [{"HARMLESS"}] * 2
    for name in ("wl-paste", "xclip", "pngpaste"):
        spies.add(name)

    class _View:
        def send_control(self, text: str) -> None: ...

    clipboard = Clipboard(_View(), str(keys.work), environment, str(spies.bin))  # type: ignore[arg-type]
    await clipboard.read_image()
    seen = [one for name in ("wl-paste", "xclip", "pngpaste") for one in spies.seen_by(name)]
    assert seen
    assert not any(one & set(KEYS) for one in seen)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees the environment of processes that hide it")
def test_no_helper_of_pigeon_sees_a_key(keys: AgentFolders, server: ModelServer, environment: dict[str, str]) -> None:
    with RpcProcess(keys, "--model", "mine/m", env=environment) as agent:
        agent.ask("bash", command="true")
        agent.ask("hello", features=["mcp"])
        agent.wait(lambda record: record["type"] == "mcp_server_changed")
        own = descendants_of(agent.pid)
        assert len(own) >= 2
        for pid in own:
            variables = Path(f"/proc/{pid}/environ").read_text("utf-8", "replace").split("\0")
            assert not [one for one in variables if set(one.partition("=")[::2]) & {*KEYS, *KEYS.values()}], pid


def descendants_of(pid: int) -> set[int]:
    found: set[int] = set()
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found |= {int(child)} | descendants_of(int(child))
    return found
