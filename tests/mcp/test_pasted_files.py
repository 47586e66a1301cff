"""What users paste: the forms of files that other programs write, each read rightly or refused by the name of what is
wrong. Nothing is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pigeon.mcp.server_config import InputQuestion, OAuthConfig, ServerConfig, WrongServer, parse_servers
from pigeon.mcp.variables import Surroundings

VARIABLES = {"TOKEN": "t0", "REGION": "north"}
# The form, the file, and what becomes of each server with all values filled in.
READ: list[tuple[str, dict[str, Any], dict[str, dict[str, Any]]]] = [
    (
        "claude code",
        {
            "mcpServers": {
                "tickets": {
                    "type": "http",
                    "url": "${TICKETS_URL:-https://tickets.example.com}/mcp",
                    "headers": {"Authorization": "Bearer ${TOKEN}", "X-Region": "${REGION:-south}"},
                    "oauth": {"clientId": "me", "callbackPort": 8123, "scopes": "read write"},
                    "timeout": 20000,
                    "alwaysLoad": True,
                },
                "events": {"type": "sse", "url": "https://events.example.com/stream"},
                "db": {
                    "type": "stdio",
                    "command": "${CLAUDE_PROJECT_DIR}/bin/db",
                    "args": ["--at", "${DB:-}"],
                    "env": {"LEVEL": "${LEVEL:-info}"},
                },
            }
        },
        {
            "tickets": {
                "transport": "http",
                "url": "https://tickets.example.com/mcp",
                "headers": {"Authorization": "Bearer t0", "X-Region": "north"},
                "oauth": OAuthConfig(client_id="me", port=8123, scope="read write"),
                "call_seconds": 20.0,
            },
            "events": {"transport": "sse"},
            "db": {"transport": "stdio", "command": "/work/bin/db", "args": ("--at", ""), "env": {"LEVEL": "info"}},
        },
    ),
    (
        "vs code",
        {
            "inputs": [
                {"type": "promptString", "id": "key", "description": "Key of the register", "password": True},
                {"type": "pickString", "id": "stage", "description": "Stage", "options": ["test", "live"]},
            ],
            "servers": {
                "register": {
                    "type": "stdio",
                    "command": "node",
                    "args": ["${workspaceFolder}${/}server.js", "--stage", "${input:stage}"],
                    "env": {"KEY": "${input:key}", "GONE": None, "PORT": 8080},
                    "envFile": "${workspaceFolder}/.env",
                    "dev": {"watch": "src/**/*.js"},
                },
                "remote": {"type": "http", "url": "https://remote.example.com", "headers": {"K": "${env:TOKEN}"}},
            },
        },
        {
            "register": {
                "args": ("/work/server.js", "--stage", "live"),
                "env": {"KEY": "k1", "PORT": "8080", "FROM_FILE": "yes"},
            },
            "remote": {"transport": "http", "headers": {"K": "t0"}},
        },
    ),
    (
        "cursor",
        {
            "mcpServers": {
                "local": {
                    "type": "stdio",
                    "command": "python",
                    "args": ["${userHome}${pathSeparator}tool.py"],
                    "env": {"T": "${env:TOKEN}"},
                    "envFile": ".env",
                },
                "web": {"url": "https://web.example.com/mcp", "type": "streamableHttp"},
                "signed": {
                    "url": "https://signed.example.com/mcp",
                    "auth": {"CLIENT_ID": "${env:REGION}", "CLIENT_SECRET": "${env:TOKEN}", "scopes": ["a", "b"]},
                },
            }
        },
        {
            "local": {"args": ("/home/me/tool.py",), "env": {"T": "t0", "FROM_FILE": "yes"}},
            "web": {"transport": "http"},
            "signed": {"oauth": OAuthConfig(client_id="north", client_secret="t0", scope="a b")},
        },
    ),
    (
        "claude desktop",
        {
            "globalShortcut": "",
            "mcpServers": {"notes": {"command": "uvx", "args": ["notes-server"], "env": {"NOTES": "/data"}}},
        },
        {"notes": {"transport": "stdio", "args": ("notes-server",), "env": {"NOTES": "/data"}}},
    ),
    (
        "windsurf",
        {
            "mcpServers": {
                "far": {"serverUrl": "https://far.example.com/mcp", "headers": {"K": "${env:TOKEN}"}},
                "old": {"serverUrl": "https://far.example.com/sse", "disabledTools": ["drop"]},
                "off": {"command": "x", "disabled": True},
            }
        },
        {
            "far": {"transport": "http", "url": "https://far.example.com/mcp", "headers": {"K": "t0"}},
            "old": {"transport": "sse", "without_tools": ("drop",)},
            "off": {"enabled": False},
        },
    ),
    (
        "gemini cli",
        {
            "theme": "Default",
            "mcp": {"excluded": ["never"]},
            "mcpServers": {
                "program": {
                    "command": "python",
                    "args": ["-m", "server"],
                    "cwd": "./servers",
                    "env": {"A": "$TOKEN", "B": "${TOKEN}"},
                    "timeout": 15000,
                    "trust": True,
                    "includeTools": ["look"],
                    "excludeTools": ["drop"],
                },
                "stream": {"httpUrl": "https://g.example.com/mcp", "url": "https://g.example.com/sse"},
                "events": {"url": "https://g.example.com/sse", "oauth": {"enabled": False}},
                "found": {"httpUrl": "https://g.example.com/a", "authProviderType": "dynamic_discovery"},
                "never": {"command": "x"},
            },
        },
        {
            "program": {
                "cwd": "/work/servers",
                "env": {"A": "t0", "B": "t0"},
                "call_seconds": 15.0,
                "only_tools": ("look",),
                "without_tools": ("drop",),
            },
            "stream": {"transport": "http", "url": "https://g.example.com/mcp"},
            "events": {"transport": "sse", "oauth": OAuthConfig(wanted=False)},
            "found": {"problem": None},
            "never": {"enabled": False},
        },
    ),
    (
        "pi",
        {
            "settings": {"toolPrefix": "server", "idleTimeout": 10},
            "mcpServers": {
                "browser": {
                    "command": "npx",
                    "args": ["-y", "browser-server"],
                    "lifecycle": "keep-alive",
                    "idleTimeout": 5,
                    "directTools": ["look"],
                    "inheritEnv": True,
                    "requestTimeoutMs": 60000,
                },
                "service": {"url": "https://s.example.com", "auth": "bearer", "bearerTokenEnv": "TOKEN"},
                "signed": {"url": "https://s.example.com", "auth": "oauth"},
                "plain": {"url": "https://s.example.com", "auth": False},
            },
        },
        {
            "browser": {"inherit_env": True, "call_seconds": 60.0, "only_tools": None},
            "service": {"headers": {"Authorization": "Bearer t0"}, "oauth": OAuthConfig(wanted=False)},
            "signed": {"oauth": OAuthConfig()},
            "plain": {"oauth": OAuthConfig(wanted=False)},
        },
    ),
]


def read(value: dict[str, Any]) -> tuple[dict[str, ServerConfig], list[str]]:
    problems: list[str] = []
    return {one.name: one for one in parse_servers(value, "user", "mcp.json", problems.append)}, problems


@pytest.mark.parametrize(("file", "expected"), [row[1:] for row in READ], ids=[row[0] for row in READ])
def test_a_file_of_another_program_is_read_as_it_is_meant(
    file: dict[str, Any], expected: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pigeon.mcp.variables._read_env_file", lambda path: {"FROM_FILE": "yes", "KEY": "in the file"})
    answers = {"key": "k1", "stage": "live"}
    around = Surroundings(VARIABLES, "/work", "/home/me", answers, lambda name: False, lambda text: False)
    servers, problems = read(file)
    assert problems == []
    assert list(servers) == list(expected)
    for name, config in servers.items():
        filled = around.fill_in_config(config)
        wanted = expected[name]
        if "env" in wanted and "KEY" not in wanted["env"] and "FROM_FILE" in wanted["env"]:
            wanted = {**wanted, "env": {**wanted["env"], "KEY": "in the file"}}
        assert {field: getattr(filled, field) for field in wanted} == wanted


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"type": "http", "url": "https://x.example.com", "headersHelper": "/bin/token"}, "headersHelper"),
        ({"type": "ws", "url": "wss://x.example.com"}, "type"),
        ({"url": "https://x", "oauth": {"authServerMetadataUrl": "https://y"}}, "oauth.authServerMetadataUrl"),
        ({"url": "https://x.example.com", "oauth": {"tokenUrl": "https://y"}}, "oauth.tokenUrl"),
        ({"httpUrl": "https://x.example.com", "authProviderType": "google_credentials"}, "authProviderType"),
        ({"url": "unix:///run/x.sock"}, "url"),
        ({"command": "x", "env": {"A": "${config:editor.a}"}}, "env.A has ${config:editor.a}"),
        ({"command": "x", "args": ["${command:pick.one}"]}, "args[0] has ${command:pick.one}"),
        ({"serverUrl": "https://x", "headers": {"K": "${file:/run/key}"}}, "headers.K has ${file:/run/key}"),
        ({"command": "x", "args": ["${input:nothing}"]}, "args[0] needs the input nothing"),
        ({"command": "x", "env": {"A": "${UNSET}"}}, "env.A names the variable UNSET"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_the_name_of_the_member(entry: dict[str, Any], named: str) -> None:
    servers, _ = read({"mcpServers": {"x": entry}})
    problem = servers["x"].problem
    if problem is None:
        around = Surroundings({}, "/work", "/home/me", {}, lambda name: False, lambda text: False)
        with pytest.raises(WrongServer) as wrong:
            around.fill_in_config(servers["x"])
        problem = str(wrong.value)
    assert named in problem


@pytest.mark.parametrize(
    ("beside", "named"),
    [
        ({"inputs": {"id": "x"}}, "inputs must be a list"),
        ({"inputs": [7]}, "inputs[0] must be an object with an id"),
        ({"inputs": [{"id": "x", "type": "command", "command": "y"}]}, "inputs[0].type is 'command'"),
        ({"inputs": [{"id": "x", "type": "pickString"}]}, "inputs[0].options must be a list"),
        ({"imports": ["cursor"]}, "imports is not used"),
    ],
)
def test_what_cannot_be_used_beside_servers_is_reported_and_the_servers_are_used(
    beside: dict[str, Any], named: str
) -> None:
    servers, problems = read({"servers": {"x": {"command": "y"}}, **beside})
    assert [problem for problem in problems if named in problem]
    assert servers["x"].problem is None


def test_choices_have_labels_and_the_usual_one_is_first() -> None:
    options = [{"label": "Trial", "value": "test"}, {"value": "live"}, "own", 7]
    question = {"type": "pickString", "id": "stage", "options": options, "default": "live"}
    servers, problems = read({"inputs": [question], "servers": {"x": {"command": "${input:stage}"}}})
    assert problems == []
    choices = (("live", "live"), ("Trial", "test"), ("own", "own"))
    assert servers["x"].inputs == {"stage": InputQuestion("stage", choices, "live")}


def test_an_env_file_that_is_missing_is_named(tmp_path: Path) -> None:
    servers, _ = read({"mcpServers": {"x": {"command": "y", "envFile": "none.env"}}})
    around = Surroundings({}, str(tmp_path), "/home/me", {}, lambda name: False, lambda text: False)
    with pytest.raises(WrongServer, match=r"envFile .*none\.env cannot be read"):
        around.fill_in_config(servers["x"])
