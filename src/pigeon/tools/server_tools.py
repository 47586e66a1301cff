"""Facts about the tools of servers (MCP) before any server is configured: the form of their names, and `tool_search`.

`pigeon.mcp` offers these tools, and is imported only if servers are configured; sessions, permission rules and front
ends encounter the names anyway.
"""

from __future__ import annotations

from pigeon.agent.tool_facts import Arguments, ToolFacts

# The prefix of server tools' names: mcp__SERVER__TOOL.
PREFIX = "mcp__"
# The tool by which the model finds others (`mcp/offered_tools.py`). It only searches what servers have listed; each
# tool that it finds needs permission when it is called.
SEARCH = "tool_search"


def _search_title(arguments: Arguments) -> str:
    return f"Search for tools: {arguments.get('query')}"


SEARCH_FACTS = ToolFacts(_search_title, kind="search")


def server_tool_facts(name: str) -> ToolFacts:
    """The facts of a server's tool: only its server, because the server's own declarations are not trusted."""
    server, _, tool = name.removeprefix(PREFIX).partition("__")
    title = f"{tool} ({server})" if tool else name
    return ToolFacts(lambda arguments: title)
