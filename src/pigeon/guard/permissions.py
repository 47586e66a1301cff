"""Permissions: a gate before every tool call that lets it pass, refuses it, or asks the host.

Asking is a `select` dialog, so every client of the protocol can answer. Anything but a clear yes in time is a no: no
answer, an answer that is none of the options, no host, a failure on the way. A refused call ends with an error result
that the model reads; nothing hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pigeon.guard.rules import PermissionRules, ruling, subject
from pigeon.system.paths import PathResolver
from pigeon.wire.base import Json
from pigeon.wire.content import ToolCall
from pigeon.wire.errors import Aborted, ToolFailed
from pigeon.wire.events import ToolOutcome

ONCE = "Allow once"
ALWAYS = "Allow for this session"
DENY = "Deny"
OPTIONS = (ONCE, ALWAYS, DENY)
LONGEST_SUBJECT = 500
MOST_REMEMBERED = 1000
Ask = Callable[[str, list[str], int], Awaitable[object]]


class PermissionGate:
    """Asks the rules, and the host where the rules say so.

    `ask` gets a title, options and a time in ms. `paths` gives the resolver that the tools use now: the working
    directory of a session can change.
    """

    def __init__(self, rules: PermissionRules, ask: Ask, paths: Callable[[], PathResolver]) -> None:
        self._rules = rules
        self._ask = ask
        self._paths = paths
        self._allowed: set[tuple[str, str]] = set()

    async def before(self, call: ToolCall, arguments: dict[str, Json]) -> dict[str, Json]:
        """The arguments, unchanged; raises `ToolFailed` when the call may not run."""
        said = ruling(self._rules, call.name, arguments, self._paths())
        if said.verdict == "deny":
            raise ToolFailed(_refusal(call.name, arguments, f"denied by {_by(said.rule)}"))
        if said.verdict == "ask" and (call.name, _key(arguments)) not in self._allowed:
            await self._must_allow(call.name, arguments, said.rule)
        return arguments

    async def after(self, call: ToolCall, outcome: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]:
        """The outcome, unchanged."""
        return outcome, is_error

    async def _must_allow(self, tool: str, arguments: dict[str, Json], rule: str | None) -> None:
        try:
            answer = await asyncio.wait_for(
                self._ask(_title(tool, arguments), list(OPTIONS), self._rules.timeout_ms),
                self._rules.timeout_ms / 1000 + 1,
            )
        except (Aborted, asyncio.CancelledError):
            raise
        except Exception as error:
            raise ToolFailed(
                _refusal(tool, arguments, f"the user could not be asked ({type(error).__name__})")
            ) from error
        if answer == ALWAYS:
            if len(self._allowed) < MOST_REMEMBERED:
                self._allowed.add((tool, _key(arguments)))
        elif answer != ONCE:
            reason = "the user said no" if answer == DENY else "there was no answer"
            raise ToolFailed(_refusal(tool, arguments, f"{reason}, asked because of {_by(rule)}"))


def _by(rule: str | None) -> str:
    return f'the rule "{rule}"' if rule else "the default of the permissions"


def _title(tool: str, arguments: dict[str, Json]) -> str:
    shown = _shown(subject(tool, arguments))
    return f"Allow {tool}: {shown}" if shown else f"Allow {tool}?"


def _refusal(tool: str, arguments: dict[str, Json], why: str) -> str:
    shown = _shown(subject(tool, arguments))
    what = f"{tool}: {shown}" if shown else tool
    return f"Permission denied for {what}\n({why}). It was not run. Do not try to get around this; ask the user."


def _shown(text: str) -> str:
    """One line or several, without anything that could pass for something else on a screen."""
    clean = "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)
    return clean if len(clean) <= LONGEST_SUBJECT else clean[:LONGEST_SUBJECT] + " …"


def _key(arguments: dict[str, Json]) -> str:
    from pigeon.wire import codec

    return codec.encode(arguments).decode("utf-8", "replace")
