"""`pigeon replay SESSION`: a stored session, played to a host as if it happened now.

`session/playback.py` plays it; here an agent is built for it that stores nothing, and commands that would change the
conversation are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec.structs import replace

from pigeon import __version__
from pigeon.app.build import BuiltAgent, build
from pigeon.app.options import AgentOptions
from pigeon.cli.commands.sessions import find_session_file
from pigeon.dialects.base import Dialect
from pigeon.dialects.choice import choose_dialect_name, make_dialect
from pigeon.frontends.call import CommandCall
from pigeon.rpc.handlers.all import HANDLERS
from pigeon.rpc.host import Host, PipeChannel
from pigeon.rpc.router import CommandHandler
from pigeon.rpc.shutdown import die_if_interrupted
from pigeon.session.history.reading import LoadedSession, load_session
from pigeon.session.playback import PlayedClock, SessionPlayer, last_branch_of
from pigeon.system.clock import PlaybackPace, SteadyLoop, parse_speed
from pigeon.system.environment import Environment
from pigeon.transport import stdio
from pigeon.wire.base import value_or_default
from pigeon.wire.commands import NAMES, Abort, Command
from pigeon.wire.errors import Refusal, StartupError, UsageError
from pigeon.wire.messages import AssistantMessage

LONGEST_GAP = 5.0
REFUSED = "This is a replay of past events, so {} is not possible. To continue a session, use --session"


def run_replay(call: CommandCall) -> int:
    """Play a session; returns the exit code."""
    environment = call.environment
    path = find_session_file(call, call.words[0])
    speed = parse_speed(call.options.get("speed") or "1")
    if speed is None:
        raise UsageError(f'--speed must be a number above 0, or max; got "{call.options.get("speed")}"')
    pace = PlaybackPace(speed, _parse_gap(call.options.get("max_gap")))
    loaded = load_session(path)
    if loaded is None or not any(line.type == "message" for line in loaded.lines):
        raise StartupError(f"{path} has no messages, so there is nothing to play")
    variables = environment.variables
    name = choose_dialect_name(call.options.get("dialect"), environment.called, (), variables)
    dialect = make_dialect(name, __version__, variables)
    descriptors = stdio.claim_stdio()
    drains = call.has_option("drain")
    code = SteadyLoop().run_until_complete(_serve(loaded, path, environment, dialect, descriptors, pace, drains))
    die_if_interrupted(code)
    return code


def _parse_gap(text: str | None) -> float:
    try:
        seconds = LONGEST_GAP if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise UsageError(f'--max-gap must be a number of seconds; got "{text}"')
    return seconds


async def _serve(
    loaded: LoadedSession,
    path: str,
    environment: Environment,
    dialect: Dialect,
    descriptors: tuple[int, int],
    pace: PlaybackPace,
    drains: bool,
) -> int:
    clock = PlayedClock()
    surroundings = replace(environment, now=clock.now, ids=clock)
    agent = await _build_agent(loaded, surroundings, dialect)
    session, life = agent.session, agent.lifecycle
    session.journal.load(LoadedSession({}, b"", [], needs_newline=False, rewritten=False))
    host = _ReplayHost(
        session, dialect, PipeChannel(descriptors), lambda: drains, _do_nothing, mask=agent.redactor.mask
    )
    player = SessionPlayer(session, clock, pace)
    playing: list[asyncio.Future[None]] = []

    async def start_playback(ended: object) -> None:
        await life.on_host_ready(lambda: None)
        playing.append(asyncio.ensure_future(player.play(last_branch_of(loaded))))

    try:
        return await host.serve(start_playback, life.close_extensions, life.stop)
    finally:
        for task in playing:
            task.cancel()


async def _do_nothing() -> None:
    """Does nothing: a playback needs no warm-up."""


async def _build_agent(loaded: LoadedSession, environment: Environment, dialect: Dialect) -> BuiltAgent:
    """An agent with the session's id and model, which stores nothing on disk and loads nothing that could act."""
    answers = (line.message for line in loaded.lines if line.role == "assistant")
    answer = next((message for message in answers if isinstance(message, AssistantMessage)), None)
    options = AgentOptions(
        no_session=True,
        session_id=str(loaded.header["id"]),
        no_extensions=True,
        no_context_files=True,
        trust_project=False,
        unattended=True,
    ).for_dialect(dialect)
    level = value_or_default(answer.thinking_level, None) if answer is not None else None
    if answer is None:
        return await build(options, environment)
    try:
        named = replace(options, provider=answer.provider, model=answer.model, thinking=level)
        return await build(named, environment)
    except StartupError:
        # A model that is unknown here.
        return await build(options, environment)


def _refuse_command(cmd: Command, s: Any) -> None:
    raise Refusal(REFUSED.format(NAMES[type(cmd)]))


class _ReplayHost(Host):
    """Serves a played session: read-only commands are answered, and a run can be stopped."""

    handlers: ClassVar[Mapping[type[Command], CommandHandler]] = {
        kind: handler if kind.required_scope == "read" or kind is Abort else _refuse_command
        for kind, handler in HANDLERS.items()
    }
