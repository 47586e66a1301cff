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
    from pigeon.agent.inference import ModelRequest as ModelRequest
    from pigeon.extensions.public.api import Extension as Extension
    from pigeon.extensions.public.api import Flag as Flag
    from pigeon.extensions.public.context import CommandContext as CommandContext
    from pigeon.extensions.public.context import Context as Context
    from pigeon.extensions.public.context import ToolContext as ToolContext
    from pigeon.extensions.public.events import *  # noqa: F403
    from pigeon.extensions.public.provider import Call as Call
    from pigeon.extensions.public.provider import Think as Think
    from pigeon.extensions.public.results import *  # noqa: F403

# Every class of these modules is exported, so a new event or result is declared only there.
_RECORDS = ("events", "results")
_CLASSES = {
    "api": "Extension Flag",
    "context": "CommandContext Context ToolContext",
    "provider": "Call ModelRequest Think",
}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return list(_list_exports())
    if not name.startswith("_") and (home := _list_exports().get(name)) is not None:
        return getattr(import_module(home), name)
    raise AttributeError(f"pigeon.extensions has no {name!r}")


def _list_exports() -> dict[str, str]:
    """The names that extensions import, with their modules."""
    exported = {name: f"{__name__}.public.{home}" for home, names in _CLASSES.items() for name in names.split()}
    for record in _RECORDS:
        module = import_module(f"{__name__}.public.{record}")
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        exported |= {name: module.__name__ for name in own if isinstance(getattr(module, name), type)}
    return exported
