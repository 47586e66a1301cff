"""bash: a command in the user's shell, its output shown while it runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from pigeon.agent.interfaces import CommandSubject, ToolRun
from pigeon.system.shell.shell import LONGEST_TIMEOUT, ShellMissing, ShellResult, Workplace, run_shell
from pigeon.system.shell.truncation import MAX_BYTES, MAX_LINES, Shown, human_size
from pigeon.tools.base import BaseTool, text_outcome
from pigeon.wire.base import Json
from pigeon.wire.content import TextContent
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome

if TYPE_CHECKING:
    from pigeon.system.shell.output import Capture


class BashTool(BaseTool):
    """Runs one command; stdout and stderr come back as one text, its end if it is long."""

    name = "bash"
    label = "bash"
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

    def __init__(self, place: Workplace) -> None:
        self._place = place

    def subject(self, arguments: dict[str, Json]) -> CommandSubject:
        """The command."""
        return CommandSubject(str(arguments["command"]))

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Run it; a command that fails, is killed or takes too long is an error with its output."""
        timeout = _checked_timeout(arguments.get("timeout"))
        await run.update(ToolOutcome(content=[]))

        async def show(capture: Capture) -> None:
            shown = capture.shown()
            text = TextContent(text=shown.text)
            await run.update(ToolOutcome(content=[text], details=_details(shown, capture.full_output_path)))

        try:
            result = await run_shell(_command_of(run), self._place, scope=run.scope, timeout=timeout, on_progress=show)
        except ShellMissing as error:
            raise ToolFailed(str(error)) from error
        return _outcome(result, timeout)


class DeclaringBashTool(BashTool):
    """The same with an argument by which the model declares that a call is independent of its neighbours."""

    parameters: ClassVar[dict[str, Json]] = {
        **BashTool.parameters,
        "properties": {
            **BashTool.parameters["properties"],
            "parallel": {
                "type": "boolean",
                "description": "True if it may run beside the neighbouring calls of this answer: it neither needs "
                "what they do nor changes what they work on",
            },
        },
    }


def _command_of(run: ToolRun) -> str:
    """The command that the call was allowed to be about."""
    assert isinstance(run.subject, CommandSubject)
    return run.subject.command


def _checked_timeout(value: Json) -> float | None:
    if value is None:
        return None
    if not math.isfinite(value) or not 0 < value <= LONGEST_TIMEOUT:
        raise ToolFailed(
            f"Invalid timeout: {value}. It must be a number of seconds above 0 and at most {LONGEST_TIMEOUT}."
        )
    return float(value)


def _outcome(result: ShellResult, timeout: float | None) -> ToolOutcome:
    details = _details(result.shown, result.full_output_path)
    text = result.output + (_notice(result) if result.truncated else "")
    ending = None
    if result.cancelled:
        ending = "Command aborted"
    elif result.timed_out:
        ending = f"Command timed out after {_seconds(timeout)} seconds"
    elif result.exit_code:
        text = text or "(no output)"
        ending = f"Command exited with code {result.exit_code}"
    if ending is not None:
        raise ToolFailed(f"{text}\n\n{ending}" if text else ending, details)
    return text_outcome(text or "(no output)", details) if details else text_outcome(text or "(no output)")


def _details(shown: Shown, path: str | None) -> dict[str, Json]:
    if not shown.truncated:
        return {}
    details: dict[str, Json] = {"truncation": shown.record()}
    if path is not None:
        details["fullOutputPath"] = path
    return details


def _notice(result: ShellResult) -> str:
    shown = result.shown
    where = result.kept
    if shown.last_line_partial:
        return f"\n\n[Showing last {human_size(shown.output_bytes)} of line {shown.total_lines}. {where}]"
    first = shown.total_lines - shown.output_lines + 1
    limit = f" ({human_size(shown.limits.bytes)} limit)" if shown.truncated_by == "bytes" else ""
    return f"\n\n[Showing lines {first}-{shown.total_lines} of {shown.total_lines}{limit}. {where}]"


def _seconds(timeout: float | None) -> str:
    return f"{timeout:g}" if timeout is not None and timeout < 1e6 else str(timeout)
