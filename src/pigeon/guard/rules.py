"""Permission rules: `tool` or `tool(pattern)`, in lists that deny, ask and allow.

Rules look at the subject of a call and nothing else (`agent/interfaces.Subject`). They are read so that doubt works
against a rule being too weak: what denies or asks needs one match, what allows needs all of them. A shell command is
matched as a whole and piece by piece; a path by its names and by its place behind links, for rules that deny or ask
also in the form that all spellings of a name have in common; other subjects by every text in their arguments.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import replace

from pigeon.agent.interfaces import CommandSubject, PathSubject, Subject
from pigeon.system.globs import rule_matcher, text_matcher
from pigeon.system.paths import PathResolver, expand_home, folded
from pigeon.wire.answers import ApprovalMode, Verdict
from pigeon.wire.base import Json
from pigeon.wire.errors import Refusal, ToolFailed

ASK_MS = 120_000
# The strictest first.
APPROVAL_MODES: tuple[ApprovalMode, ...] = get_args(ApprovalMode)
_STRICTNESS: tuple[Verdict, ...] = ("allow", "ask", "deny")
_RULE = re.compile(r"\s*([A-Za-z0-9_.*?:-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PIECES = re.compile(r"&&|\|\||[;|&\n(){}`]|\$\(|<\(|>\(")
_ASSIGNMENT = re.compile(r"^(?:[A-Za-z_]\w*=\S*\s+)+")
_SHELLS = ("bash",)
_COMMAND_ARGUMENTS = ("command", "cmd", "script", "code")
_FILES = ("read", "write", "edit", "grep", "find", "ls")
_NO_SECTION = "permissions must be an object with the lists deny, ask and allow"
_READING = frozenset(("read", "grep", "find", "ls", "todo"))
# The tools that an approval mode does not ask about; a mode that is not here asks about none.
_UNASKED = {"always-ask": _READING, "write": _READING | {"write", "edit"}}


class PermissionRule(Struct, frozen=True):
    """One rule as it was written, taken apart."""

    text: str
    tool: str
    argument: str | None
    pattern: str | None


def strictest(verdicts: Iterable[Verdict]) -> Verdict:
    """The one of them that allows least."""
    return max(verdicts, key=_STRICTNESS.index)


def strictest_mode(modes: Iterable[ApprovalMode]) -> ApprovalMode:
    """The one of them that asks most."""
    return min(modes, key=APPROVAL_MODES.index)


class PermissionRules(Struct, frozen=True):
    """The rules of one source; what none of them speaks of gets the default, or what the approval mode says of the
    tool if that is stricter."""

    deny: tuple[PermissionRule, ...] = ()
    ask: tuple[PermissionRule, ...] = ()
    allow: tuple[PermissionRule, ...] = ()
    default: Verdict = "allow"
    timeout_ms: int | None = None
    mode: ApprovalMode = "yolo"

    @property
    def in_force(self) -> bool:
        """True if the rules say anything at all."""
        return bool(self.deny or self.ask or self.allow) or self.default != "allow" or self.mode != "yolo"

    def otherwise(self, tool: str) -> Verdict:
        """What a call gets that no rule speaks of."""
        unasked = _UNASKED.get(self.mode)
        by_mode: Verdict = "allow" if unasked is None or tool in unasked else "ask"
        return strictest((self.default, by_mode))


class PermissionLayers(Struct, frozen=True):
    """The rules by their source. Each source rules for itself, and the strictest ruling counts: so none of them can
    allow what another one denies or asks about."""

    user: PermissionRules = PermissionRules()
    project: PermissionRules = PermissionRules()
    host: PermissionRules = PermissionRules()

    @property
    def every(self) -> tuple[PermissionRules, ...]:
        """All of them, the user's first."""
        return self.user, self.project, self.host

    @property
    def in_force(self) -> bool:
        """True if any of the rules says anything."""
        return any(rules.in_force for rules in self.every)

    @property
    def timeout_ms(self) -> int:
        """How long an answer is waited for: the shortest time that a source gives."""
        return min((rules.timeout_ms for rules in self.every if rules.timeout_ms is not None), default=ASK_MS)


class Ruling(Struct, frozen=True):
    """What the rules say of one call, which rule said it, and all rules that ask."""

    verdict: Verdict
    rule: str | None = None
    asking: tuple[str, ...] = ()


def rules_of(
    user: Any, project: Any, mode: Any, report: Callable[[str], None], doubts: Sequence[str] = ()
) -> PermissionLayers:
    """The rules of the settings. A project can only add what denies and asks.

    What cannot be understood is reported, and so are `doubts`: what else may have kept rules from being seen. With
    either, everything that is not denied is asked about, also what a rule allows: another rule may be missing.
    """
    problems: list[str] = list(doubts)
    own = parsed_rules(user, mode, problems)
    if problems:
        own = replace(own, allow=(), default=strictest((own.default, "ask")))
    wrong: list[str] = []
    added = parsed_rules(project, "yolo", wrong)
    for problem in (*problems, *wrong):
        report(f"{problem}; until this is corrected, every tool call that is not denied is asked about")
    return PermissionLayers(own, PermissionRules(added.deny, added.ask, default="ask" if wrong else "allow"))


def host_rules(value: Any, mode: ApprovalMode) -> PermissionRules:
    """The rules of the host; raises `Refusal` for what cannot be understood."""
    problems: list[str] = [] if isinstance(value, dict) else [_NO_SECTION]
    rules = parsed_rules(value, mode, problems)
    if problems:
        raise Refusal("; ".join(problems))
    return rules


def parsed_rules(value: Any, mode: Any, problems: list[str]) -> PermissionRules:
    """The rules of one source, and its approval mode; `problems` gets what cannot be understood."""
    section = _section(value, problems)
    default = section.get("default", "allow")
    if default not in _STRICTNESS:
        problems.append('permissions.default must be "allow", "ask" or "deny"')
        default = "ask"
    timeout = section.get("timeoutMs")
    if timeout is not None and (not isinstance(timeout, int) or isinstance(timeout, bool) or timeout <= 0):
        problems.append("permissions.timeoutMs must be a positive number of milliseconds")
        timeout = None
    if mode not in APPROVAL_MODES:
        problems.append(f"the approval mode must be one of {', '.join(APPROVAL_MODES)}")
        mode = "always-ask"
    return PermissionRules(
        tuple(_listed(section, "deny", problems)),
        tuple(_listed(section, "ask", problems)),
        tuple(_listed(section, "allow", problems)),
        default,
        timeout,
        mode,
    )


def ruling(rules: PermissionLayers, tool: str, subject: Subject, paths: PathResolver) -> Ruling:
    """What the rules say of a call: deny before ask before allow, else the default."""
    if isinstance(subject, PathSubject):
        place = PlacedPath(subject.path.names, subject.path.place)
        # What is shown by searching is read as well.
        named = ("read", tool) if subject.access == "search" else (tool,)
        return _said(
            rules,
            tool,
            lambda rule, strictly: matches_place(rule, (tool,) if strictly else named, place, paths, strictly),
        )
    return _said(rules, tool, lambda rule, strictly: _matches(rule, tool, subject, paths, strictly))


class PlacedPath(Struct, frozen=True):
    """A path by its names, links not followed, and by where it really is."""

    names: tuple[str, ...]
    place: str


def concealment(
    rules: PermissionLayers, tool: str, answered: Container[str], paths: PathResolver
) -> Callable[[str], bool]:
    """Whether a search by this tool must not show what stands at a place: what `read` or the tool itself is denied
    there, or would have to ask for by another rule than those that were answered already."""

    def conceals_from(name: str, place: PlacedPath) -> bool:
        said = _said(rules, name, lambda rule, strictly: matches_place(rule, (name,), place, paths, strictly))
        return said.verdict == "deny" or any(rule not in answered for rule in said.asking)

    def conceals(place: str) -> bool:
        found = PlacedPath((), place)
        return conceals_from("read", found) or conceals_from(tool, found)

    return conceals


def _said(layers: PermissionLayers, tool: str, matches: Callable[[PermissionRule, bool], bool]) -> Ruling:
    rulings = [_said_by(rules, tool, matches) for rules in layers.every]
    strictest = max(rulings, key=lambda ruling: _STRICTNESS.index(ruling.verdict))
    asking = tuple(ruling.rule for ruling in rulings if ruling.verdict == "ask" and ruling.rule is not None)
    return Ruling(strictest.verdict, strictest.rule, asking)


def _said_by(rules: PermissionRules, tool: str, matches: Callable[[PermissionRule, bool], bool]) -> Ruling:
    for rule in rules.deny:
        if matches(rule, False):
            return Ruling("deny", rule.text)
    for rule in rules.ask:
        if matches(rule, False):
            return Ruling("ask", rule.text)
    for rule in rules.allow:
        if matches(rule, True):
            return Ruling("allow", rule.text)
    return Ruling(rules.otherwise(tool))


def unknown_tools(layers: PermissionLayers, known: Iterable[str]) -> Iterator[str]:
    """A sentence for each rule for a tool that does not exist now; a host or an extension may bring it later."""
    names = sorted(known)
    for rule in (rule for rules in layers.every for rule in (*rules.deny, *rules.ask, *rules.allow)):
        if not any(sign in rule.tool for sign in "*?") and not any(_means(rule, name, False) for name in names):
            from difflib import get_close_matches

            near = get_close_matches(rule.tool.lower(), names, 1)
            meant = f', did you mean "{near[0]}"?' if near else ""
            yield f'permissions: there is no tool "{rule.tool}" now (rule "{rule.text}"{meant})'


def parsed(text: str) -> PermissionRule | None:
    """A rule from its text; none if it is no rule. A built-in tool may be written in any case."""
    found = _RULE.fullmatch(text)
    if found is None:
        return None
    tool, inner = found[1], found[2]
    if tool.lower() in (*_SHELLS, *_FILES):
        tool = tool.lower()
    if inner is None or inner.strip() in ("", "*", "**"):
        return PermissionRule(text, tool, None, None)
    named = _NAMED.fullmatch(inner.strip())
    if named and tool not in (*_SHELLS, *_FILES):
        return PermissionRule(text, tool, named[1], named[2])
    return PermissionRule(text, tool, None, inner.strip())


def _section(value: Any, problems: list[str]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        problems.append(_NO_SECTION)
        return {}
    unknown = set(value) - {"deny", "ask", "allow", "default", "timeoutMs"}
    problems.extend(f"permissions.{key} is unknown" for key in sorted(unknown))
    return value


def _listed(section: dict[str, Any], name: str, problems: list[str]) -> list[PermissionRule]:
    items = section.get(name, [])
    if not isinstance(items, list):
        problems.append(f"permissions.{name} must be a list of rules")
        return []
    rules = []
    for item in items:
        rule = parsed(item) if isinstance(item, str) else None
        if rule is None:
            problems.append(f'permissions.{name}: {item!r} is no rule; write "tool" or "tool(pattern)"')
        else:
            rules.append(rule)
    return rules


def _matches(rule: PermissionRule, tool: str, subject: Subject, paths: PathResolver, strictly: bool) -> bool:
    if not _means(rule, tool, strictly):
        return False
    if rule.pattern is None:
        return True
    if isinstance(subject, CommandSubject):
        return _command_matches(rule.pattern, subject.command, strictly)
    assert not isinstance(subject, PathSubject)
    if rule.argument is not None:
        chosen: Json = subject.arguments.get(rule.argument, "")
    else:
        chosen = subject.arguments
    found = [_argument_matches(rule.pattern, name, text, tool, paths, strictly) for name, text in _texts("", chosen)]
    return bool(found) and (all(found) if strictly else any(found))


def matches_place(
    rule: PermissionRule, tools: tuple[str, ...], place: PlacedPath, paths: PathResolver, strictly: bool
) -> bool:
    """Whether a rule is for one of these tools and matches a place; `strictly` is for a rule that allows."""
    if not any(_means(rule, tool, strictly) for tool in tools):
        return False
    return rule.pattern is None or _path_matches(rule.pattern, place, paths, strictly)


def _means(rule: PermissionRule, tool: str, strictly: bool) -> bool:
    """Whether a rule is for a tool; what denies or asks is so in any case of the name."""
    if strictly:
        return text_matcher(rule.tool, classes=False)(tool)
    return text_matcher(rule.tool.lower(), classes=False)(tool.lower())


def _texts(name: str, value: Json) -> Iterator[tuple[str, str]]:
    """Every text, number and truth value in an argument, with the name it stands under."""
    waiting = [(name, value)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.items())
        elif isinstance(value, list):
            waiting.extend((name, item) for item in value)
        elif isinstance(value, bool) or value is None:
            yield name, {True: "true", False: "false", None: "null"}[value]
        else:
            yield name, str(value)


def _argument_matches(pattern: str, name: str, text: str, tool: str, paths: PathResolver, strictly: bool) -> bool:
    """What an argument of a foreign tool means is not known: it may be a text, a command or a path."""
    may_be_command = tool in _SHELLS or name in _COMMAND_ARGUMENTS
    if strictly:
        said = _text_matches(pattern, [text, os.path.normpath(text)] if ".." in text.split("/") else [text], True)
        return said and (not may_be_command or _command_matches(pattern, text, True))
    if _text_matches(pattern, [text], False) or _command_matches(pattern, text, False):
        return True
    try:
        with paths.held(text) as held:
            return _path_matches(pattern, PlacedPath(held.names, held.place), paths, False)
    except ToolFailed:  # no file can have this name
        return False


def _text_matches(pattern: str, texts: list[str], strictly: bool) -> bool:
    matches = text_matcher(unicodedata.normalize("NFC", pattern), classes=False)
    found = [matches(text) or (not strictly and matches(unicodedata.normalize("NFC", text))) for text in texts]
    return bool(found) and (all(found) if strictly else any(found))


def _command_matches(pattern: str, command: str, strictly: bool) -> bool:
    pieces = [" ".join(piece.split()) for piece in _PIECES.split(command)]
    pieces = [piece for piece in pieces if piece]
    if strictly:
        return _text_matches(" ".join(pattern.split()), pieces, strictly)
    whole = " ".join(command.split())
    bare = [_ASSIGNMENT.sub("", piece) for piece in pieces]
    return _text_matches(" ".join(pattern.split()), [whole, *pieces, *bare], strictly)


def _path_matches(pattern: str, path: PlacedPath, paths: PathResolver, strictly: bool) -> bool:
    pattern = expand_home(pattern, paths.home)
    roots = [paths.cwd, os.path.realpath(paths.cwd)]
    places = dict.fromkeys((*path.names, path.place))
    composed = unicodedata.normalize("NFC", pattern)
    if strictly:
        return all(_place_matches(composed, place, roots) for place in places)
    alike, alike_roots = folded(pattern), [folded(root) for root in roots]
    return any(
        _place_matches(composed, place, roots) or _place_matches(alike, folded(place), alike_roots) for place in places
    )


def _place_matches(pattern: str, place: str, roots: list[str]) -> bool:
    """Whether a pattern means a place: a name at any depth, a path from the working directory, or an absolute one."""
    below = [place[len(root.rstrip("/")) + 1 :] or "." for root in roots if _is_below(place, root)]
    if "/" not in pattern.rstrip("/"):
        matches = rule_matcher(pattern.rstrip("/"))
        parts = (below[0] if below else place).split("/")
        return any(matches(part) for part in parts if part)
    matches = rule_matcher(pattern.removeprefix("./").rstrip("/"))
    if pattern.startswith("/"):
        return matches(place)
    return any(matches(text) for text in below) or (pattern.startswith("**/") and matches(place.lstrip("/")))


def _is_below(place: str, root: str) -> bool:
    return place == root or place.startswith(root.rstrip("/") + "/")
