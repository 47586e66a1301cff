"""The `bash` command of the protocol: shell commands for the host, several at once, whose output joins the context.

A result never comes between a tool call and its answer: if it ends during a run, it is recorded when the run settles.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from pigeon.agent.scope import Scope
from pigeon.session.activity import Activity
from pigeon.session.bus import Bus
from pigeon.session.context.transcript import Transcript
from pigeon.session.history.journal import Journal
from pigeon.session.hooks import Hooks, wait_for_result
from pigeon.system.shell.shell import ShellMissing, ShellResult, Workplace, run_shell
from pigeon.wire.answers import BashResult
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.errors import Aborted, Refusal
from pigeon.wire.events import BashExecutionUpdate
from pigeon.wire.messages import BashExecutionMessage

NOT_RUN = BashResult(
    output="", cancelled=True, truncated=False, total_lines=0, total_bytes=0, output_lines=0, output_bytes=0
)


class HostShell:
    """Runs the protocol's `bash` commands."""

    def __init__(
        self,
        workplace: Workplace,
        bus: Bus,
        transcript: Transcript,
        activity: Activity,
        hooks: Hooks,
        now: Callable[[], int],
    ) -> None:
        self._now = now
        self._workplace = workplace
        self._bus = bus
        self._transcript = transcript
        self._activity = activity
        self._hooks = hooks
        self._running: set[Scope] = set()

    @property
    def workplace(self) -> Workplace:
        """Where commands run, with which shell and environment."""
        return self._workplace

    def set_workplace(self, workplace: Workplace) -> None:
        self._workplace = workplace

    def run(self, command: str, excluded: bool, id: Json | Absent) -> Coroutine[None, None, BashResult]:
        """Run a command to its end; raises a `Refusal` when the shell cannot start.

        From this call on `abort` stops it, even before it has started. Raises `SessionInUse` if its output could not be
        kept because another process writes the session.
        """
        self._transcript.journal.claim_and_reload_file(begins=not self._activity.is_running)
        scope = Scope()
        self._running.add(scope)
        return self._run_and_record(command, excluded, id, scope, self._transcript.journal)

    async def _run_and_record(
        self, command: str, excluded: bool, id: Json | Absent, scope: Scope, journal: Journal
    ) -> BashResult:
        try:
            answer = await self._run_shell(command, excluded, id, scope)
        except Aborted:
            answer = NOT_RUN
        finally:
            self._running.discard(scope)
        self._record_command(command, answer, excluded, journal)
        return answer

    async def _run_shell(self, command: str, excluded: bool, id: Json | Absent, scope: Scope) -> BashResult:
        given = await wait_for_result(self._hooks.intercept_user_bash(command, excluded, self._workplace.cwd), scope)
        if given is not None:
            return given
        scope.raise_if_cancelled()

        async def show(delta: str) -> None:
            await self._bus.publish(BashExecutionUpdate(id=id, delta=delta))

        outside = self._workplace.host_is_outside()
        try:
            return to_bash_result(
                await run_shell(command, self._workplace, scope=scope, on_output=show, outside=outside)
            )
        except ShellMissing as error:
            raise Refusal(str(error)) from None

    def abort(self) -> None:
        for scope in list(self._running):
            scope.cancel()

    def _record_command(self, command: str, result: BashResult, excluded: bool, journal: Journal) -> None:
        """Record the command, unless its conversation was left in the meantime."""
        if self._transcript.journal is not journal:
            return
        message = BashExecutionMessage(
            command=command,
            output=result.output,
            exit_code=result.exit_code,
            cancelled=result.cancelled,
            truncated=result.truncated,
            full_output_path=result.full_output_path,
            timestamp=self._now(),
            exclude_from_context=True if excluded else ABSENT,
        )
        self._activity.defer_to_run_end(lambda: self._transcript.journal.append_message(message))


def to_bash_result(result: ShellResult) -> BashResult:
    return BashResult(
        output="\n\n".join(filter(None, (result.output, result.lost))),
        exit_code=ABSENT if result.exit_code is None else result.exit_code,
        cancelled=result.cancelled,
        truncated=result.is_truncated,
        total_lines=result.total_lines,
        total_bytes=result.total_bytes,
        output_lines=result.output_lines,
        output_bytes=result.output_bytes,
        full_output_path=result.full_output_path or ABSENT,
        artifact_id=result.artifact_id or ABSENT,
    )
