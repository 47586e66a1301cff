"""The agents of one conversation: every agent that was started in it, by whichever of them, and what they share.

The conversation itself is the root; it is not one of them. A started agent is a session of its own, kept below the
session of the agent that has started it (`SessionFolders.agents_folder_of`), which records its start and its end
(`AGENT_ENTRY`). So all of them are known again after the process has died.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pigeon.session.context.transcript import context_of
from pigeon.session.history.agent_files import find_agent_file, remove_unwritten_file
from pigeon.session.history.journal import Journal
from pigeon.session.history.reading import load_session
from pigeon.session.history.session_folders import SessionFolders
from pigeon.session.history.started_agents import read_recorded_agents, to_agent_record
from pigeon.session.history.views import total_usage
from pigeon.subagents.slots import Slots
from pigeon.wire.agents import AGENT_ENTRY, UNFINISHED, AgentInfo
from pigeon.wire.base import Absent
from pigeon.wire.entries import CustomEntry
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import Message
from pigeon.wire.model import Usage, subtract_usage, sum_usage, zero_usage

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
        # What agents that have continued had used before.
        self._earlier: dict[str, Usage] = {}
        # What the files of earlier processes say, by agent: usage of those that died, and the records of others.
        self._lost: dict[str, Usage] = {}
        self._nested: dict[str, list[AgentInfo]] = {}

    # The agents

    def add(self, agent: RunningAgent) -> None:
        """Add one that was started or continues."""
        with suppress(Refusal):
            self._earlier[agent.info.agent_id] = self.find_info(agent.info.agent_id).usage
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
        known = {**recorded, **{id: self._with_earlier(info) for id, (info, _) in self._ended.items()}}
        known |= {id: self._with_earlier(agent.info) for id, agent in self._running.items()}
        order = [*(id for id in recorded if id not in self._order), *self._order]
        return [known[id] for id in dict.fromkeys(order) if id in known]

    def find_info(self, agent_id: str) -> AgentInfo:
        """One of them; raises `Refusal` for an unknown one."""
        running = self._running.get(agent_id)
        if running is not None:
            return self._with_earlier(running.info)
        if agent_id in self._ended:
            return self._with_earlier(self._ended[agent_id][0])
        found = self._read_recorded().get(agent_id)
        if found is None:
            raise unknown_agent(agent_id)
        return found

    def _with_earlier(self, info: AgentInfo) -> AgentInfo:
        before = self._earlier.get(info.agent_id)
        return info if before is None else replace(info, usage=sum_usage(before, info.usage))

    def list_open_usage(self) -> list[Usage]:
        """What those have used whose end is not recorded."""
        lost = (self.find_lost(id) for id in self._read_records())
        return [*(one.usage for one in self._running.values()), *(one.usage for one in lost if one is not None)]

    def find_lost(self, agent_id: str) -> AgentInfo | None:
        """One that an earlier process died with, and what it had used since it was last started."""
        recorded = self._read_records().get(agent_id)
        if recorded is None or not self._is_lost(recorded):
            return None
        whole = self._describe_lost(recorded)
        return replace(whole, usage=subtract_usage(whole.usage, recorded.usage))

    def _is_lost(self, recorded: AgentInfo) -> bool:
        id = recorded.agent_id
        return recorded.status in UNFINISHED and id not in self._running and id not in self._ended

    def _describe_lost(self, recorded: AgentInfo) -> AgentInfo:
        """One that an earlier process died with: aborted, with what its session says that it has used."""
        id, file = recorded.agent_id, recorded.session_file
        if id not in self._lost:
            loaded = None if isinstance(file, Absent) else load_session(file)
            self._lost[id] = zero_usage() if loaded is None else total_usage(loaded.lines)
        return replace(recorded, status="aborted", usage=self._lost[id])

    def open_journal(self, agent_id: str) -> Journal:
        """The conversation of one that has ended, to continue it; raises `Refusal`."""
        kept = self._ended.get(agent_id)
        if kept is not None and kept[1] is not None:
            return kept[1]
        return self.root.dependencies.repository.open_agent_journal(self._require_file(agent_id))

    def has_said_anything(self, agent_id: str) -> bool:
        """False for one that has ended before its session had a first entry; raises `Refusal` for an unknown one."""
        self.find_info(agent_id)
        kept, file = self._ended.get(agent_id), self.root.journal.file
        if kept is not None and kept[1] is not None:
            return True
        path = None if file is None else find_agent_file(file, agent_id)
        return path is not None and not remove_unwritten_file(path)

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
        """What the session files say, where those that are not running any more have ended."""
        return {
            id: self._describe_lost(info) if self._is_lost(info) else info for id, info in self._read_records().items()
        }

    def _read_records(self) -> dict[str, AgentInfo]:
        """The records of the conversation, and of agents that have started others."""
        found: dict[str, AgentInfo] = {}
        waiting = [read_recorded_agents(self.root.journal.lines)]
        while waiting:
            for info in waiting.pop(0):
                is_first = info.agent_id not in found
                found[info.agent_id] = info
                if is_first and self.settings.max_depth > info.depth and info.agent_id not in self._order:
                    waiting.append(self._read_earlier_records(info))
        return found

    def _read_earlier_records(self, info: AgentInfo) -> list[AgentInfo]:
        """Those that an agent of an earlier process had started; its file is read once."""
        file = info.session_file
        if info.agent_id not in self._nested:
            loaded = None if isinstance(file, Absent) else load_session(file)
            self._nested[info.agent_id] = [] if loaded is None else read_recorded_agents(loaded.lines)
        return self._nested[info.agent_id]

    def leave_conversation(self) -> None:
        """Another conversation is open: its agents are others."""
        self._ended.clear()
        self._order.clear()
        self._earlier.clear()
        self._lost.clear()
        self._nested.clear()


def unknown_agent(agent_id: str) -> Refusal:
    return Refusal(f'There is no agent "{agent_id[:200]}" in this conversation', "not_found")


def record_agent(journal: Journal, info: AgentInfo) -> None:
    """Record the start or the end of an agent in the session that has started it."""
    journal.append(CustomEntry, custom_type=AGENT_ENTRY, data=to_agent_record(info))
