"""The agents of one conversation: every agent that was started in it, by whichever of them, and what they share.

The conversation itself is the root; it is not one of them. A started agent is a session of its own, kept below the
session of the agent that has started it (`SessionFolders.agents_folder_of`), which records its start and its end
(`AGENT_ENTRY`). So all of them are known again after the process has died.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pigeon.session.context.transcript import context_of
from pigeon.session.history.agent_files import find_agent_file
from pigeon.session.history.journal import Journal
from pigeon.session.history.reading import load_session
from pigeon.session.history.session_folders import SessionFolders
from pigeon.session.history.started_agents import read_recorded_agents, to_agent_record
from pigeon.subagents.slots import Slots
from pigeon.wire.agents import AGENT_ENTRY, UNFINISHED, AgentInfo
from pigeon.wire.base import Absent
from pigeon.wire.entries import CustomEntry
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import Message

if TYPE_CHECKING:
    from pigeon.session.session import Session
    from pigeon.subagents.running_agent import RunningAgent


class TreeSettings(Struct, frozen=True, kw_only=True):
    """How deep agents may start others, and how many run at once; with `in_turn` one after the other, as for a
    recording."""

    max_depth: int = 1
    max_parallel: int = 8
    in_turn: bool = False


class AgentTree:
    """All agents that were started in one conversation."""

    def __init__(self, settings: TreeSettings, root: Session) -> None:
        """`root` is the session of the conversation."""
        self.settings = settings
        self.root = root
        self.slots = Slots(1 if settings.in_turn else settings.max_parallel)
        self._running: dict[str, RunningAgent] = {}
        self._ended: dict[str, tuple[AgentInfo, Journal | None]] = {}
        self._order: dict[str, None] = {}

    # The agents

    def add(self, agent: RunningAgent) -> None:
        """Add one that was started or continues."""
        self._order.setdefault(agent.info.agent_id)
        self._ended.pop(agent.info.agent_id, None)
        self._running[agent.info.agent_id] = agent

    def on_ended(self, info: AgentInfo, kept: Journal | None) -> None:
        """One has ended; `kept` is its conversation if that is only in memory."""
        self._running.pop(info.agent_id, None)
        self._ended[info.agent_id] = (info, kept)

    def find_running(self, agent_id: str) -> RunningAgent | None:
        return self._running.get(agent_id)

    def list_running(self) -> list[RunningAgent]:
        return list(self._running.values())

    def list_agents(self) -> list[AgentInfo]:
        """All of them, in the order of their start, those of earlier processes first."""
        recorded = self._read_recorded()
        known = {**recorded, **{id: info for id, (info, _) in self._ended.items()}}
        known |= {id: agent.info for id, agent in self._running.items()}
        order = [*(id for id in recorded if id not in self._order), *self._order]
        return [known[id] for id in dict.fromkeys(order) if id in known]

    def find_info(self, agent_id: str) -> AgentInfo:
        """One of them; raises `Refusal` for an unknown one."""
        running = self._running.get(agent_id)
        if running is not None:
            return running.info
        if agent_id in self._ended:
            return self._ended[agent_id][0]
        found = self._read_recorded().get(agent_id)
        if found is None:
            raise unknown_agent(agent_id)
        return found

    def open_journal(self, agent_id: str) -> Journal:
        """The conversation of one that has ended, to continue it; raises `Refusal`."""
        kept = self._ended.get(agent_id)
        if kept is not None and kept[1] is not None:
            return kept[1]
        return self.root.dependencies.repository.open_agent_journal(self._require_file(agent_id))

    def worked_in_copy(self, agent_id: str) -> bool:
        """Whether an agent that has ended has worked in a copy of the repository, which is gone; raises `Refusal`."""
        kept = self._ended.get(agent_id)
        if kept is not None and kept[1] is not None:
            cwd: str | None = kept[1].cwd
        else:
            cwd = self.root.dependencies.repository.find_agent_folder(self._require_file(agent_id))
        return cwd is not None and cwd != self.root.journal.cwd and not os.path.isdir(cwd)

    def list_messages(self, agent_id: str) -> list[Message]:
        info = self.find_info(agent_id)
        running, kept = self._running.get(agent_id), self._ended.get(agent_id)
        if running is not None:
            lines = running.session.journal.branch
        elif kept is not None and kept[1] is not None:
            lines = kept[1].branch
        elif isinstance(info.session_file, Absent) or not SessionFolders.has_file(info.session_file):
            lines = []
        else:
            loaded = load_session(info.session_file)
            lines = [] if loaded is None else loaded.lines
        return context_of(lines)

    def _require_file(self, agent_id: str) -> str:
        file = self.root.journal.file
        found = None if file is None else find_agent_file(file, agent_id)
        if found is None:
            raise unknown_agent(agent_id)
        return found

    def _read_recorded(self) -> dict[str, AgentInfo]:
        """What the session files say: those of the conversation, and of agents that have started others."""
        found: dict[str, AgentInfo] = {}
        waiting = [self.root.journal.lines]
        while waiting:
            for info in read_recorded_agents(waiting.pop(0)):
                first = info.agent_id not in found
                found[info.agent_id] = info
                file = info.session_file
                if first and self.settings.max_depth > info.depth and not isinstance(file, Absent):
                    loaded = load_session(file)
                    waiting += [] if loaded is None else [loaded.lines]
        return {
            id: replace(info, status="aborted") if info.status in UNFINISHED and id not in self._running else info
            for id, info in found.items()
        }

    def leave_conversation(self) -> None:
        """Another conversation is open: its agents are others."""
        self._ended.clear()
        self._order.clear()


def unknown_agent(agent_id: str) -> Refusal:
    return Refusal(f'There is no agent "{agent_id[:200]}" in this conversation', "not_found")


def record_agent(journal: Journal, info: AgentInfo) -> None:
    """Record the start or the end of an agent in the session that has started it."""
    journal.append(CustomEntry, custom_type=AGENT_ENTRY, data=to_agent_record(info))
