"""Which tools are active when extensions add some: options, the conversation and the settings together."""

from __future__ import annotations

import pytest

from pigeon.app.options import AgentOptions
from pigeon.config.settings import Settings
from pigeon.session.toolset import DeclaredTools
from pigeon.tools.setup import ToolChoice

BUILT_IN = ["read", "bash", "edit", "write", "grep", "ls", "todo"]
KNOWN = [*BUILT_IN, "deploy", "measure"]
BEFORE = DeclaredTools(["ls", "deploy", "gone"], {"ls", "deploy", "gone", "bash"})


@pytest.mark.parametrize(
    ("options", "listed", "declared", "active"),
    [
        (AgentOptions(), ["read"], None, ["read", "deploy", "measure"]),
        (AgentOptions(), ["read", "-deploy"], None, ["read", "measure"]),
        (AgentOptions(tools=("read",)), ["ls"], None, ["read"]),
        (AgentOptions(tools=("de*",)), ["ls"], None, ["deploy"]),
        (AgentOptions(tools=("-deploy", "+grep")), ["ls"], None, ["ls", "measure", "grep"]),
        (AgentOptions(no_builtin_tools=True), ["ls"], None, ["deploy", "measure"]),
        (AgentOptions(no_tools=True), ["ls"], BEFORE, []),
        (AgentOptions(exclude_tools=("*e*",)), ["ls", "bash"], None, ["ls", "bash"]),
        (AgentOptions(), ["read"], BEFORE, ["ls", "deploy", "measure"]),
        (AgentOptions(tools=("+bash",)), ["read"], BEFORE, ["ls", "deploy", "measure", "bash"]),
        (AgentOptions(no_builtin_tools=True), ["read"], BEFORE, ["deploy", "measure"]),
    ],
)
def test_tools_of_extensions_are_active_unless_something_says_otherwise(
    options: AgentOptions, listed: list[str], declared: DeclaredTools | None, active: list[str]
) -> None:
    assert ToolChoice(options, Settings(default_tools=listed), BUILT_IN).active(KNOWN, declared) == active


@pytest.mark.parametrize(
    ("options", "admitted"),
    [
        (AgentOptions(), True),
        (AgentOptions(tools=("read",)), False),
        (AgentOptions(tools=("la*",)), True),
        (AgentOptions(tools=("+ls",)), True),
        (AgentOptions(tools=("-later",)), False),
        (AgentOptions(exclude_tools=("l*",)), False),
        (AgentOptions(no_tools=True), False),
        (AgentOptions(no_tools=True, tools=("+later",)), True),
        (AgentOptions(no_builtin_tools=True), True),
    ],
)
def test_a_tool_that_appears_later_is_held_against_the_options(options: AgentOptions, admitted: bool) -> None:
    assert ToolChoice(options, Settings(), BUILT_IN).admits("later") is admitted
