"""Conversations whose model starts agents: what each agent says is told by a word in its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pigeon
from pigeon.wire import codec
from support.sdk_agents import Conversations

TASK, JOBS = "+task", "+jobs"


def calls(*given: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A reply with several tool calls."""
    return {"toolCalls": [{"name": name, "arguments": arguments} for name, arguments in given]}


def task(prompt: str, **more: Any) -> tuple[str, dict[str, Any]]:
    """A call that starts an agent."""
    return "task", {"prompt": prompt, **more}


class AgentTree:
    """One conversation in this process, and the script of all of its agents.

    `says(WORD, REPLY, ...)` are the replies to requests whose last prompt has the word, in order; the last one is
    repeated.
    """

    def __init__(self, folder: Path) -> None:
        self.made = Conversations("agent", folder)
        self.work = self.made.work
        self.folders = self.made.folders
        self._rules: list[dict[str, Any]] = []

    def says(self, word: str, *replies: Any) -> None:
        for reply in replies[:-1]:
            self._rules.append({"when": {"user": word}, "reply": reply, "times": 1})
        self._rules.append({"when": {"user": word}, "reply": replies[-1]})

    def start(
        self, *, script: dict[str, Any] | None = None, tools: Sequence[str] = (TASK, JOBS), **options: Any
    ) -> Any:
        """The conversation, not opened yet."""
        self.made.script(rules=self._rules, **(script or {}))
        return self.made.start(builtin_tools=list(tools), **options)

    def define(self, name: str, text: str, folder: Path | None = None) -> Path:
        """A definition of an agent type for the user, or in another folder."""
        place = (folder or self.folders.agent / "agents") / f"{name}.md"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place


def results_of(events: Sequence[Any], tool: str = "task") -> list[pigeon.ToolExecutionEnd]:
    """The ends of the calls of a tool."""
    return [one for one in events if isinstance(one, pigeon.ToolExecutionEnd) and one.tool_name == tool]


def text_of_result(end: pigeon.ToolExecutionEnd) -> str:
    return pigeon.text_of(end.result.content)


async def events_of(agent: Any, text: str) -> list[Any]:
    """All events of one prompt."""
    return [event async for event in agent.prompt(text)]


def plain(record: Any) -> Any:
    return codec.to_plain(record)
