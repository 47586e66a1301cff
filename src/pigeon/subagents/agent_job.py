"""An agent in the background as a job: its output is what it does, and in the end its result alone."""

from __future__ import annotations

from pigeon.session.jobs import LONGEST_TITLE
from pigeon.subagents.running_agent import RunningAgent
from pigeon.system.shell.kept_output import OutputPart
from pigeon.wire.agents import JobInfo, JobStatus
from pigeon.wire.base import ABSENT, value_or_default

_STATUS: dict[str, JobStatus] = {"waiting": "running", "running": "running", "done": "done", "aborted": "stopped"}


class AgentJob:
    """One started agent, under its own id."""

    def __init__(self, agent: RunningAgent, title: str) -> None:
        self._agent = agent
        self._title = title[:LONGEST_TITLE]
        self._shown = ""
        self._first = 0

    @property
    def info(self) -> JobInfo:
        info = self._agent.info
        return JobInfo(
            job_id=info.agent_id,
            kind="agent",
            title=self._title,
            status=_STATUS.get(info.status, "failed"),
            seconds=round(self._agent.describe_work().duration_ms / 1000, 1),
            tool_call_id=value_or_default(info.tool_call_id, "") or ABSENT,
            agent_id=info.agent_id,
        )

    async def wait_for_end(self) -> None:
        await self._agent.wait_until_over()

    def read(self, after: int) -> OutputPart:
        """What it does while it works, its result when it has ended; what is different now begins at a new position,
        so that it is read once."""
        end = self._agent.end
        text = self._agent.progress.describe() if end is None else end.to_text()
        if text != self._shown:
            self._first += len(self._shown.encode("utf-8", "replace"))
            self._shown = text
        data = text.encode("utf-8", "replace")
        start = min(max(after - self._first, 0), len(data))
        return OutputPart(data[start:].decode("utf-8", "replace"), self._first + len(data))

    async def write(self, text: str) -> None:
        await self._agent.steer(text)

    async def stop(self) -> None:
        self._agent.scope.cancel()
        await self._agent.wait_until_over()
