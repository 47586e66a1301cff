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
from pigeon.wire.messages import ToolResultMessage
from pigeon.wire.model import sum_usage

_MARK = AGENT_ENTRY.encode()


def to_agent_record(info: AgentInfo) -> dict[str, object]:
    """The data of the custom entry about an agent."""
    plain: dict[str, object] = codec.to_plain(replace(info, activity=ABSENT))
    return plain


def read_recorded_agents(lines: Iterable[EntryLine]) -> list[AgentInfo]:
    """The agents that a session has started, each as recorded last, in the order of their start; the usage of one that
    has continued is that of all its runs that have ended."""
    found: dict[str, AgentInfo] = {}
    for line in lines:
        if line.type != "custom" or _MARK not in line.raw:
            continue
        entry = line.entry
        info = read_agent_record(entry) if isinstance(entry, CustomEntry) else None
        if info is not None:
            before = found.get(info.agent_id)
            found[info.agent_id] = info if before is None else replace(info, usage=sum_usage(before.usage, info.usage))
    return list(found.values())


def read_agent_record(entry: CustomEntry) -> AgentInfo | None:
    """The agent that an entry is about; None if it is about something else."""
    if entry.custom_type != AGENT_ENTRY:
        return None
    try:
        return codec.convert(entry.data, AgentInfo)
    except BadRecord:
        return None


def is_result_of_agent(message: ToolResultMessage) -> bool:
    """Whether this is the result of a call that has started an agent, whose id is that of its session."""
    details = message.details
    agent_id = details.get("agentId") if isinstance(details, dict) else None
    return isinstance(agent_id, str) and isinstance(details, dict) and details.get("sessionId") == agent_id
