"""`--mode rpc`: serve one host on stdin and stdout, or on a Unix socket, until it disconnects."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import partial

from pigeon.frontends.call import CommandLine
from pigeon.frontends.draining import should_drain
from pigeon.frontends.starting import Descriptors, StartedAgent, choose_dialect, run_agent, with_key_from_file
from pigeon.rpc.host import Host, PipeChannel
from pigeon.rpc.shutdown import Shutdown, die_if_interrupted
from pigeon.system.environment import Environment
from pigeon.transport.reader import DEFAULT_CAP
from pigeon.wire.errors import StartupError, UsageError


def run_rpc(line: CommandLine, environment: Environment) -> int:
    """Serve; returns the exit code, unless SIGINT ends the process."""
    if any(message.startswith("@") for message in line.messages):
        raise StartupError("@file arguments are not supported in RPC mode")
    dialect = choose_dialect(line, environment)
    line = with_key_from_file(line, environment)
    cap = _parse_record_cap(line.record_cap)
    path = None if line.socket is None else environment.absolute_path(line.socket)

    async def serve(started: StartedAgent) -> int:
        agent, descriptors = started.agent, started.descriptors
        life = agent.lifecycle
        if path is not None:
            connected = await _accept_connection(path)
            if isinstance(connected, int):
                await agent.session.close()
                await life.stop()
                return connected
            descriptors = connected
        host = Host(
            agent.session,
            dialect,
            PipeChannel(descriptors, cap, started.show),
            partial(should_drain, agent, line.agent.drain),
            agent.session.warm_up,
            record_cap=cap,
            mask=agent.redactor.mask,
            shows_dialogs=not line.no_ui,
        )
        return await host.serve(life.on_host_ready, life.close_extensions, life.stop)

    code = run_agent(line, environment, dialect, serve, is_unwatched=False)
    die_if_interrupted(code)
    return code


async def _accept_connection(path: str) -> Descriptors | int:
    """The descriptors of the first connection to a socket, or an exit code if a signal comes first."""
    from pigeon.transport.unix_socket import accept_own_user, listen

    shutdown = Shutdown()
    shutdown.watch_signals()
    listener = listen(path)
    accepting = asyncio.ensure_future(accept_own_user(listener, path))
    ended = asyncio.ensure_future(shutdown.wait_for_request())
    await asyncio.wait({accepting, ended}, return_when=asyncio.FIRST_COMPLETED)
    if accepting.done():
        ended.cancel()
        return accepting.result()
    accepting.cancel()
    with suppress(OSError):
        os.unlink(path)
    return ended.result()


def _parse_record_cap(asked: str | None) -> int:
    if asked is None:
        return DEFAULT_CAP
    if not asked.isdecimal() or len(asked) > 18 or int(asked) < 1024:
        raise UsageError(f'--record-cap must be a whole number of bytes, at least 1024; got "{asked}"')
    return int(asked)
