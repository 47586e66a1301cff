"""What the modes with an agent have in common: the dialect, the descriptors, the agent itself and its warnings."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable

from msgspec import structs

from pigeon import __version__
from pigeon.app.build import BuiltAgent, build
from pigeon.app.environment import Environment
from pigeon.cli.args import CommandLine
from pigeon.dialects.base import Dialect
from pigeon.dialects.choice import chosen_name, dialect_named
from pigeon.transport import stdio

Descriptors = tuple[int, int]


def spoken_dialect(line: CommandLine, environment: Environment) -> Dialect:
    """The dialect of this call; raises `StartupError` for an unknown name."""
    variables = environment.variables
    return dialect_named(chosen_name(line.dialect, line.program, line.arguments, variables), __version__, variables)


def run_agent(
    line: CommandLine,
    environment: Environment,
    dialect: Dialect,
    play: Callable[[BuiltAgent, Descriptors], Awaitable[int]],
) -> int:
    """Claim stdin and stdout, build the agent, print its warnings and `play`; returns the exit code."""
    # Before the loop: it opens descriptors, and would get 0 or 1 where the host closed them.
    descriptors = stdio.claim()
    return asyncio.new_event_loop().run_until_complete(_run(line, environment, dialect, descriptors, play))


async def _run(
    line: CommandLine,
    environment: Environment,
    dialect: Dialect,
    descriptors: Descriptors,
    play: Callable[[BuiltAgent, Descriptors], Awaitable[int]],
) -> int:
    options = structs.replace(
        line.agent,
        interrupt_mode=dialect.default_interrupt_mode,
        keep_unreadable_images=dialect.keeps_unreadable_images,
    )
    agent = await build(options, environment)
    for warning in (*_unknown_options(line, agent), *agent.problems):
        print(f"Warning: {warning}", file=sys.stderr)  # noqa: T201
    # `main` switched the collector off: nothing that a start makes is garbage.
    gc.freeze()
    gc.enable()
    return await play(agent, descriptors)


def _unknown_options(line: CommandLine, agent: BuiltAgent) -> list[str]:
    names = {option: option.lstrip("-").partition("=")[0] for option in line.unknown}
    return [f"unknown option {option} is ignored" for option, name in names.items() if name not in agent.known_flags]
