"""What an editor sends: the params of every method, of version 1 and of the draft of version 2.

Where the versions differ in a name, both stand here and the record says which is whose. Members that are not known are
ignored, as the protocol asks; `codec.convert` names a member that does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from pigeon.wire.base import Json, Record


class _Lenient(Record, kw_only=True):
    pass


# --- the connection --------------------------------------------------------------------------------------------------


class ClientImplementation(_Lenient, kw_only=True):
    """Which editor it is."""

    name: str = ""
    title: str | None = None
    version: str = ""


class ClientFiles(_Lenient, kw_only=True):
    """Which of the methods for files the client has; version 1 only."""

    read_text_file: bool = False
    write_text_file: bool = False


class ClientSessionFeatures(_Lenient, kw_only=True):
    """Which updates a client of version 1 understands besides the ordinary ones; present means yes."""

    compaction: dict[str, Json] | None = None
    notices: dict[str, Json] | None = None


class ClientElicitation(_Lenient, kw_only=True):
    """Which ways of asking a person the client has; present means yes."""

    form: dict[str, Json] | None = None
    url: dict[str, Json] | None = None


class ClientAuth(_Lenient, kw_only=True):
    """Whether the client can run the agent in a terminal for a person to set it up: true, or an object in version 2."""

    terminal: bool | dict[str, Json] | None = None


class ClientCapabilities(_Lenient, kw_only=True):
    """What the client can do, over both versions."""

    fs: ClientFiles | None = None
    terminal: bool = False
    session: ClientSessionFeatures | None = None
    elicitation: ClientElicitation | None = None
    auth: ClientAuth | None = None


class InitializeParams(_Lenient, kw_only=True):
    """`initialize`: version 1 has `clientInfo` and `clientCapabilities`, version 2 `info` and `capabilities`."""

    protocol_version: Annotated[int, Meta(ge=0, le=65535)]
    client_capabilities: ClientCapabilities | None = None
    client_info: ClientImplementation | None = None
    capabilities: ClientCapabilities | None = None
    info: ClientImplementation | None = None


class AuthenticateParams(_Lenient, kw_only=True):
    """`authenticate` of version 1, auth/login of version 2."""

    method_id: str


class NoParams(_Lenient, kw_only=True):
    """A method without arguments."""


# --- sessions --------------------------------------------------------------------------------------------------------


class NamedValue(_Lenient, kw_only=True):
    """A variable of the environment, or a header."""

    name: str
    value: str


class McpServerGiven(_Lenient, kw_only=True):
    """An MCP server that the editor hands over. Without a type it is one on stdin and stdout, as in version 1."""

    name: str
    type: str = "stdio"
    command: str | None = None
    args: list[str] | None = None
    env: list[NamedValue] | None = None
    url: str | None = None
    headers: list[NamedValue] | None = None


def servers_by_name(servers: Sequence[McpServerGiven]) -> dict[str, Json]:
    """The servers as `set_mcp_servers` takes them, which says itself what is wrong with one."""
    return {server.name: _server(server) for server in servers}


def _server(given: McpServerGiven) -> dict[str, Json]:
    if given.url is not None:
        headers = {header.name: header.value for header in given.headers or ()}
        return {"type": given.type, "url": given.url, "headers": headers}
    env = {variable.name: variable.value for variable in given.env or ()}
    command = {} if given.command is None else {"command": given.command}
    return {"type": given.type, **command, "args": list(given.args or ()), "env": env}


class SystemPromptGiven(_Lenient, kw_only=True):
    """Words of the client for the system prompt."""

    mode: str
    content: list[dict[str, Json]]


class ReplayFrom(_Lenient, kw_only=True):
    """Where the replay of a resumed session begins; version 2 only."""

    type: str


class SessionParams(_Lenient, kw_only=True):
    """What every method about one session has."""

    session_id: str


class _Workspace(_Lenient, kw_only=True):
    cwd: str
    additional_directories: list[str] | None = None
    mcp_servers: list[McpServerGiven] | None = None
    system_prompt: SystemPromptGiven | None = None


class NewSessionParams(_Workspace, kw_only=True):
    """session/new."""


class OpenSessionParams(_Workspace, kw_only=True):
    """session/load, session/resume and session/fork; `replayFrom` is for resuming in version 2."""

    session_id: str
    replay_from: ReplayFrom | None = None


class ListSessionsParams(_Lenient, kw_only=True):
    """session/list."""

    cwd: str | None = None
    cursor: str | None = None


class PromptParams(_Lenient, kw_only=True):
    """session/prompt; the blocks are read one by one, so that an error can name the one that is wrong."""

    session_id: str
    prompt: list[dict[str, Json]]


class SetModeParams(_Lenient, kw_only=True):
    """session/set_mode; version 1 only."""

    session_id: str
    mode_id: str


class SetConfigOptionParams(_Lenient, kw_only=True):
    """session/set_config_option; a value has a `type` in version 2, and for switches in version 1."""

    session_id: str
    config_id: str
    value: Json
    type: str | None = None


class SetTitleParams(_Lenient, kw_only=True):
    """session/set_title."""

    session_id: str
    title: str


class CancelToolCallParams(_Lenient, kw_only=True):
    """tool_call/cancel; version 2 only."""

    session_id: str
    tool_call_id: str


class CancelTerminalParams(_Lenient, kw_only=True):
    """terminal/cancel; version 2 only."""

    session_id: str
    terminal_id: str


# --- content of prompts ----------------------------------------------------------------------------------------------


class PromptText(_Lenient, tag_field="type", tag="text", kw_only=True):
    """Words."""

    text: str


class PromptImage(_Lenient, tag_field="type", tag="image", kw_only=True):
    """A picture, as base64."""

    data: str
    mime_type: str
    uri: str | None = None


class AudioBlock(_Lenient, tag_field="type", tag="audio", kw_only=True):
    """A sound; not offered, so it is refused by name."""

    data: str = ""
    mime_type: str = ""


class ResourceLinkBlock(_Lenient, tag_field="type", tag="resource_link", kw_only=True):
    """A file or another resource that is meant; the agent looks at it itself."""

    name: str
    uri: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


class EmbeddedContents(_Lenient, kw_only=True):
    """What a resource holds: a text, or bytes as base64."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class ResourceBlock(_Lenient, tag_field="type", tag="resource", kw_only=True):
    """A resource that comes along."""

    resource: EmbeddedContents


PromptBlock = PromptText | PromptImage | AudioBlock | ResourceLinkBlock | ResourceBlock


# --- what the client answers -----------------------------------------------------------------------------------------


class PermissionOutcomeGiven(_Lenient, kw_only=True):
    """What a person chose; anything but `selected` is no answer."""

    outcome: str
    option_id: str | None = None


class PermissionResult(_Lenient, kw_only=True):
    """The result of session/request_permission."""

    outcome: PermissionOutcomeGiven


class ElicitationResult(_Lenient, kw_only=True):
    """The result of elicitation/create."""

    action: str
    content: dict[str, Json] | None = None


class ReadTextFileResult(_Lenient, kw_only=True):
    """The result of fs/read_text_file."""

    content: str


class CreateTerminalResult(_Lenient, kw_only=True):
    """The result of terminal/create."""

    terminal_id: str


class TerminalExit(_Lenient, kw_only=True):
    """How a command ended; the result of terminal/wait_for_exit."""

    exit_code: int | None = None
    signal: str | int | None = None


class TerminalOutputResult(_Lenient, kw_only=True):
    """The result of terminal/output."""

    output: str
    truncated: bool = False
    exit_status: TerminalExit | None = None
