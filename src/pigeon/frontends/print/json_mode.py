"""`--mode json`: the prompts on the command line, one after the other; their events on stdout.

The first line is the session's header; there are no responses. Exit code 0 when every run was done; 1 when a prompt was
refused or a run ended in an error; 3 when a limit ended or prevented a run; 4 when, with `--unattended`, its last tool
calls were denied; 130 when it was aborted. The reason is on stderr, and no further prompt is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec import structs

from pigeon.dialects.base import Dialect
from pigeon.frontends.call import CommandLine
from pigeon.frontends.printing import print_to_stderr
from pigeon.frontends.prompt_input import CallPrompts, fetch_prompts, has_prompt, read_piped_text
from pigeon.frontends.starting import (
    StartedAgent,
    choose_dialect,
    refuse_unknown_options,
    run_agent,
    with_key_from_file,
)
from pigeon.rpc.outbox import Outbox
from pigeon.rpc.session_connection import SessionConnection
from pigeon.rpc.shutdown import Shutdown
from pigeon.sdk.images import image_of
from pigeon.sdk.results import CUT_OFF, is_cut_off
from pigeon.session.prompting import HostMessage
from pigeon.session.session import Session
from pigeon.system.environment import Environment
from pigeon.transport import exit_codes
from pigeon.transport.writer import Writer
from pigeon.wire.answers import Accepted
from pigeon.wire.base import ABSENT, value_or_default
from pigeon.wire.errors import Refusal, UsageError
from pigeon.wire.events import AgentEnd, AgentSettled, MessageEnd, Outbound
from pigeon.wire.messages import AssistantMessage

FLUSH_SECONDS = 10.0


def run_json(line: CommandLine, environment: Environment) -> int:
    """Run the prompts; returns the exit code."""
    if line.output or line.output_schema:
        option = "--output" if line.output else "--output-schema"
        raise UsageError(f"{option} needs -p, while --mode json prints events. For one answer, leave out --mode json")
    dialect = choose_dialect(line, environment)
    line = with_key_from_file(line, environment)
    line = structs.replace(line, agent=structs.replace(line.agent, offers=("agents",)))
    piped = read_piped_text()
    if not has_prompt(line, piped, environment):
        if line.unknown:
            refuse_unknown_options(line, environment)
        raise UsageError('There is no prompt. Write one (pigeon --mode json "...") or pipe it in')

    async def run_prompts_of_line(started: StartedAgent) -> int:
        prompts = await fetch_prompts(started.line, piped, environment, started.agent, as_one=False)
        return await _run_and_write_json(started, dialect, prompts)

    return run_agent(line, environment, dialect, run_prompts_of_line, is_unwatched=True)


async def _run_and_write_json(started: StartedAgent, dialect: Dialect, prompts: CallPrompts) -> int:
    shutdown = Shutdown()
    shutdown.watch_signals()
    agent, show = started.agent, started.show
    shown = None if show is None else partial(show, "out")
    writer = Writer(started.descriptors[1], lambda: shutdown.request_exit(exit_codes.FAILED), shown)
    session = agent.session
    connection = SessionConnection(session, dialect, agent.redactor.mask)
    outbox = Outbox(writer, connection, merges=not session.dependencies.settings.reproducible)
    session.bus.add_announcer(outbox.send_event, outbox.wait_if_full)
    session.on_host_disconnected()
    await agent.lifecycle.on_host_ready(lambda: shutdown.request_exit(exit_codes.OK))
    writer.put((next(session.journal.iterate_lines()), b"\n"))
    ended = asyncio.ensure_future(shutdown.wait_for_request())
    work = asyncio.ensure_future(_run_prompts(session, prompts, ended.done))
    await asyncio.wait({work, ended}, return_when=asyncio.FIRST_COMPLETED)
    code = work.result() if work.done() else ended.result()
    await agent.lifecycle.close_extensions()
    await session.close()
    await agent.lifecycle.stop()
    writer.close(FLUSH_SECONDS)
    return code


async def _run_prompts(session: Session, prompts: CallPrompts, leaving: Callable[[], bool]) -> int:
    """Runs the prompts one after the other; returns the exit code."""
    watch = _RunEnds(leaving, session.dependencies.settings.unattended)
    session.bus.add_announcer(watch.on_event)
    for number, text in enumerate(prompts.texts):
        images = [image_of(data) for data in prompts.images] if number == 0 and prompts.images else ABSENT
        try:
            waiting = session.prompting.prompt(HostMessage(text, images))
            if not isinstance(waiting, Accepted):
                await waiting
        except Refusal as refusal:
            print_to_stderr(str(refusal))
            return exit_codes.LIMIT if refusal.code == "limit" else exit_codes.FAILED
        await session.prompting.wait_for_commands()
        await session.activity.wait_until_idle()
        await session.engine.wait_until_prompts_reported()
        if watch.code:
            return watch.code
    return exit_codes.OK


class _RunEnds:
    """The exit code that follows from how runs ended; prints the reason on stderr.

    Nothing is printed if the process is `leaving`: the person who asked for that knows the reason.
    """

    def __init__(self, leaving: Callable[[], bool], unattended: bool) -> None:
        self._leaving = leaving
        self._unattended = unattended
        self.code = exit_codes.OK
        self._failure = ""
        self._cut_off = False

    def on_event(self, event: Outbound) -> None:
        if isinstance(event, MessageEnd):
            message = event.message
            failure = value_or_default(message.error_message, "") if isinstance(message, AssistantMessage) else ""
            self._failure = value_or_default(event.explanation, "") or failure
        elif isinstance(event, AgentEnd):
            self._cut_off = is_cut_off(event.messages)
        elif isinstance(event, AgentSettled):
            reason = "done" if event.reason == "denied" and not self._unattended else event.reason
            self.code = exit_codes.BY_END.get(reason, exit_codes.OK)
            if self.code and not self._leaving():
                why = f" ({self._failure})" if self._failure and reason == "error" else ""
                print_to_stderr(f"The run ended: {reason}{why}")
            elif self._cut_off:
                print_to_stderr(f"Warning: {CUT_OFF}")
