"""`--mode json`: the prompts on the command line (and piped text), one after the other; their events on stdout.

The first line is the session's header; there are no responses. Exit code 0 when every prompt ran, whatever the model
said; 1 when one was refused, with the reason on stderr.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys

from pigeon import __version__
from pigeon.app.build import Composed, Composer
from pigeon.cli.args import Options
from pigeon.dialects.base import Dialect
from pigeon.dialects.choice import chosen_name, dialect_named
from pigeon.rpc.outbox import Outbox
from pigeon.rpc.shutdown import EXIT_OK, EXIT_STDOUT_CLOSED, Shutdown
from pigeon.session.prompting import HostMessage
from pigeon.transport import stdio
from pigeon.transport.writer import Writer
from pigeon.wire.errors import Refusal

FLUSH_SECONDS = 10.0


def run_json(options: Options) -> int:
    """Run the prompts; returns the exit code."""
    environment = dict(os.environ)
    name = chosen_name(options.dialect, sys.argv[0], sys.argv[1:], environment)
    dialect = dialect_named(name, __version__, environment)
    prompts = list(options.messages)
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read().strip()
    if piped:
        prompts = [piped + (prompts[0] if prompts else ""), *prompts[1:]]
    descriptors = stdio.claim()
    return asyncio.new_event_loop().run_until_complete(_play(options, dialect, descriptors[1], prompts))


async def _play(options: Options, dialect: Dialect, output: int, prompts: list[str]) -> int:
    composed = await Composer(options).compose(dialect.default_interrupt_mode)
    composed.session.engine.conduct.keeps_unreadable_images = dialect.keeps_unreadable_images
    composed.tell_problems(options)
    gc.freeze()
    gc.enable()
    shutdown = Shutdown()
    shutdown.watch_signals()
    writer = Writer(output, lambda: shutdown.request(EXIT_STDOUT_CLOSED))
    outbox = Outbox(writer, dialect)
    session = composed.session
    session.bus.announce(outbox.event, outbox.room)
    session.disconnect()
    await composed.started(lambda: shutdown.request(EXIT_OK))
    writer.put((next(session.journal.every_line()), b"\n"))
    work = asyncio.ensure_future(_ask(composed, prompts))
    ended = asyncio.ensure_future(shutdown.reason())
    await asyncio.wait({work, ended}, return_when=asyncio.FIRST_COMPLETED)
    code = work.result() if work.done() else ended.result()
    await composed.leaving()
    await session.close()
    await composed.stop()
    writer.close(FLUSH_SECONDS)
    return code


async def _ask(composed: Composed, prompts: list[str]) -> int:
    for prompt in prompts:
        try:
            waiting = composed.session.prompting.prompt(HostMessage(prompt))
            if waiting is not None:
                await waiting
        except Refusal as refusal:
            print(refusal, file=sys.stderr)  # noqa: T201
            return 1
        await composed.session.prompting.commands_done()
        await composed.session.activity.until_idle()
        await asyncio.sleep(0)
    return EXIT_OK
