"""Every handler: importing their modules registers them."""

from __future__ import annotations

from pigeon.rpc.handlers import (
    export,
    forks,
    hello,
    host_tools,
    models,
    modes,
    oh_my_pi,
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
    "HANDLERS", "export", "forks", "hello", "host_tools", "models", "modes", "oh_my_pi", "permissions",
    "prompting", "sessions", "shell", "state", "todos", "trust",
]  # fmt: skip
