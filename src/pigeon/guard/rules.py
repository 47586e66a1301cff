"""Permission rules: `tool` or `tool(pattern)`, in lists that deny, ask and allow. Pure, but for looking at links.

A rule is read so that doubt works against it being too weak: a shell command is also matched piece by piece, a path
also by where it really leads; what denies or asks needs one match, what allows needs all of them.
"""

from __future__ import annotations

import os
import re
import unicodedata
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct

from pigeon.wire.base import Json

Verdict = Literal["allow", "ask", "deny"]
ASK_MS = 120_000
_RULE = re.compile(r"\s*([A-Za-z0-9_.*?:-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PIECES = re.compile(r"&&|\|\||[;|&\n(){}`]|\$\(|<\(|>\(")
_ASSIGNMENT = re.compile(r"^(?:[A-Za-z_]\w*=\S*\s+)+")
_ODD_SPACES = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")
_SHELLS = ("bash",)
_FILES = ("read", "write", "edit", "grep", "find", "ls")


class Rule(Struct, frozen=True):
    """One rule as it was written, taken apart."""

    text: str
    tool: str
    argument: str | None
    pattern: str | None


class Rules(Struct, frozen=True):
    """All rules; what no rule speaks of gets the default."""

    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()
    default: Verdict = "allow"
    timeout_ms: int = ASK_MS


class Ruling(Struct, frozen=True):
    """What the rules say of one call, and which rule said it."""

    verdict: Verdict
    rule: str | None = None


def rules_of(user: Any, project: Any = None) -> tuple[Rules | None, list[str]]:
    """The rules of the settings, none where there are none. A project can only add what denies and asks.

    Whatever cannot be understood is told, and then everything that is not denied is asked about.
    """
    if user is None and project is None:
        return None, []
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
    return Rules(tuple(deny), tuple(ask), tuple(allow), default, timeout), problems


def ruling(rules: Rules, tool: str, arguments: dict[str, Json], cwd: str) -> Ruling:
    """Deny before ask before allow."""
    for verdict, listed in (("deny", rules.deny), ("ask", rules.ask)):
        for rule in listed:
            if _matches(rule, tool, arguments, cwd, strictly=False):
                return Ruling(verdict, rule.text)  # type: ignore[arg-type]
    for rule in rules.allow:
        if _matches(rule, tool, arguments, cwd, strictly=True):
            return Ruling("allow", rule.text)
    return Ruling(rules.default)


def subject(tool: str, arguments: dict[str, Json]) -> str:
    """The part of a call that a person wants to see before saying yes."""
    for name in ("command", "path"):
        if isinstance(arguments.get(name), str):
            return str(arguments[name])
    texts = [value for value in arguments.values() if isinstance(value, str)]
    return texts[0] if texts else ""


def parsed(text: str) -> Rule | None:
    """A rule from its text; none if it is no rule."""
    found = _RULE.fullmatch(text)
    if found is None:
        return None
    tool, inner = found[1], found[2]
    if inner is None or inner.strip() in ("", "*", "**"):
        return Rule(text, tool, None, None)
    named = _NAMED.fullmatch(inner.strip())
    if named and tool not in (*_SHELLS, *_FILES):
        return Rule(text, tool, named[1], named[2])
    return Rule(text, tool, None, inner.strip())


def _section(value: Any, problems: list[str]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        problems.append("permissions must be an object with the lists deny, ask and allow")
        return {}
    unknown = set(value) - {"deny", "ask", "allow", "default", "timeoutMs"}
    problems.extend(f"permissions.{key} is unknown" for key in sorted(unknown))
    return value


def _listed(section: dict[str, Any], name: str, problems: list[str]) -> list[Rule]:
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


def _matches(rule: Rule, tool: str, arguments: dict[str, Json], cwd: str, strictly: bool) -> bool:
    if not _glob(rule.tool, slashes=True).fullmatch(tool):
        return False
    if rule.pattern is None:
        return True
    if rule.argument is not None:
        return _glob(rule.pattern, slashes=True).fullmatch(str(arguments.get(rule.argument, ""))) is not None
    if tool in _SHELLS or "command" in arguments:
        return _command_matches(rule.pattern, str(arguments.get("command", "")), strictly)
    if tool in _FILES or "path" in arguments:
        return _path_matches(rule.pattern, str(arguments.get("path") or "."), cwd, strictly)
    texts = [str(value) for value in arguments.values()]
    found = [_glob(rule.pattern, slashes=True).fullmatch(text) is not None for text in texts]
    return bool(found) and (all(found) if strictly else any(found))


def _command_matches(pattern: str, command: str, strictly: bool) -> bool:
    wanted = _glob(" ".join(pattern.split()), slashes=True)
    pieces = [" ".join(piece.split()) for piece in _PIECES.split(command)]
    pieces = [piece for piece in pieces if piece]
    if strictly:
        return bool(pieces) and all(wanted.fullmatch(piece) for piece in pieces)
    whole = " ".join(command.split())
    bare = [_ASSIGNMENT.sub("", piece) for piece in pieces]
    return any(wanted.fullmatch(text) for text in (whole, *pieces, *bare))


def _path_matches(pattern: str, path: str, cwd: str, strictly: bool) -> bool:
    found = [_one_path_matches(pattern, place, cwd) for place in places(path, cwd)]
    return all(found) if strictly else any(found)


def places(path: str, cwd: str) -> list[str]:
    """Everywhere that a path, as a model wrote it, may lead: its spellings, and what is behind links."""
    spelled = [path, _ODD_SPACES.sub(" ", path), path.removeprefix("@"), _ODD_SPACES.sub(" ", path).removeprefix("@")]
    if path.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        spelled.append(unquote(urlsplit(path).path) or "/")
    found: dict[str, None] = {}
    for text in spelled:
        try:
            lexical = os.path.normpath(os.path.join(cwd, os.path.expanduser(text)))
            found[lexical] = None
            found[os.path.realpath(lexical)] = None
        except (OSError, ValueError):
            found[text] = None
    return list(found)


def _one_path_matches(pattern: str, place: str, cwd: str) -> bool:
    pattern = os.path.expanduser(pattern)
    inside = [os.path.relpath(place, root) for root in (cwd, os.path.realpath(cwd))]
    below = [text for text in inside if text != ".." and not text.startswith("../")]
    if "/" not in pattern.rstrip("/"):
        wanted = _glob(pattern.rstrip("/"), slashes=False)
        parts = (below[0] if below else place).split("/")
        return any(wanted.fullmatch(part) for part in parts if part)
    wanted = _glob(pattern.removeprefix("./").rstrip("/"), slashes=False)
    if pattern.startswith("/"):
        return wanted.fullmatch(place) is not None
    return any(wanted.fullmatch(text) for text in below) or (
        pattern.startswith("**/") and wanted.fullmatch(place.lstrip("/")) is not None
    )


@lru_cache(maxsize=512)
def _glob(pattern: str, slashes: bool) -> re.Pattern[str]:
    """`*` and `?` do not cross a slash unless `slashes`; `**` does, and `x/**` also means `x` itself."""
    pattern = unicodedata.normalize("NFC", pattern)
    made, at = "", 0
    while at < len(pattern):
        rest = pattern[at:]
        if not slashes and rest == "/**":
            made, at = made + "(?:/.*)?", len(pattern)
        elif not slashes and rest.startswith("**/"):
            made, at = made + "(?:.*/)?", at + 3
        elif rest.startswith("*"):
            double = rest.startswith("**")
            made, at = made + (".*" if slashes or double else "[^/]*"), at + (2 if double else 1)
        elif rest[0] == "?":
            made, at = made + ("." if slashes else "[^/]"), at + 1
        else:
            made, at = made + re.escape(rest[0]), at + 1
    return re.compile(made, re.DOTALL)
