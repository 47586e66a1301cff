"""The files that configure tool servers: the user's, and those of a trusted project, which override it.

A server in a later file replaces one of the same name; an entry that only says `disabled` turns it off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from pigeon.config.json_file import read_json, repeated_key
from pigeon.config.paths import project_dirs
from pigeon.mcp.server_config import ServerConfig, replaced, servers_in
from pigeon.mcp.tool_names import plain_name
from pigeon.wire.commands.mcp import McpSource
from pigeon.wire.errors import BadRecord

NAME = "mcp.json"
# The file of other programs, in the project folder itself.
SHARED_NAME = ".mcp.json"


def user_file(agent_dir: str) -> str:
    """The user's file."""
    return os.path.join(agent_dir, NAME)


def project_files(cwd: str) -> list[str]:
    """The files of a project, the strongest last."""
    return [os.path.join(cwd, SHARED_NAME), *(os.path.join(folder, NAME) for folder in reversed(project_dirs(cwd)))]


def read_servers(path: str, source: McpSource, report: Callable[[str], None]) -> list[ServerConfig]:
    """The servers of one file; none if there is no file. What is wrong with it is reported with its path."""

    def wrong(text: str) -> None:
        report(f"{path}: {text}")

    try:
        value = read_json(path, may_be_blank=True)
        twice = repeated_key(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        wrong(f"{error.strerror or error}; none of its tool servers is used")
        return []
    except (BadRecord, ValueError, RecursionError) as error:
        wrong(f"{error}; none of its tool servers is used")
        return []
    if twice is not None:
        wrong(f"{twice[:80]!r} appears twice, and only the last one is used")
    return list(servers_in(value, source, path, wrong))


def merged_servers(layers: Iterable[Iterable[ServerConfig]]) -> list[ServerConfig]:
    """All layers together, the strongest last; names that would give the same tool names are told apart."""
    found: dict[str, ServerConfig] = {}
    for layer in layers:
        for config in layer:
            below = found.get(config.name)
            only_off = not config.enabled and config.transport is None and config.problem is None
            found[config.name] = replaced(below, enabled=False) if only_off and below is not None else config
    taken: dict[str, str] = {}
    for name, config in found.items():
        first = taken.setdefault(plain_name(name), name)
        if first != name:
            text = f"is left out: its tools would be called like those of {first!r}. Give it another name"
            found[name] = replaced(config, problem=text)
    return list(found.values())
