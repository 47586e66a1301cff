"""Which server tools are in the prompt, and which the model has to find: a token budget, and `tool_search`.

As long as all of them fit into the budget, all are in the prompt. Beyond it, no further ones are added: they are
deferred, and only `tool_search` itself costs tokens, however many they are. A tool that is in the prompt keeps its
place, because providers cache prompts by their beginning; a tool that was found or called is added after all others.
A server's instructions go with the first of its tools in the prompt, or with the results of a search.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from pigeon.agent.inference import ToolSpec
from pigeon.agent.interfaces import ArgumentTool, ToolRun
from pigeon.mcp.connector.records import OfferedTool
from pigeon.mcp.server import ToolServer, wait_for_servers
from pigeon.mcp.server_tool import ServerTool
from pigeon.mcp.tool_names import make_distinct_names
from pigeon.session.toolset import Toolset
from pigeon.system.shell.shell import Workplace
from pigeon.tools.server_tools import SEARCH, SEARCH_FACTS
from pigeon.wire.base import Json
from pigeon.wire.content import TextContent
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome
from pigeon.wire.tokens import CHARACTERS_PER_TOKEN

FOUND = 5
MOST_FOUND = 20
MOST_NAMED = 30
LONGEST_ABOUT = 160
_WORD = r"[A-Za-z0-9]+"
_PARTS = r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+"


class OfferedTools:
    """The tools of all servers of an agent."""

    def __init__(
        self, toolset: Toolset, workplace: Callable[[], Workplace], budget: int, begin: Callable[[], None]
    ) -> None:
        """`begin` connects all servers; it is called when a tool is searched for."""
        self.begin = begin
        self._toolset = toolset
        self._workplace = workplace
        self._budget = budget
        self._tools: dict[str, dict[str, ServerTool]] = {}
        self._shown: set[str] = set()
        self._found: set[str] = set()
        self._in_run = False
        self._search: ToolSearch | None = None

    def set_servers(self, servers: Sequence[ToolServer]) -> None:
        """Set the configured servers; the first time, `tool_search` is added."""
        usable = [server for server in servers if server.config.enabled and server.config.problem is None]
        for name in set(self._tools) - {server.config.name for server in usable}:
            self._replace_server_tools(name, {})
            del self._tools[name]
        if self._search is None and usable:
            self._search = ToolSearch(usable, self)
        elif self._search is not None:
            self._search.set_servers(usable)
        for server in usable:
            # A server that has come or gone may have a claim on names of another.
            listed = self._tools.get(server.config.name)
            if (
                listed is not None
                and server.was_listed
                and listed.keys() != (named := self._named_tools(server)).keys()
            ):
                self._update_server(server, named)
        self._arrange_tools()

    def update_tools(self, server: ToolServer) -> None:
        """Take over the tools that a server has listed."""
        self._update_server(server, self._named_tools(server))
        self._arrange_tools()

    def _named_tools(self, server: ToolServer) -> dict[str, OfferedTool]:
        """The tools of a server that its configuration allows, by their full names."""
        config = server.config
        wanted = [tool for tool in server.tools if _is_wanted(tool.name, config.only_tools, config.without_tools)]
        others = [one.config.name for one in self._search.servers] if self._search is not None else []
        names = make_distinct_names(config.name, [tool.name for tool in wanted], others)
        return {names[tool.name]: tool for tool in wanted if tool.name in names}

    def _update_server(self, server: ToolServer, named: dict[str, OfferedTool]) -> None:
        tools = {
            name: ServerTool(name, tool, server, self._workplace, self.load_deferred_tool)
            for name, tool in named.items()
        }
        self._replace_server_tools(server.config.name, tools)

    def on_run_start(self) -> None:
        """Called when a request is being made: the tools in it keep their places from now on."""
        self._in_run = True
        self._add_server_instructions()
        self._shown |= {name for name in self._tools_by_name() if self._toolset.is_active(name)}

    def load_deferred_tool(self, name: str) -> None:
        """Add a tool that the model has found or called to the prompt, from the next request on."""
        if self._toolset.try_activate_deferred(name):
            self._shown.add(name)
            self._found.add(name)

    def list_callable_names(self, server: str) -> list[str]:
        """The tools of a server that the model may call."""
        return [name for name in self._tools.get(server, {}) if self._is_callable(name)]

    def count_deferred(self, server: str) -> int:
        """How many tools of a server the model has to find first."""
        return sum(self._toolset.is_deferred(name) for name in self._tools.get(server, {}))

    def find_tool(self, name: str) -> ServerTool | None:
        """The tool of this name, if the model may call it."""
        return self._tools_by_name().get(name) if self._is_callable(name) else None

    def search_tools(self, query: str, most: int) -> list[ServerTool]:
        """The tools that match a query best; exact names come first."""
        tools = [tool for name, tool in self._tools_by_name().items() if self._is_callable(name)]
        return rank_tools(query, tools)[:most]

    @property
    def count(self) -> int:
        """The number of tools of all servers."""
        return len(self._tools_by_name())

    def _tools_by_name(self) -> dict[str, ServerTool]:
        return {name: tool for tools in self._tools.values() for name, tool in tools.items()}

    def _is_callable(self, name: str) -> bool:
        return self._toolset.is_active(name) or self._toolset.is_deferred(name)

    def _replace_server_tools(self, server: str, tools: dict[str, ServerTool]) -> None:
        before = self._tools.get(server, {})
        for name in before:
            if name not in tools:
                self._toolset.remove(name)
                self._shown.discard(name)
        self._tools[server] = tools
        for name, tool in tools.items():
            if name in before and self._toolset.is_active(name):
                self._toolset.replace_implementations({name: tool})
            elif name in before:
                self._toolset.remove(name)

    def _arrange_tools(self) -> None:
        """Add all tools to the prompt if they fit; otherwise defer those that are not in it yet."""
        every = self._tools_by_name()
        cost = sum(tool.tokens for tool in every.values())
        fits = cost <= self._budget
        for name, tool in every.items():
            if self._toolset.is_active(name):
                if not fits and name not in self._shown:
                    self._toolset.remove(name)
                    self._toolset.try_defer(tool)
            elif fits:
                self._toolset.remove(name)
                self._toolset.add(tool)
            elif not self._toolset.is_deferred(name):
                self._toolset.try_defer(tool)
        self._add_server_instructions()
        self._offer_search(not fits)

    def _add_server_instructions(self) -> None:
        """Add each server's instructions to the description of one of its tools, as far as the budget has room.

        It is the first one in the prompt; descriptions that were already sent do not change. A tool that was found by a
        search came with the instructions in its result.
        """
        told = {name: tool for name, tool in self._tools_by_name().items() if self._toolset.is_active(name)}
        room = CHARACTERS_PER_TOKEN * (self._budget - sum(tool.tokens for tool in told.values()))
        for server in self._search.servers if self._search is not None else ():
            listed = self._tools.get(server.config.name, {})
            tools = [tool for name, tool in listed.items() if name in told and name not in self._found]
            kept = next((tool for tool in tools if tool.instructions_length and tool.spec.name in self._shown), None)
            for tool in tools:
                if kept is None:
                    kept = tool
                    tool.set_instructions(room)
                elif tool is not kept and tool.instructions_length:
                    tool.set_instructions(0)
            room -= kept.instructions_length if kept is not None else 0

    def _offer_search(self, needed: bool) -> None:
        """Add `tool_search` if it is needed, or while servers are connecting: the model may need their tools."""
        search = self._search
        if search is None:
            return
        needed = needed or any(not server.was_listed and server.status == "connecting" for server in search.servers)
        active = self._toolset.is_active(SEARCH)
        if needed and not active:
            self._toolset.add(search)
        elif active and not needed and not self._in_run:
            self._toolset.remove(SEARCH)


class ToolSearch(ArgumentTool):
    """The tool with which the model finds server tools; what it finds can be called from the next request on."""

    reads_only: ClassVar[bool] = False
    snippet: ClassVar[str] = "Find more tools of connected servers by what they do"
    guidelines: ClassVar[tuple[str, ...]] = ()
    facts = SEARCH_FACTS

    def __init__(self, servers: Sequence[ToolServer], offered: OfferedTools) -> None:
        self.servers = list(servers)
        self._offered = offered
        self.spec = self._make_spec()

    def set_servers(self, servers: Sequence[ToolServer]) -> None:
        """Set the servers; the description only changes if their names do."""
        names = [server.config.name for server in self.servers]
        self.servers = list(servers)
        if names != [server.config.name for server in servers]:
            self.spec = self._make_spec()

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Search for tools and load those that are found."""
        query = arguments.get("query")
        if not isinstance(query, str) or not query.strip():
            raise ToolFailed("query must be a string: what the tool should do, or its name")
        limit = arguments.get("limit")
        most = int(limit) if isinstance(limit, int | float) and 1 <= limit <= MOST_FOUND else FOUND
        await run.scope.wait(self._connect_and_wait())
        found = self._offered.search_tools(query, most)
        for tool in found:
            self._offered.load_deferred_tool(tool.spec.name)
        return ToolOutcome(content=[TextContent(text=self._result_text(query, found))])

    async def _connect_and_wait(self) -> None:
        self._offered.begin()
        await wait_for_servers(self.servers)

    def _result_text(self, query: str, found: Sequence[ServerTool]) -> str:
        lines = [f"{tool.spec.name}: {_first_line(tool.spec.description)}" for tool in found]
        if lines:
            lines = ["These tools can be called now:", *lines]
        else:
            lines = [f"No tool fits {query!r}; there are {self._offered.count} tools of servers. Try other words."]
        owners = {tool.server for tool in found}
        lines += [f"The server {one.config.name} says: {one.instructions}" for one in owners if one.instructions]
        for server in self.servers:
            if server.status == "connecting":
                lines.append(f"The server {server.config.name} is still being connected.")
            elif server.status != "connected":
                lines.append(f"The server {server.config.name} cannot be used: {(server.error or '')[:300]}")
        return "\n".join(lines[: MOST_FOUND + MOST_NAMED])

    def _make_spec(self) -> ToolSpec:
        names = [server.config.name[:40] for server in self.servers]
        listed = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
        return ToolSpec(
            SEARCH,
            "Find more tools by what they do, and make them callable. Use it when a task needs something that "
            f"your other tools cannot do. The tools are those of these servers: {listed}.",
            {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "Words for what the tool does, or its exact name"},
                    "limit": {"type": "integer", "description": f"Maximum number of tools to find (default {FOUND})"},
                },
                "required": ["query"],
            },
        )


def rank_tools(query: str, tools: Sequence[ServerTool]) -> list[ServerTool]:
    """The tools that contain words of the query, best first: rare words count more, names more than the rest."""
    wanted = set(_split_search_words(query))
    exact = {word.strip(",;") for word in query.split()}
    known = [
        (tool, set(_split_search_words(tool.spec.name)), set(_split_search_words(tool.spec.description)))
        for tool in tools
    ]
    weights: dict[str, float] = {}
    for word in wanted:
        having = sum(word in name or word in about for _, name, about in known)
        weights[word] = math.log(1 + len(known) / (1 + having)) + 0.1

    def score(name: str, in_name: set[str], in_text: set[str]) -> float:
        total = 1000.0 if name in exact else 0.0
        for word, weight in weights.items():
            if word in in_name:
                total += 3 * weight
            elif word in in_text or (
                len(word) > 3
                and any(other.startswith(word) or word.startswith(other) for other in in_name if len(other) > 3)
            ):
                total += weight
        return total

    scored = [(score(tool.spec.name, name, text), index) for index, (tool, name, text) in enumerate(known)]
    best = sorted((one for one in scored if one[0] > 0), key=lambda one: (-one[0], one[1]))
    return [tools[index] for _, index in best]


def _split_search_words(text: str) -> list[str]:
    found: list[str] = []
    for word in re.findall(_WORD, text[:2000]):
        parts = re.findall(_PARTS, word)
        found += [word.lower(), *(part.lower() for part in parts if len(parts) > 1)]
    return [word for word in found if word != "mcp"]


def _is_wanted(name: str, only: tuple[str, ...] | None, without: tuple[str, ...]) -> bool:
    from pigeon.system.globs import compile_text_glob

    def is_named_by(patterns: Sequence[str]) -> bool:
        return any(compile_text_glob(pattern, classes=False)(name) for pattern in patterns)

    return (only is None or is_named_by(only)) and not is_named_by(without)


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0].strip()
    return line if len(line) <= LONGEST_ABOUT else f"{line[: LONGEST_ABOUT - 3]}..."
