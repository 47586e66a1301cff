"""What runs beside the conversation: commands and agents that were started in the background, or sent there.

A job ends by itself, when it is stopped, or with the conversation. The model is told of its end once: between two
turns, with the next prompt, or by a run of its own if the settings say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace

from pigeon.system.shell.kept_output import OutputPart
from pigeon.wire.agents import JobInfo
from pigeon.wire.errors import Refusal
from pigeon.wire.events import JobChanged, Outbound

ENDED = "<notice>\nThe background {kind} {id} ({title}) has ended: {how}. Read it with the tool jobs.\n</notice>"
MOST_KEPT = 200
LONGEST_TITLE = 120


class Job(Protocol):
    """One command or agent in the background."""

    @property
    def info(self) -> JobInfo: ...

    async def wait_for_end(self) -> None:
        """Wait until it has ended, however that was."""
        ...

    def read(self, after: int) -> OutputPart:
        """Its output from a position on."""
        ...

    async def write(self, text: str) -> None:
        """Send it a text; raises `Refusal` if it takes none."""
        ...

    async def stop(self) -> None:
        """Stop it with everything that it has started, and wait for its end."""
        ...


class Detachable(Protocol):
    """A call that can go on in the background."""

    def detach(self) -> None:
        """Let the call end now, and its work go on as a job."""
        ...


class Jobs:
    """The jobs of one agent, in the order of their start. Those of the conversation itself know of the jobs of all
    agents, for the host."""

    def __init__(
        self, post: Callable[[Outbound], None], start_run: bool = False, above: Jobs | None = None, agent_id: str = ""
    ) -> None:
        """With `start_run`, the end of a job is to start a run if none is active (`set_idle_callback`). `above` has the
        jobs of the agent that has started this one, whose id is `agent_id`."""
        self._post = post
        self._start_run = start_run
        self._agent_id = agent_id
        self._root: Jobs = self if above is None else above._root
        self._all: dict[Jobs, None] = {self: None}
        self._jobs: dict[str, Job] = {}
        self._count = 0
        self._notices: dict[str, str] = {}
        self._followers: set[asyncio.Task[None]] = set()
        self._detachable: dict[str, Detachable] = {}
        self._on_ended: Callable[[], None] = lambda: None

    def set_idle_callback(self, on_ended: Callable[[], None]) -> None:
        """Set what is called when a job has ended; it may start a run with `take_notices`."""
        if self._start_run:
            self._on_ended = on_ended

    def new_id(self) -> str:
        """The id for the next command in the background, of whichever agent."""
        if self._root is not self:
            return self._root.new_id()
        self._count += 1
        return f"job-{self._count}"

    def add(self, job: Job) -> None:
        """Add a job that has begun, and announce its end."""
        for old in [id for id, known in self._jobs.items() if known.info.status != "running"][: -MOST_KEPT or None]:
            del self._jobs[old]
        self._jobs[job.info.job_id] = job
        self._root._all.setdefault(self)
        self._post(JobChanged(job=self._describe(job)))
        follower = asyncio.ensure_future(self._follow(job))
        self._followers.add(follower)
        follower.add_done_callback(self._followers.discard)

    async def _follow(self, job: Job) -> None:
        await job.wait_for_end()
        info = self._describe(job)
        self._notices[info.job_id] = ENDED.format(
            kind=info.kind, id=info.job_id, title=info.title, how=describe_end(info)
        )
        self._post(JobChanged(job=info))
        self._on_ended()

    def list_jobs(self) -> list[JobInfo]:
        return [self._describe(job) for job in self._jobs.values()]

    def list_all_jobs(self) -> list[JobInfo]:
        """Those of the conversation, then those of its agents."""
        return [info for jobs in self._all for info in jobs.list_jobs()]

    def _describe(self, job: Job) -> JobInfo:
        """What is known of a job; a command of a started agent names it."""
        info = job.info
        return replace(info, agent_id=self._agent_id) if self._agent_id and info.kind == "command" else info

    def find_job(self, job_id: str) -> Job:
        """A job of this agent by its id; raises `Refusal`."""
        return _require_job(self._jobs, job_id)

    def find_any_job(self, job_id: str) -> Job:
        """A job of the conversation or of one of its agents; raises `Refusal`."""
        return _require_job({id: job for jobs in self._all for id, job in jobs._jobs.items()}, job_id)

    def list_ended(self) -> list[JobInfo]:
        """The ends of jobs of which the model does not know yet."""
        return [job.info for id, job in self._jobs.items() if id in self._notices]

    async def wait_for_any_end(self) -> None:
        """Wait until one of those that are running has ended; returns at once if none is."""
        if self._followers:
            await asyncio.wait(set(self._followers), return_when=asyncio.FIRST_COMPLETED)

    def mark_seen(self, job_id: str) -> None:
        """The model has seen the end of a job, so that it need not be told."""
        self._notices.pop(job_id, None)

    def take_notices(self) -> list[str]:
        """The ends of jobs of which the model does not know yet, each once."""
        notices, self._notices = list(self._notices.values()), {}
        return notices

    @property
    def has_notices(self) -> bool:
        return bool(self._notices)

    # Calls that may be sent to the background

    def add_detachable(self, call_id: str, call: Detachable) -> None:
        self._root._all.setdefault(self)
        self._detachable[call_id] = call

    def remove_detachable(self, call_id: str) -> None:
        self._detachable.pop(call_id, None)

    def detach(self, call_id: str) -> None:
        """Send the command of a running call to the background, of whichever agent; raises `Refusal`."""
        call = next((jobs._detachable[call_id] for jobs in self._all if call_id in jobs._detachable), None)
        if call is None:
            raise Refusal(f'No command of a tool call with the id "{call_id[:200]}" is running', "not_found")
        call.detach()

    async def stop_all(self) -> None:
        """Stop every job, and forget them: the conversation ends, or another one is open."""
        running = [job for job in self._jobs.values() if job.info.status == "running"]
        await asyncio.gather(*(job.stop() for job in running), return_exceptions=True)
        while self._followers:
            await asyncio.wait(set(self._followers))
        self._jobs.clear()
        self._notices.clear()
        if self._root is not self:
            self._root._all.pop(self, None)


def _require_job(jobs: Mapping[str, Job], job_id: str) -> Job:
    job = jobs.get(job_id)
    if job is None:
        raise Refusal(f'There is no job "{job_id[:200]}". Known: {", ".join(jobs) or "none"}', "not_found")
    return job


def describe_end(info: JobInfo) -> str:
    """How a job has ended, in a few words."""
    if info.status == "stopped":
        return "it was stopped"
    if isinstance(info.exit_code, int):
        return f"exit code {info.exit_code}"
    return "done" if info.status == "done" else "it failed"
