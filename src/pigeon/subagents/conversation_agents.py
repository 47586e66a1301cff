"""The agents of one conversation for its session and its tools: no code is loaded until one is started or asked for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from pigeon.agent.interfaces import ToolRun
from pigeon.config.settings import Settings
from pigeon.session.history.started_agents import read_recorded_agents
from pigeon.tools.base import AgentRequest
from pigeon.wire.agents import AgentInfo, AgentMerged, AgentType
from pigeon.wire.events import AgentChanged, ToolOutcome
from pigeon.wire.messages import Message
from pigeon.wire.model import Model, Usage

if TYPE_CHECKING:
    from pigeon.permissions.control import AgentPermissions
    from pigeon.resources.resources import Resources
    from pigeon.sandbox.control import SandboxControl
    from pigeon.secrets.redactor import Redactor
    from pigeon.session.model_choice import ModelSource
    from pigeon.session.session import Session
    from pigeon.subagents.agent_types import AgentTypes
    from pigeon.subagents.spawning import Spawner
    from pigeon.system.environment import Environment
    from pigeon.tools.agent_tools import AgentTools
    from pigeon.wire.commands.agents import SpawnAgent
from pigeon.workspaces.agent_workspace import AgentWorkspace


def worktrees_folder(environment: Environment) -> str:
    """Where the copies of repositories are that agents work in."""
    cache = environment.variables.get("XDG_CACHE_HOME") or os.path.join(environment.home, ".cache")
    return os.path.join(environment.absolute_path(cache), "pigeon", "worktrees")


class AgentSurroundings(Struct, frozen=True, kw_only=True):
    """What all agents of a conversation have in common besides the session that starts them.

    `tools` are those of the conversation itself. `find_model` returns the model that a type names, or None.
    """

    environment: Environment
    settings: Settings
    sandbox: SandboxControl
    redactor: Redactor
    resources: Resources
    permissions: AgentPermissions
    tools: AgentTools
    models: ModelSource


class TreeChoices(Struct, frozen=True, kw_only=True):
    """What settings and options say about agents; `programs` are the types of the program. With `in_turn` one works
    after the other, as for a recording."""

    agent_dir: str
    settings: Settings
    programs: Sequence[AgentType]
    find_model: Callable[[str], Model | None]
    report: Callable[[str], None]
    in_turn: bool
    workspace: AgentWorkspace


class ConversationAgents:
    """It has the interfaces of `StartedAgents`, for the session, and of `TaskRunner`, for the tool."""

    def __init__(self, choices: TreeChoices) -> None:
        self._choices = choices
        self._folder: tuple[str, bool] = ("", False)
        self._parts: tuple[Session, AgentSurroundings] | None = None
        self._types: AgentTypes | None = None
        self._made: Spawner | None = None

    def connect(self, session: Session, surroundings: AgentSurroundings) -> None:
        """Set the session of the conversation and what its agents share, once they are built."""
        self._parts = (session, surroundings)

    def use_folder(self, cwd: str, trusted: bool, harmless: bool) -> None:
        """Use the agent types of this folder, if it is trusted, instead of those of another one."""
        self._folder = (cwd, trusted)
        if self._types is not None:
            self._types.use_folder(cwd, trusted)

    def read_project(self, cwd: str, trusted: bool) -> None:
        """Read the agent types of a project without using them, so that their files are fetched."""
        from pigeon.subagents.definitions import agent_folders, read_agent_types

        given = self._choices
        read_agent_types(agent_folders(given.agent_dir, cwd, trusted), lambda problem: None, given.workspace.view)

    def report_mistakes(self, tool: str) -> None:
        """Read the types now, which reports mistakes in their files, if the model has the tool that starts agents."""
        if self._parts is not None and self._parts[0].toolset.is_active(tool):
            self.list_types()

    @property
    def may_spawn(self) -> bool:
        """False if the settings allow no agents."""
        return self._choices.settings.agents.max_depth > 0

    def list_types(self) -> list[AgentType]:
        """The types that the conversation may start."""
        return self._ensure_types().list_types()

    async def run_task(self, request: AgentRequest, run: ToolRun) -> ToolOutcome:
        return await self._spawner.run_task(request, run)

    def list_agents(self) -> list[AgentInfo]:
        return self._spawner.list_agents()

    def describe_running(self) -> list[AgentChanged]:
        return [] if self._made is None else self._made.describe_running()

    def list_open_usage(self) -> list[Usage]:
        return self._spawner.list_open_usage() if self._made is not None or self._has_recorded_agents() else []

    def list_messages(self, agent_id: str) -> list[Message]:
        return self._spawner.list_messages(agent_id)

    async def spawn(self, request: SpawnAgent) -> str:
        return await self._spawner.spawn(request)

    async def steer(self, agent_id: str, text: str) -> None:
        await self._spawner.steer(agent_id, text)

    async def abort(self, agent_id: str) -> None:
        await self._spawner.abort(agent_id)

    def abort_all(self) -> None:
        if self._made is not None:
            self._made.abort_all()

    async def stop_all(self) -> None:
        if self._made is not None:
            await self._made.stop_all()

    def leave_conversation(self) -> None:
        """Another conversation is open: its agents are others."""
        if self._made is not None:
            self._made.leave_conversation()

    async def merge(self, agent_id: str) -> AgentMerged:
        return await self._spawner.merge(agent_id)

    async def remove_leftovers(self) -> None:
        """Look for the worktrees of agents whose process has died, and say what became of their work."""
        parts = self._parts
        if parts is None or not self.may_spawn:
            return
        if parts[1].sandbox.is_enclosing() or parts[1].tools.workspace.is_elsewhere:
            return
        if await asyncio.to_thread(os.path.isdir, worktrees_folder(parts[1].environment)):
            for text in await self._spawner.rescue_worktrees():
                parts[0].dependencies.report(text)

    def _ensure_types(self) -> AgentTypes:
        if self._types is None:
            from pigeon.subagents.agent_types import AgentTypes

            given = self._choices
            self._types = AgentTypes(
                given.agent_dir,
                given.programs,
                self._list_tool_names,
                given.find_model,
                given.report,
                given.workspace.current_view,
            )
            self._types.use_folder(*self._folder)
        return self._types

    def _has_recorded_agents(self) -> bool:
        return self._parts is not None and bool(read_recorded_agents(self._parts[0].journal.lines))

    def _list_tool_names(self) -> list[str]:
        from pigeon.tools.catalog import built_in_names

        if self._parts is None:
            return list(built_in_names())
        return self._parts[0].toolset.all_names()

    @property
    def _spawner(self) -> Spawner:
        if self._made is None:
            from pigeon.subagents.child import StartedAgentFactory
            from pigeon.subagents.spawning import Spawner
            from pigeon.subagents.tree import AgentTree, TreeSettings

            assert self._parts is not None
            session, surroundings = self._parts
            asked = self._choices.settings.agents
            settings = TreeSettings(
                max_depth=asked.max_depth,
                max_parallel=max(1, asked.max_parallel),
                in_turn=self._choices.in_turn,
            )
            self._made = Spawner(AgentTree(settings, session), self._ensure_types())
            self._made.connect(session, StartedAgentFactory(surroundings, self._choices.find_model))
        return self._made
