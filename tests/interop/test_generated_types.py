"""Types that real generators make of the schema: none is missing, and they fit what the real program says and takes.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; see `support/installed_programs.py` for where the generators go. The
versions and the commands are those of docs/protocol.md.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes import contract_extension
from fakes.model_server import Call, ModelServer, Thinking
from fakes.strict_client import FILE, published_schema
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess
from support.installed_programs import node, npm_package, only_on_request, python_with
from support.source_tree import ROOT

pytestmark = only_on_request
CLIENTS = Path(__file__).parent / "clients"
PAGE = (ROOT / "docs" / "protocol.md").read_text("utf-8")
DIALECTS = ("pi", "pi-latest", "pi-0.73", "omp", "xcsh", "companion")
QUESTIONS = (
    "get_state", "get_messages", "get_last_assistant_text", "get_session_stats", "get_commands", "get_integrations",
    "cycle_model", "get_available_models", "cycle_thinking_level", "get_available_thinking_levels", "get_entries",
    "get_tree", "get_fork_messages", "list_sessions", "get_permissions", "get_trust", "get_messages_page", "compact",
    "export_html", "clear_queue", "new_session", "abort",
)  # fmt: skip


def command_on_page(name: str) -> list[str]:
    """The command of the page that begins like this, as words."""
    found = re.search(rf"^ {{4}}({re.escape(name)} .+)$", PAGE, re.MULTILINE)
    assert found is not None
    return shlex.split(found[1].partition(" > ")[0])


def version_of(package: str) -> str:
    """The version that the page names."""
    found = re.search(rf"{package}[@=]+([\d.]+)", PAGE)
    assert found is not None
    return found[1]


class Recorded:
    """What was said and sent in one conversation per dialect."""

    def __init__(self, folder: Path) -> None:
        self.told: list[bytes] = []
        self.sent: list[bytes] = []
        for dialect in DIALECTS:
            home = folder / dialect
            home.mkdir()
            self._converse(AgentFolders(home), dialect)

    def _converse(self, folders: AgentFolders, dialect: str) -> None:
        with ModelServer() as server:
            folders.configure(providers(server.url))
            options = ("--provider", "fake", "--model", "fake-1", "--dialect", dialect)
            with RpcProcess(folders, *options, "--extension", contract_extension.__file__) as agent:
                self._send(agent, {"id": 0, "type": "hello", "features": ["seq", "permissions"]})
                server.answers(Thinking("Let me see."), "Looking.", Call("bash", {"command": "echo found"}))
                server.answers("It was there.")
                self._send(agent, {"id": "p", "type": "prompt", "message": "look"})
                agent.wait_event("agent_end")
                self._send(agent, {"id": "b", "type": "bash", "command": "echo two"}, {"id": "u", "type": "no_such"})
                server.answers("A summary.")
                for question in QUESTIONS:
                    self._send(agent, {"id": question, "type": question})
                    if dialect != "companion":
                        agent.response(question)
            self.told += agent.raw

    def _send(self, agent: RpcProcess, *records: dict[str, Any]) -> None:
        agent.send(*records)
        self.sent += [json.dumps(record).encode() for record in records if record["type"] != "no_such"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(FILE, tmp_path)
    return tmp_path


def succeeds(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def test_typescript_has_every_type_and_they_fit(recorded: Recorded, folder: Path) -> None:
    npx, option, tool, *arguments = command_on_page("npx")
    assert (npx, option) == ("npx", "--yes")
    name, _, version = tool.partition("@")
    package = npm_package(name, version, "typescript@5.9.3")
    generator = package / json.loads((package / "package.json").read_text())["bin"]["json2ts"]
    text = succeeds([node(), str(generator), *arguments], folder)
    assert set(re.findall(r"^export (?:type|interface) (\w+)", text, re.MULTILINE)) == types()
    (folder / "protocol.ts").write_text(text)
    # An index signature would allow members that the schema does not name, so lines are held against closed types.
    closed = succeeds([node(), str(generator), "--no-additionalProperties", *arguments], folder)
    (folder / "closed.ts").write_text(closed)
    lists = {"agentLines: AgentLine": recorded.told, "hostLines: HostLine": recorded.sent}
    for file, module in (("lines.ts", "protocol"), ("closed_lines.ts", "closed")):
        body = [f'import type {{ AgentLine, HostLine }} from "./{module}";']
        body += [f"export const {head}[] = [\n{_join_lines(lines)}\n];" for head, lines in lists.items()]
        (folder / file).write_text("\n".join(body))
    shutil.copy(CLIENTS / "generated_types.ts", folder)
    compiler = package.parent / "typescript" / "bin" / "tsc"
    files = ["generated_types.ts", "closed_lines.ts"]
    succeeds([node(), str(compiler), "--strict", "--noEmit", "--target", "es2022", *files], folder)


def test_python_has_every_type_and_they_fit(recorded: Recorded, folder: Path) -> None:
    python = python_with(f"datamodel-code-generator=={version_of('datamodel-code-generator')}")
    _, *arguments = command_on_page("datamodel-codegen")
    options = ["--snake-case-field", "--disable-timestamp", "--formatters", "builtin"]
    succeeds([str(python), "-m", "datamodel_code_generator", *arguments, *options], folder)
    text = (folder / "protocol.py").read_text("utf-8")
    assert set(re.findall(r"^class (\w+)", text, re.MULTILINE)) == types()
    shutil.copy(CLIENTS / "generated_types.py", folder)
    for name, lines in (("told", recorded.told), ("sent", recorded.sent)):
        (folder / name).write_bytes(b"".join(line + b"\n" for line in lines))
    seen = json.loads(succeeds([str(python), "generated_types.py", "told", "sent"], folder))
    assert seen["differing"] == []
    assert seen["sessions"] >= len(DIALECTS) - 1
    assert seen["text"].startswith("Looking.It was there.")
    assert seen["refused"] is True
    files = ["protocol.py", "generated_types.py"]
    succeeds([sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), *files], folder)


def types() -> set[str]:
    """What a generator has to make: every definition, and the root."""
    return {*published_schema()["$defs"], published_schema()["title"]}


def _join_lines(lines: list[bytes]) -> str:
    return ",\n".join(line.decode("utf-8") for line in lines)
