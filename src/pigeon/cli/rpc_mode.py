"""`--mode rpc`: serve one host on stdin and stdout until it goes."""

from __future__ import annotations

import os
import signal

from pigeon.app.build import BuiltAgent
from pigeon.app.environment import Environment
from pigeon.cli.args import CommandLine
from pigeon.cli.starting import Descriptors, run_agent, spoken_dialect, with_key
from pigeon.rpc.host import Host
from pigeon.transport import exit_codes
from pigeon.transport.reader import DEFAULT_CAP
from pigeon.wire.errors import StartupError


def run_rpc(line: CommandLine, environment: Environment) -> int:
    """Serve; returns the exit code, unless SIGINT ends the process."""
    if any(message.startswith("@") for message in line.messages):
        raise StartupError("@file arguments are not supported in RPC mode")
    dialect = spoken_dialect(line, environment)
    line = with_key(line, environment)
    cap = _record_cap(line.record_cap)

    async def serve(agent: BuiltAgent, descriptors: Descriptors) -> int:
        life = agent.lifecycle
        mask = agent.redactor.mask
        host = Host(agent.session, dialect, descriptors, life.drains, life.warm, cap, mask, not line.no_ui)
        return await host.serve(life.started, life.leaving, life.stop)

    code = run_agent(line, environment, dialect, serve)
    if code == exit_codes.BY_SIGNAL[signal.SIGINT]:
        # A shell only takes the whole script down if its child died of the signal.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code


def _record_cap(asked: str | None) -> int:
    if asked is None:
        return DEFAULT_CAP
    if not asked.isdigit() or int(asked) < 1024:
        raise StartupError(f'--record-cap must be a number of bytes, at least 1024; got "{asked}"')
    return int(asked)
