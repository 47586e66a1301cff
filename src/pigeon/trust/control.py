"""Trust in the folders that the conversations of an agent are in: decided for each of them, before it is used.

`ProjectDecisions` consults, in order, the options, extensions from outside the project, `trust.json` and the user's
settings. `TrustControl` is the interface for the session and its host: the decision about the folder of the
conversation, and the way to change it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from pigeon.config.paths import PROJECT_FOLDERS
from pigeon.session.bus import Bus
from pigeon.trust.decision import Decision, Default, find_guarded_paths, initial_decision
from pigeon.trust.trust_file import (
    save_decision,
    save_decision_about_workspace,
    saved_decision,
    saved_decision_about_workspace,
)
from pigeon.wire.answers import TrustChange, TrustState
from pigeon.wire.base import ABSENT
from pigeon.wire.events import TrustRequired
from pigeon.workspaces.agent_workspace import AgentWorkspace, FolderUser

UNKNOWN = Decision(None, None)
# Project files that take effect while the agent runs, and those that only do at its start; others are not used at all.
_AT_ONCE = ("skills", "prompts", "rules", "SYSTEM.md", "APPEND_SYSTEM.md", "mcp.json", ".mcp.json")
_AT_START = ("settings.json", "extensions")
_GUARDED_FOLDERS = (*PROJECT_FOLDERS, ".omp")


class TrustVote(Protocol):
    """An extension's vote on trusting a folder, and whether to remember it."""

    @property
    def trusted(self) -> bool: ...

    @property
    def remember(self) -> bool: ...


class ProjectDecisions:
    """The decisions of one agent, by the real path of the folder; `vote` asks the extensions about a folder.

    An option that trusts only applies to the folder that the agent was started for; one that refuses applies to all.
    """

    def __init__(
        self,
        option: bool | None,
        started_in: str,
        agent_dir: str,
        home: str,
        default: Default,
        vote: Callable[[str], Awaitable[TrustVote | None]],
        report: Callable[[str], None],
        workspace: AgentWorkspace,
    ) -> None:
        self._workspace = workspace
        self._option = option
        self._started_in = self._real_folder(started_in)
        self._agent_dir = agent_dir
        self._home = home
        self._default = default
        self._vote = vote
        self._report = report
        self._decisions: dict[str, Decision] = {}

    def decision_for(self, cwd: str) -> Decision:
        """The decision about a folder so far."""
        return self._decisions.get(self._real_folder(cwd), UNKNOWN)

    def is_trusted(self, cwd: str) -> bool:
        return self.decision_for(cwd).trusted is True

    def apply(self, cwd: str, users: Sequence[FolderUser]) -> None:
        """Pass the decision about a folder to these parts of the agent, in this order."""
        decision = self.decision_for(cwd)
        for user in users:
            user.use_folder(cwd, decision.trusted is True, decision.trusted is None and decision.harmless)

    async def decide(self, cwd: str) -> None:
        """Decide about a folder unless that was done; nothing in it is opened."""
        if self.decision_for(cwd).trusted is not None:
            return
        place = self._real_folder(cwd)
        option = self._option if self._option is False or place == self._started_in else None
        waits = bool(await self._workspace.ask(lambda: self.list_guarded(cwd)))
        vote = await self._vote(cwd) if waits else None
        key = self._workspace.key_of(cwd)
        if key is None:
            saved, problem = saved_decision(self._agent_dir, cwd)
        else:
            saved, problem = saved_decision_about_workspace(self._agent_dir, key)
        self._decisions[place] = initial_decision(
            option=option,
            vote=None if vote is None else bool(vote.trusted),
            saved=saved,
            default=self._default,
            harmless=not waits,
        )
        if vote is not None and vote.remember:
            problem = self._save(cwd, bool(vote.trusted)) or problem
        if problem:
            self._report(problem)

    def accept_host_decision(self, cwd: str, trusted: bool, keep: bool) -> str | None:
        """Apply the host's decision about a folder, and save it if requested; returns why that failed, or None."""
        self._decisions[self._real_folder(cwd)] = Decision(trusted, "host")
        return self._save(cwd, trusted) if keep else None

    def _save(self, cwd: str, trusted: bool) -> str | None:
        key = self._workspace.key_of(cwd)
        if key is None:
            return save_decision(self._agent_dir, cwd, trusted)
        return save_decision_about_workspace(self._agent_dir, key, trusted)

    def _real_folder(self, cwd: str) -> str:
        """The real path of a folder; for a workspace, as it says itself."""
        return self._workspace.view.real_path(cwd)

    def list_guarded(self, cwd: str) -> list[str]:
        """What there is in a folder that needs trust."""
        folders = [os.path.join(cwd, name) for name in _GUARDED_FOLDERS]
        return find_guarded_paths(cwd, folders, self._home, self._workspace.view)


class TrustControl:
    """Trust in the conversation's current folder, for the session and its host.

    `users` are the parts of the agent that follow each decision, in this order. `on_run` takes what is called beside
    the first request of each run. `check` raises `Refusal` for a folder that the agent cannot work in. `read_project`
    fetches what the users will need of a folder.
    """

    def __init__(
        self,
        decisions: ProjectDecisions,
        cwd: str,
        users: Sequence[FolderUser],
        bus: Bus,
        on_run: Callable[[Callable[[], None]], None],
        check: Callable[[str], None] | None,
        read_project: Callable[[str, bool], Awaitable[None]],
    ) -> None:
        self._read_project = read_project
        self._decisions = decisions
        self._cwd = cwd
        self._users = users
        self._check = check
        self._bus = bus
        self._announced: tuple[str, list[str]] | None = None
        # Files may have appeared since the last run.
        on_run(self._announce_pending_decision)

    def is_trusted(self, cwd: str) -> bool:
        return self._decisions.is_trusted(cwd)

    def switch_folder(self, cwd: str) -> None:
        """Switch to the conversation's folder."""
        self._cwd = cwd
        self._decisions.apply(cwd, self._users)
        asyncio.get_running_loop().call_soon(self._announce_pending_decision)

    async def resolve_trust(self, cwd: str) -> None:
        """Decide about a folder before the conversation moves there; raises `Refusal` if it must not."""
        if self._check is not None:
            self._check(cwd)
        await self._decisions.decide(cwd)
        await self._read_project(cwd, self._decisions.is_trusted(cwd))

    def state(self) -> TrustState:
        """The decision, and what waits for one."""
        cwd = self._cwd
        decision = self._decisions.decision_for(cwd)
        waiting = [] if decision.trusted else self._decisions.list_guarded(cwd)
        return TrustState(cwd=cwd, trusted=decision.trusted is True, decided_by=decision.by, waiting=waiting)

    def set_decision(self, trusted: bool, keep: bool) -> TrustChange:
        """Apply the host's decision, and use the project's files accordingly."""
        cwd = self._cwd
        before = self._decisions.is_trusted(cwd)
        problem = self._decisions.accept_host_decision(cwd, trusted, keep)
        self._decisions.apply(cwd, self._users)
        changed = self._decisions.list_guarded(cwd) if before is not trusted else []
        state = self.state()
        return TrustChange(
            cwd=cwd,
            trusted=state.trusted,
            decided_by=state.decided_by,
            waiting=state.waiting,
            applied=[path for path in changed if _is_effective(path, _AT_ONCE)],
            needs_restart=[path for path in changed if _is_effective(path, _AT_START)],
            remembered=keep and problem is None,
            problem=ABSENT if problem is None else problem,
        )

    def reannounce_pending_decision(self) -> None:
        """Announce again what waits for a decision, after the current command is answered."""
        self._announced = None
        asyncio.get_running_loop().call_soon(self._announce_pending_decision)

    def _announce_pending_decision(self) -> None:
        """Announce what waits for a decision in the folder of the conversation; each state once."""
        cwd = self._cwd
        if self._decisions.decision_for(cwd).by is not None:
            return
        waiting = self._decisions.list_guarded(cwd)
        if waiting and (cwd, waiting) != self._announced:
            self._announced = (cwd, waiting)
            self._bus.post(TrustRequired(cwd=cwd, waiting=waiting))


def _is_effective(path: str, names: tuple[str, ...]) -> bool:
    folder, name = os.path.split(path)
    return name in names and (name == "rules" or os.path.basename(folder) != ".omp")
