"""`pigeon serve`: many conversations, over the network."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import structs

from pigeon.app.options import AgentOptions
from pigeon.app.stores import find_store
from pigeon.frontends.agent_words import parse_agent_options, parse_whole_number
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import print_line
from pigeon.store.addresses import FILES
from pigeon.system.clock import SteadyLoop
from pigeon.system.collector import resume_collecting
from pigeon.system.extras import require_extra
from pigeon.transport import exit_codes
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord, StartupError, UsageError

if TYPE_CHECKING:
    from pigeon.frontends.serve.http.server import FileShares, ServeOptions
    from pigeon.frontends.serve.http.tokens import Tokens
    from pigeon.frontends.serve.worker_checks import ServeLimits
    from pigeon.frontends.serve.worker_process import Workers

NOT_RUNNING = "No server is running for this agent's folder. Start one: pigeon serve"
STDERR = 2
MEGABYTE = 1024 * 1024
# They take turns on one processor.
MOST_SHARED = 1000
# Workers report that they are alive every five seconds, which may be late on a busy machine.
LEAST_SILENCE = 15


def run_serve(call: CommandCall) -> int:
    """Serve until a signal; returns the exit code."""
    require_extra("serve", "pigeon serve")
    environment = call.environment
    agent_dir = environment.agent_dir()
    token_file = environment.absolute_path(call.options.get("token_file") or os.path.join(agent_dir, "serve.token"))
    if call.has_option("link"):
        from pigeon.frontends.serve.http.tokens import Tokens

        scope = call.options.get("scope") or "admin"
        return _request_and_print_link(os.path.join(agent_dir, "serve"), Tokens(token_file), scope)
    _refuse_databases(call)
    roots = [environment.absolute_path(root) for root in call.options.get("root") or [environment.cwd]]
    for root in roots:
        if not os.path.isdir(root):
            raise UsageError(f"--root {root} is not a folder")
    options = _parse_agent_options(call, agent_dir)
    return SteadyLoop().run_until_complete(_serve(call, options, agent_dir, token_file, roots))


def _refuse_databases(call: CommandCall) -> None:
    """Served conversations are files; one that belongs into a database is never kept in files instead."""
    line = call.parse_agent(call.words)
    kept = find_store(line.agent.store, call.environment)
    if isinstance(kept, str) and not kept.startswith(FILES):
        raise UsageError(
            "pigeon serve keeps conversations in files: call it without --store and PIGEON_STORE, or with file:DIR"
        )


async def _serve(
    call: CommandCall, options: AgentOptions, agent_dir: str, token_file: str, roots: Sequence[str]
) -> int:
    from pigeon.frontends.serve.resources import raise_file_limit
    from pigeon.frontends.serve.worker_process import Workers

    # For the workers too.
    files = raise_file_limit()
    variables = {name: value for name, value in call.environment.variables.items() if name != "PIGEON_TOKEN"}
    shared = max(1, _read_number_option(call, "shared", 1, MOST_SHARED))
    workers = Workers(variables, os.path.join(agent_dir, "serve", "run"), shared)
    # The parent of the workers starts while the packages of the server are imported here, which takes as long.
    starting = asyncio.ensure_future(workers.ensure_parent())
    try:
        await asyncio.sleep(0)
        return await _serve_network(call, options, agent_dir, token_file, roots, workers, variables, files)
    finally:
        starting.cancel()
        with suppress(OSError, asyncio.CancelledError):
            await starting
        workers.end_parent()


async def _serve_network(
    call: CommandCall,
    options: AgentOptions,
    agent_dir: str,
    token_file: str,
    roots: Sequence[str],
    workers: Workers,
    variables: dict[str, str],
    files: int,
) -> int:
    from pigeon.frontends.serve.conversations import Conversations
    from pigeon.frontends.serve.counts import ServeCounts
    from pigeon.frontends.serve.http.server import divide_file_limit
    from pigeon.frontends.serve.http.tokens import Tokens
    from pigeon.frontends.serve.service import NetworkService
    from pigeon.frontends.serve.service_log import LEVELS, ServiceLog

    level = LEVELS.get(call.options.get("log_level") or "info")
    if level is None:
        raise UsageError(f"--log-level must be one of {', '.join(LEVELS)}")
    tokens = Tokens(token_file)
    shares = divide_file_limit(files)
    settings, limits = _read_settings(call, shares), _read_limits(call, shares)
    log = ServiceLog(STDERR, level)
    counts = ServeCounts(lambda name, session: log.info(name, session=session))
    log.capture_logging()
    if shares.awake <= limits.awake or shares.known <= settings.connections.known:
        log.warning("few_open_files", files=files, awake=limits.awake, connections=settings.connections.known)
    try:
        conversations = Conversations(agent_dir, options, variables, roots, limits, counts, workers)
        service = NetworkService(conversations, tokens, settings, os.path.join(agent_dir, "serve"), counts, log)
        # `main` switched the collector off: nothing created during the start is garbage.
        resume_collecting()
        return await service.run(_print_ready)
    finally:
        log.close()


def _parse_agent_options(call: CommandCall, agent_dir: str) -> AgentOptions:
    """The options of every conversation's agent, given after `--`."""
    agent = parse_agent_options(call, call.words)
    return structs.replace(agent, agent_dir=agent_dir, model=call.options.get("model") or agent.model)


def _read_settings(call: CommandCall, shares: FileShares) -> ServeOptions:
    from pigeon.frontends.serve.http.connections import ConnectionLimits
    from pigeon.frontends.serve.http.server import FRAME_BYTES, ServeOptions

    options = call.options
    limits = ConnectionLimits()
    paths = [name for name in ("tls_cert", "tls_key", "socket") if options.get(name)]
    given = {name: call.environment.absolute_path(options[name]) for name in paths}
    return ServeOptions(
        host=options.get("host") or "127.0.0.1",
        port=_read_number_option(call, "port", 7463, 65535),
        allowed_hosts=tuple(options.get("allow_host") or ()),
        behind_proxy=call.has_option("behind_proxy"),
        insecure=call.has_option("insecure"),
        connections=ConnectionLimits(
            known=min(_read_number_option(call, "max_connections", limits.known), shares.known),
            unknown=min(limits.unknown, shares.unknown),
            request_seconds=_read_number_option(call, "request_seconds", int(limits.request_seconds)),
        ),
        drain_seconds=_read_number_option(call, "drain_seconds", 30),
        frame_bytes=_read_number_option(call, "max_frame_mb", FRAME_BYTES // MEGABYTE, 1024) * MEGABYTE,
        **given,
    )


def _read_limits(call: CommandCall, shares: FileShares) -> ServeLimits:
    from pigeon.frontends.serve.worker_checks import ServeLimits

    limits = ServeLimits()
    silence = _read_number_option(call, "worker_silence", limits.worker_silence)
    if 0 < silence < LEAST_SILENCE:
        raise UsageError(f"--worker-silence must be 0, or at least {LEAST_SILENCE}; got {silence}")
    return ServeLimits(
        awake=min(_read_number_option(call, "max_awake", limits.awake), shares.awake),
        kept=_read_number_option(call, "max_kept", limits.kept),
        allow_exec=call.has_option("allow_exec"),
        idle_seconds=60.0 * _read_number_option(call, "idle_minutes", 10),
        worker_memory=_read_number_option(call, "worker_memory", limits.worker_memory),
        worker_processes=_read_number_option(call, "worker_processes", limits.worker_processes),
        worker_restarts=_read_number_option(call, "worker_restarts", limits.worker_restarts),
        worker_silence=silence,
        host_tool_wait=_read_number_option(call, "host_tool_wait", limits.host_tool_wait),
    )


def _print_ready(address: str, link: str) -> None:
    print_line(f"Serving on {address}")
    print_line(f"Open once in your browser: {link}")
    # Programs that start it wait for these lines.
    sys.stdout.flush()


def _request_and_print_link(folder: str, tokens: Tokens, scope: str) -> int:
    """Ask the running server for a new link, at its own address and with a token from the file."""
    import http.client
    import ssl
    from urllib.parse import urlsplit

    from pigeon.frontends.serve.http.server import read_address

    address = read_address(folder)
    token = tokens.find_first_token("admin")
    if address is None:
        raise StartupError(NOT_RUNNING)
    if token is None:
        raise StartupError("The token file has no token with scope admin")
    place = urlsplit(address.url)
    assert place.hostname is not None
    if place.scheme == "https":
        # The certificate is our own, and was issued for the server's public name.
        context = ssl.create_default_context(cafile=address.tls_cert)
        context.check_hostname = False
        link: http.client.HTTPConnection = http.client.HTTPSConnection(
            place.hostname, place.port, timeout=10, context=context
        )
    else:
        link = http.client.HTTPConnection(place.hostname, place.port, timeout=10)
    try:
        headers = {"Authorization": f"Bearer {token.secret}", "Content-Type": "application/json"}
        link.request("POST", "/api/links", codec.encode({"scope": scope}), headers)
        answer = link.getresponse()
        value = codec.decode(answer.read())
    except (OSError, http.client.HTTPException, BadRecord) as error:
        raise StartupError(f"{NOT_RUNNING} ({address.url} does not answer: {type(error).__name__})") from None
    finally:
        link.close()
    if answer.status != 201:
        raise StartupError(f"The server at {address.url} refuses: {value.get('error')}")
    print_line(f"{address.public}{value['path']}")
    return exit_codes.OK


def _read_number_option(call: CommandCall, name: str, default: int, most: int = 999_999_999) -> int:
    return parse_whole_number(name, call.options.get(name), default, most)
