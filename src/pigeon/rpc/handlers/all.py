"""Importing this module registers every handler."""

from __future__ import annotations

from pigeon.rpc.handlers import (
    dialogs,
    export,
    forks,
    hello,
    host_tools,
    models,
    modes,
    prompting,
    sessions,
    shell,
    state,
    todos,
)

__all__ = [
    "dialogs", "export", "forks", "hello", "host_tools", "models", "modes", "prompting", "sessions", "shell",
    "state", "todos",
]  # fmt: skip
