"""Every handler: importing their modules registers them."""

from __future__ import annotations

from pigeon.rpc.handlers import (
    dialogs,
    export,
    forks,
    hello,
    host_tools,
    models,
    modes,
    permissions,
    prompting,
    sessions,
    shell,
    state,
    todos,
    trust,
)
from pigeon.rpc.router import registered

HANDLERS = registered()

__all__ = [
    "HANDLERS", "dialogs", "export", "forks", "hello", "host_tools", "models", "modes", "permissions", "prompting",
    "sessions", "shell", "state", "todos", "trust",
]  # fmt: skip
