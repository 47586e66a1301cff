"""Makes the session of a started agent: that of the agent that starts it, with a conversation, tools, a model, rules
and limits of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pigeon.agent.interfaces import Tool
from pigeon.permissions.control import AgentName, SessionParts
from pigeon.session.bus import Bus
from pigeon.session.checkpoints import CheckpointsOfAgent, FileCheckpoints, NoCheckpoints
from pigeon.session.context.transcript import Transcript
from pigeon.session.dependencies import ServerContent
from pigeon.session.hooks import NoHooks
from pigeon.session.model_choice import ModelChoice, ModelOptions
from pigeon.session.session import Session
from pigeon.session.toolset import Toolset
from pigeon.subagents.conversation_agents import AgentSurroundings, worktrees_folder
from pigeon.subagents.spawning import ChildPlan
from pigeon.tools.agent_tools import AgentTools, ToolOptions
from pigeon.tools.catalog import built_in_names
from pigeon.tools.task import TaskTool
from pigeon.tools.workplaces import Workplaces
from pigeon.wire.agents import AgentType
from pigeon.wire.answers import SlashCommand
from pigeon.wire.base import Json
from pigeon.wire.commands.mcp import McpCompletions, McpResource, McpServers, McpServerState
from pigeon.wire.errors import Refusal
from pigeon.wire.model import Model

if TYPE_CHECKING:
    from pigeon.subagents.worktrees import Worktrees

NO_WORKTREES = 'isolation "worktree" is not possible in a sandbox: commands may only write in the working folder'
NO_WORKTREES_THERE = 'isolation "worktree" is only possible on this machine, and the workspace is on {}'
ROLE = (
    "You are the agent {agent} that another agent has started for one task; the first message is that task. Nobody "
    "reads along and nobody answers questions: decide what is open. Your last message is your result, and all that the "
    "other agent gets to see: put everything into it that the task asks for, with paths and lines, and nothing else."
)


class StartedAgentFactory:
    """Makes the sessions of started agents."""

    def __init__(self, surroundings: AgentSurroundings, find_model: Callable[[str], Model | None]) -> None:
        self._with = surroundings
        self._find_model = find_model

    @cached_property
    def worktrees(self) -> Worktrees:
        from pigeon.subagents.worktrees import Worktrees
        from pigeon.system.git import Git

        given = self._with
        if given.sandbox.is_enclosing():
            raise Refusal(NO_WORKTREES)
        if given.tools.workspace.is_elsewhere:
            raise Refusal(NO_WORKTREES_THERE.format(given.tools.workspace.machine))
        git = Git(given.sandbox.processes, given.environment.variables, given.redactor.list_key_variables())
        return Worktrees(git, worktrees_folder(given.environment))

    def make_session(self, plan: ChildPlan) -> Session:
        given, parent = self._with, plan.parent.dependencies
        transcript, bus = Transcript(plan.journal), Bus()
        models = self._choose_model(plan, transcript, bus)
        tools = self._make_tools(plan, transcript, bus, models)
        if not plan.spawner.may_spawn and plan.parent.toolset.is_active(TaskTool.name):
            # Not offered; who calls it all the same is told why it may not.
            tools.toolset.try_defer(TaskTool(plan.spawner))
        tools.add_tools(_find_foreign_tools(plan.parent.toolset))
        name = AgentName(plan.journal.session_id, plan.type.name)
        permissions = given.permissions.make_agent_permissions(
            [known.permissions for known in plan.types_above],
            SessionParts(
                transcript=transcript,
                toolset=tools.toolset,
                dialogs=parent.dialogs,
                post=bus.post,
                workspace=tools.workspace,
            ),
            name,
        )
        dependencies = replace(
            parent,
            settings=replace(parent.settings, limits=plan.limits, finish_gate=False),
            bus=bus,
            transcript=transcript,
            workplace=tools.workplace,
            move_to=tools.move_to,
            models=models,
            toolset=tools.toolset,
            todos=tools.todos,
            host_services=tools.host_services,
            images=tools.images,
            expander=PlainPrompts(),
            system_prompt=self._make_composer(plan.type),
            hooks=NoHooks(),
            permissions=permissions,
            gate=permissions.build_gate,
            run_callbacks=(),
            tool_servers=NoToolServers(),
            agents=plan.spawner,
            jobs=tools.jobs,
            checkpoints=self._share_checkpoints(plan, transcript),
            limits_above=plan.parent.engine.limits,
        )
        return Session(dependencies)

    def _make_tools(self, plan: ChildPlan, transcript: Transcript, bus: Bus, models: ModelChoice) -> AgentTools:
        given = self._with
        workplaces = Workplaces(
            given.environment,
            given.settings,
            given.sandbox,
            transcript,
            models,
            given.redactor,
            given.tools.workspace,
        )
        return AgentTools(
            self._choose_tools(plan),
            given.environment,
            given.settings,
            given.sandbox,
            transcript,
            workplaces,
            bus.post,
            agents=plan.spawner if plan.spawner.may_spawn else None,
            starter=given.tools,
        )

    def _share_checkpoints(self, plan: ChildPlan, transcript: Transcript) -> FileCheckpoints:
        """What it changes is recorded with what the conversation does, unless it works in a copy of the folder."""
        parent = plan.parent.dependencies
        if transcript.folder() != parent.transcript.folder():
            return NoCheckpoints()
        above = parent.transcript

        def find_place() -> str:
            place = parent.checkpoints.find_place() if isinstance(parent.checkpoints, CheckpointsOfAgent) else ""
            return place or above.find_last_user_entry() or ""

        return CheckpointsOfAgent(parent.checkpoints, plan.journal.session_id, find_place)

    def _choose_model(self, plan: ChildPlan, transcript: Transcript, bus: Bus) -> ModelChoice:
        known, parent = plan.type, plan.parent.models
        model = parent.model
        if known.model is not None:
            model = self._find_model(known.model)
            if model is None:
                where = f" ({known.path})" if known.path else ""
                raise Refusal(
                    f'The agent type "{known.name}"{where} names the model "{known.model}", which is not usable'
                )
        chosen = ModelOptions(
            source=self._with.models,
            model=model,
            thinking=known.thinking or parent.level,
            explicit=True,
            explicit_level=True,
        )
        return ModelChoice(chosen, transcript, NoHooks(), bus.post, plan.parent.dependencies.report)

    def _choose_tools(self, plan: ChildPlan) -> ToolOptions:
        """The tools of its type, or those of the agent that starts it: in any case only what the options admit."""
        toolset = plan.parent.toolset
        named = list(toolset.active_tools()) if plan.type.tools is None else plan.type.tools
        admitted = [name for name in named if toolset.admits(name)]
        return ToolOptions(tools=tuple(admitted) or ("",))

    def _make_composer(self, known: AgentType) -> Callable[..., str]:
        role = ROLE.format(agent=known.name)
        made: dict[Any, str] = {}

        def compose(cwd: str, tools: Sequence[Any], guidelines: Sequence[str]) -> str:
            key = (cwd, tuple((name, snippet) for name, snippet, _ in tools), tuple(guidelines))
            if key not in made:
                made.clear()
                made[key] = self._with.resources.build_agent_prompt(cwd, tools, guidelines, known.prompt, role)
            return made[key]

        return compose


def _find_foreign_tools(toolset: Toolset) -> dict[str, Tool]:
    """The tools of extensions, servers and the host, which started agents share."""
    own = built_in_names()
    return {name: tool for name in toolset.all_names() if name not in own and (tool := toolset.find_tool(name))}


class PlainPrompts:
    """Leaves prompts as they are: another agent has written them, and no person."""

    def expand(self, text: str) -> str:
        return text

    def list_commands(self) -> list[SlashCommand]:
        return []


class NoToolServers:
    """The tool servers of a started agent: it has their tools, and their connections are those of the conversation."""

    def skip_startup_delay(self) -> None:
        """Does nothing: the conversation connects them."""

    def start_connecting(self) -> None:
        """Does nothing: the conversation connects them."""

    async def close(self) -> None:
        """Does nothing: the conversation closes them."""

    def state(self) -> McpServers:
        return McpServers(servers=[], problems=[])

    def set_host_servers(self, servers: dict[str, Json]) -> None:
        raise Refusal("Tool servers are configured for the conversation, not for one of its agents")

    def reconnect_server(self, name: str) -> McpServerState:
        raise Refusal(f'There is no tool server "{name}" here')

    def resources(self) -> list[McpResource]:
        return []

    def list_commands(self) -> list[SlashCommand]:
        return []

    async def complete_message(self, text: str) -> McpCompletions:
        return McpCompletions(replaces="", completions=[])

    def fetch_mentioned_content(self, text: str) -> Awaitable[ServerContent] | ServerContent:
        return ServerContent()
