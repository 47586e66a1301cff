"""The way out of the sandbox: the host is asked about every command that is to run outside, whatever the rules are.

A rule that allows a command allows it behind the wall. To leave it, the host must approve this one call after seeing
the command and the model's reason; no host, no answer in time and an unattended agent mean refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pigeon.agent.interfaces import CommandSubject, PreparedCall
from pigeon.permissions.gate import NOBODY, REASONS, Ask, PermissionQuestion, ask_within, make_visible
from pigeon.wire.content import ToolCall
from pigeon.wire.dialogs import ALLOW_ONCE, DENY
from pigeon.wire.errors import Aborted, CallDenied
from pigeon.wire.events import ToolOutcome

EXIT_OPTIONS = (ALLOW_ONCE, DENY)


class SandboxExitGate:
    """Asks the host about each command that is to run outside; `timeout_ms` is read again each time."""

    def __init__(
        self,
        ask: Ask,
        timeout_ms: Callable[[], int | None],
        unattended: bool,
        agent: str = "",
    ) -> None:
        self._ask = ask
        self._timeout_ms = timeout_ms
        self._unattended = unattended
        self._agent = f" ({make_visible(agent)})" if agent else ""

    async def before_call(self, prepared: PreparedCall) -> None:
        """Return for commands inside, and for those that the host allows; raises `CallDenied` for the rest."""
        subject = prepared.subject
        if not isinstance(subject, CommandSubject) or not subject.outside:
            return
        if not subject.reason.strip():
            raise CallDenied("unsandboxed needs a reason: say what the command needs that the sandbox refuses.")
        if self._unattended:
            raise _make_denial(NOBODY)
        command, reason = await asyncio.to_thread(lambda: (make_visible(subject.command), make_visible(subject.reason)))
        question = PermissionQuestion(
            title=f"Run outside the sandbox{self._agent}: {command}\nReason: {reason}",
            call=prepared.call,
            arguments=prepared.arguments,
            diff=None,
            options=EXIT_OPTIONS,
        )
        try:
            outcome = await ask_within(self._ask, question, self._timeout_ms())
        except (Aborted, asyncio.CancelledError):
            raise
        except Exception as error:
            raise _make_denial(f"the user could not be asked ({type(error).__name__})") from error
        if outcome != "once":
            raise _make_denial(REASONS.get(outcome, REASONS["denied"]))

    async def after_call(self, call: ToolCall, outcome: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]:
        """Returns the outcome unchanged: this gate only checks calls before they run."""
        return outcome, is_error


def _make_denial(why: str) -> CallDenied:
    return CallDenied(
        f"Running outside the sandbox was not allowed ({why}). The command was not run. Do what can be done inside the "
        "sandbox, and say what was left undone."
    )
