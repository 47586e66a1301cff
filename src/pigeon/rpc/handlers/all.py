"""Every handler: importing their modules registers them."""

from __future__ import annotations

from pigeon.rpc.handlers import (
    agents,
    connection,
    export,
    host_tools,
    models,
    modes,
    permissions,
    prompting,
    sessions,
    shell,
    state,
    subagents,
    todos,
    trust,
    undo,
)
from pigeon.rpc.router import registered_handlers

HANDLERS = registered_handlers()

__all__ = [
    "HANDLERS", "agents", "connection", "export", "host_tools", "models", "modes", "permissions",
    "prompting", "sessions", "shell", "state", "subagents", "todos", "trust", "undo",
]  # fmt: skip
