"""What a session records of the agents that it has started, so that they are known after its process has died."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from pigeon.session.history.entry_line import EntryLine
from pigeon.wire import codec
from pigeon.wire.agents import AGENT_ENTRY, AgentInfo
from pigeon.wire.base import ABSENT
from pigeon.wire.entries import CustomEntry
from pigeon.wire.errors import BadRecord

_MARK = AGENT_ENTRY.encode()


def to_agent_record(info: AgentInfo) -> dict[str, object]:
    """The data of the custom entry about an agent."""
    plain: dict[str, object] = codec.to_plain(replace(info, activity=ABSENT))
    return plain


def read_recorded_agents(lines: Iterable[EntryLine]) -> list[AgentInfo]:
    """The agents that a session has started, each as recorded last, in the order of their start."""
    found: dict[str, AgentInfo] = {}
    for line in lines:
        if line.type != "custom" or _MARK not in line.raw:
            continue
        entry = line.entry
        if isinstance(entry, CustomEntry) and entry.custom_type == AGENT_ENTRY:
            try:
                info = codec.convert(entry.data, AgentInfo)
            except BadRecord:
                continue
            found[info.agent_id] = info
    return list(found.values())
