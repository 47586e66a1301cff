"""Extensions in Python: what an extension imports. Nothing is loaded before it is asked for.

from pigeon.extensions import Block, Extension, ToolCall

ext = Extension("guard")

@ext.on(ToolCall, tools=["bash"])
async def gate(event, ctx):
    if "rm -rf" in event.args["command"] and not await ctx.ui.confirm("Run it?", event.args["command"]):
        return Block("refused by the user")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pigeon.extensions.api import Extension as Extension
    from pigeon.extensions.api import Flag as Flag
    from pigeon.extensions.context import CommandContext as CommandContext
    from pigeon.extensions.context import Context as Context
    from pigeon.extensions.context import ToolContext as ToolContext
    from pigeon.extensions.events import *  # noqa: F403
    from pigeon.extensions.provider import Call as Call
    from pigeon.extensions.provider import Think as Think
    from pigeon.extensions.results import *  # noqa: F403

_NAMED = {
    "Extension": "api",
    "Flag": "api",
    "Context": "context",
    "CommandContext": "context",
    "ToolContext": "context",
    "Call": "provider",
    "Think": "provider",
}


def __getattr__(name: str) -> Any:
    home = _NAMED.get(name)
    for module in [home] if home else ["events", "results"]:
        found = getattr(import_module(f"pigeon.extensions.{module}"), name, None)
        if found is not None and not name.startswith("_"):
            return found
    raise AttributeError(f"pigeon.extensions has no {name!r}")
