"""jobs: looks at, waits for, writes to and stops what runs in the background, commands and agents alike."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar

from pigeon.agent.interfaces import ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.session.jobs import Job, Jobs, describe_end
from pigeon.tools.base import BaseTool, ToolParts, make_text_outcome
from pigeon.wire import codec
from pigeon.wire.agents import JobInfo
from pigeon.wire.base import Absent, Json
from pigeon.wire.errors import Refusal, ToolFailed
from pigeon.wire.events import ToolOutcome

ACTIONS = ("list", "wait", "read", "write", "stop")
DEFAULT_SECONDS = 60.0
LONGEST_SECONDS = 3600.0


def _title(arguments: dict[str, Json]) -> str:
    return " ".join(str(arguments[name]) for name in ("action", "id") if arguments.get(name)) or "Jobs"


class JobsTool(BaseTool):
    """What runs in the background."""

    name = "jobs"
    description = (
        "Look after commands and agents in the background. list: all of them. read: the output of one, from the "
        "position after on. wait: until it has ended, at most so many seconds, and its output. write: send text to "
        "the stdin of a command, or a message to an agent. stop: end one with all that it started."
    )
    parameters: ClassVar[dict[str, Json]] = {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": list(ACTIONS)},
            "id": {"type": "string", "description": "The id of the job (not for list; wait takes any job without it)"},
            "seconds": {"type": "number", "description": f"wait: at most so long ({DEFAULT_SECONDS:g} by default)"},
            "after": {"type": "number", "description": "read, wait: the position that an earlier result has named"},
            "text": {"type": "string", "description": "write: what to send; a newline ends a line"},
        },
        "required": ["action"],
    }
    snippet = "Look after what runs in the background"
    facts = ToolFacts(_title, kind="other")

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    @classmethod
    def create(cls, parts: ToolParts) -> JobsTool:
        return cls(parts.jobs)

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Do one action; raises `ToolFailed` that names what is wrong."""
        action = arguments["action"]
        if action == "list":
            return self._list()
        if action == "wait" and not arguments.get("id"):
            return await self._wait_for_any(arguments, run)
        if not arguments.get("id"):
            raise ToolFailed(f"id is missing: {action} needs the id of a job.")
        try:
            job = self._jobs.find_job(str(arguments["id"]))
            return await self._act(action, job, arguments, run)
        except Refusal as refusal:
            raise ToolFailed(str(refusal)) from None

    async def _act(self, action: str, job: Job, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        if action == "stop":
            await run.scope.wait(job.stop())
            self._jobs.mark_seen(job.info.job_id)
            return make_text_outcome(f"Stopped {job.info.job_id}.", _details(job.info))
        if action == "write":
            text = arguments.get("text")
            if not isinstance(text, str) or not text:
                raise ToolFailed("text is missing: write needs what to send.")
            await job.write(text)
            return make_text_outcome(f"Sent to {job.info.job_id}.", _details(job.info))
        if action == "wait":
            await _wait(job.wait_for_end(), arguments.get("seconds"), run)
        return self._read(job, arguments.get("after"))

    async def _wait_for_any(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """The first job that has ended; if none does in time, all of them."""
        if not self._jobs.list_ended():
            if all(job.status != "running" for job in self._jobs.list_jobs()):
                raise ToolFailed("Nothing runs in the background.")
            await _wait(self._jobs.wait_for_any_end(), arguments.get("seconds"), run)
        ended = self._jobs.list_ended()
        return self._read(self._jobs.find_job(ended[0].job_id), None) if ended else self._list()

    def _list(self) -> ToolOutcome:
        return _describe_list(self._jobs.list_jobs())

    def _read(self, job: Job, after: Json) -> ToolOutcome:
        part, info = job.read(_parse_position(after)), job.info
        if info.status != "running":
            self._jobs.mark_seen(info.job_id)
        state = "running" if info.status == "running" else f"ended: {describe_end(info)}"
        lead = f"{info.job_id} ({info.title}): {state} after {info.seconds:g} s; next position {part.next}"
        return make_text_outcome(f"{lead}\n\n{part.text or '(no output)'}", {**_details(info), "next": part.next})


async def _wait(end: Coroutine[Any, Any, None], seconds: Json, run: ToolRun) -> None:
    longest = DEFAULT_SECONDS if seconds is None else float(seconds)
    if not 0 <= longest <= LONGEST_SECONDS:
        end.close()
        raise ToolFailed(f"Invalid seconds: {seconds}. It must be from 0 to {LONGEST_SECONDS:g}.")
    ending = asyncio.ensure_future(end)
    try:
        await run.scope.wait(asyncio.wait({ending}, timeout=longest))
    finally:
        ending.cancel()


def _parse_position(after: Json) -> int:
    if after is None:
        return 0
    if not 0 <= after < 1 << 53:
        raise ToolFailed(f"Invalid after: {after}. It is a position that an earlier result has named.")
    return int(after)


def _details(info: JobInfo) -> dict[str, Any]:
    details: dict[str, Any] = {"jobId": info.job_id, "status": info.status}
    return details if isinstance(info.exit_code, Absent) else {**details, "exitCode": info.exit_code}


def _describe_list(jobs: list[JobInfo]) -> ToolOutcome:
    lines = [
        f"{job.job_id} [{job.kind}] {job.title}: "
        + ("running" if job.status == "running" else f"ended: {describe_end(job)}")
        + f" ({job.seconds:g} s)"
        for job in jobs
    ]
    return make_text_outcome(
        "\n".join(lines) or "Nothing runs in the background.", {"jobs": [codec.to_plain(job) for job in jobs]}
    )
