"""Permissions: a gate before every tool call that lets it pass, refuses it, or asks the host.

Asking is a `select` dialog, so every client of the protocol can answer. Anything but a clear yes in time is a no: no
answer, an answer that is none of the options, no host, a failure on the way. A refused call ends with an error result
that the model reads; nothing hangs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from msgspec import Struct

from pigeon.agent.interfaces import CommandSubject, PathSubject, PreparedCall, Subject
from pigeon.guard.protected import ProtectedPlaces, naming_ruling
from pigeon.guard.rules import PermissionLayers, PlacedPath, Ruling, concealment, ruling, strictest, strictest_mode
from pigeon.system.files import finished_in_thread
from pigeon.system.paths import PathResolver
from pigeon.wire.answers import Permissions, SessionAllowance, SourceRules
from pigeon.wire.content import ToolCall
from pigeon.wire.errors import Aborted, ToolFailed
from pigeon.wire.events import ToolOutcome

ONCE = "Allow once"
ALWAYS = "Allow for this session"
DENY = "Deny"
OPTIONS = (ONCE, ALWAYS, DENY)
MOST_REMEMBERED = 1000
Ask = Callable[[str, list[str], int], Awaitable[object]]


class AllowedCall(Struct, frozen=True):
    """A call that was allowed for a session."""

    session: str
    cwd: str
    tool: str
    subject: str


class PermissionGate:
    """Asks the rules, and the host where the rules say so.

    `ask` gets a title, options and a time in ms. `paths` gives the resolver that the tools use now, `session` the id of
    the session that is open now: both can change, and what was allowed for one session and its folder holds there.
    """

    def __init__(
        self,
        rules: PermissionLayers,
        protected: ProtectedPlaces,
        ask: Ask,
        paths: Callable[[], PathResolver],
        session: Callable[[], str],
    ) -> None:
        self._rules = rules
        self._protected = protected
        self._ask = ask
        self._paths = paths
        self._session = session
        # In the order in which they were allowed.
        self._allowed: dict[AllowedCall, None] = {}

    def use(self, rules: PermissionLayers) -> None:
        """Ask these rules from the next call on; what was allowed for a session stays so, unless they deny it."""
        self._rules = rules

    def allowed(self) -> list[SessionAllowance]:
        """What was allowed for the session that is open."""
        session = self._session()
        return [
            SessionAllowance(tool_name=call.tool, subject=call.subject, cwd=call.cwd)
            for call in self._allowed
            if call.session == session
        ]

    async def before(self, prepared: PreparedCall) -> None:
        """Let it pass; raises `ToolFailed` when the call may not run."""
        tool, subject, paths = prepared.call.name, prepared.subject, self._paths()
        said = ruling(self._rules, tool, subject, paths)
        shown = shown_subject(subject, paths.cwd)
        if said.verdict == "deny":
            raise ToolFailed(_refusal(tool, shown, f"denied by {_by(said.rule)}"))
        if isinstance(subject, PathSubject) and subject.access == "write":
            said = await self._of_protected(tool, subject, paths, said)
        key = AllowedCall(self._session(), paths.cwd, tool, _key(subject))
        if said.verdict == "ask" and key not in self._allowed:
            await self._must_allow(key, shown, said.rule)
        if isinstance(subject, PathSubject) and subject.access == "search":
            prepared.conceal(concealment(self._rules, tool, said.asking, paths))

    async def after(self, call: ToolCall, outcome: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]:
        """The outcome, unchanged."""
        return outcome, is_error

    async def _of_protected(self, tool: str, subject: PathSubject, paths: PathResolver, said: Ruling) -> Ruling:
        """What is to be done about a file that is written: as `said`, if no part of its path is protected."""
        place = PlacedPath(subject.path.names, subject.path.place)
        parts = await finished_in_thread(lambda: self._protected.parts((*place.names, place.place), paths.cwd))
        if not parts:
            return said
        naming = naming_ruling(self._rules, tool, place, parts, paths)
        if naming.verdict == "deny":
            short = _from(paths.cwd, place.place)
            pattern = short if all(part.named_by(short) for part in parts) else place.place
            raise ToolFailed(
                _refusal(
                    tool,
                    shown_subject(subject, paths.cwd),
                    f"{parts[-1].name} is protected while permission rules are in force, and no rule names it. The "
                    f'user can add one to permissions.allow or permissions.ask: "{tool}({pattern})"',
                )
            )
        return naming if said.verdict == "allow" else said

    async def _must_allow(self, key: AllowedCall, shown: str, rule: str | None) -> None:
        tool = key.tool
        try:
            answer = await asyncio.wait_for(
                self._ask(
                    f"Allow {tool}: {shown}" if shown else f"Allow {tool}?", list(OPTIONS), self._rules.timeout_ms
                ),
                self._rules.timeout_ms / 1000 + 1,
            )
        except (Aborted, asyncio.CancelledError):
            raise
        except Exception as error:
            raise ToolFailed(_refusal(tool, shown, f"the user could not be asked ({type(error).__name__})")) from error
        if answer == ALWAYS:
            if len(self._allowed) < MOST_REMEMBERED:
                self._allowed[key] = None
        elif answer != ONCE:
            reason = "the user said no" if answer == DENY else "there was no answer"
            raise ToolFailed(_refusal(tool, shown, f"{reason}, asked because of {_by(rule)}"))


def described(rules: PermissionLayers, allowed: list[SessionAllowance]) -> Permissions:
    """The rules as the host sees them."""
    user, project, host = (
        SourceRules(
            deny=[rule.text for rule in source.deny],
            ask=[rule.text for rule in source.ask],
            allow=[rule.text for rule in source.allow],
            default=source.default,
            approval_mode=source.mode,
        )
        for source in rules.every
    )
    return Permissions(
        default=strictest(source.default for source in rules.every),
        approval_mode=strictest_mode(source.mode for source in rules.every),
        timeout_ms=rules.timeout_ms,
        user=user,
        project=project,
        host=host,
        allowed=allowed,
    )


def _by(rule: str | None) -> str:
    return f'the rule "{rule}"' if rule else "the default of the permissions"


def _refusal(tool: str, shown: str, why: str) -> str:
    what = f"{tool}: {shown}" if shown else tool
    return f"Permission denied for {what}\n({why}). It was not run. Do not try to get around this; ask the user."


def shown_subject(subject: Subject, cwd: str) -> str:
    """What a person wants to see before saying yes, without anything that could pass for something else on a screen."""
    if isinstance(subject, CommandSubject):
        text = subject.command
    elif isinstance(subject, PathSubject):
        name, place = subject.path.names[0], subject.path.place
        text = _from(cwd, name) if os.path.realpath(cwd) + name.removeprefix(cwd) == place or name == place else place
    else:
        text = _key(subject) if subject.arguments else ""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


def _from(cwd: str, path: str) -> str:
    return path.removeprefix(cwd.rstrip("/") + "/") or path


def _key(subject: Subject) -> str:
    if isinstance(subject, CommandSubject):
        return subject.command
    if isinstance(subject, PathSubject):
        return subject.path.place
    from pigeon.wire import codec

    return codec.encode(subject.arguments).decode("utf-8", "replace")
