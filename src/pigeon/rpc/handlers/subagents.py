"""Handlers: started agents in the words of oh-my-pi, whose clients name them subagents."""

from __future__ import annotations

import asyncio

from pigeon.rpc.router import handles
from pigeon.session.history.agent_files import read_page
from pigeon.session.session import Session
from pigeon.wire.answers import SubagentPage, Subagents
from pigeon.wire.base import Absent
from pigeon.wire.commands import GetSubagentMessages, GetSubagents
from pigeon.wire.errors import Refusal
from pigeon.wire.subagent_frames import to_listed_agent

UNKNOWN = "Unknown subagent or session file unavailable: {}"


@handles(GetSubagents)
def get_subagents(cmd: GetSubagents, s: Session) -> Subagents:
    """Only those that are running."""
    now = s.dependencies.now()
    running = s.dependencies.agents.describe_running()
    return Subagents(subagents=[{**to_listed_agent(event), "lastUpdate": now} for event in running])


@handles(GetSubagentMessages)
async def get_subagent_messages(cmd: GetSubagentMessages, s: Session) -> SubagentPage:
    """A page of the session file of an agent, by bytes; an empty one if the file is missing."""
    start = cmd.from_byte
    if not isinstance(start, Absent) and (isinstance(start, bool) or not isinstance(start, int | float)):
        raise Refusal("fromByte must be a finite number")
    path = _find_file(cmd, s)
    return await asyncio.to_thread(read_page, path, 0 if isinstance(start, Absent) else max(0, int(start)))


def _find_file(cmd: GetSubagentMessages, s: Session) -> str:
    if isinstance(cmd.subagent_id, str):
        found = next((one for one in s.dependencies.agents.list_agents() if one.agent_id == cmd.subagent_id), None)
        if found is None or isinstance(found.session_file, Absent):
            raise Refusal(UNKNOWN.format(cmd.subagent_id))
        return found.session_file
    if not isinstance(cmd.session_file, str):
        raise Refusal("get_subagent_messages requires subagentId or sessionFile")
    known = {one.session_file for one in s.dependencies.agents.list_agents()}
    if cmd.session_file not in known:
        raise Refusal("Unknown subagent session file")
    return cmd.session_file
