"""The files that configure tool servers: the user's, and those of a trusted project, which override it.

A server in a later file replaces one of the same name; an entry that only has `disabled` turns it off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping

from pigeon.config.json_file import find_repeated_key, read_json
from pigeon.config.paths import project_dirs
from pigeon.mcp.server_config import ServerConfig, parse_server, parse_servers, replace_fields
from pigeon.mcp.tool_names import to_allowed_name
from pigeon.wire.base import Json
from pigeon.wire.commands.mcp import McpSource
from pigeon.wire.errors import BadRecord

NAME = "mcp.json"
# The file of other programs, in the project folder itself.
SHARED_NAME = ".mcp.json"


def user_file(agent_dir: str) -> str:
    return os.path.join(agent_dir, NAME)


def project_files(cwd: str) -> list[str]:
    """The files of a project, the strongest last."""
    return [os.path.join(cwd, SHARED_NAME), *(os.path.join(folder, NAME) for folder in reversed(project_dirs(cwd)))]


def read_servers(path: str, source: McpSource, report: Callable[[str], None]) -> list[ServerConfig]:
    """The servers of one file; empty if there is no file. Errors in it are reported with its path."""

    def report_with_path(text: str) -> None:
        report(f"{path}: {text}")

    try:
        value = read_json(path, may_be_blank=True)
        twice = find_repeated_key(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        report_with_path(f"{error.strerror or error}; none of its tool servers is used")
        return []
    except (BadRecord, ValueError, RecursionError) as error:
        report_with_path(f"{error}; none of its tool servers is used")
        return []
    if twice is not None:
        report_with_path(f"{twice[:80]!r} appears twice, and only the last one is used")
    return list(parse_servers(value, source, path, report_with_path))


def merge_servers(layers: Iterable[Iterable[ServerConfig]]) -> list[ServerConfig]:
    """All layers together, the strongest last; names that would result in the same tool names are made distinct."""
    found: dict[str, ServerConfig] = {}
    for layer in layers:
        for config in layer:
            below = found.get(config.name)
            only_off = not config.enabled and config.transport is None and config.problem is None
            found[config.name] = replace_fields(below, enabled=False) if only_off and below is not None else config
    taken: dict[str, str] = {}
    for name, config in found.items():
        first = taken.setdefault(to_allowed_name(name), name)
        if first != name:
            text = f"is left out: its tools would be called like those of {first!r}. Give it another name"
            found[name] = replace_fields(config, problem=text)
    return list(found.values())


class ServerLayers:
    """The servers that one agent is configured with: those of the files, and those that the host has set.

    `only` are the names to use of those in files, None for all. `problems` are those of the files as last read.
    """

    def __init__(self, agent_dir: str, only: Container[str] | None, report: Callable[[str], None]) -> None:
        self._agent_dir = agent_dir
        self._only = only
        self._report = report
        self._cwd: str | None = None
        self._files: list[list[ServerConfig]] = []
        self._host: list[ServerConfig] = []
        self.problems: list[str] = []

    def read_files(self, cwd: str, trusted: bool) -> bool:
        """Read the files, those of the project only if it is trusted; returns whether the folder has changed."""
        self.problems = []
        layers = [read_servers(user_file(self._agent_dir), "user", self._note_problem)]
        if trusted:
            layers += [read_servers(path, "project", self._note_problem) for path in project_files(cwd)]
        only = self._only
        self._files = [[one for one in layer if only is None or one.name in only] for layer in layers]
        before, self._cwd = self._cwd, cwd
        return before is not None and before != cwd

    def set_host_servers(self, servers: Mapping[str, Json]) -> None:
        """Replace the servers that the host has set."""
        self._host = [parse_server(name, value, "host") for name, value in servers.items()]

    def merged_servers(self) -> list[ServerConfig]:
        """All servers, those of the host before those of files of the same name."""
        return merge_servers([*self._files, self._host])

    def _note_problem(self, text: str) -> None:
        self.problems.append(text)
        self._report(text)
