"""Which tools the model has: built-in ones, those of the host, and deferred ones; and what a branch declares about
them.

A branch declares its tools in system messages. They are read when the branch is entered, so that a conversation
continues with the tools that it had, and another message is added when a run begins with other tools than the branch
has declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from pigeon.agent.inference import ToolSpec
from pigeon.agent.interfaces import Tool
from pigeon.agent.tool_facts import ToolFacts, make_default_facts
from pigeon.session.history.entry_line import EntryLine
from pigeon.wire.base import ABSENT
from pigeon.wire.messages import SystemMessage, ToolDeclaration, ToolReference


class DeclaredTools(Struct, frozen=True):
    """The declarations of a branch: the tools that are active after them, and all tools they have named."""

    active: list[str]
    named: set[str]


# Chooses the initial tools from all names, depending on what the branch declares, if anything.
Choose = Callable[[list[str], DeclaredTools | None], list[str]]


def declared_tools(branch: Sequence[EntryLine]) -> DeclaredTools | None:
    """All declarations of a branch together, even those before a compaction; None if there are none."""
    messages = [line.to_plain().get("message") for line in branch if line.role == "system"]
    if not messages:
        return None
    active: dict[str, None] = {}
    named: set[str] = set()
    for message in messages:
        for name in _names_in(message, "toolsRemoved"):
            active.pop(name, None)
            named.add(name)
        for name in _names_in(message, "toolsAdded"):
            active.setdefault(name)
            named.add(name)
    return DeclaredTools(list(active), named)


def _names_in(message: Any, key: str) -> list[str]:
    listed = message.get(key) if isinstance(message, dict) else None
    tools = [tool.get("name") for tool in listed if isinstance(tool, dict)] if isinstance(listed, list) else []
    return [name for name in tools if isinstance(name, str)]


class MissingTools:
    """Calls of unknown tools: a tool that may still appear has a stand-in, unless the options rule it out."""

    def __init__(self, callable_tools: Callable[[], dict[str, Tool]], admits: Callable[[str], bool]) -> None:
        self._callable = callable_tools
        self._admits = admits
        self._expected: Callable[[str], Tool | None] | None = None

    def set_stand_in(self, expected: Callable[[str], Tool | None]) -> None:
        """Set the function that returns a stand-in for such a name; the stand-in waits when it is run. An exception
        fails the call."""
        self._expected = expected

    def find_tool(self, name: str) -> Tool | None:
        """The tool of this name or its stand-in; None if it cannot appear. Raises `ToolFailed`."""
        tool = self._callable().get(name)
        if tool is None and self._expected is not None and self._admits(name):
            return self._expected(name)
        return tool


class Toolset:
    """All tools, and the names of the active ones in the order they are offered.

    `choose` picks the tools that a conversation begins with; without it they stay as they are. `admits` returns whether
    a tool that is registered later may become active. `facts_of` returns what tools declare, by name, even for tools
    that are not available.
    """

    def __init__(
        self,
        tools: dict[str, Tool],
        active: Iterable[str],
        choose: Choose | None = None,
        admits: Callable[[str], bool] = lambda name: True,
        facts_of: Callable[[str], ToolFacts] = make_default_facts,
    ) -> None:
        self._tools = dict(tools)
        self._lent: dict[str, Tool] = {}
        self._deferred: dict[str, Tool] = {}
        self._active = [name for name in active if name in self._tools]
        self._on_active_changed: Callable[[], None] = lambda: None
        self._choose = choose
        self._admits = admits
        self.facts_of = facts_of
        self._declared: DeclaredTools | None = None
        self._prepare: Callable[[], None] | None = None
        self.missing = MissingTools(self.callable_tools, admits)

    def admits(self, name: str) -> bool:
        """Whether the options let this tool become active."""
        return self._admits(name)

    def set_active_callback(self, on_changed: Callable[[], None]) -> None:
        """Call this whenever other tools are active."""
        self._on_active_changed = on_changed

    def _change_active(self, names: Iterable[str]) -> None:
        self._active = list(names)
        self._on_active_changed()

    def set_before_use_callback(self, prepare: Callable[[], None]) -> None:
        """Call this once, before the tools are next sent to a model."""
        self._prepare = prepare

    def restore_from_branch(self, branch: Sequence[EntryLine], *, restore: bool) -> None:
        """Switch to another branch. With `restore`, a conversation begins or resumes: its tools are chosen again."""
        self._declared = declared_tools(branch)
        if restore and self._choose is not None:
            lent = [name for name in self._active if name in self._lent]
            chosen = self._choose(list(self._tools), self._declared)
            self._change_active(dict.fromkeys([*chosen, *lent]))

    def make_declaration(self, now: Callable[[], int]) -> SystemMessage | None:
        """The message to record before the next request, or None if the branch has declared these tools.

        Tools that another agent has declared and that do not exist here stay declared.
        """
        prepare, self._prepare = self._prepare, None
        if prepare is not None:
            prepare()
        before = self._declared.active if self._declared else []
        added = [self._require_tool(name).spec for name in self._active if name not in before]
        removed = [name for name in before if name not in self._active and self.find_tool(name) is not None]
        if self._declared is not None and not added and not removed:
            return None
        foreign = [name for name in before if self.find_tool(name) is None]
        named = {*self._active, *(self._declared.named if self._declared else ())}
        self._declared = DeclaredTools([*self._active, *foreign], named)
        return SystemMessage(
            timestamp=now(),
            tools_added=[_declaration(spec) for spec in added] or ABSENT,
            tools_removed=[ToolReference(name=name) for name in removed] or ABSENT,
        )

    def replace_implementations(self, tools: dict[str, Tool]) -> None:
        """Replace implementations under the same names, as when the working directory changes."""
        self._tools.update(tools)

    def add(self, tool: Tool) -> None:
        """Add a tool that was registered later: active unless options, or the branch before, left it out."""
        name = tool.spec.name
        self._tools[name] = tool
        declared = self._declared
        if self._admits(name) and (declared is None or name in declared.active or name not in declared.named):
            self.activate_tool(name)

    def remove(self, name: str) -> None:
        """Remove a tool that was registered later."""
        self._tools.pop(name, None)
        self._deferred.pop(name, None)
        self._change_active(active for active in self._active if active != name or name in self._lent)

    def try_defer(self, tool: Tool) -> bool:
        """Add a tool that is not shown to the model, which may call it by name; returns False if the options exclude
        it.

        A tool that the branch before had active is active again.
        """
        name = tool.spec.name
        if not self._admits(name):
            return False
        if self._declared is not None and name in self._declared.active:
            self.add(tool)
        else:
            self._deferred[name] = tool
        return True

    def try_activate_deferred(self, name: str) -> bool:
        """Make a deferred tool active, after all others; returns False if there is none of this name."""
        tool = self._deferred.pop(name, None)
        if tool is None:
            return False
        self._tools[name] = tool
        self.activate_tool(name)
        return True

    def is_active(self, name: str) -> bool:
        return name in self._active

    def is_deferred(self, name: str) -> bool:
        """Whether this tool is available but not shown to the model."""
        return name in self._deferred

    def activate_tool(self, name: str) -> None:
        """Activate a tool; does nothing if it is unknown or already active."""
        if name not in self._active and (name in self._tools or name in self._lent):
            self._change_active([*self._active, name])

    def is_name_taken(self, name: str) -> bool:
        """True if an active tool of our own has this name."""
        return name in self._active and name not in self._lent

    def set_host_tools(self, tools: dict[str, Tool], shown: Iterable[str]) -> None:
        """Replace the host's tools; a name that existed before stays active or inactive."""
        before = self._lent
        self._lent = dict(tools)
        self._change_active(name for name in self._active if name in tools or name not in before)
        for name in shown:
            if name not in before:
                self.activate_tool(name)

    def find_tool(self, name: str) -> Tool | None:
        """The tool, active or not, or None."""
        return self._lent.get(name) or self._tools.get(name)

    def all_tools(self) -> list[Tool]:
        return list({**self._tools, **self._deferred, **self._lent}.values())

    def all_names(self) -> list[str]:
        """The names of all tools, without asking these for more."""
        return list({**self._tools, **self._deferred, **self._lent})

    def set_active(self, names: Iterable[str]) -> None:
        """Activate exactly these tools; unknown names are left out."""
        self._change_active(name for name in dict.fromkeys(names) if name in self._tools or name in self._lent)

    def active_tools(self) -> dict[str, Tool]:
        return {name: self._require_tool(name) for name in self._active}

    def callable_tools(self) -> dict[str, Tool]:
        """The active and the deferred tools."""
        return {**self._deferred, **self.active_tools()} if self._deferred else self.active_tools()

    def specs(self) -> list[ToolSpec]:
        return [self._require_tool(name).spec for name in self._active]

    def describe_tools(self) -> tuple[list[tuple[str, str, ToolFacts]], list[str]]:
        """Name, one line and facts of each active tool, and the advice of their authors, for the system prompt."""
        tools = self.active_tools().values()
        lines = [(tool.spec.name, getattr(tool, "snippet", ""), self.facts_of(tool.spec.name)) for tool in tools]
        advice = [line for tool in tools for line in getattr(tool, "guidelines", ())]
        return lines, list(dict.fromkeys(advice))

    def _require_tool(self, name: str) -> Tool:
        return self._lent[name] if name in self._lent else self._tools[name]


def _declaration(spec: ToolSpec) -> ToolDeclaration:
    return ToolDeclaration(name=spec.name, description=spec.description, parameters=spec.parameters)
