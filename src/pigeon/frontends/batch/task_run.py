"""`run` does one task, from its spec to its result, in a separate process (`task_process.py`).

Its files go to a folder `.part-...` next to the folders of results, which does not count until it is complete. When
everything is synced to disk, the folder is renamed to the hash of the spec. So a result exists completely or not at
all, whatever is killed; a second process that did the same task finds the name taken and gives up.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct, structs

from pigeon.app.build import BuiltAgent, build
from pigeon.app.models import list_secret_variables
from pigeon.app.options import AgentOptions
from pigeon.export.page_writer import PageWriter
from pigeon.frontends.batch.places.workspaces import (
    Workspaces,
    WorkspaceSnapshot,
    git_variables,
    make_patch,
    remove_folder,
)
from pigeon.frontends.batch.records import Check, CheckResult, Status, TaskResult, TaskSpec, hash_of
from pigeon.frontends.batch.task_link import TaskLink
from pigeon.rpc.in_process import SPOKEN
from pigeon.sdk.agent import Agent
from pigeon.sdk.output import OutputType
from pigeon.sdk.results import ConversationEvent, Result, RunRecord
from pigeon.secrets.redactor import Redactor
from pigeon.session.history.session_folders import SessionFolders
from pigeon.system.clock import now_ms
from pigeon.system.environment import Environment
from pigeon.system.files import create_or_replace_file, sync_folder
from pigeon.system.git import Git, GitError
from pigeon.system.process.start import ProcessOwner
from pigeon.wire import codec
from pigeon.wire.agents import AgentInfo
from pigeon.wire.base import Absent, value_or_default
from pigeon.wire.errors import PigeonError, Refusal, text_for_host
from pigeon.wire.events import AgentChanged, MessageEnd
from pigeon.wire.messages import AssistantMessage, ToolResultMessage
from pigeon.wire.steering import parse_limits

RESULT_FILE = "result.json"
TASK_FILE = "task.json"
SESSION_FILE = SessionFolders.to_file_name("session")
PAGE_FILE = "session.html"
PATCH_FILE = "changes.patch"
WORKSPACE = "workspace"
BEFORE = "before.git"
WORDS_FILE = "stderr.txt"
CHECK_OUTPUT = 16_000
ABORT_SECONDS = 5.0
# System errors that would affect every task.
NO_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


class TaskPlace(Struct, frozen=True, kw_only=True):
    """Where a task runs and what it receives: folders, variables, and a key that is never written to disk.

    `out` is the folder of the batch, `part` that of this attempt, `cache` has the mirrors of repositories. `keep` says
    which workspaces stay: `all`, `failed` or `none`.
    """

    batch: str
    out: str
    part: str
    cache: str
    agent_dir: str
    cwd: str
    variables: dict[str, str]
    keep: str = "all"
    api_key: str | None = None


async def run(spec: TaskSpec, place: TaskPlace, environment: Environment, link: TaskLink) -> TaskResult | None:
    """Run a task and store its result; returns None if the host has stopped it.

    Raises `OSError` if the result cannot be stored.
    """
    running = _Run(spec, place, environment, link)
    work = asyncio.ensure_future(running.execute())
    both: set[asyncio.Future[Any]] = {work, link.stopped}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        work.cancel()
        await asyncio.wait({work}, timeout=ABORT_SECONDS)
        return None
    return work.result()


class _Run:
    """One running task, from its workspace to its stored result."""

    def __init__(self, spec: TaskSpec, place: TaskPlace, environment: Environment, link: TaskLink) -> None:
        self._spec = spec
        self._place = place
        self._environment = environment
        self._link = link
        self._owner = ProcessOwner()
        self._git_variables = git_variables(environment, place.agent_dir)
        self._git = Git(self._owner, self._git_variables, list_secret_variables(place.agent_dir, environment.variables))
        self._workspaces = Workspaces(place.cache, place.batch, self._git)
        self._redactor = Redactor()
        self._folder = hash_of(spec)
        self._began = now_ms()
        self._started = time.monotonic()
        self._found: dict[str, Any] = {}
        self._costs_of_agents: dict[str, float] = {}
        self._part = _identify_folder(place.part)

    async def execute(self) -> TaskResult:
        workspace = os.path.join(self._place.part, WORKSPACE)
        try:
            try:
                commit = await self._workspaces.create_workspace(
                    self._spec.workspace, workspace, self._place.out, self._spec.commit
                )
                self._found["commit"] = commit
                status = await self._run_conversation(workspace, commit)
            except PigeonError as error:
                if (cause := _find_disk_error(error)) is not None:
                    raise cause from None
                status = "error"
                self._found["error"] = str(error)
            except OSError as error:
                if error.errno in NO_DISK:
                    raise
                status = "error"
                self._found["error"] = text_for_host(error)
            return await asyncio.to_thread(self._commit_result, status)
        finally:
            await self._owner.kill_everything()

    async def _run_conversation(self, workspace: str, commit: str | None) -> Status:
        spec, place = self._spec, self._place
        options = structs.replace(
            options_of(spec, place.api_key),
            cwd=workspace,
            workspace=None if spec.workspace is None else spec.workspace.url,
            agent_dir=place.agent_dir,
            session_dir=place.part,
            limits=parse_limits(spec.limits),
            name=spec.id,
        )
        before = await self._remember_workspace(workspace, commit, options)
        built = await build(options, self._environment, self._redactor, pacing=self._link)
        async with Agent.over(built) as agent:
            result = await self._run_prompt(agent)
            check = await self._run_check(agent, result)
            stats = await agent.get_state()
            self._found["agents"] = len((await agent.get_agents()).agents)
            if commit is not None:
                await self._store_patch(lambda: self._make_patch(workspace, commit, built.processes))
            elif before is not None:
                await self._store_patch(before.make_patch)
        self._collect_result_fields(result, check, stats.model)
        self._store_session_file(built, result)
        return self._decide_status(result, check)

    async def _run_prompt(self, agent: Agent) -> Result[Any]:
        wanted = None if self._spec.output is None else OutputType(self._spec.output)
        record = RunRecord(wanted)
        schema: Any = None if wanted is None else wanted.schema
        async with agent.prompt(self._spec.prompt, output=schema) as events:
            async for event in events:
                record.add_event(event)
                self._report_cost(event)
        return record.make_result(await agent.get_state())

    def _report_cost(self, event: ConversationEvent) -> None:
        cost = 0.0
        if isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            cost = float(event.message.usage.cost.total)
        elif isinstance(event, AgentChanged) and event.agent.depth == 1:
            cost = self._count_agent(event.agent)
        if cost > 0:
            self._link.report_cost(cost)

    def _count_agent(self, agent: AgentInfo) -> float:
        """What an agent has cost since it was last looked at; what it has started itself is part of that in the end."""
        so_far = float(agent.usage.cost.total)
        before = self._costs_of_agents.get(agent.agent_id, 0.0)
        # One that continues counts from nothing.
        self._costs_of_agents[agent.agent_id] = so_far
        return so_far - before if so_far >= before else so_far

    async def _run_check(self, agent: Agent, result: Result[Any]) -> CheckResult | None:
        """Run the check if the agent has finished or reached a limit."""
        check = self._spec.check
        if check is None or result.ended not in ("done", "limit"):
            return None
        began = time.monotonic()
        running = asyncio.ensure_future(agent.bash(check.command, exclude_from_context=True))
        try:
            await asyncio.wait({running}, timeout=float(check.seconds))
            timed_out = not running.done()
            if timed_out:
                await agent.abort_bash()
            answer = await running
        except Refusal as error:
            return CheckResult(passed=False, output=str(error))
        finally:
            running.cancel()
        code = None if timed_out else value_or_default(answer.exit_code, None)
        return CheckResult(
            passed=code == 0,
            exit_code=code,
            seconds=round(time.monotonic() - began, 3),
            timed_out=timed_out,
            output=answer.output[-CHECK_OUTPUT:],
        )

    def _collect_result_fields(self, result: Result[Any], check: CheckResult | None, model: Any) -> None:
        answers = [one for one in result.messages if isinstance(one, AssistantMessage)]
        tools: dict[str, int] = {}
        for one in result.messages:
            if isinstance(one, ToolResultMessage):
                tools[one.tool_name] = tools.get(one.tool_name, 0) + 1
        self._found |= {
            "ended": result.ended,
            "check": check,
            "usage": result.usage,
            "output": result.output,
            "text": result.text,
            "turns": len(answers),
            "tools": dict(sorted(tools.items())),
            "model": None if isinstance(model, Absent) or not model else model.reference,
            "error": _describe_failure(result, check, self._spec.check),
        }

    def _decide_status(self, result: Result[Any], check: CheckResult | None) -> Status:
        if check is not None and check.passed:
            return "done"
        if result.ended == "limit":
            return "limit"
        if result.ended in ("error", "aborted"):
            return "error"
        return "done" if result.ended == "done" and check is None else "failed"

    def _store_session_file(self, built: BuiltAgent, result: Result[Any]) -> None:
        file = result.session_file
        if file is None or not SessionFolders.has_file(file):
            return
        target = os.path.join(self._place.part, SESSION_FILE)
        os.rename(file, target)
        with suppress(FileNotFoundError):
            os.rename(SessionFolders.outputs_folder_of(file), SessionFolders.outputs_folder_of(target))
        with suppress(FileNotFoundError):
            os.rename(SessionFolders.agents_folder_of(file), SessionFolders.agents_folder_of(target))
        page = os.path.join(self._place.part, PAGE_FILE)
        PageWriter(
            self._environment, built.session.dependencies.repository.store, self._redactor.mask
        ).write_page_of_file(target, page)
        self._found["session"] = f"{self._folder}/{SESSION_FILE}"

    async def _remember_workspace(
        self, workspace: str, commit: str | None, options: AgentOptions
    ) -> WorkspaceSnapshot | None:
        """For a task in a container, whose changes are a patch also without a repository."""
        if options.container is None or commit is not None:
            return None
        try:
            return await WorkspaceSnapshot.create(self._git, workspace, os.path.join(self._place.part, BEFORE))
        except GitError:
            # There is no git here, or a file that it cannot read.
            return None

    async def _make_patch(self, workspace: str, commit: str, owner: ProcessOwner) -> bytes:
        temporary = owner.temporary_folder or self._environment.temporary_folder
        return await make_patch(Git(owner, self._git_variables), workspace, commit, temporary)

    async def _store_patch(self, make: Callable[[], Awaitable[bytes]]) -> None:
        try:
            patch = await make()
        except GitError:
            # The agent may have broken the repository.
            return
        create_or_replace_file(os.path.join(self._place.part, PATCH_FILE), self._redactor.mask(patch), 0o600)

    def _commit_result(self, status: Status) -> TaskResult:
        """Sync everything to disk, then rename the folder; runs in a thread."""
        place, spec, part = self._place, self._spec, self._place.part
        if place.keep == "none" or (place.keep == "failed" and status == "done"):
            remove_folder(os.path.join(part, WORKSPACE))
        found = {**self._found, "error": None} if status == "done" else self._found
        result = TaskResult(
            id=spec.id,
            status=status,
            folder=self._folder,
            group=spec.group,
            began=self._began,
            seconds=round(time.monotonic() - self._started, 3),
            **found,
        )
        masked = self._redactor.mask(codec.encode(result))
        if _identify_folder(part) != self._part:
            # Another driver assumed that this one was dead and has cleaned up, so what is known here is out of date.
            raise OSError(errno.ENOENT, "The folder of this attempt was removed", part)
        put_result(part, spec, masked)
        return commit_folder(
            part, os.path.join(place.out, self._folder), codec.convert(codec.decode(masked), TaskResult)
        )


def options_of(spec: TaskSpec, api_key: str | None) -> AgentOptions:
    """The options of a task's agent, without its folders."""
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in spec.options.items()}
    chosen: dict[str, Any] = {"unattended": True, "finish_gate": bool(given.get("unattended")), "api_key": api_key}
    chosen["offers"] = ("agents",)
    if spec.model is not None:
        chosen["model"] = spec.model
    return AgentOptions(**{**given, **chosen}).for_dialect(SPOKEN)


def put_result(part: str, spec: TaskSpec, result: bytes) -> None:
    """Write the files that make a folder the result of a task, and sync them to disk."""
    words = os.path.join(part, WORDS_FILE)
    with suppress(FileNotFoundError):
        if not os.path.getsize(words):
            os.unlink(words)
    create_or_replace_file(os.path.join(part, TASK_FILE), codec.encode(spec) + b"\n", 0o600)
    create_or_replace_file(os.path.join(part, RESULT_FILE), result + b"\n", 0o600)
    for name in (SESSION_FILE, PAGE_FILE, PATCH_FILE, TASK_FILE, RESULT_FILE):
        with suppress(FileNotFoundError):
            _sync_path(os.path.join(part, name))
    sync_folder(part)


def commit_folder(part: str, target: str, result: TaskResult) -> TaskResult:
    """Rename the folder of an attempt to its final name; if that exists, its result counts."""
    try:
        os.rename(part, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        there = read_result(target)
        if there is None:
            raise
        remove_folder(part)
        return there
    sync_folder(os.path.dirname(target))
    return result


def read_result(folder: str) -> TaskResult | None:
    """The result in the folder of a task; or None if there is none."""
    try:
        with open(os.path.join(folder, RESULT_FILE), "rb") as file:
            return codec.convert(codec.decode(file.read()), TaskResult)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _find_disk_error(error: BaseException) -> OSError | None:
    """The disk failure behind an error that reports it in other words, or None."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in NO_DISK:
            return cause
        cause = cause.__cause__ or cause.__context__
    # Git only leaves its output to look at.
    full = os.strerror(errno.ENOSPC)
    return OSError(errno.ENOSPC, full) if isinstance(error, GitError) and full in str(error) else None


def _identify_folder(folder: str) -> tuple[int, int] | None:
    """The identity of a folder, by which a replacement is noticed; None if there is no folder."""
    with suppress(OSError):
        found = os.stat(folder)
        return found.st_dev, found.st_ino
    return None


def _sync_path(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _describe_failure(result: Result[Any], check: CheckResult | None, asked: Check | None) -> str | None:
    """Why a task is not done; texts for the same reason begin alike, so that they can be grouped."""
    if check is not None and not check.passed and result.ended == "done":
        assert asked is not None
        if check.timed_out:
            return f"The check took longer than {asked.seconds:g} s"
        return (
            f"The check exited with code {check.exit_code}" if check.exit_code is not None else "The check did not run"
        )
    if result.ended == "denied":
        return "Not allowed: none of the last tool calls was allowed to run"
    if result.ended == "aborted":
        return "The run was aborted"
    return result.error
