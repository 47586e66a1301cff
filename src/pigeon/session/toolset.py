"""Which tools the model has: those built in, and those that the host runs, by name."""

from __future__ import annotations

from collections.abc import Iterable

from pigeon.agent.inference import ToolSpec
from pigeon.agent.interfaces import Tool


class Toolset:
    """All tools, and the names of the active ones in the order they are offered."""

    def __init__(self, tools: dict[str, Tool], active: Iterable[str]) -> None:
        self._tools = dict(tools)
        self._lent: dict[str, Tool] = {}
        self._active = [name for name in active if name in self._tools]

    def replace(self, tools: dict[str, Tool]) -> None:
        """Other implementations under the same names, as when the working directory changes."""
        self._tools.update(tools)

    def offer(self, name: str) -> None:
        """Make a tool active; nothing happens if there is none of this name, or if it is active already."""
        if name not in self._active and (name in self._tools or name in self._lent):
            self._active.append(name)

    def is_taken(self, name: str) -> bool:
        """True if this name belongs to an active tool of our own."""
        return name in self._active and name not in self._lent

    def lend(self, tools: dict[str, Tool], shown: Iterable[str]) -> None:
        """Replace the tools that the host runs; a name that was there before stays active or inactive as it was."""
        before = self._lent
        self._lent = dict(tools)
        self._active = [name for name in self._active if name in tools or name not in before]
        for name in shown:
            if name not in before:
                self.offer(name)

    def tool(self, name: str) -> Tool | None:
        """One tool, active or not."""
        return self._lent.get(name) or self._tools.get(name)

    def every(self) -> list[Tool]:
        """All tools, active or not."""
        return list({**self._tools, **self._lent}.values())

    def activate(self, names: Iterable[str]) -> None:
        """Exactly these tools are active; unknown names are left out."""
        self._active = [name for name in dict.fromkeys(names) if name in self._tools or name in self._lent]

    def active(self) -> dict[str, Tool]:
        """The tools that can be called now."""
        return {name: self._tool(name) for name in self._active}

    def specs(self) -> list[ToolSpec]:
        """The same tools as they stand in a request."""
        return [self._tool(name).spec for name in self._active]

    def described(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Name and one line of each active tool, and what their authors advise, for the system prompt."""
        tools = self.active().values()
        lines = [(tool.spec.name, getattr(tool, "snippet", "")) for tool in tools]
        advice = [line for tool in tools for line in getattr(tool, "guidelines", ())]
        return lines, list(dict.fromkeys(advice))

    def _tool(self, name: str) -> Tool:
        return self._lent[name] if name in self._lent else self._tools[name]
