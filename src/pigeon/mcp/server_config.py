"""The configuration of a tool server, read from the forms of `mcp.json` that different programs write.

Claude Code and pi keep servers under `mcpServers`, VS Code under `servers` with `inputs` beside them; a map of servers
without either is accepted, too. This module only interprets values: a server that cannot be used has a `problem`, which
does not affect the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from pigeon.wire.base import Json
from pigeon.wire.commands.mcp import McpSource, McpTransport

MOST_SERVERS = 100
LONGEST_NAME = 100
LONGEST_TEXT = 64 * 1024
MOST_ITEMS = 1000
START_SECONDS = 60.0
CALL_SECONDS = 300.0
LONGEST_SECONDS = 24 * 3600.0
# The names of the transports in the files of different programs.
_TRANSPORTS: dict[str, McpTransport] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
    "streamable_http": "http",
    "remote": "http",
    "sse": "sse",
}
_LISTS = ("mcpServers", "servers", "context_servers")
# Keys that Pigeon does not support and must not ignore: without them the service would be used differently than meant.
_UNSUPPORTED = {
    "headersHelper": "name the headers themselves, with variables for what is secret",
    "authProviderType": "sign in by OAuth, or name an Authorization header",
}
_USUAL = ("dynamic_discovery", "")
_CURSOR_AUTH = {"CLIENT_ID": "clientId", "CLIENT_SECRET": "clientSecret"}
# Keys that the files of pi and VS Code have beside their servers.
_BESIDE = ("inputs", "settings", "imports", "$schema", "disabledServers")


class OAuthConfig(Struct, frozen=True):
    """Sign-in settings of a file: a client that was registered by hand or is described at its own address, the scope,
    the port of the redirect, and the flow (browser or device)."""

    client_id: str | None = None
    client_secret: str | None = None
    scope: str | None = None
    port: int | None = None
    wanted: bool = True
    flow: Literal["either", "browser", "device"] = "either"
    client_metadata_url: str | None = None


class InputQuestion(Struct, frozen=True):
    """A question to the person in VS Code's form: a text, or one of `choices` (label and value)."""

    about: str
    choices: tuple[tuple[str, str], ...] = ()
    default: str | None = None


class ServerConfig(Struct, frozen=True, kw_only=True):
    """One server as it is configured, with variables not filled in; `problem` is the reason if it cannot be used.

    `literal` values come from a host, which has filled in variables itself.
    """

    name: str
    source: McpSource
    file: str | None = None
    problem: str | None = None
    enabled: bool = True
    transport: McpTransport | None = None
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    env_file: str | None = None
    cwd: str | None = None
    inherit_env: bool = False
    url: str = ""
    headers: Mapping[str, str] = {}
    oauth: OAuthConfig = OAuthConfig()
    start_seconds: float = START_SECONDS
    call_seconds: float = CALL_SECONDS
    only_tools: tuple[str, ...] | None = None
    without_tools: tuple[str, ...] = ()
    inputs: Mapping[str, InputQuestion] = {}
    literal: bool = False


class WrongServer(Exception):
    """The error in a server's configuration, as a part of a sentence."""


def parse_servers(
    value: Json, source: McpSource, file: str | None, report: Callable[[str], None]
) -> Iterator[ServerConfig]:
    """All servers of a file's value; errors in the value as a whole are reported."""
    if not isinstance(value, dict):
        report("must be an object with mcpServers (or, in the form of VS Code, servers)")
        return
    listed: Any = next((value[key] for key in _LISTS if key in value), None)
    if listed is None and isinstance(value.get("mcp"), dict):
        listed = next((value["mcp"][key] for key in _LISTS if key in value["mcp"]), None)
    if listed is None:
        listed = {name: server for name, server in value.items() if name not in _BESIDE}
        if not listed or not all(_is_server_like(server) for server in listed.values()):
            if listed:
                report("has neither mcpServers nor servers, so no tool server is used")
            return
    if not isinstance(listed, dict):
        report("mcpServers must be an object of servers by their names")
        return
    if value.get("imports"):
        report("imports is not used: paste the servers of those files into this one")
    inputs = _parse_inputs(value.get("inputs"), report)
    for number, (name, server) in enumerate(listed.items()):
        if number == MOST_SERVERS:
            report(f"has {len(listed)} servers; those after the first {MOST_SERVERS} are left out")
            return
        config = parse_server(name, server, source, file, inputs)
        yield replace_fields(config, enabled=False) if _is_turned_off(name, value) else config


def parse_server(
    name: str,
    value: Json,
    source: McpSource,
    file: str | None = None,
    inputs: Mapping[str, InputQuestion] | None = None,
) -> ServerConfig:
    """One server; with a `problem` if it cannot be used."""
    base = ServerConfig(name=name, source=source, file=file, inputs=inputs or {}, literal=source == "host")
    try:
        _check_name(name)
        if not isinstance(value, dict):
            raise WrongServer("must be an object with command or url")
        return _parse_entry(base, value)
    except WrongServer as wrong:
        return replace_fields(base, problem=str(wrong), enabled=True)


def replace_fields(config: ServerConfig, **changes: Any) -> ServerConfig:
    """The same server with changes."""
    from msgspec.structs import replace

    return replace(config, **changes)


def _parse_entry(base: ServerConfig, value: dict[str, Any]) -> ServerConfig:
    nested = value.get("transport")
    if isinstance(nested, dict):
        value = {**value, **nested, "transport": nested.get("type")}
    command, url = value.get("command"), value.get("httpUrl", value.get("url", value.get("serverUrl")))
    args = value.get("args", value.get("arguments"))
    if isinstance(command, list) and command:
        command, args = command[0], [*command[1:], *(args if isinstance(args, list) else [])]
    enabled = value.get("enabled") is not False and value.get("disabled") is not True
    if command is None and url is None:
        if not enabled:
            return replace_fields(base, enabled=False)
        raise WrongServer("needs command (a program to start) or url (a service to connect to)")
    if command is not None and url is not None:
        raise WrongServer("has both command and url; it is either a program or a service")
    for member, instead in _UNSUPPORTED.items():
        if value.get(member) is not None and value[member] not in _USUAL:
            raise WrongServer(f"{member} is not supported: {instead}")
    transport = _parse_transport(value, command is not None)
    seconds = _parse_seconds(value, ("requestTimeoutMs", "toolTimeoutMs", "timeout"), CALL_SECONDS)
    cwd = value.get("cwd", value.get("workingDirectory"))
    return replace_fields(
        base,
        enabled=enabled,
        transport=transport,
        command="" if command is None else _parse_text(command, "command"),
        args=tuple(_parse_texts(args, "args")),
        env=_parse_map(value.get("env"), "env"),
        env_file=None if value.get("envFile") is None else _parse_text(value["envFile"], "envFile"),
        cwd=None if cwd is None else _parse_text(cwd, "cwd"),
        inherit_env=value.get("inheritEnv") is True,
        url="" if url is None else _parse_text(url, "url"),
        headers=_parse_headers(value),
        oauth=_parse_oauth(value),
        start_seconds=_parse_seconds(value, ("startupTimeoutMs", "startTimeout", "initTimeout"), START_SECONDS),
        call_seconds=seconds,
        only_tools=_parse_names(value, ("includeTools", "enabledTools")),
        without_tools=_parse_names(value, ("excludeTools", "disabledTools")) or (),
    )


def _check_name(name: str) -> None:
    if not name.strip():
        raise WrongServer("has no name")
    if len(name) > LONGEST_NAME:
        raise WrongServer(f"has a name of {len(name)} characters; at most {LONGEST_NAME} are possible")
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in name):
        raise WrongServer("has a name with control characters")
    if not re.search(r"[A-Za-z0-9]", name):
        raise WrongServer("has a name without a letter or digit, so no tool name can be made from it")


def _parse_transport(value: dict[str, Any], is_program: bool) -> McpTransport:
    given = value.get("type", value.get("transport"))
    if given is None:
        # By convention, the address of the older form ends like this.
        url = value.get("url", value.get("serverUrl"))
        old = isinstance(url, str) and "httpUrl" not in value and re.search(r"/sse/?(?:\?|$)", url)
        return "stdio" if is_program else "sse" if old else "http"
    found = _TRANSPORTS.get(given.lower()) if isinstance(given, str) else None
    if found is None:
        raise WrongServer(f"has the type {_shorten_value(given)}; the known types are stdio, http and sse")
    if (found == "stdio") is not is_program:
        raise WrongServer(f"has the type {given}, which does not fit its {'command' if is_program else 'url'}")
    return found


def _parse_text(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise WrongServer(f"{field} must be a string, not {_shorten_value(value)}")
    if len(value) > LONGEST_TEXT or "\0" in value:
        raise WrongServer(f"{field} is too long or has a NUL character")
    return value


def _parse_texts(value: Any, field: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MOST_ITEMS:
        raise WrongServer(f"{field} must be a list of strings, not {_shorten_value(value)}")
    return [_parse_value(item, f"{field}[{index}]") for index, item in enumerate(value)]


def _parse_map(value: Any, field: str) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, list) and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in value):
        value = {item["name"]: item.get("value") for item in value}
    if not isinstance(value, dict) or len(value) > MOST_ITEMS:
        raise WrongServer(f"{field} must be an object of strings, not {_shorten_value(value)}")
    # As in VS Code, null means unset.
    return {name: _parse_value(item, f"{field}.{name}") for name, item in value.items() if item is not None}


def _parse_value(value: Any, field: str) -> str:
    """A text, which may be empty; numbers and booleans are converted."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise WrongServer(f"{field} must be a string, not {_shorten_value(value)}")
    if len(value) > LONGEST_TEXT or "\0" in value:
        raise WrongServer(f"{field} is too long or has a NUL character")
    return value


def _parse_headers(value: dict[str, Any]) -> dict[str, str]:
    headers = _parse_map(
        value.get(
            "headers",
            value.get("requestInit", {}).get("headers") if isinstance(value.get("requestInit"), dict) else None,
        ),
        "headers",
    )
    for name in headers:
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise WrongServer(f"headers has the name {_shorten_value(name)}, which is not a valid header name")
    token, variable = value.get("bearerToken"), value.get("bearerTokenEnv", value.get("bearer_token_env_var"))
    if "authorization" not in {name.lower() for name in headers}:
        if isinstance(token, str):
            headers["Authorization"] = f"Bearer {token}"
        elif isinstance(variable, str) and variable:
            headers["Authorization"] = f"Bearer ${{{variable}}}"
    return headers


def _parse_oauth(value: dict[str, Any]) -> OAuthConfig:
    given, auth = value.get("oauth"), value.get("auth")
    if given is False or auth is False or auth in ("none", "bearer"):
        return OAuthConfig(wanted=False)
    if given is None and isinstance(auth, dict):
        # Cursor's form.
        given = {_CURSOR_AUTH.get(name, name): item for name, item in auth.items()}
    if not isinstance(given, dict):
        return OAuthConfig()

    def read_first_text(*names: str) -> str | None:
        found = next((given[name] for name in names if given.get(name) is not None), None)
        if isinstance(found, list):
            found = " ".join(_parse_texts(found, f"oauth.{names[0]}"))
        return None if found is None else _parse_text(found, f"oauth.{names[0]}")

    if given.get("enabled") is False:
        return OAuthConfig(wanted=False)
    for member in ("authServerMetadataUrl", "authorizationUrl", "tokenUrl"):
        if given.get(member) is not None:
            raise WrongServer(f"oauth.{member} is not supported: the service itself says where to sign in. Remove it")
    flow = given.get("flow", "either")
    if flow not in ("either", "browser", "device"):
        raise WrongServer(f"oauth.flow must be browser or device, not {_shorten_value(flow)}")
    described = read_first_text("clientMetadataUrl", "client_metadata_url")
    if described is not None and not re.match(r"https://[^/]+/.", described):
        raise WrongServer("oauth.clientMetadataUrl must be an https address with a path")
    return OAuthConfig(
        flow=flow,
        client_metadata_url=described,
        client_id=read_first_text("clientId", "client_id"),
        client_secret=read_first_text("clientSecret", "client_secret"),
        scope=read_first_text("scope", "scopes"),
        port=_parse_port(given.get("callbackPort"), read_first_text("redirectUri", "redirectUrl")),
    )


def _parse_port(port: Any, redirect: str | None) -> int | None:
    if port is None and redirect is not None:
        found = re.fullmatch(r"http://(?:127\.0\.0\.1|localhost|\[::1\]):(\d+)(?:/.*)?", redirect)
        port = int(found[1]) if found else None
    if port is not None and (not isinstance(port, int) or not 0 < port < 65536):
        raise WrongServer("oauth.callbackPort must be a port number")
    return port


def _parse_seconds(value: dict[str, Any], names: tuple[str, ...], default: float) -> float:
    """A time in seconds; all of these programs write milliseconds."""
    for name in names:
        given = value.get(name)
        if given is None:
            continue
        if isinstance(given, bool) or not isinstance(given, int | float) or math.isnan(given):
            raise WrongServer(f"{name} must be a number of milliseconds, not {_shorten_value(given)}")
        if given > 0:
            return min(max(given / 1000, 0.001), LONGEST_SECONDS)
    return default


def _parse_names(value: dict[str, Any], names: tuple[str, ...]) -> tuple[str, ...] | None:
    found = next((name for name in names if value.get(name) is not None), None)
    return None if found is None else tuple(_parse_texts(value[found], found))


def _is_turned_off(name: str, file: dict[str, Any]) -> bool:
    """Whether a file turns a server off outside its entry: pi has one list for that, Gemini CLI two."""
    around = file.get("mcp")
    lists = around if isinstance(around, dict) else {}
    off, excluded, allowed = file.get("disabledServers"), lists.get("excluded"), lists.get("allowed")
    if any(isinstance(one, list) and name in one for one in (off, excluded)):
        return True
    return isinstance(allowed, list) and name not in allowed


def _parse_inputs(value: Any, report: Callable[[str], None]) -> dict[str, InputQuestion]:
    """VS Code's questions to the person, by id."""
    found: dict[str, InputQuestion] = {}
    if value is not None and not isinstance(value, list):
        report(f"inputs must be a list of what a person is asked for, not {_shorten_value(value)}")
        return found
    for index, item in enumerate((value or [])[:MOST_ITEMS]):
        try:
            id, question = _parse_input(item)
            found[id] = question
        except WrongServer as wrong:
            report(f"inputs[{index}]{wrong}")
    return found


def _parse_input(item: Any) -> tuple[str, InputQuestion]:
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        raise WrongServer(" must be an object with an id")
    kind, about, default = item.get("type", "promptString"), item.get("description"), item.get("default")
    if kind not in ("promptString", "pickString"):
        raise WrongServer(f".type is {_shorten_value(kind)}; known are promptString and pickString")
    choices = _parse_choices(item.get("options")) if kind == "pickString" else []
    if kind == "pickString" and not choices:
        raise WrongServer(".options must be a list of texts, or of objects with label and value, to choose from")
    given = default if isinstance(default, str) and (not choices or default in dict(choices).values()) else None
    # The default comes first.
    choices.sort(key=lambda choice: choice[1] != given)
    text = about if isinstance(about, str) and about.strip() else item["id"]
    return item["id"], InputQuestion(text, tuple(choices), given)


def _parse_choices(options: Any) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for one in options[:MOST_ITEMS] if isinstance(options, list) else []:
        label, value = (one.get("label"), one.get("value")) if isinstance(one, dict) else (one, one)
        if isinstance(value, str):
            found.setdefault(label if isinstance(label, str) else value, value)
    return list(found.items())


def _is_server_like(value: Any) -> bool:
    return isinstance(value, dict) and any(key in value for key in ("command", "url", "serverUrl", "httpUrl"))


def _shorten_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
