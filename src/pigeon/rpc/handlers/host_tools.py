"""Handlers: tools that the host runs, and its answers to dialogs."""

from __future__ import annotations

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire.answers import ToolNames
from pigeon.wire.commands import ExtensionUiResponse, HostToolResult, HostToolUpdate, SetHostTools


@handles(SetHostTools)
def set_host_tools(cmd: SetHostTools, s: Session) -> ToolNames:
    """In force at the next model call."""
    return ToolNames(tool_names=s.host_tools.set(cmd.tools))


@handles(HostToolUpdate)
def host_tool_update(cmd: HostToolUpdate, s: Session) -> None:
    """Only answered if it is for no call while one is waited for."""
    s.host_tools.update(cmd.id, cmd.partial_result)


@handles(HostToolResult)
def host_tool_result(cmd: HostToolResult, s: Session) -> None:
    """Only answered if it is for no call while one is waited for."""
    s.host_tools.finish(cmd.id, cmd.result, cmd.is_error is True)


@handles(ExtensionUiResponse)
def extension_ui_response(cmd: ExtensionUiResponse, s: Session) -> None:
    """Never answered itself; an unknown id is ignored."""
    s.dialogs.answer(cmd)
