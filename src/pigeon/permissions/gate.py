"""Permissions: a gate before every tool call that lets it pass, refuses it, or asks the host.

Asking is a `select` dialog, so every client of the protocol can answer. Anything but a clear approval in time is a
refusal: no answer, an answer that is not an option, no host, a failure. A refused call ends with an error result that
the model reads; nothing hangs.
"""

from __future__ import annotations

import asyncio
import os
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from pigeon.agent.interfaces import ArgumentSubject, CommandSubject, PathSubject, PreparedCall, Subject
from pigeon.permissions.protected import ProtectedPart, ProtectedPlaces, ruling_of_named_parts
from pigeon.permissions.rules import (
    PermissionLayers,
    PlacedPath,
    Ruling,
    explain_plan_refusal,
    find_redirected_files,
    make_concealment_test,
    ruling_of,
    strictest_mode,
    strictest_verdict,
)
from pigeon.session.dependencies import KeptAllowance
from pigeon.system.paths import PathResolver
from pigeon.tools.catalog import WRITE
from pigeon.wire.answers import Permissions, SessionAllowance, SourceRules
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.content import ToolCall
from pigeon.wire.dialogs import ALLOW_ALWAYS, ALLOW_ONCE, APPROVE, DENY
from pigeon.wire.errors import Aborted, CallDenied, ToolFailed
from pigeon.wire.events import PermissionOutcome, ToolOutcome

OPTIONS = (ALLOW_ONCE, ALLOW_ALWAYS, DENY)
NOBODY = "the agent runs unattended, so nobody can be asked"
ASK = "Do not try to get around this; ask the user."
GO_ON = "Do not try to get around this; do what can be done without it, and say at the end what was left undone."
MOST_REMEMBERED = 1000
REASONS: dict[PermissionOutcome, str] = {
    "denied": "the user said no",
    "timeout": "there was no answer",
    "aborted": "the question was withdrawn",
    "disconnected": "there is no host to ask",
}
# In place of the hash of a definition that is not known; no allowance has it.
_UNKNOWN = "unknown"
# Letters that screens show as blank.
_BLANKS = "[\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u034f\u180b-\u180f\U000e0100-\U000e01ef]"
# What is read of a repository to know its hooks.
_GIT_FILES = (".git", ".git/commondir", ".git/config", ".git/hooks")
_WIDEST_GAP, _TALLEST_GAP, _MOST_MARKS, _TAB = 40, 4, 8, 8


class PermissionQuestion(Struct, frozen=True):
    """The question for the host: a text with everything that a person needs, and the call for programs."""

    title: str
    call: ToolCall
    arguments: dict[str, Json]
    diff: str | None
    options: tuple[str, ...] = OPTIONS


# Asks the host within a time in ms, or without limit, and returns the outcome.
Ask = Callable[[PermissionQuestion, int | None], Awaitable[PermissionOutcome]]


async def ask_within(ask: Ask, question: PermissionQuestion, timeout_ms: int | None) -> PermissionOutcome:
    """The outcome of a question; raises `TimeoutError` if asking takes longer than the time that it was given."""
    return await asyncio.wait_for(ask(question, timeout_ms), None if timeout_ms is None else timeout_ms / 1000 + 1)


def outcome_of(value: object) -> PermissionOutcome:
    """The meaning of an answer: anything but one of the allowing options is a refusal."""
    if not isinstance(value, str):
        return "denied"
    return {ALLOW_ONCE: "once", APPROVE: "once", ALLOW_ALWAYS: "session"}.get(value, "denied")  # type: ignore[return-value]


class AllowedCall(Struct, frozen=True):
    """A call that was allowed for a session."""

    session: str
    cwd: str
    tool: str
    subject: str
    definition: str


class PermissionGate:
    """Applies the rules, and asks the host if they require it.

    `paths` returns the current resolver of the tools, `session` the id of the open session: both can change, and
    allowances apply to one session and its folder.
    """

    def __init__(
        self,
        rules: PermissionLayers,
        protected: ProtectedPlaces,
        ask: Ask,
        paths: Callable[[], PathResolver],
        session: Callable[[], str],
        unattended: bool = False,
        allowed: dict[AllowedCall, None] | None = None,
        agent: str = "",
    ) -> None:
        """`allowed` is shared with the gates of other agents of the conversation; `agent` is the type of a started
        agent, which its questions name."""
        self._rules = rules
        self._protected = protected
        self._ask = ask
        self._paths = paths
        self._session = session
        self._unattended = unattended
        # In the order in which they were allowed.
        self._allowed: dict[AllowedCall, None] = {} if allowed is None else allowed
        self._agent = f" ({make_visible(agent)})" if agent else ""

    def use_rules(self, rules: PermissionLayers) -> None:
        self._rules = rules

    def list_session_allowances(self) -> list[KeptAllowance]:
        """The allowances of the open session."""
        session = self._session()
        return [
            KeptAllowance(tool_name=call.tool, subject=call.subject, cwd=call.cwd, definition=call.definition)
            for call in self._allowed
            if call.session == session
        ]

    def allow_calls(self, calls: Sequence[KeptAllowance]) -> None:
        """Add allowances for the open session."""
        for call in calls[:MOST_REMEMBERED]:
            allowed = AllowedCall(self._session(), call.cwd, call.tool_name, call.subject, call.definition)
            self._allowed[allowed] = None

    def make_concealment_test(self, tool: str) -> Callable[[str], bool]:
        """A test for real paths in the working directory that no search by this tool shows, even if the search itself
        is allowed: paths that are denied, and paths that other rules ask about."""
        return self._make_concealment_test(tool, self._paths())

    async def fetch_concealment_test(self, tool: str) -> Callable[[str], bool]:
        """The same where files have to be fetched."""
        return await self._paths().decide(lambda paths: self._make_concealment_test(tool, paths))

    def _make_concealment_test(self, tool: str, paths: PathResolver) -> Callable[[str], bool]:
        rules = self._rules
        try:
            with paths.hold_path(".") as held:
                answered = ruling_of(rules, tool, PathSubject(held, "search"), paths).asking
        except ToolFailed:
            return lambda place: True
        return make_concealment_test(rules, tool, answered, paths)

    async def before_call(self, prepared: PreparedCall) -> None:
        """Return if the call may run; otherwise raise `CallDenied`."""
        tool, subject, paths = prepared.call.name, prepared.subject, self._paths()
        rules, said = self._rules, await self._require_ruling(tool, subject, paths)
        # A command that is to leave the sandbox is asked about in any case, by the gate after this one.
        leaves = isinstance(subject, CommandSubject) and subject.outside
        if said.verdict == "ask" and not leaves:
            key = AllowedCall(self._session(), paths.cwd, tool, _allowance_key_of(subject), _hash_definition(prepared))
            if key not in self._allowed:
                await self._require_approval(prepared, key, await _format_subject(subject, paths), said.rule)
                if self._rules is not rules:  # replaced while the question was open
                    await self._require_ruling(tool, subject, paths)
        if isinstance(subject, PathSubject) and subject.access == "search":
            prepared.conceal_paths(await paths.decide(lambda known: self._conceal(tool, said, known)))

    def _conceal(self, tool: str, said: Ruling, paths: PathResolver) -> Callable[[str], bool]:
        paths.view.real_path(paths.cwd)  # the test needs it for each path
        return make_concealment_test(self._rules, tool, said.asking, paths)

    async def after_call(self, call: ToolCall, outcome: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]:
        return outcome, is_error

    async def _require_ruling(self, tool: str, subject: Subject, paths: PathResolver) -> Ruling:
        """The ruling, if no rule denies the call and no protected place prevents it; else raises `CallDenied`."""
        planned = explain_plan_refusal(self._rules, tool, subject)
        if planned is not None:
            raise CallDenied(
                f"{planned}. Finish the plan and submit it; what it needs can be done once it is accepted."
            )
        said = await paths.decide(lambda known: ruling_of(self._rules, tool, subject, known))
        if said.verdict == "deny":
            raise self._make_denial(
                tool, await _format_subject(subject, paths), f"denied by {_describe_rule(said.rule)}"
            )
        return await self._check_protected_places(tool, subject, paths, said)

    async def _check_protected_places(self, tool: str, subject: Subject, paths: PathResolver, said: Ruling) -> Ruling:
        """The ruling about a call that writes: `said`, unless anything that it writes is protected."""
        if isinstance(subject, PathSubject) and subject.access == "write":
            places: list[PlacedPath] | None = [PlacedPath(subject.path.names, subject.path.place)]
            writing = tool
        elif isinstance(subject, CommandSubject) and ">" in subject.command:
            places = await paths.decide_in_thread(lambda known: find_redirected_files(subject.command, known))
            writing = WRITE
        else:
            return said
        if places is None:
            return Ruling("ask") if said.verdict == "allow" else said
        protected = self._protected
        found = await paths.decide_in_thread(
            lambda known: protected.find_protected(places, known.cwd, known.view), _GIT_FILES
        )
        for place, parts in found:
            naming = await self._find_naming_rule(writing, place, parts, paths)
            if naming.verdict == "deny":
                raise self._make_denial(
                    tool, await _format_subject(subject, paths), _explain_protection(writing, place, parts, paths)
                )
        # A rule that names the place and asks has been applied already: `said` covers all rules of all sources.
        return said

    async def _find_naming_rule(
        self, writing: str, place: PlacedPath, parts: Sequence[ProtectedPart], paths: PathResolver
    ) -> Ruling:
        return await paths.decide(lambda known: ruling_of_named_parts(self._rules, writing, place, parts, known))

    async def _require_approval(self, prepared: PreparedCall, key: AllowedCall, shown: str, rule: str | None) -> None:
        tool, timeout_ms = key.tool, self._rules.timeout_ms
        if self._unattended:
            raise self._make_denial(tool, shown, f"{NOBODY}, and {_describe_rule(rule)} asks")
        try:
            diff = await prepared.preview()
            diff = None if diff is None else await asyncio.to_thread(make_visible, diff)
            question = PermissionQuestion(
                title=f"Allow {make_visible(tool)}{self._agent}{f': {shown}' if shown else '?'}",
                call=prepared.call,
                arguments=prepared.arguments,
                diff=diff,
            )
            outcome = await ask_within(self._ask, question, timeout_ms)
        except (Aborted, asyncio.CancelledError):
            raise
        except Exception as error:
            raise self._make_denial(tool, shown, f"the user could not be asked ({type(error).__name__})") from error
        if outcome == "session":
            if key.definition != _UNKNOWN and len(self._allowed) < MOST_REMEMBERED:
                self._allowed[key] = None
        elif outcome != "once":
            reason = REASONS.get(outcome, REASONS["denied"])
            raise self._make_denial(tool, shown, f"{reason}, asked because of {_describe_rule(rule)}")

    def _make_denial(self, tool: str, shown: str, why: str) -> CallDenied:
        what, instead = f"{tool}: {shown}" if shown else tool, GO_ON if self._unattended else ASK
        return CallDenied(f"Permission denied for {what}\n({why}). It was not run. {instead}")


def describe_permissions(rules: PermissionLayers, allowed: list[KeptAllowance]) -> Permissions:
    """The rules in the form for hosts."""
    user, project, host = (
        SourceRules(
            **{verdict: [rule.text for rule in some] for verdict, some in source.by_verdict.items()},
            default=source.default,
            approval_mode=source.mode,
        )
        for source in rules.all_sources
    )
    return Permissions(
        default=strictest_verdict(source.default for source in rules.all_sources),
        approval_mode=strictest_mode(source.mode for source in rules.all_sources),
        timeout_ms=ABSENT if rules.timeout_ms is None else rules.timeout_ms,
        user=user,
        project=project,
        host=host,
        allowed=[SessionAllowance(tool_name=one.tool_name, subject=one.subject, cwd=one.cwd) for one in allowed],
    )


def _describe_rule(rule: str | None) -> str:
    return f'the rule "{rule}"' if rule else "the default of the permissions"


def _explain_protection(tool: str, place: PlacedPath, parts: Sequence[ProtectedPart], paths: PathResolver) -> str:
    short = _relative_path(paths.cwd, place.place)
    pattern = short if all(part.is_named_by(short) for part in parts) else place.place
    return (
        f"{make_visible(parts[-1].name)} is protected while permission rules are in force, and no rule names it. "
        f'The user can add one to permissions.allow or permissions.ask: "{tool}({make_visible(pattern)})"'
    )


async def _format_subject(subject: Subject, paths: PathResolver) -> str:
    """In a thread, because a command may be long."""
    real = os.path.realpath if paths.view.is_local else str
    return await asyncio.to_thread(format_subject, subject, paths.cwd, real)


def format_subject(subject: Subject, cwd: str, real_path: Callable[[str], str] = os.path.realpath) -> str:
    """The subject of a call for a person who has to approve it, without anything that could be mistaken for something
    else on a screen."""
    if isinstance(subject, CommandSubject):
        text = subject.command
    elif isinstance(subject, PathSubject):
        name, place = subject.path.names[0], subject.path.place
        text = _relative_path(cwd, name) if real_path(cwd) + name.removeprefix(cwd) == place or name == place else place
    else:
        text = _allowance_key_of(subject) if subject.arguments else ""
    return make_visible(text)


def make_visible(text: str) -> str:
    """A text with nothing hidden on a screen: invisible characters are replaced, and gaps that could push its end out
    of sight become notes of their size."""
    plain = re.sub(_BLANKS, "\ufffd", "".join(_replace_unprintable(text)))
    plain = re.sub(rf"\ufffd{{{_MOST_MARKS + 1},}}", lambda gap: f"[{len(gap[0])} unprintable characters]", plain)
    plain = re.sub(rf"[ \t]{{{_WIDEST_GAP // _TAB},}}", _describe_gap, plain)
    lines = plain.split("\n")
    shown: list[str] = []
    for blank, group in groupby(lines, key=lambda line: not line.strip()):
        same = list(group)
        shown += [f"[{len(same)} blank lines]"] if blank and len(same) > _TALLEST_GAP else same
    return "\n".join(shown)


def _replace_unprintable(text: str) -> Iterator[str]:
    """Its characters; unprintable ones are replaced, and so are marks that pile up on a letter."""
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.combining(char) else 0
        yield char if marks <= _MOST_MARKS and (char.isprintable() or char in "\n\t") else "\ufffd"


def _describe_gap(gap: re.Match[str]) -> str:
    width = len(gap[0].expandtabs(_TAB))
    return gap[0] if width <= _WIDEST_GAP else f"[{width} spaces]"


def _relative_path(cwd: str, path: str) -> str:
    return path.removeprefix(cwd.rstrip("/") + "/") or path


def _hash_definition(prepared: PreparedCall) -> str:
    """What a call's tool has said about itself, if that decides what the call means; commands and files are what they
    are."""
    if not isinstance(prepared.subject, ArgumentSubject):
        return ""
    definition = prepared.tool.definition
    if definition is None:
        return _UNKNOWN
    import hashlib

    from pigeon.wire import codec

    said = codec.encode([definition.name, definition.description, definition.parameters])
    return hashlib.sha256(said).hexdigest()


def _allowance_key_of(subject: Subject) -> str:
    if isinstance(subject, CommandSubject):
        return subject.command
    if isinstance(subject, PathSubject):
        return subject.path.place
    from pigeon.wire import codec

    return codec.encode(subject.arguments).decode("utf-8", "replace")
