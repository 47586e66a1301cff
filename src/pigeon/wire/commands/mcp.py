"""Commands about tool servers, which are programs and services that offer tools by the Model Context Protocol (MCP),
and what hosts see of them."""

from __future__ import annotations

from typing import Literal

from pigeon.wire.base import ABSENT, Absent, Json, Record
from pigeon.wire.commands.base import Command

McpTransport = Literal["stdio", "http", "sse"]
McpSource = Literal["user", "project", "host"]
McpStep = Literal["configuration", "start", "connect", "initialize", "list", "connected"]
McpStatus = Literal["disabled", "connecting", "sign_in", "connected", "failed"]


class McpServerState(Record, kw_only=True):
    """One tool server. `connecting` also while it is waited with the next attempt; `sign_in` waits for a person.

    `error` says what is wrong, `step` how far it came, `file` which file names it. `tools` are the names that the model
    calls, `deferred` how many of them it has to find with `tool_search` first, `prompts` the names of its slash
    commands.
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
    """Answer of `get_mcp_servers` and `set_mcp_servers`; `problems` are those of files as a whole."""

    servers: list[McpServerState]
    problems: list[str]


class McpResource(Record, kw_only=True):
    """Something that a tool server offers to be read; a `template` has parts to be filled in."""

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
    """One thing that could stand there: its `text`, and where that says too little, what to show instead."""

    text: str
    label: str | Absent = ABSENT
    description: str | Absent = ABSENT


class McpCompletions(Record, kw_only=True):
    """Answer of `complete_mcp`. Each text takes the place of `replaces`, which the given text ends in."""

    replaces: str
    completions: list[McpCompletion]


class GetMcpServers(Command, tag="get_mcp_servers", kw_only=True):
    """The tool servers that are configured, and the state of each."""

    lane = "control"
    answer = McpServers


class SetMcpServers(Command, tag="set_mcp_servers", kw_only=True):
    """Replace the tool servers that the host has set; those of files stay as they are.

    Each is an object as in `mcp.json`: `command`, `args`, `env` and `cwd`, or `url`, `headers` and `type` (`http` or
    `sse`). One that cannot be used is among the answered with what is wrong. They are connected in the background.
    """

    lane = "control"
    answer = McpServers
    servers: dict[str, Json]


class ConnectMcpServer(Command, tag="connect_mcp_server", kw_only=True):
    """Connect a tool server again, at once and with a new sign-in where it wants one; answered before that is done."""

    lane = "control"
    answer = McpServerState
    name: str


class GetMcpResources(Command, tag="get_mcp_resources", kw_only=True):
    """What tool servers offer to be read. A message names one as `@server:uri`."""

    lane = "control"
    answer = McpResources


class CompleteMcp(Command, tag="complete_mcp", kw_only=True):
    """What could stand at the end of a message that names something of a tool server.

    `text` is the message up to the cursor. Behind `@` these are the things that can be read, as `server:uri`; behind a
    slash the prompts of servers (`mcp__server__prompt`), and behind such a prompt the values of its arguments. Servers
    that can are asked, for two seconds at most.
    """

    lane = "beside"
    answer = McpCompletions
    text: str


MCP: tuple[type[Command], ...] = (GetMcpServers, SetMcpServers, ConnectMcpServer, GetMcpResources, CompleteMcp)
