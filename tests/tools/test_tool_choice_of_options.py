"""Which tools are active when extensions add some: options, the conversation and the settings together."""

from __future__ import annotations

import pytest

from pigeon.config.settings import Settings
from pigeon.session.toolset import DeclaredTools
from pigeon.tools.agent_tools import ToolChoice, ToolOptions
from pigeon.tools.catalog import DEFAULT_TOOLS
from pigeon.wire.choices import TOOL_OFFERS

OFFERED = ["todo", "task", "jobs"]
BUILT_IN = ["read", "bash", "edit", "write", "grep", "ls", *OFFERED]
KNOWN = [*BUILT_IN, "deploy", "measure"]
BEFORE = DeclaredTools(["ls", "deploy", "gone"], {"ls", "deploy", "gone", "bash"})


@pytest.mark.parametrize(
    ("options", "listed", "declared", "active"),
    [
        (ToolOptions(), ["read"], None, ["read", "deploy", "measure"]),
        (ToolOptions(), ["read", "-deploy"], None, ["read", "measure"]),
        (ToolOptions(tools=("read",)), ["ls"], None, ["read"]),
        (ToolOptions(tools=("de*",)), ["ls"], None, ["deploy"]),
        (ToolOptions(tools=("-deploy", "+grep")), ["ls"], None, ["ls", "measure", "grep"]),
        (ToolOptions(no_builtin_tools=True), ["ls"], None, ["deploy", "measure"]),
        (ToolOptions(no_tools=True), ["ls"], BEFORE, []),
        (ToolOptions(exclude_tools=("*e*",)), ["ls", "bash"], None, ["ls", "bash"]),
        (ToolOptions(), ["read"], BEFORE, ["ls", "deploy", "measure"]),
        (ToolOptions(tools=("+bash",)), ["read"], BEFORE, ["ls", "deploy", "measure", "bash"]),
        (ToolOptions(no_builtin_tools=True), ["read"], BEFORE, ["deploy", "measure"]),
    ],
)
def test_tools_of_extensions_are_active_unless_something_says_otherwise(
    options: ToolOptions, listed: list[str], declared: DeclaredTools | None, active: list[str]
) -> None:
    assert ToolChoice(options, Settings(default_tools=listed), BUILT_IN).choose_active_tools(KNOWN, declared) == active


@pytest.mark.parametrize(
    ("settings", "declared", "active"),
    [
        (Settings(), None, [*DEFAULT_TOOLS, *OFFERED, "deploy", "measure"]),
        (Settings(default_tools=["+grep"]), None, [*DEFAULT_TOOLS, *OFFERED, "deploy", "measure", "grep"]),
        (Settings(default_tools=["-todo", "-task"]), None, [*DEFAULT_TOOLS, "jobs", "deploy", "measure"]),
        (Settings(default_tools=["read"]), None, ["read", "deploy", "measure"]),
        (Settings(), BEFORE, ["ls", "deploy", "measure"]),
    ],
)
def test_what_is_shown_has_its_tools_unless_the_settings_name_all_tools(
    settings: Settings, declared: DeclaredTools | None, active: list[str]
) -> None:
    assert (
        ToolChoice(ToolOptions(offers=TOOL_OFFERS), settings, BUILT_IN).choose_active_tools(KNOWN, declared) == active
    )


@pytest.mark.parametrize(
    ("options", "admitted"),
    [
        (ToolOptions(), True),
        (ToolOptions(tools=("read",)), False),
        (ToolOptions(tools=("la*",)), True),
        (ToolOptions(tools=("+ls",)), True),
        (ToolOptions(tools=("-later",)), False),
        (ToolOptions(exclude_tools=("l*",)), False),
        (ToolOptions(no_tools=True), False),
        (ToolOptions(no_tools=True, tools=("+later",)), True),
        (ToolOptions(no_builtin_tools=True), True),
    ],
)
def test_a_tool_that_appears_later_is_held_against_the_options(options: ToolOptions, admitted: bool) -> None:
    assert ToolChoice(options, Settings(), BUILT_IN).can_activate("later") is admitted
