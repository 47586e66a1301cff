"""The built-in tools: the one list of them, what each declares by name, and how they are made for a working directory.

Code that only has the name of a tool calls `facts_of` here: permissions, exports, front ends. This imports every tool,
none of which imports anything heavy before it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from pigeon.agent.tool_facts import ToolFacts, make_default_facts
from pigeon.tools.base import BaseTool, ToolParts
from pigeon.tools.bash import BashTool
from pigeon.tools.edit import EditTool
from pigeon.tools.find import FindTool
from pigeon.tools.grep import GrepTool
from pigeon.tools.jobs import JobsTool
from pigeon.tools.ls import LsTool
from pigeon.tools.read import ReadTool
from pigeon.tools.server_tools import PREFIX, SEARCH, SEARCH_FACTS, server_tool_facts
from pigeon.tools.task import TaskTool
from pigeon.tools.todo import TodoTool
from pigeon.tools.write import WriteTool
from pigeon.wire.choices import ToolOffer

# In the order in which models see them.
TOOLS: list[type[BaseTool]] = [
    ReadTool,
    BashTool,
    EditTool,
    WriteTool,
    GrepTool,
    FindTool,
    LsTool,
    TodoTool,
    TaskTool,
    JobsTool,
]
DEFAULT_TOOLS = (ReadTool.name, BashTool.name, EditTool.name, WriteTool.name)
# What a new session has besides, where a front end or host shows it.
OFFERED_TOOLS: dict[ToolOffer, tuple[str, ...]] = {
    "plans": (TodoTool.name,),
    "agents": (TaskTool.name, JobsTool.name),
}
# Rules for these also apply to files that a command reads and writes by redirection; searching counts as reading.
READ, WRITE = ReadTool.name, WriteTool.name
# The tool for which a host's terminal is shown.
SHELL = BashTool.name


@cache
def all_facts() -> Mapping[str, ToolFacts]:
    """The declarations of all of Pigeon's own tools, by name."""
    return {**{tool.name: tool.facts for tool in TOOLS}, SEARCH: SEARCH_FACTS}


@lru_cache(maxsize=256)
def facts_of(name: str) -> ToolFacts:
    """The facts of a tool by its name. A tool that replaces a built-in one gets that one's facts."""
    declared = all_facts().get(name)
    if declared is not None:
        return declared
    return server_tool_facts(name) if name.startswith(PREFIX) else make_default_facts(name)


def facts_of_recorded(name: str) -> ToolFacts:
    """The same for a name in a session that another agent may have recorded: in any case, under any known name."""
    lower = name.lower()
    for known, facts in all_facts().items():
        if lower == known or lower in facts.other_names:
            return facts
    return facts_of(name)


def built_in_names() -> frozenset[str]:
    """The names of all tools that come with Pigeon."""
    return frozenset(all_facts())


def list_plan_tool_names() -> tuple[str, ...]:
    """The names under which calls that change the plan may be recorded."""
    return tuple(
        name for known, facts in all_facts().items() if facts.kind == "plan" for name in (known, *facts.other_names)
    )


def built_in_tools(parts: ToolParts) -> dict[str, BaseTool]:
    """All built-in tools for one working directory; the toolset of the session says which are active."""
    made = (tool.create(parts) for tool in TOOLS)
    return {tool.name: tool for tool in made if tool is not None}
