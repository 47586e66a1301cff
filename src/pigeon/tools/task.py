"""task: another agent does a part of the work in a context of its own, and its last answer is the result."""

from __future__ import annotations

from typing import Any, ClassVar

from pigeon.agent.inference import ToolSpec
from pigeon.agent.interfaces import ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.tools.base import AgentRequest, BaseTool, TaskRunner, ToolParts
from pigeon.wire.agents import AgentType
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome

LONGEST_TITLE = 80


def _title(arguments: dict[str, Json]) -> str:
    for name in ("title", "prompt"):
        text = " ".join(str(arguments.get(name) or "").split())
        if text:
            return text if len(text) <= LONGEST_TITLE else text[: LONGEST_TITLE - 1] + "…"
    return "Start an agent"


class TaskTool(BaseTool):
    """Starts an agent, or continues one that has ended; neighbouring calls run side by side."""

    name = "task"
    description = (
        "Give a part of the work to another agent, which has its own context and works with its own tools in the same "
        "folder. It knows nothing of this conversation: write into the prompt everything that it needs, and what its "
        "answer must contain. The result is its last answer, its id and the files that it changed. Several calls in "
        "one answer run at the same time. With resume, an agent that has ended goes on with what it knows. With "
        "background, the result is an id at once, and you are told when it has ended."
    )
    parameters: ClassVar[dict[str, Json]] = {
        "type": "object",
        "properties": {
            "prompt": {"type": "string", "minLength": 1, "description": "The whole task, with all that must be known"},
            "agent": {"type": "string", "description": "The type of agent (general by default)"},
            "title": {"type": "string", "description": "The task in a few words, for the user"},
            "background": {"type": "boolean", "description": "True to go on without waiting for it"},
            "resume": {"type": "string", "description": "The id of an agent that has ended and is to continue"},
            "isolation": {
                "type": "string",
                "enum": ["none", "worktree"],
                "description": "worktree: it works in a git worktree of its own, and the result names its branch",
            },
            "output_schema": {
                "type": "object",
                "description": "A JSON Schema: the result is a value that fits it, as JSON",
            },
        },
        "required": ["prompt"],
    }
    snippet = "Give parts of the work to other agents, several at once if they are independent"
    reads_only = True
    facts = ToolFacts(_title, kind="agent", other_names=("agent", "subagent"))

    def __init__(self, agents: TaskRunner) -> None:
        self._agents = agents
        self._made: tuple[list[AgentType], ToolSpec] | None = None

    @classmethod
    def create(cls, parts: ToolParts) -> TaskTool | None:
        """The tool, unless this agent may start no others."""
        return None if parts.agents is None else cls(parts.agents)

    @property
    def spec(self) -> ToolSpec:
        """The tool's description for the model, with the types that there are; the same object while they stay."""
        types = self._agents.list_types()
        if self._made is None or self._made[0] is not types:
            listed = "\n".join(f"- {known.name}: {known.description}" for known in types)
            described = f"{self.description}\nTypes of agents:\n{listed}"
            self._made = (types, ToolSpec(self.name, described, self.parameters, self.strict))
        return self._made[1]

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        return await self._agents.run_task(to_agent_request(arguments), run)


def to_agent_request(arguments: dict[str, Any]) -> AgentRequest:
    """The request of a call; raises `ToolFailed` for a prompt that says nothing."""
    if not arguments["prompt"].strip():
        raise ToolFailed("prompt is empty: say what the agent is to do.")
    return AgentRequest(
        prompt=arguments["prompt"],
        agent=arguments.get("agent") or None,
        title=arguments.get("title") or None,
        background=arguments.get("background") is True,
        resume=arguments.get("resume") or None,
        isolation=arguments.get("isolation") or "none",
        output_schema=arguments.get("output_schema", ABSENT),
    )
