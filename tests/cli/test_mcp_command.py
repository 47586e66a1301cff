"""`pigeon mcp`: the program adds servers to files, lists them, connects to them, and removes them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fakes.mcp_web_server import WebToolServer, follow
from support.agent_folders import AgentFolders
from support.agent_process import ProgramResult, run_pigeon
from support.sdk_agents import PROGRAM, scripted_server
from support.terminal import PtyChat


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure()
    return made


def run_mcp(folders: AgentFolders, *arguments: str, code: int = 0, env: dict[str, str] | None = None) -> str:
    """What it printed on stdout and then on stderr."""
    result: ProgramResult = run_pigeon(folders, "mcp", *arguments, env=env)
    assert result.code == code, result
    assert "Traceback" not in result.err
    return result.out + result.err


def servers_in(path: Path) -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(path.read_text())["mcpServers"]
    return entries


def write_servers(folders: AgentFolders, servers: dict[str, Any], **beside: Any) -> Path:
    path = folders.agent / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers, **beside}))
    return path


def test_a_program_is_added_listed_tried_and_removed(folders: AgentFolders) -> None:
    path = folders.agent / "mcp.json"
    assert "No tool server is configured. Add one: pigeon mcp add NAME" in run_mcp(folders, "list")
    added = run_mcp(
        folders, "add", "notes", "-e", "TOOLS=30", "-e", "WHY = a = b", "--", sys.executable, PROGRAM, "well"
    )
    assert added == f"Added notes to {path}. Try it: pigeon mcp test notes\n"
    variables = {"TOOLS": "30", "WHY": "a = b"}
    assert servers_in(path) == {"notes": {"command": sys.executable, "args": [PROGRAM, "well"], "env": variables}}
    header, row = run_mcp(folders).splitlines()
    assert header.split() == ["server", "kind", "what", "from"]
    assert re.fullmatch(r"notes +stdio +\S.{0,59} +user", row)
    tried = run_mcp(folders, "test", "notes").splitlines()
    assert re.fullmatch(r"notes works: scripted 1\.0, protocol \S+ over stdio\.", tried[0])
    count = int(re.fullmatch(r"  (\d+) tools, \d+ prompts, \d+ resources", tried[1])[1])  # type: ignore[index]
    assert count > 30
    assert "  mcp__notes__echo" in tried
    assert len(tried) == 2 + 20 + 1
    assert tried[-1] == f"  and {count - 20} more"
    assert run_mcp(folders, "remove", "notes") == f"Removed notes from {path}.\n"
    assert servers_in(path) == {}


@pytest.mark.parametrize(
    ("options", "entry"),
    [
        ([], {"type": "http"}),
        (["--sse"], {"type": "sse"}),
        (["--device"], {"type": "http", "oauth": {"flow": "device"}}),
        (
            ["-H", "Authorization: Bearer $TOKEN", "--header", "X-Site:a:b"],
            {"type": "http", "headers": {"Authorization": "Bearer $TOKEN", "X-Site": "a:b"}},
        ),
    ],
    ids=["plain", "sse", "device", "headers"],
)
def test_a_service_is_added_as_its_options_say(
    folders: AgentFolders, options: list[str], entry: dict[str, Any]
) -> None:
    run_mcp(folders, "add", "docs", "https://example.com/mcp", *options)
    assert servers_in(folders.agent / "mcp.json") == {"docs": {"url": "https://example.com/mcp", **entry}}


def test_a_server_is_added_beside_what_a_file_has_already(folders: AgentFolders) -> None:
    path = folders.agent / "mcp.json"
    path.write_text(json.dumps({"inputs": [1], "servers": {"old": {"command": "x"}}}))
    run_mcp(folders, "add", "new", "y")
    assert json.loads(path.read_text()) == {
        "inputs": [1],
        "servers": {"old": {"command": "x"}, "new": {"command": "y", "args": []}},
    }
    run_mcp(folders, "remove", "old")
    assert json.loads(path.read_text())["servers"] == {"new": {"command": "y", "args": []}}


def test_the_servers_of_a_project_are_in_its_own_file_and_wait_for_trust(folders: AgentFolders) -> None:
    path = folders.work / ".pigeon" / "mcp.json"
    added = run_mcp(folders, "add", "--project", "files", "files-server")
    assert added.startswith(f"Added files to {path}. ")
    assert "once it is trusted" in added
    assert servers_in(path) == {"files": {"command": "files-server", "args": []}}
    assert not (folders.agent / "mcp.json").exists()
    waits = f"{path} is not used: this folder is not trusted."
    assert run_mcp(folders, "list").startswith(waits)
    assert json.loads(run_mcp(folders, "list", "--json")) == {"servers": [], "waiting": [str(path)]}
    assert f"There is no server 'files'. {waits} See: pigeon mcp list" in run_mcp(folders, "test", "files", code=1)
    (folders.agent / "trust.json").write_text(json.dumps({os.path.realpath(folders.work): True}))
    listed = json.loads(run_mcp(folders, "list", "--json"))
    expected = {"name": "files", "source": "project", "file": str(path), "transport": "stdio"}
    assert listed == {"servers": [{**expected, "enabled": True, "problem": None}], "waiting": []}
    run_mcp(folders, "add", "mine", "x")
    refused = run_mcp(folders, "remove", "files", code=1)
    assert f"{folders.agent / 'mcp.json'} has no server 'files'. Other files are not searched." in refused
    run_mcp(folders, "remove", "--project", "files")
    assert servers_in(path) == {}


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["add", "a", "https://h/", "-e", "A=b"], "A URL takes neither arguments nor --env; did you mean --header?", 2),
        (["add", "a", "https://h/", "more"], "A URL takes neither arguments nor --env", 2),
        (["add", "a", "prog", "-H", "A: b"], "--header, --sse and --device need a URL", 2),
        (["add", "a", "prog", "--sse"], "--header, --sse and --device need a URL", 2),
        (["add", "a", "prog", "--device"], "pass variables to a program with --env", 2),
        (["add", "a", "prog", "-e", "A"], "--env needs NAME=VALUE, not 'A'", 2),
        (["add", "a", "prog", "-e", "=b"], "--env needs NAME=VALUE, not '=b'", 2),
        (["add", "a", "https://h/", "-H", "A b"], "--header needs NAME:VALUE, not 'A b'", 2),
        (["add", "a", "https://h/", "-H", "a b: c"], "not a valid header name. Nothing was changed", 2),
        (["add", "!!!", "prog"], "Nothing was changed", 2),
        (["add", "a"], "COMMAND|URL", 2),
        (["add", "there", "prog"], "has a server 'there'. Remove it first: pigeon mcp remove there", 1),
        (["remove", "their"], "has no server 'their'. Did you mean there?", 1),
        (["test", "their"], "There is no server 'their'. Did you mean there? See: pigeon mcp list", 1),
        (["test", "off"], "The server 'off' is disabled in ", 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_wrong_call_says_what_is_wrong_and_changes_nothing(
    folders: AgentFolders, arguments: list[str], said: str, code: int
) -> None:
    path = write_servers(folders, {"there": {"command": "x"}, "off": {"command": "y", "disabled": True}})
    before = path.read_bytes()
    assert said in run_mcp(folders, *arguments, code=code)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": []}'])
def test_a_broken_file_is_named_and_kept(folders: AgentFolders, text: str) -> None:
    path = folders.agent / "mcp.json"
    path.write_text(text)
    for arguments in (["add", "a", "b"], ["remove", "a"]):
        said = run_mcp(folders, *arguments, code=1)
        assert str(path) in said
        assert "Nothing was changed" in said
    assert path.read_text() == text
    assert f"Warning: {path}" in run_mcp(folders, "list")


def test_what_is_disabled_or_wrong_is_listed_as_that(folders: AgentFolders) -> None:
    write_servers(
        folders,
        {
            "off": {"command": "y", "disabled": True},
            "wrong": {"command": "x", "args": "y"},
            "long": {"command": "x", "args": ["y" * 100]},
            "web": {"url": "https://example.com/mcp"},
        },
    )
    rows = {row.split()[0]: row for row in run_mcp(folders, "list").splitlines()[1:]}
    assert re.fullmatch(r"off +disabled +y +user", rows["off"])
    assert re.fullmatch(r"wrong +wrong +args must be a list.* +user", rows["wrong"])
    assert re.fullmatch(r"long +stdio +x y{55}\.\.\. +user", rows["long"])
    assert re.fullmatch(r"web +http +https://example\.com/mcp +user", rows["web"])


@pytest.mark.parametrize(
    ("entry", "step", "said", "advice"),
    [
        (
            {"command": "/nowhere/program", "args": ["a b"]},
            "start",
            "/nowhere/program",
            "Check that the program is installed and can be run: /nowhere/program 'a b'",
        ),
        (scripted_server("dies"), "initialize", "cannot open the database", "Run the program by hand and look at"),
        ({"command": "x", "args": "y"}, "configuration", "args must be a list", "Fix its entry in {file}."),
        (
            {"url": "http://127.0.0.1:9/mcp"},
            "connect",
            "no connection to the server",
            "Check the address and the network: http://127.0.0.1:9/mcp",
        ),
    ],
    ids=["program", "dies", "entry", "service"],
)
def test_what_does_not_work_is_told_with_the_step_and_what_to_do(
    folders: AgentFolders, entry: dict[str, Any], step: str, said: str, advice: str
) -> None:
    path = write_servers(folders, {"s": entry})
    first, reason, *rest = run_mcp(folders, "test", "s", code=1).splitlines()
    assert first == f"s does not work. It failed at the step {step}:"
    assert said in reason
    assert rest[0].startswith(advice.format(file=path))


async def test_programs_are_told_of_a_service_that_nobody_can_sign_in_to(folders: AgentFolders) -> None:
    async with WebToolServer(signs_in=True) as server:
        write_servers(folders, {"web": {"url": f"{server.base}/mcp"}})
        state = json.loads(await asyncio.to_thread(run_mcp, folders, "test", "web", "--json", code=1))
    assert (state["name"], state["status"]) == ("web", "sign_in")


async def test_a_person_signs_in_on_the_terminal_and_stays_signed_in(folders: AgentFolders) -> None:
    async with WebToolServer(signs_in=True) as server:
        write_servers(folders, {"web": {"url": f"{server.base}/mcp"}})
        with PtyChat(folders.work, ["mcp", "test", "web"], columns=1000, env=folders.environment()) as terminal:
            shown = await asyncio.to_thread(terminal.until, "paste the address")
            (address,) = re.findall(r"http\S+/authorize\?\S+", shown)
            assert urlsplit(address).netloc == urlsplit(server.base).netloc
            await follow(address)
            assert "web works: web" in await asyncio.to_thread(terminal.until, "1 tools")
            assert await asyncio.to_thread(terminal.wait_for_exit) == 0
        assert "web works" in await asyncio.to_thread(run_mcp, folders, "test", "web")


def test_a_question_of_the_file_is_asked_on_the_terminal(folders: AgentFolders) -> None:
    entry = scripted_server(env={"INSTRUCTIONS": "${input:word}", "LOG": "${input:word}"})
    write_servers(folders, {"s": entry}, inputs=[{"id": "word", "type": "promptString", "description": "Which log?"}])
    with PtyChat(folders.work, ["mcp", "test", "s"], env=folders.environment()) as terminal:
        terminal.until("Which log?")
        terminal.send_line(str(folders.temp / "log"))
        terminal.until("s works: scripted 1.0")
        assert terminal.wait_for_exit() == 0
    assert '"initialize"' in (folders.temp / "log").read_text()
