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
    from pigeon.extensions.public.api import Extension as Extension
    from pigeon.extensions.public.api import Flag as Flag
    from pigeon.extensions.public.context import CommandContext as CommandContext
    from pigeon.extensions.public.context import Context as Context
    from pigeon.extensions.public.context import ToolContext as ToolContext
    from pigeon.extensions.public.events import *  # noqa: F403
    from pigeon.extensions.public.provider import Call as Call
    from pigeon.extensions.public.provider import Think as Think
    from pigeon.extensions.public.results import *  # noqa: F403

_HOMES = {
    "api": "Extension Flag",
    "context": "CommandContext Context ToolContext",
    "provider": "Call Think",
    "results": "BashOutput Begin Block Cancel GoOn Handled Messages Note Override Replace Resources Summary ToolOutput "
    "Transform Trust",
    "events": "AfterProviderResponse AgentBeforeSettle AgentEnd AgentSettled AgentStart BeforeAgentStart "
    "BeforeProviderHeaders BeforeProviderRequest Event Input MessageEnd MessageStart MessageUpdate ModelContext "
    "ModelSelect ProjectTrust ResourcesDiscover SessionBeforeCompact SessionBeforeFork SessionBeforeSwitch "
    "SessionCompact SessionCompactFailed SessionInfoChanged SessionShutdown SessionStart ThinkingLevelSelect ToolCall "
    "ToolExecutionEnd ToolExecutionStart ToolExecutionUpdate ToolResult TurnEnd TurnStart UserBash",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"pigeon.extensions has no {name!r}")
    return getattr(import_module(f"pigeon.extensions.public.{home}"), name)
