"""Started agents in the words of oh-my-pi: the frames and answers that its clients read."""

from __future__ import annotations

from typing import Any

from pigeon.wire import codec
from pigeon.wire.agents import AgentInfo, AgentStatus, AgentWork
from pigeon.wire.base import Absent
from pigeon.wire.events import AgentChanged, SubagentLifecycle, SubagentProgress

_STATUS: dict[AgentStatus, str] = {
    "waiting": "pending",
    "running": "running",
    "done": "completed",
    "aborted": "aborted",
}
FAILED = "failed"


def make_lifecycle(event: AgentChanged, has_begun: bool) -> SubagentLifecycle:
    """The frame about the start of an agent, or about its end."""
    status = "started" if has_begun else _STATUS.get(event.agent.status, FAILED)
    payload = {"id": event.agent.agent_id, **_identity(event.agent, event.work), "status": status}
    if not isinstance(event.agent.title, Absent):
        payload["description"] = event.agent.title
    return SubagentLifecycle(payload=payload | _links(event.agent))


def make_progress(event: AgentChanged) -> SubagentProgress:
    """The frame about what an agent is doing."""
    work = event.work
    payload = {
        **_identity(event.agent, work),
        "task": work.task,
        "assignment": work.task,
        "progress": to_progress(event.agent, work),
    }
    return SubagentProgress(payload=payload | _links(event.agent))


def to_progress(agent: AgentInfo, work: AgentWork) -> dict[str, Any]:
    """The progress object of an agent."""
    plain = codec.to_plain(work)
    return {
        "id": agent.agent_id,
        "agent": agent.agent,
        "status": _STATUS.get(agent.status, FAILED),
        "assignment": work.task,
        **plain,
    }


def to_listed_agent(event: AgentChanged) -> dict[str, Any]:
    """The item of `get_subagents` for a running agent."""
    agent, work = event.agent, event.work
    listed: dict[str, Any] = {
        "id": agent.agent_id,
        **_identity(agent, work),
        "status": _STATUS.get(agent.status, FAILED),
        "task": work.task,
        "assignment": work.task,
        "lastUpdate": 0,
        "progress": to_progress(agent, work),
    }
    if not isinstance(agent.title, Absent):
        listed["description"] = agent.title
    return listed | _links(agent)


def _identity(agent: AgentInfo, work: AgentWork) -> dict[str, Any]:
    return {"index": work.index, "agent": agent.agent, "agentSource": _source_of(work)}


def _source_of(work: AgentWork) -> str:
    """oh-my-pi knows no types of a program."""
    return "user" if work.agent_source == "program" else work.agent_source


def _links(agent: AgentInfo) -> dict[str, Any]:
    links: dict[str, Any] = {}
    if not isinstance(agent.session_file, Absent):
        links["sessionFile"] = agent.session_file
    if not isinstance(agent.tool_call_id, Absent):
        links["parentToolCallId"] = agent.tool_call_id
    if agent.background is True:
        links["detached"] = True
    return links
