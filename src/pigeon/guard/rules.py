"""Permission rules: `tool` or `tool(pattern)`, in lists that deny, ask and allow.

A rule is read so that doubt works against it being too weak. A shell command is also matched piece by piece. A path is
matched by every place that the tools' own resolver gives for it and by where links lead from there, and for rules that
deny or ask also in the form that all spellings of a name have in common. What denies or asks needs one match, what
allows needs all of them.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from pigeon.system.globs import rule_matcher, text_matcher
from pigeon.system.paths import PathResolver, expand_home, folded
from pigeon.wire.base import Json
from pigeon.wire.errors import ToolFailed

Verdict = Literal["allow", "ask", "deny"]
ASK_MS = 120_000
_RULE = re.compile(r"\s*([A-Za-z0-9_.*?:-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PIECES = re.compile(r"&&|\|\||[;|&\n(){}`]|\$\(|<\(|>\(")
_ASSIGNMENT = re.compile(r"^(?:[A-Za-z_]\w*=\S*\s+)+")
_SHELLS = ("bash",)
_FILES = ("read", "write", "edit", "grep", "find", "ls")


class PermissionRule(Struct, frozen=True):
    """One rule as it was written, taken apart."""

    text: str
    tool: str
    argument: str | None
    pattern: str | None


class PermissionRules(Struct, frozen=True):
    """All rules; what no rule speaks of gets the default."""

    deny: tuple[PermissionRule, ...] = ()
    ask: tuple[PermissionRule, ...] = ()
    allow: tuple[PermissionRule, ...] = ()
    default: Verdict = "allow"
    timeout_ms: int = ASK_MS


class Ruling(Struct, frozen=True):
    """What the rules say of one call, and which rule said it."""

    verdict: Verdict
    rule: str | None = None


def rules_of(user: Any, project: Any, report: Callable[[str], None]) -> PermissionRules | None:
    """The rules of the settings, none where there are none. A project can only add what denies and asks.

    What cannot be understood is reported, and then everything that is not denied is asked about.
    """
    if user is None and project is None:
        return None
    problems: list[str] = []
    own = _section(user, problems)
    other = _section(project, problems)
    default = own.get("default", "allow")
    if default not in ("allow", "ask", "deny"):
        problems.append('permissions.default must be "allow", "ask" or "deny"')
        default = "ask"
    timeout = own.get("timeoutMs", ASK_MS)
    if not isinstance(timeout, int) or isinstance(timeout, bool) or timeout <= 0:
        problems.append("permissions.timeoutMs must be a positive number of milliseconds")
        timeout = ASK_MS
    deny = _listed(own, "deny", problems) + _listed(other, "deny", problems)
    ask = _listed(own, "ask", problems) + _listed(other, "ask", problems)
    allow = _listed(own, "allow", problems)
    if problems and default == "allow":
        default = "ask"
    for problem in problems:
        report(problem)
    return PermissionRules(tuple(deny), tuple(ask), tuple(allow), default, timeout)


def ruling(rules: PermissionRules, tool: str, arguments: dict[str, Json], paths: PathResolver) -> Ruling:
    """What the rules say of a call: deny before ask before allow, else the default."""
    for verdict, listed in (("deny", rules.deny), ("ask", rules.ask)):
        for rule in listed:
            if _matches(rule, tool, arguments, paths, strictly=False):
                return Ruling(verdict, rule.text)  # type: ignore[arg-type]
    for rule in rules.allow:
        if _matches(rule, tool, arguments, paths, strictly=True):
            return Ruling("allow", rule.text)
    return Ruling(rules.default)


def subject(tool: str, arguments: dict[str, Json]) -> str:
    """The part of a call that a person wants to see before saying yes."""
    for name in ("command", "path"):
        if isinstance(arguments.get(name), str):
            return str(arguments[name])
    texts = [value for value in arguments.values() if isinstance(value, str)]
    return texts[0] if texts else ""


def parsed(text: str) -> PermissionRule | None:
    """A rule from its text; none if it is no rule."""
    found = _RULE.fullmatch(text)
    if found is None:
        return None
    tool, inner = found[1], found[2]
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
        problems.append("permissions must be an object with the lists deny, ask and allow")
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


def _matches(rule: PermissionRule, tool: str, arguments: dict[str, Json], paths: PathResolver, strictly: bool) -> bool:
    if not text_matcher(rule.tool, classes=False)(tool):
        return False
    if rule.pattern is None:
        return True
    if rule.argument is not None:
        return _text_matches(rule.pattern, [str(arguments.get(rule.argument, ""))], strictly)
    if tool in _SHELLS or "command" in arguments:
        return _command_matches(rule.pattern, str(arguments.get("command", "")), strictly)
    if tool in _FILES or "path" in arguments:
        return _path_matches(rule.pattern, str(arguments.get("path") or "."), paths, strictly)
    return _text_matches(rule.pattern, [str(value) for value in arguments.values()], strictly)


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


def _path_matches(pattern: str, path: str, paths: PathResolver, strictly: bool) -> bool:
    pattern = expand_home(pattern, paths.home)
    roots = [paths.cwd, os.path.realpath(paths.cwd)]
    try:
        places = paths.resolve(path).places()
    except ToolFailed:  # no file can have this name, but a tool of the host may do something with it
        places = [path]
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
