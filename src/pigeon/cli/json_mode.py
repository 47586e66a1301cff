"""`--mode json`: the prompts on the command line (and piped text), one after the other; their events on stdout.

The first line is the session's header; there are no responses. Exit code 0 when every prompt ran, whatever the model
said; 1 when one was refused, with the reason on stderr; 3 when a limit ended a run, and then no further prompt is sent.
That is so, too, when a limit keeps a prompt from starting one. With `--unattended` also 1 when a run ended in an error,
4 when its last tool calls were denied, and 130 when it was aborted; no further prompt is sent then, either.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping

from pigeon.app.build import BuiltAgent
from pigeon.app.environment import Environment
from pigeon.cli.args import CommandLine
from pigeon.cli.starting import Descriptors, run_agent, spoken_dialect, with_key
from pigeon.dialects.base import Dialect
from pigeon.rpc.outbox import Outbox
from pigeon.rpc.shutdown import Shutdown
from pigeon.session.prompting import HostMessage
from pigeon.session.session import Session
from pigeon.transport import exit_codes
from pigeon.transport.writer import Writer
from pigeon.wire.answers import Accepted
from pigeon.wire.errors import Refusal
from pigeon.wire.events import AgentSettled, Outbound

FLUSH_SECONDS = 10.0
ENDS = {"limit": exit_codes.LIMIT}
UNATTENDED_ENDS = {
    **ENDS,
    "error": exit_codes.FAILED,
    "denied": exit_codes.DENIED,
    "aborted": exit_codes.BY_SIGNAL[signal.SIGINT],
}


def run_json(line: CommandLine, environment: Environment) -> int:
    """Run the prompts; returns the exit code."""
    dialect = spoken_dialect(line, environment)
    line = with_key(line, environment)
    prompts, unattended = _prompts(line), line.agent.unattended

    async def play(agent: BuiltAgent, descriptors: Descriptors) -> int:
        return await _play(agent, dialect, descriptors[1], prompts, UNATTENDED_ENDS if unattended else ENDS)

    return run_agent(line, environment, dialect, play)


def _prompts(line: CommandLine) -> list[str]:
    """Those of the command line; piped text goes before the first."""
    prompts = list(line.messages)
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read().strip()
    return [piped + "".join(prompts[:1]), *prompts[1:]] if piped else prompts


async def _play(agent: BuiltAgent, dialect: Dialect, output: int, prompts: list[str], ends: Mapping[str, int]) -> int:
    shutdown = Shutdown()
    shutdown.watch_signals()
    writer = Writer(output, lambda: shutdown.request(exit_codes.FAILED))
    outbox = Outbox(writer, dialect, agent.redactor.mask)
    session = agent.session
    session.bus.announce(outbox.event, outbox.room)
    session.disconnect()
    await agent.lifecycle.started(lambda: shutdown.request(exit_codes.OK))
    writer.put((next(session.journal.every_line()), b"\n"))
    work = asyncio.ensure_future(_ask(session, prompts, ends))
    ended = asyncio.ensure_future(shutdown.reason())
    await asyncio.wait({work, ended}, return_when=asyncio.FIRST_COMPLETED)
    code = work.result() if work.done() else ended.result()
    await agent.lifecycle.leaving()
    await session.close()
    await agent.lifecycle.stop()
    writer.close(FLUSH_SECONDS)
    return code


async def _ask(session: Session, prompts: list[str], ends: Mapping[str, int]) -> int:
    """The exit code; `ends` are those of runs that keep the next prompt from being sent, by the reason of their end."""
    codes: list[int] = []

    def note(event: Outbound) -> None:
        if isinstance(event, AgentSettled) and event.reason in ends:
            print(f"The run ended: {event.reason}", file=sys.stderr)  # noqa: T201
            codes.append(ends[event.reason])

    session.bus.announce(note)
    for prompt in prompts:
        try:
            waiting = session.prompting.prompt(HostMessage(prompt))
            if not isinstance(waiting, Accepted):
                await waiting
        except Refusal as refusal:
            print(refusal, file=sys.stderr)  # noqa: T201
            return exit_codes.LIMIT if refusal.code == "limit" else exit_codes.FAILED
        await session.prompting.commands_done()
        await session.activity.until_idle()
        await session.engine.told_all()
        if codes:
            return codes[0]
    return exit_codes.OK
