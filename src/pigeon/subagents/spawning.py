"""Starting agents: what one agent of a tree may start, and the calls and hosts that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from pigeon.agent.interfaces import ToolRun
from pigeon.agent.scope import Scope
from pigeon.session.history.journal import Journal
from pigeon.subagents.agent_job import AgentJob
from pigeon.subagents.agent_types import AgentTypes
from pigeon.subagents.results import AgentOutcome, Worktree
from pigeon.subagents.running_agent import Assignment, RunningAgent
from pigeon.subagents.slots import NoPlace, Place
from pigeon.subagents.tree import AgentTree, record_agent
from pigeon.tools.base import AgentRequest
from pigeon.wire.agents import AgentInfo, AgentMerged, AgentType
from pigeon.wire.base import ABSENT, Absent, value_or_default
from pigeon.wire.commands.agents import SpawnAgent
from pigeon.wire.content import TextContent
from pigeon.wire.errors import Aborted, PigeonError, Refusal, ToolFailed
from pigeon.wire.events import (
    AgentChanged,
    AgentEnd,
    AgentEvent,
    AgentSettled,
    AgentStart,
    EndReason,
    Outbound,
    PromptResult,
    SessionSettled,
    ToolOutcome,
)
from pigeon.wire.messages import Message
from pigeon.wire.model import Usage, sum_usage, zero_usage
from pigeon.wire.steering import Limits, parse_limits

if TYPE_CHECKING:
    from pigeon.session.session import Session
    from pigeon.subagents.worktrees import AgentWorktree, Worktrees

DEFAULT_TYPE = "general"
_ENDS = (AgentSettled, PromptResult, SessionSettled)
STARTED = (
    "The agent {id} ({agent}) works in the background. You are told when it has ended; until then do other work, or "
    "wait for it with the tool jobs."
)


class ChildPlan(Struct, frozen=True, kw_only=True):
    """An agent that is about to be started: its type, its conversation, who starts it, and what it may start."""

    type: AgentType
    types_above: Sequence[AgentType]
    parent: Session
    journal: Journal
    spawner: Spawner
    limits: Limits


class ChildFactory(Protocol):
    """Makes the session of an agent (`subagents/child.py`)."""

    @property
    def worktrees(self) -> Worktrees:
        """Copies of the repository for agents; raises `Refusal` where there can be none."""
        ...

    def make_session(self, plan: ChildPlan) -> Session:
        """The session of an agent, ready for its prompt; raises `Refusal`."""
        ...


class Spawner:
    """Starts the agents of one agent, and is asked about all of the tree. It has the interfaces of `StartedAgents`, for
    the session, and of `TaskRunner`, for the tool."""

    def __init__(
        self,
        tree: AgentTree,
        types: AgentTypes,
        depth: int = 0,
        types_above: Sequence[AgentType] = (),
        place: Place | NoPlace | None = None,
    ) -> None:
        self._tree = tree
        self._types = types
        self._depth = depth
        self._types_above = types_above
        self._place = NoPlace() if place is None else place
        self._session: Session | None = None
        self._factory: ChildFactory | None = None
        self._chosen: tuple[list[AgentType], list[AgentType]] | None = None
        self._background = Scope()
        self._started = 0
        self._own: dict[RunningAgent, asyncio.Task[AgentOutcome]] = {}
        self._spent = zero_usage()

    def connect(self, session: Session, factory: ChildFactory) -> None:
        """Set the session whose agents these are, once it is built, and what makes theirs."""
        self._session = session
        self._factory = factory

    @property
    def spent(self) -> Usage:
        """What the agents of this one have used, as far as they have ended."""
        return self._spent

    @property
    def may_spawn(self) -> bool:
        """False for an agent that is as deep as agents may be, or whose type may start none."""
        return self._depth < self._tree.settings.max_depth and bool(self.list_types())

    def list_types(self) -> list[AgentType]:
        """The types that this agent may start: the same list each time, until there are others."""
        own = self._types_above[-1] if self._types_above else None
        types = self._types.list_types()
        if own is None or own.spawns is None:
            return types
        if self._chosen is None or self._chosen[0] is not types:
            self._chosen = (types, [one for one in types if one.name in own.spawns])
        return self._chosen[1]

    # For the tool `task`

    async def run_task(self, request: AgentRequest, run: ToolRun) -> ToolOutcome:
        scope = self._background if request.background else run.scope
        try:
            agent = await self._start(request, scope, run.call_id, ABSENT)
        except Refusal as refusal:
            raise ToolFailed(str(refusal)) from None
        work = self._own[agent]
        if request.background:
            info = agent.info
            details = {"agentId": info.agent_id, "agent": info.agent, "jobId": info.agent_id}
            return ToolOutcome(
                content=[TextContent(text=STARTED.format(id=info.agent_id, agent=info.agent))], details=details
            )
        return (await self._wait_for_end(agent, work, run)).to_outcome()

    async def _wait_for_end(self, agent: RunningAgent, work: asyncio.Task[AgentOutcome], run: ToolRun) -> AgentOutcome:
        """Wait, with this agent's place free for others, and show what the other one does."""
        assert self._session is not None
        self._session.engine.limits.count_agent_call(run.call_id)
        shown = asyncio.ensure_future(self._show_progress(agent, run))
        self._place.begin_waiting()
        try:
            return await asyncio.shield(work)
        finally:
            shown.cancel()
            with suppress(Aborted):
                await run.scope.wait(self._place.end_waiting())

    async def _show_progress(self, agent: RunningAgent, run: ToolRun) -> None:
        """Progress for clients that know nothing of agents."""
        while True:
            await agent.changed.wait()
            agent.changed.clear()
            info = agent.info
            details = {"agentId": info.agent_id, "agent": info.agent, "status": info.status}
            details |= {} if isinstance(info.title, Absent) else {"title": info.title}
            text = agent.progress.describe()
            await run.update(ToolOutcome(content=[TextContent(text=text)] if text else [], details=details))

    # For the session

    def list_agents(self) -> list[AgentInfo]:
        return self._tree.list_agents()

    def describe_running(self) -> list[AgentChanged]:
        return [AgentChanged(agent=one.info, work=one.describe_work()) for one in self._tree.list_running()]

    def list_open_usage(self) -> list[Usage]:
        return self._tree.list_open_usage()

    def list_messages(self, agent_id: str) -> list[Message]:
        return self._tree.list_messages(agent_id)

    async def spawn(self, request: SpawnAgent) -> str:
        """Start an agent for the host; raises `Refusal`."""
        if not request.message.strip():
            raise Refusal('Missing or invalid field "message": it is empty')
        wanted = AgentRequest(
            prompt=request.message,
            agent=request.agent or None,
            title=request.title or None,
            background=True,
            resume=request.resume or None,
            isolation=request.isolation,
            output_schema=request.output_schema,
        )
        limits = None if isinstance(request.limits, Absent) else parse_limits(request.limits)
        return (await self._start(wanted, self._background, ABSENT, limits or ABSENT)).info.agent_id

    async def steer(self, agent_id: str, text: str) -> None:
        running = self._tree.find_running(agent_id)
        if running is None:
            raise Refusal(f'The agent "{agent_id[:200]}" is not running ({self._tree.find_info(agent_id).status})')
        await running.steer(text)

    async def abort(self, agent_id: str) -> None:
        running = self._tree.find_running(agent_id)
        if running is None:
            self._tree.find_info(agent_id)
            return
        running.scope.cancel()
        await running.wait_until_over()

    def abort_all(self) -> None:
        """Stop the agents in the background; those that a call waits for hang on the run."""
        background, self._background = self._background, Scope()
        background.cancel()

    async def stop_all(self) -> None:
        self.abort_all()
        own = list(self._own)
        for agent in own:
            agent.scope.cancel()
        for agent in own:
            await agent.wait_until_over()

    def leave_conversation(self) -> None:
        self._tree.leave_conversation()

    async def merge(self, agent_id: str) -> AgentMerged:
        info = self._tree.find_info(agent_id)
        if self._tree.find_running(agent_id) is not None:
            raise Refusal(f'The agent "{agent_id}" is still running; merge its work when it has ended')
        return await self._require_factory().worktrees.merge(self._tree.root.journal.cwd, info.agent_id, info.agent)

    async def remove_leftovers(self) -> None:
        """Does nothing: the conversation looks for them."""

    async def rescue_worktrees(self) -> list[str]:
        """Remove the worktrees of agents whose process has died; returns a sentence for each."""
        return await self._require_factory().worktrees.remove_leftovers(self._tree.root.journal.cwd)

    def _require_factory(self) -> ChildFactory:
        assert self._factory is not None
        return self._factory

    # Starting

    async def _start(
        self, request: AgentRequest, scope: Scope, call_id: str | Absent, limits: Limits | Absent
    ) -> RunningAgent:
        """Start an agent, or continue one; raises `Refusal`."""
        session, factory = self._session, self._factory
        assert session is not None
        assert factory is not None
        if self._depth >= self._tree.settings.max_depth:
            deepest = self._tree.settings.max_depth
            raise Refusal(f"This agent may start no others: agents may be {deepest} deep (setting agents.maxDepth)")
        known = self._find_type(self._name_of_type(request))
        journal, worktree = await self._open_journal(request, session, known)
        place = Place(self._tree.slots)
        above = [*self._types_above, known]
        spawner = Spawner(self._tree, self._types, self._depth + 1, above, place)
        own_scope = scope.make_child()
        try:
            child = factory.make_session(
                ChildPlan(
                    type=known,
                    types_above=above,
                    parent=session,
                    journal=journal,
                    spawner=spawner,
                    limits=value_or_default(limits, known.limits),
                )
            )
        except BaseException:
            own_scope.close()
            journal.close()
            if worktree is not None:
                await worktree.finish()
            raise
        spawner.connect(child, factory)
        info = AgentInfo(
            agent_id=journal.session_id,
            parent_agent_id=session.journal.session_id,
            agent=known.name,
            title=request.title or ABSENT,
            status="waiting",
            depth=self._depth + 1,
            tool_call_id=call_id,
            session_id=journal.session_id,
            session_file=ABSENT if journal.file is None else journal.file,
            usage=zero_usage(),
            background=request.background or ABSENT,
        )
        self._started += 1
        given = Assignment(request.prompt, self._started - 1, known.source)
        agent = RunningAgent(info, given, child, place, own_scope, self._on_changed, lambda: spawner.spent)
        self._begin_work(agent, request, worktree)
        return agent

    def _begin_work(self, agent: RunningAgent, request: AgentRequest, worktree: AgentWorktree | None) -> None:
        """Record that an agent was started, and let it work. Where nothing can be recorded, its work shows that."""
        assert self._session is not None
        journal = self._session.journal
        self._forward_events(agent)
        lost = self._tree.find_lost(agent.info.agent_id)
        self._tree.add(agent)
        self._own[agent] = asyncio.ensure_future(self._work(agent, request, worktree))
        with suppress(Refusal, OSError):
            for info in (lost, agent.info):
                if info is not None:
                    record_agent(journal, info)
        self._on_changed(agent)
        if request.background:
            self._session.dependencies.jobs.add(AgentJob(agent, request.title or request.prompt))

    def _name_of_type(self, request: AgentRequest) -> str:
        if request.resume is None:
            return request.agent or DEFAULT_TYPE
        if self._tree.find_running(request.resume) is not None:
            raise Refusal(f'The agent "{request.resume}" is still running; wait for its end, or stop it')
        return request.agent or self._tree.find_info(request.resume).agent

    def _find_type(self, name: str) -> AgentType:
        types = self.list_types()
        found = next((known for known in types if known.name == name), None)
        if found is None:
            known = ", ".join(known.name for known in types)
            raise Refusal(f'There is no agent type "{name[:200]}". Known: {known}')
        return found

    async def _open_journal(
        self, request: AgentRequest, session: Session, known: AgentType
    ) -> tuple[Journal, AgentWorktree | None]:
        """The conversation of the agent, a new one or its earlier one, and its copy of the repository if it has one."""
        cwd, repository = session.journal.cwd, session.dependencies.repository
        if request.resume is None or not self._tree.has_said_anything(request.resume):
            agent_id = request.resume or repository.new_session_id()
            worktree = None
            if request.isolation == "worktree":
                worktree = await self._require_factory().worktrees.create(cwd, agent_id, known.name)
            folder = worktree.cwd if worktree else cwd
            return repository.create_agent_journal(session.journal, folder, agent_id), worktree
        if not self._tree.worked_in_copy(request.resume):
            return self._tree.open_journal(request.resume), None
        worktree = await self._require_factory().worktrees.create(cwd, request.resume, known.name)
        try:
            return self._tree.open_journal(request.resume), worktree
        except BaseException:
            await worktree.finish()
            raise

    async def _work(self, agent: RunningAgent, request: AgentRequest, worktree: AgentWorktree | None) -> AgentOutcome:
        """The whole life of an agent; its end is recorded whatever happens."""
        end = await agent.work(request.output_schema)
        try:
            with suppress(PigeonError, OSError):
                await agent.session.end()
            end = replace(end, info=replace(end.info, usage=agent.usage))
            if worktree is not None:
                end = await _finish_worktree(end, worktree)
            assert self._session is not None
            with suppress(Refusal, OSError):
                record_agent(self._session.journal, end.info)
        finally:
            self._spent = sum_usage(self._spent, end.info.usage)
            journal = agent.session.journal
            self._tree.on_ended(end.info, journal if journal.file is None else None)
            self._own.pop(agent, None)
            last = [agent.settled] if agent.settled is not None else _make_unstarted_run(end)
            try:
                for event in last:
                    self._tree.root.bus.announce(_to_agent_event(agent, event))
            finally:
                agent.finish(end)
        return end

    def _forward_events(self, agent: RunningAgent) -> None:
        """Publish the events of an agent on the bus of the conversation, which makes it wait for a slow host."""
        root = self._tree.root.bus
        waiting: list[Awaitable[None]] = []

        def forward(event: Outbound) -> bool:
            agent.on_event(event)
            if isinstance(event, _ENDS):
                return False  # the first comes when the copy it worked in is finished, too; no client has sent a prompt
            waits = root.announce(_to_agent_event(agent, event))
            waiting.extend(wait for given in waits if (wait := given()) is not None)
            return bool(waiting)

        async def wait_for_all() -> None:
            while waiting:
                await waiting.pop()

        agent.session.bus.add_announcer(forward, wait_for_all)

    def _on_changed(self, agent: RunningAgent) -> None:
        self._tree.root.bus.post(AgentChanged(agent=agent.info, work=agent.describe_work()))


def _to_agent_event(agent: RunningAgent, event: Outbound) -> AgentEvent:
    info = agent.info
    return AgentEvent(event=event, agent_id=info.agent_id, parent_agent_id=info.parent_agent_id)


def _make_unstarted_run(end: AgentOutcome) -> list[Outbound]:
    """The events of an agent whose run has not begun."""
    status = end.info.status
    reason: EndReason = "error" if status == "waiting" or status == "running" else status  # noqa: PLR1714
    settled = AgentSettled(aborted=reason == "aborted", reason=reason, error_message=end.reason or ABSENT)
    return [AgentStart(), AgentEnd(messages=[], will_retry=False), settled]


async def _finish_worktree(end: AgentOutcome, worktree: AgentWorktree) -> AgentOutcome:
    """The end of an agent with what it has changed in its copy, which is removed; if that fails, the copy stays."""
    try:
        where, files = await worktree.finish()
    except (PigeonError, OSError) as error:
        kept = Worktree(worktree.folder, None)
        reason = f"Its changes could not be committed: {error}. They are in {worktree.folder}."
        return replace(end, worktree=kept, reason=f"{end.reason} {reason}".strip())
    return replace(end, worktree=where, changed_files=tuple(files))
