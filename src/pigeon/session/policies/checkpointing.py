"""Checkpointing: what calls change is recorded, so that it can be undone."""

from __future__ import annotations

from collections.abc import Sequence

from pigeon.agent.interfaces import Gate, PathSubject, PreparedCall, Spoken
from pigeon.session.checkpoints import MessagePlace
from pigeon.session.dependencies import Dependencies
from pigeon.session.policies.policy import CompletedTurn, NextGate, RunPolicy, RunStart
from pigeon.wire.content import ToolCall, text_of
from pigeon.wire.events import ToolOutcome
from pigeon.wire.messages import UserMessage

LONGEST_TEXT = 2000
# Calls that change no files themselves. Of other tools nothing is known, unless they say that they only read.
_HARMLESS = ("read", "search", "plan", "agent")


class Checkpointing(RunPolicy):
    """Says before and after each call that it may change files, and for which message."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._checkpoints = dependencies.checkpoints
        self._message = MessagePlace("", "", "", 0)
        self._has_background = False

    def begin_run(self, start: RunStart) -> None:
        self._checkpoints.begin_prompt()

    def wrap_gate(self, gate: NextGate) -> NextGate:
        return lambda: _RecordingGate(gate(), self)

    async def after_turn(self, turn: CompletedTurn) -> Sequence[Spoken] | None:
        """What the run has changed is recorded before its end is announced."""
        await self._checkpoints.end_calls("")
        if turn.ends:
            await self.after_loop()
        return ()

    async def after_loop(self) -> None:
        await self._checkpoints.end_calls("")
        if self._has_background:
            self._has_background = False
            await self._checkpoints.before_call(self._find_message(), "", "background", None, goes_on=True)
            await self._checkpoints.after_call("background", failed=False)
        await self._checkpoints.settle()

    async def before_call(self, prepared: PreparedCall) -> None:
        """A call was allowed and is about to run."""
        tool = prepared.tool
        if tool.reads_only or tool.facts.kind in _HARMLESS:
            return
        subject = prepared.subject
        place = subject.path.place if isinstance(subject, PathSubject) else None
        goes_on = self._has_background or self._runs_in_background()
        self._has_background = goes_on
        await self._checkpoints.before_call(self._find_message(), self._find_answer(), prepared.call.id, place, goes_on)

    async def after_call(self, call_id: str, failed: bool) -> None:
        await self._checkpoints.after_call(call_id, failed)
        self._has_background |= self._runs_in_background()

    def _runs_in_background(self) -> bool:
        jobs = self._dependencies.jobs.list_jobs()
        return any(job.kind == "command" and job.status == "running" for job in jobs)

    def _find_message(self) -> MessagePlace:
        transcript = self._dependencies.transcript
        entry_id = transcript.find_last_user_entry() or ""
        if entry_id != self._message.entry_id or not entry_id:
            line = transcript.journal.find_line(entry_id) if entry_id else None
            message = line.message if line is not None else None
            text, time = "", self._dependencies.now()
            if isinstance(message, UserMessage):
                text, time = text_of(message.content)[:LONGEST_TEXT], message.timestamp
            self._message = MessagePlace(entry_id, entry_id, text, time)
        return self._message

    def _find_answer(self) -> str:
        branch = self._dependencies.transcript.journal.branch
        return next((line.id for line in reversed(branch) if line.role == "assistant"), "")


class _RecordingGate:
    """Passes calls on to the other gates, and records those that are allowed."""

    def __init__(self, inner: Gate | None, policy: Checkpointing) -> None:
        self._inner = inner
        self._policy = policy

    async def before_call(self, prepared: PreparedCall) -> None:
        if self._inner is not None:
            await self._inner.before_call(prepared)
        await self._policy.before_call(prepared)

    async def after_call(self, call: ToolCall, outcome: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]:
        await self._policy.after_call(call.id, is_error)
        if self._inner is not None:
            return await self._inner.after_call(call, outcome, is_error)
        return outcome, is_error
