"""`--mode rpc`: claim the descriptors, build the session, serve the host."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys

from pigeon import __version__
from pigeon.app.build import Composer
from pigeon.cli.args import Options
from pigeon.dialects.base import Dialect
from pigeon.dialects.choice import chosen_name, dialect_named
from pigeon.rpc.host import Host
from pigeon.rpc.shutdown import SIGNALS
from pigeon.transport import stdio
from pigeon.transport.framing import DEFAULT_CAP
from pigeon.wire.errors import StartupError


def run_rpc(options: Options) -> int:
    """Serve until the host goes; returns the exit code."""
    if any(message.startswith("@") for message in options.messages):
        raise StartupError("@file arguments are not supported in RPC mode")
    environment = dict(os.environ)
    name = chosen_name(options.dialect, sys.argv[0], sys.argv[1:], environment)
    dialect = dialect_named(name, __version__, environment)
    cap = _record_cap(options.record_cap)
    descriptors = stdio.claim()
    code = asyncio.new_event_loop().run_until_complete(_serve(options, dialect, descriptors, cap))
    if code == SIGNALS[signal.SIGINT]:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code


async def _serve(options: Options, dialect: Dialect, descriptors: tuple[int, int], cap: int) -> int:
    composed = await Composer(options).compose(dialect.default_interrupt_mode)
    composed.session.engine.conduct.keeps_unreadable_images = dialect.keeps_unreadable_images
    composed.tell_problems(options)
    gc.freeze()
    gc.enable()
    host = Host(composed.session, dialect, descriptors, composed.drains, composed.warm, cap)
    return await host.serve(composed.started, composed.leaving, composed.stop)


def _record_cap(asked: str | None) -> int:
    if asked is None:
        return DEFAULT_CAP
    if not asked.isdigit() or int(asked) < 1024:
        raise StartupError(f'--record-cap must be a number of bytes, at least 1024; got "{asked}"')
    return int(asked)
