"""Importing this module registers every handler."""

from __future__ import annotations

from pigeon.rpc.handlers import (
    dialogs,
    export,
    hello,
    host_tools,
    models,
    modes,
    prompting,
    sessions,
    shell,
    state,
    todos,
    xcsh,
)

__all__ = [
    "dialogs", "export", "hello", "host_tools", "models", "modes", "prompting", "sessions", "shell", "state", "todos",
    "xcsh",
]  # fmt: skip
