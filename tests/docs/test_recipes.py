"""Three recipes of AGENTS.md, carried out in a copy of the source: add a command, a tool, an event.

Each changes only the files that its recipe promises, and names nothing there that is declared elsewhere. The copy then
has to work as a real `pigeon --mode rpc`. What recipes add besides (generated files, pages, tests) has its own tests.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from house_facts import declared_names, facts_in

from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess
from support.source_tree import ROOT, TREE

START = "import sys; from pigeon.cli.main import main; sys.argv[0] = 'pigeon'; sys.exit(main())"

COMMAND_LIST = "CHANGES: tuple[type[Command], ...] = (GetChanges,)\n"
COMMAND_RECORD = '''class Greeted(Record, kw_only=True):
    """Answer of `greet`."""

    text: str


class Greet(Command, tag="greet", kw_only=True):
    """Returns a greeting."""

    answer = Greeted
    required_scope = "read"
    name: str


CHANGES: tuple[type[Command], ...] = (GetChanges, Greet)
'''
COMMAND_HANDLER = """
from pigeon.wire.commands import Greet, Greeted, SetTodos


@handles(Greet)
def greet(cmd: Greet, s: Session) -> Greeted:
    return Greeted(text=f"Hello, {cmd.name}!")
"""
TOOL_IMPORT = "from pigeon.tools.todo import TodoTool\n"
TOOL = '''"""shout: a text in capitals."""

from __future__ import annotations

from typing import ClassVar

from pigeon.agent.interfaces import ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.tools.base import BaseTool, ToolParts, make_text_outcome
from pigeon.wire.base import Json
from pigeon.wire.events import ToolOutcome


class ShoutTool(BaseTool):
    """Repeats a text in capitals."""

    name = "shout"
    description = "Repeat a text in capitals."
    parameters: ClassVar[dict[str, Json]] = {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    }
    snippet = "Repeat a text in capitals"
    reads_only = True
    facts = ToolFacts(lambda arguments: f"Shout {arguments.get('text')}", kind="read")

    @classmethod
    def create(cls, parts: ToolParts) -> ShoutTool:
        return cls()

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        return make_text_outcome(str(arguments["text"]).upper())
'''
EVENT_LIST = "ALL: tuple[type[Record], ...] = (\n"
EVENT_RECORD = '''class NameSpoken(Event, tag="name_spoken", kw_only=True):
    """The conversation has a name; only for hosts with the feature `selection`."""

    feature = "selection"

    name: str


ALL: tuple[type[Record], ...] = (
    NameSpoken,
'''
EVENT_IMPORT = "from pigeon.wire.events import SessionInfoChanged\n"
PUBLISHED = "    s.bus.post(SessionInfoChanged(name=name))\n"


class SourceCopy:
    """A copy of the source in which recipes are carried out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._package = root / "src" / "pigeon"
        self._changed: set[str] = set()
        # Compiled modules stay valid, because files keep their times.
        shutil.copytree(ROOT / "src" / "pigeon", self._package, ignore=shutil.ignore_patterns("docs"))
        (self._package / "docs").symlink_to(ROOT / "docs")
        shutil.copy2(ROOT / "pyproject.toml", root)

    def create(self, path: str, text: str) -> None:
        (self._package / path).write_text(text, "utf-8")

    def replace(self, path: str, old: str, new: str) -> None:
        file = self._package / path
        text = file.read_text("utf-8")
        assert text.count(old) == 1, f"the recipe does not fit {path} any more"
        file.write_text(text.replace(old, new), "utf-8")

    def newly_changed(self) -> list[str]:
        """The files of the package that differ from this checkout, and did not when this was last called."""
        files = (path for path in self._package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        names = (str(path.relative_to(self._package)) for path in files)
        changed = {name for name in names if not _is_same(self._package / name, ROOT / "src" / "pigeon" / name)}
        found, self._changed = changed - self._changed, changed
        return sorted(found)

    def start_agent(self, folders: AgentFolders, *args: str) -> RpcProcess:
        return RpcProcess(folders, "--no-session", *args, program=[sys.executable, "-c", START], env=self._variables())

    def parse(self, path: str) -> ast.Module:
        return ast.parse((self._package / path).read_text("utf-8"))

    def _variables(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.root / "src")}


def _is_same(copy: Path, original: Path) -> bool:
    return original.exists() and copy.read_bytes() == original.read_bytes()


def add_command(copy: SourceCopy) -> list[str]:
    copy.replace("wire/commands/changes.py", COMMAND_LIST, COMMAND_RECORD)
    copy.replace("rpc/handlers/todos.py", "from pigeon.wire.commands import SetTodos\n", COMMAND_HANDLER)
    return copy.newly_changed()


def add_tool(copy: SourceCopy) -> list[str]:
    copy.create("tools/shout.py", TOOL)
    copy.replace("tools/catalog.py", TOOL_IMPORT, f"from pigeon.tools.shout import ShoutTool\n{TOOL_IMPORT}")
    copy.replace("tools/catalog.py", "    TodoTool,\n", "    TodoTool,\n    ShoutTool,\n")
    return copy.newly_changed()


def add_event(copy: SourceCopy) -> list[str]:
    copy.replace("wire/events.py", EVENT_LIST, EVENT_RECORD)
    copy.replace("rpc/handlers/sessions.py", EVENT_IMPORT, EVENT_IMPORT.replace("import", "import NameSpoken,"))
    copy.replace("rpc/handlers/sessions.py", PUBLISHED, f"{PUBLISHED}    s.bus.post(NameSpoken(name=name))\n")
    return copy.newly_changed()


class Recipes(NamedTuple):
    """The copy with all three carried out, and the files that each has changed."""

    copy: SourceCopy
    command: list[str]
    tool: list[str]
    event: list[str]


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Recipes:
    copy = SourceCopy(tmp_path_factory.mktemp("recipes"))
    return Recipes(copy, add_command(copy), add_tool(copy), add_event(copy))


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    return AgentFolders(tmp_path)


def _promised_files(change: str) -> int:
    """How many files of the source the recipe says that a change needs."""
    page = (ROOT / "AGENTS.md").read_text("utf-8")
    [promised] = re.findall(rf"^\| {change} \|.+?\((\d+) files\)", page, re.MULTILINE)
    return int(promised)


def test_a_command_is_one_record_and_one_handler(recipes: Recipes, folders: AgentFolders) -> None:
    assert len(recipes.command) == _promised_files("a command")
    assert recipes.command == ["rpc/handlers/todos.py", "wire/commands/changes.py"]
    with recipes.copy.start_agent(folders, "--model", "demo") as agent:
        assert agent.ask("greet", name="Ada") == {"text": "Hello, Ada!"}
        assert "name" in agent.request("greet")["error"]


def test_a_tool_is_one_module_and_its_line_in_the_catalogue(recipes: Recipes, folders: AgentFolders) -> None:
    assert len(recipes.tool) == _promised_files("a tool")
    assert recipes.tool == ["tools/catalog.py", "tools/shout.py"]
    call = {"name": "shout", "arguments": {"text": "done"}}
    rules = [
        {"when": {"toolResult": "DONE"}, "reply": "I have shouted."},
        {"when": {"tool": "shout"}, "reply": {"toolCalls": [call]}},
    ]
    (folders.work / "replies.json").write_text(json.dumps({"rules": rules, "default": "There is no such tool."}))
    with recipes.copy.start_agent(folders, "--model", "scripted/replies.json", "--tools", "+shout") as agent:
        [end] = [one for one in agent.run("shout") if one["type"] == "tool_execution_end"]
        assert end["toolName"] == "shout"
        assert end["result"]["content"] == [{"type": "text", "text": "DONE"}]
        assert agent.ask("get_last_assistant_text")["text"] == "I have shouted."


def test_an_event_is_one_record_and_its_publisher(recipes: Recipes, folders: AgentFolders) -> None:
    assert len(recipes.event) == _promised_files("an event")
    assert recipes.event == ["rpc/handlers/sessions.py", "wire/events.py"]
    assert _names_spoken(recipes.copy, folders, ["selection"]) == ["bird"]
    assert _names_spoken(recipes.copy, folders, ["permissions", "trust"]) == []


def _names_spoken(copy: SourceCopy, folders: AgentFolders, features: list[str]) -> list[str]:
    """The names in the new event that a client with these features is sent."""
    with copy.start_agent(folders, "--model", "demo") as agent:
        agent.ask("hello", features=features)
        agent.ask("set_session_name", name="bird")
        assert agent.ask("get_state")["sessionName"] == "bird"
        return [one["name"] for one in agent.since(0, "name_spoken")]


def test_each_fact_is_still_named_only_at_its_declaration(recipes: Recipes) -> None:
    names = declared_names(TREE)
    names["tool"] |= {"shout"}
    for path in (*recipes.command, *recipes.tool, *recipes.event):
        assert list(facts_in(recipes.copy.parse(path), Path(path), names)) == []
