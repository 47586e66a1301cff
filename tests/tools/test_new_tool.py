"""A tool that only the catalogue knows is handled everywhere by what it declares: no other package lists tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fakes.agent_loop import answer_with_calls
from fakes.tool_run import tool_parts, workplace
from pigeon.agent.interfaces import ArgumentSubject, PathSubject
from pigeon.agent.tool_facts import ToolFacts
from pigeon.export.markdown import TextFormatter
from pigeon.export.tool_html import call_html
from pigeon.frontends.acp.editions.tool_views import DiffPiece, Location, outcome_pieces, proposed_pieces, view_of_call
from pigeon.frontends.terminal.blocks import ToolCard
from pigeon.frontends.terminal.content.tool_details import details_of
from pigeon.permissions.rules import PermissionLayers, parse_host_rules, parse_rule, ruling_of
from pigeon.resources.system_prompt import SHELL_EXPLORES, compose_system_prompt
from pigeon.session.compaction.summarizer import TouchedFiles
from pigeon.system.paths import PathResolver
from pigeon.system.process.start import ProcessOwner
from pigeon.tools import catalog
from pigeon.tools.base import BaseTool, ToolParts
from pigeon.wire.base import Json
from pigeon.wire.content import TextContent, ToolCall
from pigeon.wire.events import ToolOutcome
from pigeon.wire.messages import ToolResultMessage


class PatchTool(BaseTool):
    name = "patch"
    description = "Change a file."
    parameters: ClassVar[dict[str, Json]] = {"type": "object", "properties": {"target": {"type": "string"}}}
    facts = ToolFacts(lambda arguments: f"Patch {arguments.get('target')}", kind="edit", path="target", line="at")

    @classmethod
    def create(cls, parts: ToolParts) -> PatchTool:
        return cls()


class LookTool(PatchTool):
    name = "look"
    facts = ToolFacts(lambda arguments: f"Look at {arguments.get('place')}", kind="search", path="place")


@pytest.fixture(autouse=True)
def new_tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(catalog, "TOOLS", [*catalog.TOOLS, PatchTool, LookTool])
    forget_facts()
    yield
    forget_facts()


def forget_facts() -> None:
    """What a program knows of its tools never changes, so it is looked up once."""
    catalog.all_facts.cache_clear()
    catalog.facts_of.cache_clear()


def verdict(tool: str, mode: Any) -> str:
    rules = PermissionLayers(host=parse_host_rules({}, mode))
    return ruling_of(rules, tool, ArgumentSubject({}), PathResolver("/", "/")).verdict


def card(name: str, **arguments: Any) -> str:
    result = ToolResultMessage(
        tool_call_id="c", tool_name=name, content=[TextContent(text="ok")], is_error=False, timestamp=1
    )
    return call_html(ToolCall(id="c", name=name, arguments=arguments), result, TextFormatter())


def test_it_is_made_with_the_others(tmp_path: Path) -> None:
    tools = catalog.built_in_tools(tool_parts(workplace(tmp_path, ProcessOwner())))
    assert list(tools)[-2:] == ["patch", "look"]


def test_approval_modes_go_by_its_kind() -> None:
    modes = ("always-ask", "write", "yolo")
    assert [verdict("patch", mode) for mode in modes] == ["ask", "allow", "allow"]
    assert [verdict("look", mode) for mode in modes] == ["allow", "allow", "allow"]
    assert [verdict("unknown", mode) for mode in modes] == ["ask", "ask", "allow"]


def test_rules_match_the_argument_that_it_is_about() -> None:
    rule = parse_rule("PATCH(a=b)")
    assert rule is not None
    assert (rule.tool, rule.argument, rule.pattern) == ("patch", None, "a=b")
    other = parse_rule("Unknown(a=b)")
    assert other is not None
    assert (other.tool, other.argument, other.pattern) == ("Unknown", "a", "b")


def test_rules_for_reading_hold_for_a_search(tmp_path: Path) -> None:
    (tmp_path / "a.key").write_text("")
    paths = PathResolver(str(tmp_path), "/")
    rules = PermissionLayers(host=parse_host_rules({"deny": ["read(*.key)"]}, "yolo"))
    with paths.hold_path("a.key") as held:
        assert ruling_of(rules, "look", PathSubject(held, "search"), paths).verdict == "deny"


def test_an_export_shows_its_change_and_marks_its_card() -> None:
    made = card("patch", path="a.py", oldText="one", newText="two")
    assert 'class="card changing"' in made
    assert "<del" in made
    assert 'class="card"' in card("look", pattern="x", path="src")
    assert "<code>x in src</code>" in card("look", pattern="x", path="src")


def test_the_terminal_shows_what_it_wrote() -> None:
    written = ToolCard("1", "patch", {"target": "a.py", "content": "one\ntwo\n"}, 0.0, "ok", seconds=1.0)
    assert details_of(written, "…").lines == ["one", "two"]
    assert details_of(ToolCard("1", "unknown", {"content": "one"}, 0.0, "ok", seconds=1.0), "…").lines == ["ok"]


def test_an_editor_sees_its_kind_title_and_place() -> None:
    view = view_of_call("1", "patch", {"target": "a.py", "at": 7}, "/work", "/home")
    assert (view.kind, view.title, view.locations) == ("edit", "Patch a.py", [Location("/work/a.py", 7)])
    assert view_of_call("1", "look", {"place": "src"}, "/work", "/home").kind == "search"
    assert outcome_pieces("patch", ToolOutcome(content=[TextContent(text="done")]), False) == []
    edits = {"target": "a.py", "edits": [{"oldText": "one", "newText": "two"}]}
    assert proposed_pieces("patch", edits, None, "/work", "/home") == [DiffPiece("/work/a.py", "one", "two")]


def test_a_summary_lists_the_file_that_it_changed() -> None:
    files = TouchedFiles(catalog.facts_of)
    files.add_messages([answer_with_calls(("patch", {"target": "a.py"}))])
    assert files.details() == {"readFiles": [], "modifiedFiles": ["a.py"]}


def test_the_system_prompt_goes_by_its_kind() -> None:
    def prompt(*names: str) -> str:
        return compose_system_prompt("/", [(name, "", catalog.facts_of(name)) for name in names])

    assert SHELL_EXPLORES in prompt("bash")
    assert SHELL_EXPLORES not in prompt("bash", "look")
    assert SHELL_EXPLORES in prompt("bash", "tool_search")
    assert "Commit only when asked" in prompt("patch")
    assert "Commit only when asked" not in prompt("look")
