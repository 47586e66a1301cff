"""Handlers: tools that the host runs, tool servers, and answers to dialogs."""

from __future__ import annotations

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire.answers import HostUriSchemes, ToolNames
from pigeon.wire.commands import (
    CompleteMcp,
    ConnectMcpServer,
    ExtensionUiResponse,
    GetMcpResources,
    GetMcpServers,
    HostServiceResult,
    HostToolResult,
    HostToolUpdate,
    SetHostServices,
    SetHostTools,
    SetHostUriSchemes,
    SetMcpServers,
)
from pigeon.wire.commands.mcp import McpCompletions, McpResources, McpServers, McpServerState
from pigeon.wire.commands.services import HostServicesState
from pigeon.wire.errors import Refusal


@handles(SetHostTools)
def set_host_tools(cmd: SetHostTools, s: Session) -> ToolNames:
    return ToolNames(tool_names=s.host_tools.replace_tools(cmd.tools))


@handles(HostToolUpdate)
def host_tool_update(cmd: HostToolUpdate, s: Session) -> None:
    """Only answered if no open call has this id while others are open."""
    s.host_tools.on_progress(cmd.id, cmd.partial_result)


@handles(HostToolResult)
def host_tool_result(cmd: HostToolResult, s: Session) -> None:
    """Only answered if no open call has this id while others are open."""
    s.host_tools.on_result(cmd.id, cmd.result, cmd.is_error is True or cmd.result.is_error is True)


@handles(SetHostServices)
def set_host_services(cmd: SetHostServices, s: Session) -> HostServicesState:
    state = s.dependencies.host_services.set_services(cmd)
    s.on_host_services_set()
    return state


@handles(HostServiceResult)
def host_service_result(cmd: HostServiceResult, s: Session) -> None:
    """Never answered; ignored without an open request."""
    s.dependencies.host_services.on_result(cmd)


@handles(ExtensionUiResponse)
def extension_ui_response(cmd: ExtensionUiResponse, s: Session) -> None:
    """Never answered itself; an unknown id is ignored."""
    s.dependencies.dialogs.answer(cmd)


@handles(GetMcpServers)
def get_mcp_servers(cmd: GetMcpServers, s: Session) -> McpServers:
    """Answers at once, whatever the servers do."""
    return s.dependencies.tool_servers.state()


@handles(SetMcpServers)
def set_mcp_servers(cmd: SetMcpServers, s: Session) -> McpServers:
    """Unchanged servers stay connected."""
    s.dependencies.tool_servers.set_host_servers(cmd.servers)
    return s.dependencies.tool_servers.state()


@handles(ConnectMcpServer)
def connect_mcp_server(cmd: ConnectMcpServer, s: Session) -> McpServerState:
    """Raises a `Refusal` for a name that is not configured."""
    return s.dependencies.tool_servers.reconnect_server(cmd.name)


@handles(CompleteMcp)
async def complete_mcp(cmd: CompleteMcp, s: Session) -> McpCompletions:
    """Empty if no server knows the text, or if none answers in time."""
    return await s.dependencies.tool_servers.complete_message(cmd.text)


@handles(GetMcpResources)
def get_mcp_resources(cmd: GetMcpResources, s: Session) -> McpResources:
    """Only of servers that are connected now."""
    return McpResources(resources=s.dependencies.tool_servers.resources())


@handles(SetHostUriSchemes)
def set_host_uri_schemes(cmd: SetHostUriSchemes, s: Session) -> HostUriSchemes:
    """The host cannot provide any."""
    if cmd.schemes:
        raise Refusal("Host URI schemes are not available here; offer a host tool that reads the addresses instead")
    return HostUriSchemes(schemes=[])
