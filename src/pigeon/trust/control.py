"""Trust in the folders that the conversations of an agent are in: decided for each of them, before it is used.

`ProjectDecisions` asks, in order, the options, extensions from outside the project, `trust.json` and the user's
settings. `TrustControl` is what the session and its host have of that: the decision about the folder of the
conversation, and the way to change it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pigeon.app.options import AgentOptions
from pigeon.config.paths import project_dirs
from pigeon.session.bus import Bus
from pigeon.trust.decision import Decision, Default, decided, guarded
from pigeon.trust.trust_file import remember, saved_decision
from pigeon.wire.answers import TrustChange, TrustState
from pigeon.wire.base import ABSENT
from pigeon.wire.events import AgentStart, Outbound, TrustRequired

if TYPE_CHECKING:
    from pigeon.extensions.public.results import Trust

UNKNOWN = Decision(None, None)
# What of a project takes effect while the agent runs, and what only at its start; the rest is not used at all.
_AT_ONCE = ("skills", "prompts", "rules", "SYSTEM.md", "APPEND_SYSTEM.md", "mcp.json", ".mcp.json")
_AT_START = ("settings.json", "extensions")


class ProjectDecisions:
    """The decisions of one agent, by the real path of the folder; `vote` asks the extensions about a folder.

    An option that trusts means the folder that the agent was started for, and no other; one that does not means all.
    """

    def __init__(
        self,
        options: AgentOptions,
        started_in: str,
        agent_dir: str,
        home: str,
        default: Default,
        vote: Callable[[str], Awaitable[Trust | None]],
        report: Callable[[str], None],
    ) -> None:
        self._option = options.trust_project
        self._started_in = _place(started_in)
        self._agent_dir = agent_dir
        self._home = home
        self._default = default
        self._vote = vote
        self._report = report
        self._decisions: dict[str, Decision] = {}

    def of(self, cwd: str) -> Decision:
        """What was decided about a folder so far."""
        return self._decisions.get(_place(cwd), UNKNOWN)

    def trusts(self, cwd: str) -> bool:
        """Whether the files of a folder may be used."""
        return self.of(cwd).trusted is True

    async def decide(self, cwd: str) -> None:
        """Decide about a folder, unless that is done; nothing of it is opened."""
        if self.of(cwd).trusted is not None:
            return
        place = _place(cwd)
        option = self._option if self._option is False or place == self._started_in else None
        waits = bool(self.guarded(cwd))
        vote = await self._vote(cwd) if waits else None
        saved, problem = saved_decision(self._agent_dir, cwd)
        self._decisions[place] = decided(
            option=option,
            vote=None if vote is None else bool(vote.trusted),
            saved=saved,
            default=self._default,
            harmless=not waits,
        )
        if vote is not None and vote.remember:
            problem = remember(self._agent_dir, cwd, bool(vote.trusted)) or problem
        if problem:
            self._report(problem)

    def by_host(self, cwd: str, trusted: bool, keep: bool) -> str | None:
        """Take the host's decision about a folder, and keep it for later if asked; returns why that failed."""
        self._decisions[_place(cwd)] = Decision(trusted, "host")
        return remember(self._agent_dir, cwd, trusted) if keep else None

    def guarded(self, cwd: str) -> list[str]:
        """What there is in a folder that needs trust."""
        return guarded(cwd, [*project_dirs(cwd), os.path.join(cwd, ".omp")], self._home)


class TrustControl:
    """Trust as the session and its host see it, for the folder that the conversation is in now.

    `use` makes the agent work with the files of a folder, as far as they are trusted by then. `check` raises `Refusal`
    for a folder that the agent cannot work in.
    """

    def __init__(
        self,
        decisions: ProjectDecisions,
        cwd: Callable[[], str],
        use: Callable[[str], None],
        bus: Bus,
        check: Callable[[str], None] = lambda cwd: None,
    ) -> None:
        self._decisions = decisions
        self._cwd = cwd
        self._use = use
        self._check = check
        self._bus = bus
        self._announced: tuple[str, list[str]] | None = None
        bus.announce(self._on_event)

    def trusts(self, cwd: str) -> bool:
        """Whether the files of a folder may be used."""
        return self._decisions.trusts(cwd)

    def use(self, cwd: str) -> None:
        """The conversation is in this folder from here on."""
        self._use(cwd)
        asyncio.get_running_loop().call_soon(self._announce_waiting)

    async def enter(self, cwd: str) -> None:
        """Decide about a folder before the conversation moves there; raises `Refusal` if it must not."""
        self._check(cwd)
        await self._decisions.decide(cwd)

    def state(self) -> TrustState:
        """The decision, and what waits for one."""
        cwd = self._cwd()
        decision = self._decisions.of(cwd)
        waiting = [] if decision.trusted else self._decisions.guarded(cwd)
        return TrustState(cwd=cwd, trusted=decision.trusted is True, decided_by=decision.by, waiting=waiting)

    def decide(self, trusted: bool, keep: bool) -> TrustChange:
        """Take the host's decision, and use the project's files accordingly."""
        cwd = self._cwd()
        before = self._decisions.trusts(cwd)
        problem = self._decisions.by_host(cwd, trusted, keep)
        self._use(cwd)
        changed = self._decisions.guarded(cwd) if before is not trusted else []
        state = self.state()
        return TrustChange(
            cwd=cwd,
            trusted=state.trusted,
            decided_by=state.decided_by,
            waiting=state.waiting,
            applied=[path for path in changed if _takes_effect(path, _AT_ONCE)],
            needs_restart=[path for path in changed if _takes_effect(path, _AT_START)],
            remembered=keep and problem is None,
            problem=ABSENT if problem is None else problem,
        )

    def repeat_waiting(self) -> None:
        """Announce once more what waits for a decision, after what is being answered."""
        self._announced = None
        asyncio.get_running_loop().call_soon(self._announce_waiting)

    def _on_event(self, event: Outbound) -> None:
        """Check again with each run: files may have appeared."""
        if isinstance(event, AgentStart):
            asyncio.get_running_loop().call_soon(self._announce_waiting)

    def _announce_waiting(self) -> None:
        """Announce what waits for a decision in the folder of the conversation; each state once."""
        if self._decisions.of(self._cwd()).by is not None:
            return
        state = self.state()
        found = (state.cwd, state.waiting)
        if state.waiting and state.decided_by is None and found != self._announced:
            self._announced = found
            self._bus.post(TrustRequired(cwd=state.cwd, waiting=state.waiting))


def _place(cwd: str) -> str:
    return os.path.realpath(cwd)


def _takes_effect(path: str, names: tuple[str, ...]) -> bool:
    folder, name = os.path.split(path)
    return name in names and (name == "rules" or os.path.basename(folder) != ".omp")
