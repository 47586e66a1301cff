"""The sessions of agents that were started in a session, for what is made of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from pigeon.session.history.agent_files import find_agent_file
from pigeon.session.history.entry_line import EntryLine
from pigeon.session.history.reading import load_session
from pigeon.session.history.started_agents import read_recorded_agents
from pigeon.wire.agents import AgentInfo
from pigeon.wire.errors import Refusal

MaskLines = Callable[[list[EntryLine]], list[EntryLine]]


class LoadedAgent(Struct, frozen=True):
    """The session of an agent that was started in another one, with those of the agents that it has started."""

    info: AgentInfo
    header_line: bytes
    lines: list[EntryLine]
    agents: list[LoadedAgent]

    def list_all(self) -> list[LoadedAgent]:
        """This agent, and those that it has started, however deep."""
        return [self, *(below for agent in self.agents for below in agent.list_all())]


def load_agents(file: str, lines: list[EntryLine], mask: MaskLines) -> list[LoadedAgent]:
    """The agents that were started in a session; those without a file below the session's are left out."""
    found: list[LoadedAgent] = []
    for info in read_recorded_agents(lines):
        path = find_agent_file(file, info.agent_id)
        with suppress(Refusal):
            loaded = None if path is None else load_session(path)
            if path is not None and loaded is not None:
                own = mask(loaded.lines)
                found.append(LoadedAgent(info, loaded.header_line, own, load_agents(path, own, mask)))
    return found
