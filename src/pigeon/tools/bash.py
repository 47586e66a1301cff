"""bash: a command in the user's shell, its output shown while it runs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from pigeon.agent.inference import ToolSpec
from pigeon.agent.interfaces import NO_HOST, CommandSubject, HostAccess, ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.system.shell.shell import (
    LONGEST_TIMEOUT,
    ShellMissing,
    ShellResult,
    Workplace,
    make_shell_result,
    run_shell,
)
from pigeon.system.shell.truncation import MAX_BYTES, MAX_LINES, Shown, human_size
from pigeon.tools.base import BaseTool, ToolParts, make_text_outcome
from pigeon.wire.base import Json
from pigeon.wire.content import TextContent
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome

if TYPE_CHECKING:
    from pigeon.sandbox.policy import SandboxPolicy
    from pigeon.session.jobs import Job, Jobs
    from pigeon.system.shell.output import Capture

STARTED = "Started in the background as {id}. You are told when it has ended; the tool jobs looks after it."
SENT = "The user has sent the command to the background, where it goes on as {id}. Its output so far is below."
PARALLEL: dict[str, Json] = {
    "parallel": {
        "type": "boolean",
        "description": "True if the command may run in parallel with the neighbouring calls of this answer: it neither "
        "depends on them nor changes what they work on",
    },
}
BACKGROUND: dict[str, Json] = {
    "background": {
        "type": "boolean",
        "description": "True to let it run on and go on at once; the result is the id of a job",
    },
}
UNSANDBOXED: dict[str, Json] = {
    "unsandboxed": {
        "type": "boolean",
        "description": "True to run it outside the sandbox. The user is asked each time and may refuse",
    },
    "reason": {"type": "string", "description": "With unsandboxed: what the command needs that the sandbox refuses"},
}


class BashTool(BaseTool):
    """Runs one command; stdout and stderr are returned as one text, of which only the end if it is long."""

    name = "bash"
    description = (
        "Run a shell command in the working directory and get its stdout and stderr as one text. Long output is cut to "
        f"its last {MAX_LINES} lines or {MAX_BYTES // 1024}KB, whichever is less; all of it is then in a file that the "
        "result names. Give a timeout in seconds for a command that may not end."
    )
    parameters: ClassVar[dict[str, Json]] = {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The command line"},
            "timeout": {"type": "number", "description": "Seconds after which it is killed (none by default)"},
        },
        "required": ["command"],
    }
    snippet = "Run shell commands (ls, grep, find, git, tests)"
    strict = True
    facts = ToolFacts(
        lambda arguments: str(arguments.get("command", "bash")),
        kind="execute",
        command="command",
        other_names=("shell",),
    )

    def __init__(self, place: Workplace, host: HostAccess = NO_HOST, jobs: Jobs | None = None) -> None:
        self._place = place
        self._host = host
        self._jobs = jobs
        self._offers_background = False

    @classmethod
    def create(cls, parts: ToolParts) -> BashTool:
        """The tool for a place: with `declared` a call may declare itself independent, behind a wall it may request
        access outside."""
        place, policy = parts.place, parts.sandbox()
        if policy is not None:
            return (DeclaringSandboxedBashTool if parts.declared else SandboxedBashTool)(
                place, policy, parts.sandbox, parts.jobs
            )
        return (DeclaringBashTool if parts.declared else BashTool)(place, parts.host, parts.jobs)

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool's description for the model; another one while commands may be started in the background."""
        parameters = _add_parameters(self.parameters, BACKGROUND) if self._offers_background else self.parameters
        return ToolSpec(self.name, self._describe(), parameters, self.strict)

    def offer_background(self, offers: bool) -> None:
        """Whether the model may start commands in the background, for which it needs the tool that looks after them."""
        if offers != self._offers_background:
            self._offers_background = offers
            self.__dict__.pop("spec", None)

    def _describe(self) -> str:
        return self.description

    def resolve_subject(self, arguments: dict[str, Json]) -> CommandSubject:
        return CommandSubject(str(arguments["command"]))

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Run the command; a failure, a kill or a time-out is an error with the output."""
        return await self._run(arguments, run, None)

    async def _run(
        self, arguments: dict[str, Json], run: ToolRun, explain: Callable[[str], str | None] | None
    ) -> ToolOutcome:
        subject = _subject_of(run)
        timeout = _parse_timeout(arguments.get("timeout"))
        if arguments.get("background") is True:
            return await self._start_in_background(subject, run, timeout)
        await run.update(ToolOutcome(content=[]))

        async def show(capture: Capture) -> None:
            shown = capture.visible_tail()
            text = TextContent(text=shown.text)
            await run.update(ToolOutcome(content=[text], details=_details(shown, capture.full_output_path)))

        if self._host.runs_commands:
            return _make_outcome(await self._run_at_host(subject.command, run, timeout), timeout, explain)
        try:
            result = await self._run_here(subject, run, timeout, show)
        except ShellMissing as error:
            raise ToolFailed(str(error)) from error
        return result if isinstance(result, ToolOutcome) else _make_outcome(result, timeout, explain)

    async def _run_here(
        self,
        subject: CommandSubject,
        run: ToolRun,
        timeout: float | None,
        show: Callable[[Capture], Awaitable[None]],
    ) -> ShellResult | ToolOutcome:
        """Run the command to its end, unless it is sent to the background meanwhile."""
        place = self._place
        if self._jobs is None:
            return await run_shell(
                subject.command, place, scope=run.scope, timeout=timeout, on_progress=show, outside=subject.outside
            )
        from pigeon.tools.background_commands import BackgroundCommand, WaitingCommand

        waiting = WaitingCommand(self._jobs, place, subject.command, run.call_id, run.scope)
        ended = await waiting.wait(
            run_shell(
                subject.command,
                place,
                scope=waiting.scope,
                timeout=timeout,
                on_progress=show,
                outside=subject.outside,
                tap=waiting.tap,
            )
        )
        return _make_job_outcome(ended, SENT) if isinstance(ended, BackgroundCommand) else ended

    async def _start_in_background(self, subject: CommandSubject, run: ToolRun, timeout: float | None) -> ToolOutcome:
        if self._jobs is None or self._host.runs_commands:
            raise ToolFailed("Commands run at the host here, so none can be left in the background. Run it without.")
        from pigeon.tools.background_commands import start_in_background

        try:
            job = await start_in_background(
                subject.command, self._place, self._jobs, run.call_id, subject.outside, timeout
            )
        except ShellMissing as error:
            raise ToolFailed(str(error)) from error
        return _make_job_outcome(job, STARTED)

    async def _run_at_host(self, command: str, run: ToolRun, timeout: float | None) -> ShellResult:
        """Only the end is reported, because the host itself shows the output."""
        place = self._place
        end = await self._host.run(run, place.shell.argv(command), place.cwd, place.environment(), timeout)
        return await asyncio.to_thread(make_shell_result, end.output, place, end.exit_code, end.cause)


def _add_parameters(parameters: dict[str, Json], more: dict[str, Json]) -> dict[str, Json]:
    return {**parameters, "properties": {**parameters["properties"], **more}}


class DeclaringBashTool(BashTool):
    """The same with an argument by which the model declares that a call is independent of its neighbours."""

    parameters: ClassVar[dict[str, Json]] = _add_parameters(BashTool.parameters, PARALLEL)


class SandboxedBashTool(BashTool):
    """The same behind a wall, which is described to the model, with a way to request a command outside."""

    parameters: ClassVar[dict[str, Json]] = _add_parameters(BashTool.parameters, UNSANDBOXED)

    def __init__(
        self,
        place: Workplace,
        policy: SandboxPolicy,
        sandbox: Callable[[], SandboxPolicy | None],
        jobs: Jobs | None = None,
    ) -> None:
        super().__init__(place, jobs=jobs)
        self._policy = policy
        self._sandbox = sandbox

    def _describe(self) -> str:
        """The description with what the wall allows."""
        from pigeon.sandbox.explaining import HOW_TO_ASK, describe_policy

        return f"{self.description} {describe_policy(self._policy)} {HOW_TO_ASK}"

    def resolve_subject(self, arguments: dict[str, Json]) -> CommandSubject:
        """The command, and whether it is to run outside."""
        outside = arguments.get("unsandboxed") is True
        return CommandSubject(str(arguments["command"]), outside, str(arguments.get("reason") or "") if outside else "")

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Run the command; if the wall may be why it failed, the model learns which rule that is and how to ask."""
        from pigeon.sandbox.explaining import failure_hint

        subject = _subject_of(run)
        policy = self._sandbox() or self._policy
        return await self._run(arguments, run, None if subject.outside else lambda output: failure_hint(policy, output))


class DeclaringSandboxedBashTool(SandboxedBashTool):
    """A sandboxed `bash` whose calls may also declare themselves independent."""

    parameters: ClassVar[dict[str, Json]] = _add_parameters(SandboxedBashTool.parameters, PARALLEL)


def _make_job_outcome(job: Job, lead: str) -> ToolOutcome:
    info, part = job.info, job.read(0)
    text = lead.format(id=info.job_id) + (f"\n\n{part.text}" if part.text else "")
    return make_text_outcome(text, {"jobId": info.job_id, "status": info.status, "next": part.next})


def _subject_of(run: ToolRun) -> CommandSubject:
    assert isinstance(run.subject, CommandSubject)
    return run.subject


def _parse_timeout(value: Json) -> float | None:
    if value is None:
        return None
    if not math.isfinite(value) or not 0 < value <= LONGEST_TIMEOUT:
        raise ToolFailed(
            f"Invalid timeout: {value}. It must be a number of seconds above 0 and at most {LONGEST_TIMEOUT}."
        )
    return float(value)


def _make_outcome(
    result: ShellResult, timeout: float | None, explain: Callable[[str], str | None] | None = None
) -> ToolOutcome:
    details = _details(result.shown, result.full_output_path)
    text = result.output + (_make_truncation_notice(result) if result.is_truncated else "")
    ending = None
    if result.lost is not None:
        ending = result.lost
    elif result.cancelled:
        ending = "Command aborted"
    elif result.timed_out:
        ending = f"Command timed out after {_format_seconds(timeout)} seconds"
    elif result.exit_code:
        text = text or "(no output)"
        ending = f"Command exited with code {result.exit_code}"
        hint = None if explain is None else explain(result.output)
        ending = ending if hint is None else f"{ending}\n\n{hint}"
    if ending is not None:
        raise ToolFailed(f"{text}\n\n{ending}" if text else ending, details)
    return make_text_outcome(text or "(no output)", details) if details else make_text_outcome(text or "(no output)")


def _details(shown: Shown, path: str | None) -> dict[str, Json]:
    if not shown.is_truncated:
        return {}
    details: dict[str, Json] = {"truncation": shown.to_record()}
    if path is not None:
        details["fullOutputPath"] = path
    return details


def _make_truncation_notice(result: ShellResult) -> str:
    shown = result.shown
    where = result.kept
    if shown.last_line_partial:
        return f"\n\n[Showing last {human_size(shown.output_bytes)} of line {shown.total_lines}. {where}]"
    first = shown.total_lines - shown.output_lines + 1
    limit = f" ({human_size(shown.limits.bytes)} limit)" if shown.truncated_by == "bytes" else ""
    return f"\n\n[Showing lines {first}-{shown.total_lines} of {shown.total_lines}{limit}. {where}]"


def _format_seconds(timeout: float | None) -> str:
    return f"{timeout:g}" if timeout is not None and timeout < 1e6 else str(timeout)
