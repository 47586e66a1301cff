"""Options of agents behind `--`, for commands that start many agents: `pigeon serve -- --thinking high`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from msgspec import structs

from pigeon.app.options import OF_ONE_SESSION, AgentOptions
from pigeon.frontends.call import CommandCall
from pigeon.system.environment import Environment
from pigeon.wire.errors import UsageError

LONGEST_PATH = 4096


def parse_agent_options(call: CommandCall, words: Sequence[str]) -> AgentOptions:
    """The options that these words of a call give to every agent, with absolute paths.

    Raises `UsageError` for anything that is not an option, and for options of a single conversation.
    """
    environment = call.environment
    line = call.parse_agent(words)
    if line.api_key_file is not None:
        from pigeon.frontends.starting import with_key_from_file

        line = with_key_from_file(line, environment)
    agent = line.agent
    if line.messages or line.unknown:
        what = (*line.unknown, *line.messages)[0]
        raise UsageError(f"Only options of an agent may follow --, and {what} is not one. See: pigeon --help")
    if given := [f"--{name.replace('_', '-')}" for name in OF_ONE_SESSION if getattr(agent, name)]:
        raise UsageError(f"{given[0]} applies to a single conversation, so it cannot be given to all of them")
    located = _make_path_resolver(environment)
    # Agents work in other folders, and these paths are relative to this one.
    paths = {name: tuple(map(located, getattr(agent, name))) for name in ("extensions", "skills")}
    paths["prompt_templates"] = tuple(map(located, agent.prompt_templates))
    paths["append_system_prompt"] = tuple(map(located, agent.append_system_prompt))
    texts = {name: getattr(agent, name) for name in ("system_prompt", "permissions")}
    changed = {name: located(text) for name, text in texts.items() if isinstance(text, str)}
    return structs.replace(agent, **paths, **changed)


def _make_path_resolver(environment: Environment) -> Callable[[str], str]:
    """Makes a path absolute; a text that is no path stays as it is."""

    def to_absolute_if_exists(text: str) -> str:
        path = environment.absolute_path(text) if text and len(text) < LONGEST_PATH else ""
        return path if path and os.path.exists(path) else text

    return to_absolute_if_exists


def parse_whole_number(option: str, asked: str | None, default: int, most: int = 999_999_999) -> int:
    """The value of an option; raises `UsageError` for what is no whole number up to `most`."""
    if asked is None:
        return default
    if not asked.isascii() or not asked.isdigit() or len(asked) > 9 or int(asked) > most:
        raise UsageError(f'--{option.replace("_", "-")} must be a whole number up to {most}; got "{asked}"')
    return int(asked)
