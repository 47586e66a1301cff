"""Handlers: shell commands of the host."""

from __future__ import annotations

from collections.abc import Awaitable

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire.answers import BashResult
from pigeon.wire.commands import AbortBash, Bash


@handles(Bash)
def bash(cmd: Bash, s: Session) -> Awaitable[BashResult]:
    """A failing command is still a success of this command."""
    return s.shell.run(cmd.command, cmd.exclude_from_context is True, cmd.id)


@handles(AbortBash)
def abort_bash(cmd: AbortBash, s: Session) -> None:
    """Aborts all of them; answered before they have ended."""
    s.shell.abort()
