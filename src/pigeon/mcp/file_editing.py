"""Adding tool servers to `mcp.json` and removing them."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from typing import Any

from pigeon.config.file_editing import change_file
from pigeon.config.json_file import read_json
from pigeon.wire.errors import BadRecord, StartupError

# The keys that the servers of a file may be under; the first is used where there is none.
LISTS = ("mcpServers", "servers")


class NoSuchServer(StartupError):
    """A file has no server of this name; `known` are the servers that it has."""

    def __init__(self, path: str, name: str, known: Collection[str]) -> None:
        super().__init__(f"{path} has no server {name!r}")
        self.known = known


def add_server(path: str, name: str, entry: dict[str, Any]) -> None:
    """Add a server to a file, which is created if necessary; raises `StartupError` if it has one of this name."""

    def with_server_added() -> dict[str, Any]:
        raw, key = _read_servers_file(path)
        if name in raw.get(key, {}):
            raise StartupError(f"{path} has a server {name!r}. Remove it first: pigeon mcp remove {shlex.quote(name)}")
        return {**raw, key: {**raw.get(key, {}), name: entry}}

    change_file(path, with_server_added, "Add the server there yourself.")


def remove_server(path: str, name: str) -> None:
    """Remove a server from a file; raises `NoSuchServer`, and `StartupError` for a file that cannot be changed."""

    def with_server_removed() -> dict[str, Any]:
        raw, key = _read_servers_file(path)
        servers = raw.get(key, {})
        if name not in servers:
            raise NoSuchServer(path, name, servers)
        return {**raw, key: {known: entry for known, entry in servers.items() if known != name}}

    change_file(path, with_server_removed, "Remove the server yourself.")


def _read_servers_file(path: str) -> tuple[dict[str, Any], str]:
    """The file as it is, and the key that its servers are under."""
    try:
        raw = read_json(path, may_be_blank=True)
    except FileNotFoundError:
        raw = {}
    except (OSError, BadRecord) as error:
        raise StartupError(f"{path}: {error}. Nothing was changed") from None
    key = next((one for one in LISTS if isinstance(raw, dict) and one in raw), LISTS[0])
    if not isinstance(raw, dict) or not isinstance(raw.get(key, {}), dict):
        raise StartupError(f"{path} must be an object with {key}. Nothing was changed")
    return raw, key
