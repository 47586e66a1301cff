"""Which tools the model has: those built in, and whatever else is registered, by name."""

from __future__ import annotations

from collections.abc import Iterable

from pigeon.agent.protocols import Tool
from pigeon.wire.inference import ToolSpec


class Toolset:
    """All tools, and the names of the active ones in the order they are offered."""

    def __init__(self, tools: dict[str, Tool], active: Iterable[str]) -> None:
        self._tools = dict(tools)
        self._active = [name for name in active if name in self._tools]

    def replace(self, tools: dict[str, Tool]) -> None:
        """Other implementations under the same names, as when the working directory changes."""
        self._tools.update(tools)

    def active(self) -> dict[str, Tool]:
        """The tools that can be called now."""
        return {name: self._tools[name] for name in self._active}

    def specs(self) -> list[ToolSpec]:
        """The same tools as the model is told of them."""
        return [self._tools[name].spec for name in self._active]

    def described(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Name and one line of each active tool, and what their authors advise, for the system prompt."""
        tools = self.active().values()
        lines = [(tool.spec.name, getattr(tool, "snippet", "")) for tool in tools]
        advice = [line for tool in tools for line in getattr(tool, "guidelines", ())]
        return lines, list(dict.fromkeys(advice))
