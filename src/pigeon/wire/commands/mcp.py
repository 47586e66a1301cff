"""Commands about tool servers, which are programs and services that offer tools by the Model Context Protocol (MCP),
and their state for hosts."""

from __future__ import annotations

from typing import Literal

from pigeon.wire.base import ABSENT, Absent, Json, Record
from pigeon.wire.commands.base import Command

McpTransport = Literal["stdio", "http", "sse"]
McpSource = Literal["user", "project", "host"]
McpStep = Literal["configuration", "start", "connect", "initialize", "list", "connected"]
McpStatus = Literal["disabled", "connecting", "sign_in", "connected", "failed"]


class McpServerState(Record, kw_only=True):
    """One tool server. It is `connecting` also while it waits for the next attempt; `sign_in` waits for a person.

    `error` says what is wrong, `step` how far it got, `file` which file names it. `transport` is `sse` also for a
    server of the type `http` that has turned out to know the older form only. `tools` are the names that the model
    calls, `deferred` is how many of them it must find with `tool_search` first, and `prompts` are the names of its
    slash commands.
    """

    name: str
    source: McpSource
    file: str | Absent = ABSENT
    transport: McpTransport | Absent = ABSENT
    status: McpStatus
    error: str | Absent = ABSENT
    step: McpStep | Absent = ABSENT
    tools: list[str]
    deferred: int = 0
    prompts: list[str]
    resources: int = 0
    server_name: str | Absent = ABSENT
    server_version: str | Absent = ABSENT
    protocol_version: str | Absent = ABSENT


class McpServers(Record, kw_only=True):
    """Answer of `get_mcp_servers` and `set_mcp_servers`; `problems` concern whole files."""

    servers: list[McpServerState]
    problems: list[str]


class McpResource(Record, kw_only=True):
    """Something that a tool server offers for reading; a `template` has parts to fill in."""

    server: str
    uri: str
    name: str
    description: str | Absent = ABSENT
    mime_type: str | Absent = ABSENT
    template: bool = False


class McpResources(Record, kw_only=True):
    """Answer of `get_mcp_resources`."""

    resources: list[McpResource]


class McpCompletion(Record, kw_only=True):
    """One completion: its `text` and, where that says too little, a `label` to show instead."""

    text: str
    label: str | Absent = ABSENT
    description: str | Absent = ABSENT


class McpCompletions(Record, kw_only=True):
    """Answer of `complete_mcp`. Each text takes the place of `replaces`, the end of the given text."""

    replaces: str
    completions: list[McpCompletion]


class GetMcpServers(Command, tag="get_mcp_servers", kw_only=True):
    """The configured tool servers and the state of each."""

    lane = "control"
    answer = McpServers
    required_scope = "read"
    effect = "reads"


class SetMcpServers(Command, tag="set_mcp_servers", kw_only=True):
    """Replace the tool servers that the host has set; those from files stay as they are.

    Each is an object as in `mcp.json`: `command`, `args`, `env` and `cwd`, or `url`, `headers` and `type` (`http` or
    `sse`). The answer says what is wrong with one that cannot be used. They are connected in the background.
    """

    lane = "control"
    answer = McpServers
    required_scope = "admin"
    effect = "sets"
    servers: dict[str, Json]


class ConnectMcpServer(Command, tag="connect_mcp_server", kw_only=True):
    """Reconnect a tool server at once, with a new sign-in if it needs one; answered before that is done."""

    lane = "control"
    answer = McpServerState
    required_scope = "admin"
    name: str


class GetMcpResources(Command, tag="get_mcp_resources", kw_only=True):
    """What tool servers offer for reading. A message refers to it as `@server:uri`."""

    lane = "control"
    answer = McpResources
    required_scope = "read"
    effect = "reads"


class CompleteMcp(Command, tag="complete_mcp", kw_only=True):
    """Completions for the end of a message that refers to something of a tool server.

    `text` is the message up to the cursor. After `@` they are what can be read, as `server:uri`; after a slash, the
    prompts of servers (`mcp__server__prompt`), and after such a prompt, values of its arguments. Servers that can
    complete are asked, for at most two seconds.
    """

    lane = "beside"
    answer = McpCompletions
    required_scope = "talk"
    effect = "reads"
    text: str


MCP: tuple[type[Command], ...] = (GetMcpServers, SetMcpServers, ConnectMcpServer, GetMcpResources, CompleteMcp)
