"""`pigeon mcp`: tool servers from the command line: added, listed, tried out and removed."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Callable
from typing import Any

from pigeon.app.options import AgentOptions
from pigeon.config.paths import own_folder
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import did_you_mean, format_table, print_line, print_to_stderr
from pigeon.mcp.connector.main import NOT_INSTALLED
from pigeon.mcp.file_editing import NoSuchServer, add_server, remove_server
from pigeon.mcp.server_config import ServerConfig, parse_server
from pigeon.mcp.server_files import merge_servers, project_files, read_servers, user_file
from pigeon.providers.demo.api import DEMO
from pigeon.sdk.host_calls import Question
from pigeon.secrets.addresses import mask_arguments
from pigeon.secrets.redactor import MASK
from pigeon.system.environment import Environment
from pigeon.transport import exit_codes
from pigeon.trust.trust_file import saved_decision
from pigeon.wire.base import Absent
from pigeon.wire.commands.mcp import McpServerState, McpTransport
from pigeon.wire.dialogs import ConfirmRequest, SelectRequest
from pigeon.wire.errors import StartupError, UsageError
from pigeon.wire.events import McpServerChanged

FORMS: dict[McpTransport, str] = {
    "stdio": "stdio",
    "http": "streamable HTTP",
    "sse": "HTTP with server-sent events, the older form",
}
ENDED = ("connected", "failed", "sign_in")
# What to do about a failure, by the step that failed; "service" is the step "initialize" where there is no program.
ADVICE = {
    "configuration": "Fix its entry{file}.",
    "start": "Check that the program is installed and can be run: {command}",
    "connect": "Check the address and the network: {command}\nIf the service needs a token, put it in headers.",
    "initialize": "Run the program by hand and look at what it writes: {command}\n"
    "It must write nothing but messages to stdout. If it needs longer to start, set startupTimeoutMs.",
    "service": "Check that the service is reached under this address, with its whole path: {command}\n"
    "If it needs longer to answer, set startupTimeoutMs.",
    "list": "The server connects but cannot list what it offers; its own log may say why.",
}


def run_mcp(call: CommandCall) -> int:
    """Run one of the actions; raises `UsageError` for an impossible one."""
    if call.action == "add":
        return _add_server(call)
    if call.action == "remove":
        return _remove_server(call)
    if call.action == "test":
        return _test_server(call)
    return _print_servers(call)


def _servers_file_path_for(call: CommandCall) -> str:
    environment = call.environment
    if call.has_option("project"):
        return os.path.join(own_folder(environment.cwd), "mcp.json")
    return user_file(environment.agent_dir())


def _add_server(call: CommandCall) -> int:
    name, target, *arguments = call.words
    entry: dict[str, Any] = {}
    if target.startswith(("http://", "https://")):
        if arguments or call.options["env"]:
            raise UsageError("A URL takes neither arguments nor --env; did you mean --header?")
        entry["type"] = "sse" if call.has_option("sse") else "http"
        entry["url"] = target
        headers = dict(_parse_pair(given, ":", "--header") for given in call.options["header"])
        if headers:
            entry["headers"] = headers
        if call.has_option("device"):
            entry["oauth"] = {"flow": "device"}
    else:
        if call.options["header"] or call.has_option("sse") or call.has_option("device"):
            raise UsageError("--header, --sse and --device need a URL; pass variables to a program with --env")
        entry["command"] = target
        entry["args"] = arguments
        variables = dict(_parse_pair(given, "=", "--env") for given in call.options["env"])
        if variables:
            entry["env"] = variables
    checked = parse_server(name, entry, "user")
    if checked.problem is not None:
        raise UsageError(f"{name} {checked.problem}. Nothing was changed")
    path = _servers_file_path_for(call)
    add_server(path, name, entry)
    print_line(f"Added {name} to {path}. Try it: pigeon mcp test {shlex.quote(name)}")
    if call.has_option("project"):
        print_line("The servers of a project are used once it is trusted.")
    return exit_codes.OK


def _remove_server(call: CommandCall) -> int:
    name, path = call.words[0], _servers_file_path_for(call)
    try:
        remove_server(path, name)
    except NoSuchServer as error:
        other = " Other files are not searched." if error.known else ""
        raise StartupError(f"{error}.{did_you_mean(name, error.known)}{other}") from None
    print_line(f"Removed {name} from {path}.")
    return exit_codes.OK


def _parse_pair(given: str, sign: str, option: str) -> tuple[str, str]:
    name, found, value = given.partition(sign)
    if not found or not name.strip():
        raise UsageError(f"{option} needs NAME{sign}VALUE, not {given!r}")
    return name.strip(), value.strip()


def _read_all_servers(environment: Environment) -> tuple[list[ServerConfig], list[str], list[str]]:
    """The servers of an agent in this folder, the errors in files, and the servers that wait for trust."""
    problems: list[str] = []
    agent_dir, cwd = environment.agent_dir(), environment.cwd
    layers = [read_servers(user_file(agent_dir), "user", problems.append)]
    files = [path for path in project_files(cwd) if os.path.lexists(path)]
    trusted, problem = saved_decision(agent_dir, cwd)
    if problem:
        problems.append(problem)
    if trusted:
        layers += [read_servers(path, "project", problems.append) for path in project_files(cwd)]
    return merge_servers(layers), problems, [] if trusted else files


def _print_servers(call: CommandCall) -> int:
    servers, problems, waiting = _read_all_servers(call.environment)
    for problem in problems:
        print_to_stderr(f"Warning: {problem}")
    if call.has_option("json"):
        rows = [
            {
                "name": one.name,
                "source": one.source,
                "file": one.file,
                "transport": one.transport,
                "enabled": one.enabled,
                "problem": one.problem,
            }
            for one in servers
        ]
        print_line(json.dumps({"servers": rows, "waiting": waiting}, indent=2, ensure_ascii=False))
        return exit_codes.OK
    if servers:
        shown = [_server_row(one, call.mask) for one in servers]
        print_line(format_table([("server", "kind", "what", "from"), *shown]))
    elif not waiting:
        print_line("No tool server is configured. Add one: pigeon mcp add NAME COMMAND|URL")
    for path in waiting:
        print_line(f"{path} is not used: this folder is not trusted. The chat asks; --approve trusts it once.")
    return exit_codes.OK


def _server_row(server: ServerConfig, mask: Callable[[str], str]) -> tuple[str, str, str, str]:
    what = mask(server.problem or server.url or _describe_command(server))
    what = what if len(what) <= 60 else f"{what[:57]}..."
    kind = "wrong" if server.problem else "disabled" if not server.enabled else server.transport or ""
    return server.name, kind, what, server.source


def _describe_command(server: ServerConfig) -> str:
    """The command of a server without keys; the program may have been written with its arguments."""
    program = " ".join(mask_arguments(server.command.split(" ")))
    words = (program, *mask_arguments(server.args))
    return " ".join(word if MASK in word and " " not in word else shlex.quote(word) for word in words)


def _test_server(call: CommandCall) -> int:
    name = call.words[0]
    servers, problems, waiting = _read_all_servers(call.environment)
    for problem in problems:
        print_to_stderr(f"Warning: {problem}")
    config = next((one for one in servers if one.name == name), None)
    if config is None:
        hint = f" {waiting[0]} is not used: this folder is not trusted." if waiting else ""
        raise StartupError(
            f"There is no server {name!r}.{did_you_mean(name, [one.name for one in servers])}{hint} "
            "See: pigeon mcp list"
        )
    if config.problem is None and not config.enabled:
        raise StartupError(f"The server {name!r} is disabled in {config.file}")
    state = asyncio.run(_probe_server(call, name))
    if call.has_option("json"):
        from pigeon.wire import codec

        print_line(codec.encode(state).decode())
    else:
        _print_server_state(config, state)
    return exit_codes.OK if state.status == "connected" else exit_codes.FAILED


def _print_server_state(config: ServerConfig, state: McpServerState) -> None:
    known = f"{state.server_name or config.name} {state.server_version or ''}".strip()
    if state.status == "connected":
        form = "" if isinstance(state.transport, Absent) else f" over {FORMS[state.transport]}"
        print_line(f"{config.name} works: {known}, protocol {state.protocol_version}{form}.")
        print_line(f"  {len(state.tools)} tools, {len(state.prompts)} prompts, {state.resources} resources")
        for tool in state.tools[:20]:
            print_line(f"  {tool}")
        if len(state.tools) > 20:
            print_line(f"  and {len(state.tools) - 20} more")
        if state.error:
            print_line(f"  Note: {state.error}")
        return
    if NOT_INSTALLED in (state.error or ""):
        print_line(f"{state.error}")
        return
    step = state.step or "start"
    print_line(f"{config.name} does not work. It failed at the step {step}:")
    print_line(f"  {state.error}")
    if state.status == "sign_in":
        print_line("You have to sign in. Run this in a terminal and open the address it shows.")
        return
    place = f" in {config.file}" if config.file else ""
    command = _describe_command(config) if config.command else config.url
    advice = "service" if step == "initialize" and not config.command else step
    print_line(ADVICE.get(advice, "").format(file=place, command=command))


async def _probe_server(call: CommandCall, name: str) -> McpServerState:
    """The state of the server after one attempt; its questions are asked on the terminal, if there is one."""
    from pigeon.app.build import build
    from pigeon.rpc.in_process import SPOKEN
    from pigeon.sdk.agent import Agent

    async def ask_on_terminal(question: Question) -> str | bool | None:
        # A person opens the address of a sign-in.
        with call.keep_links():
            print_line(question.title)
        return await _read_answer_on_terminal(question)

    attended = sys.stdin is not None and sys.stdin.isatty()
    options = AgentOptions(
        model=DEMO.name,
        no_session=True,
        no_extensions=True,
        no_skills=True,
        no_context_files=True,
        tool_servers=(name,),
        unattended=not attended,
    )
    built = await build(options.for_dialect(SPOKEN), call.environment, call.redactor)
    async with Agent.over(built, on_dialog=ask_on_terminal if attended else None) as agent:
        events = agent.events()
        await agent.hello(features=["mcp"])
        while True:
            state = next(one for one in (await agent.get_mcp_servers()).servers if one.name == name)
            if state.status in ENDED:
                return state
            async for event in events:
                if isinstance(event, McpServerChanged):
                    break


async def _read_answer_on_terminal(question: Question) -> str | bool | None:
    """A sign-in may end meanwhile, so the line is read without a thread that would block the exit."""
    if isinstance(question, SelectRequest):
        print_line("Choose one of: " + ", ".join(question.options))
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def take_typed_line() -> None:
        if not typed.done():
            typed.set_result(sys.stdin.readline())

    loop.add_reader(sys.stdin, take_typed_line)
    try:
        line = (await typed).strip()
    finally:
        loop.remove_reader(sys.stdin)
    return line.lower() in ("y", "yes") if isinstance(question, ConfirmRequest) else line or None
