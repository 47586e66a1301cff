"""What an editor sends: the params of every method, of version 1 and of the draft of version 2.

Where the versions use different names, both are declared and the record says which is which. Unknown members are
ignored, as the protocol asks; `codec.convert` names a member that does not fit. Members that Pigeon does not use are
not declared, so that no request is refused because of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, get_args

from msgspec import Meta
from msgspec.structs import fields

from pigeon.frontends.acp.rpc_errors import bad_params_error
from pigeon.wire import codec
from pigeon.wire.base import Json, Record
from pigeon.wire.errors import BadRecord

_T = TypeVar("_T", bound=Record)
TRANSPORTS = ("stdio", "http", "sse")


class _Lenient(Record, kw_only=True):
    pass


# --- the connection --------------------------------------------------------------------------------------------------


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
    """`initialize`: version 1 has `clientCapabilities`, version 2 `capabilities`; `decode_leniently` reads both. Some
    clients send the number of the version as a text."""

    protocol_version: Annotated[int, Meta(ge=0, le=65535)] | Annotated[str, Meta(pattern="^[0-9]{1,5}$")]
    client_capabilities: Json = None
    capabilities: Json = None


def decode_leniently(value: Json, kind: type[_T]) -> _T:
    """A record of capabilities; a member that does not fit counts as not offered, as the protocol asks."""
    if value is None:
        return kind()
    try:
        return codec.convert(value, kind)
    except BadRecord:
        pass
    given = value if isinstance(value, dict) else {}
    found: dict[str, Any] = {}
    for field in fields(kind):
        # Some languages encode an empty object as an array.
        member = {} if given.get(field.encode_name) == [] else given.get(field.encode_name)
        records = [one for one in get_args(field.type) if isinstance(one, type) and issubclass(one, Record)]
        if records and isinstance(member, dict):
            found[field.name] = decode_leniently(member, records[0])
        elif member is not None:
            try:
                found[field.name] = codec.convert(member, field.type)
            except BadRecord:
                continue
    return kind(**found)


class AuthenticateParams(_Lenient, kw_only=True):
    """`authenticate` of version 1, auth/login of version 2."""

    method_id: str


class NoParams(_Lenient, kw_only=True): ...


# --- sessions --------------------------------------------------------------------------------------------------------


class NamedValue(_Lenient, kw_only=True):
    """A variable of the environment, or a header."""

    name: str
    value: str


class McpServerGiven(_Lenient, kw_only=True):
    """An MCP server that the editor hands over. Without a type it is one on stdin and stdout, as in version 1."""

    name: str
    type: str | None = None
    command: str | None = None
    args: list[str] | None = None
    env: list[NamedValue] | None = None
    url: str | None = None
    headers: list[NamedValue] | None = None


def servers_by_name(servers: Sequence[McpServerGiven]) -> dict[str, Json]:
    """The servers as `set_mcp_servers` takes them; raises `RpcError` that names what is wrong with one."""
    found: dict[str, Json] = {}
    for index, server in enumerate(servers):
        where = f"mcpServers[{index}]"
        if not server.name:
            raise bad_params_error(f'"{where}.name" is empty')
        if server.name in found:
            raise bad_params_error(f'"{where}.name": there are two servers called "{server.name}"')
        kind = server.type or "stdio"
        if kind not in TRANSPORTS:
            raise bad_params_error(f'"{where}.type" cannot be "{kind}" (allowed: {", ".join(TRANSPORTS)})')
        needed = "command" if kind == "stdio" else "url"
        if not getattr(server, needed):
            raise bad_params_error(f'"{where}.{needed}" is missing: a server of type {kind} needs it')
        found[server.name] = _server_config(server, kind)
    return found


def _server_config(given: McpServerGiven, kind: str) -> dict[str, Json]:
    if kind != "stdio":
        headers = {header.name: header.value for header in given.headers or ()}
        return {"type": kind, "url": given.url, "headers": headers}
    env = {variable.name: variable.value for variable in given.env or ()}
    return {"type": kind, "command": given.command, "args": list(given.args or ()), "env": env}


class SystemPromptGiven(_Lenient, kw_only=True):
    """Text from the client for the system prompt."""

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


class NewSessionParams(_Workspace, kw_only=True): ...


class OpenSessionParams(_Workspace, kw_only=True):
    """session/load, session/resume and session/fork; `replayFrom` is for resuming in version 2."""

    session_id: str
    replay_from: ReplayFrom | None = None


class ListSessionsParams(_Lenient, kw_only=True):
    cwd: str | None = None
    cursor: str | None = None


class PromptParams(_Lenient, kw_only=True):
    """session/prompt; the blocks are read one by one, so that an error can name the one that is wrong."""

    session_id: str
    prompt: list[dict[str, Json]]


class SetModeParams(_Lenient, kw_only=True):
    session_id: str
    mode_id: str


class SetModelParams(_Lenient, kw_only=True):
    session_id: str
    model_id: str


class SetConfigOptionParams(_Lenient, kw_only=True):
    """session/set_config_option; a value has a `type` in version 2, and for switches in version 1."""

    session_id: str
    config_id: str
    value: Json
    type: str | None = None


class SetTitleParams(_Lenient, kw_only=True):
    session_id: str
    title: str


class CancelToolCallParams(_Lenient, kw_only=True):
    session_id: str
    tool_call_id: str


class CancelTerminalParams(_Lenient, kw_only=True):
    session_id: str
    terminal_id: str


# --- content of prompts ----------------------------------------------------------------------------------------------


class PromptText(_Lenient, tag_field="type", tag="text", kw_only=True):
    text: str


class PromptImage(_Lenient, tag_field="type", tag="image", kw_only=True):
    """A block of a prompt with an image, encoded as base64."""

    data: str
    mime_type: str


class AudioBlock(_Lenient, tag_field="type", tag="audio", kw_only=True):
    """Audio is declared only so that it can be refused by name."""

    data: str = ""
    mime_type: str = ""


class ResourceLinkBlock(_Lenient, tag_field="type", tag="resource_link", kw_only=True):
    """A link to a file or another resource; the agent reads it itself."""

    name: str
    uri: str


class EmbeddedContents(_Lenient, kw_only=True):
    """The content of a resource: text, or bytes as base64; a `mimeType` that is not a string counts as absent."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: Json = None


class ResourceBlock(_Lenient, tag_field="type", tag="resource", kw_only=True):
    """A resource with its content."""

    resource: EmbeddedContents


PromptBlock = PromptText | PromptImage | AudioBlock | ResourceLinkBlock | ResourceBlock


# --- what the client answers -----------------------------------------------------------------------------------------


class PermissionOutcomeGiven(_Lenient, kw_only=True):
    """What a person chose; any outcome other than `selected` counts as no answer."""

    outcome: str
    option_id: str | None = None


class PermissionResult(_Lenient, kw_only=True):
    outcome: PermissionOutcomeGiven


class ElicitationResult(_Lenient, kw_only=True):
    action: str
    content: dict[str, Json] | None = None


class ReadTextFileResult(_Lenient, kw_only=True):
    content: str


class CreateTerminalResult(_Lenient, kw_only=True):
    terminal_id: str


class TerminalExit(_Lenient, kw_only=True):
    """How a command ended; the result of terminal/wait_for_exit. An exit code that is not a number counts as absent."""

    exit_code: Json = None

    @property
    def code(self) -> int | None:
        """The exit code, where there is one."""
        return self.exit_code if isinstance(self.exit_code, int) and not isinstance(self.exit_code, bool) else None


class TerminalOutputResult(_Lenient, kw_only=True):
    output: str
    truncated: Json = False
    exit_status: TerminalExit | None = None
