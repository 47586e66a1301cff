"""Permission rules: `tool` or `tool(pattern)`, in lists that deny, ask and allow.

Rules only use the subject of a call (`agent/interfaces.Subject`). Doubt always results in the stricter reading: a
denying or asking rule needs one match, allowing rules must match everything. A shell command is matched in all readings
of `permissions/shell_commands`; a path by its names and its real place, and for denying and asking rules also in the
common form of all spellings of its names; other subjects by every text in their arguments.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from pigeon.agent.interfaces import ArgumentSubject, CommandSubject, PathSubject, Subject
from pigeon.config.layers import NO_RULES
from pigeon.system.globs import compile_any_text_glob, compile_rule_glob, compile_text_glob
from pigeon.system.paths import PathResolver, expand_home, fold_spelling
from pigeon.tools.catalog import READ, WRITE, facts_of
from pigeon.tools.server_tools import PREFIX
from pigeon.wire.base import Json
from pigeon.wire.choices import APPROVAL_MODES, PLAN, VERDICTS, ApprovalMode, Verdict, to_alternatives
from pigeon.wire.errors import Refusal, ToolFailed
from pigeon.wire.events import ToolKind

if TYPE_CHECKING:
    from pigeon.permissions.shell_commands import ShellCommand

# The type of agents that may be started in plan mode: it only reads.
PLANNERS = "explore"
ASK_MS = 120_000
LONGEST_PATH = 4096
MOST_TEXTS = 1000
MOST_WRITTEN = 200
MOST_TEXT = 128 * 1024
MOST_VALUES = 50_000
LONGEST_ASK_MS = 2**31 - 1
LONGEST_SHOWN = 200
MOST_SHOWN = 20
MOST_RULES = 1000
_RULE = re.compile(r"\s*([A-Za-z0-9_.*?:-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w-]*")
_FILE_URL = re.compile(r"file:(?://[^/]*)?(?=/)", re.IGNORECASE)
_COMMAND_ARGUMENTS = ("command", "cmd", "script", "code")
# The kinds of tools that an approval mode does not ask about; a mode that is not here asks about none. A tool that does
# not come with Pigeon has no such kind, whatever it says of itself.
_UNASKED: dict[ApprovalMode, tuple[ToolKind, ...]] = {
    "plan": ("read", "search", "plan", "agent"),
    "always-ask": ("read", "search", "plan", "agent"),
    "write": ("read", "search", "plan", "edit", "agent"),
}


class PermissionRule(Struct, frozen=True):
    """One parsed rule, with its original text."""

    text: str
    tool: str
    argument: str | None
    pattern: str | None


def strictest_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """The one of them that allows least."""
    return min(verdicts, key=VERDICTS.index)


def strictest_mode(modes: Iterable[ApprovalMode]) -> ApprovalMode:
    return min(modes, key=APPROVAL_MODES.index)


class PermissionRules(Struct, frozen=True):
    """The rules of one source, a list for each verdict and the strictest first; what none of them speaks of gets the
    default, or what the approval mode says of the tool if that is stricter."""

    by_verdict: dict[Verdict, tuple[PermissionRule, ...]] = field(default_factory=lambda: dict.fromkeys(VERDICTS, ()))
    default: Verdict = "allow"
    timeout_ms: int | None = None
    mode: ApprovalMode = "yolo"

    @property
    def is_in_force(self) -> bool:
        """True if the rules say anything at all."""
        return any(self.by_verdict.values()) or self.default != "allow" or self.mode != "yolo"

    def default_verdict(self, tool: str) -> Verdict:
        """The verdict about a call that no rule matches."""
        unasked = _UNASKED.get(self.mode)
        by_mode: Verdict = "allow" if unasked is None or facts_of(tool).kind in unasked else "ask"
        return strictest_verdict((self.default, by_mode))


class PermissionLayers(Struct, frozen=True):
    """The rules by source. Each source rules separately, and the strictest ruling counts, so no source can allow what
    another one denies or asks about. `agent` has the rules of a started agent's type and of those above it."""

    user: PermissionRules = PermissionRules()
    project: PermissionRules = PermissionRules()
    host: PermissionRules = PermissionRules()
    agent: tuple[PermissionRules, ...] = ()
    timeout_unless_set: int | None = ASK_MS

    @property
    def all_sources(self) -> tuple[PermissionRules, ...]:
        return self.user, self.project, self.host, *self.agent

    @property
    def is_in_force(self) -> bool:
        return any(rules.is_in_force for rules in self.all_sources)

    @property
    def timeout_ms(self) -> int | None:
        """How long to wait for an answer: the shortest time that a source sets; None means without limit."""
        times = [rules.timeout_ms for rules in self.all_sources if rules.timeout_ms is not None]
        return min(times, default=self.timeout_unless_set)


# The first of some rules that matches a call; for allowing rules, the match must be certain.
FirstRule = Callable[[Sequence[PermissionRule], bool], PermissionRule | None]


def explain_plan_refusal(rules: PermissionLayers, tool: str, subject: Subject) -> str | None:
    """Why plan mode does not let a call pass; None if it does, or if the mode is another one. No rule allows more."""
    if all(source.mode != PLAN for source in rules.all_sources):
        return None
    kind = facts_of(tool).kind
    if kind not in _UNASKED[PLAN]:
        return f"{tool} is not available in plan mode, in which nothing is changed and no command runs"
    if kind == "agent" and isinstance(subject, ArgumentSubject) and subject.arguments.get("agent") != PLANNERS:
        return f'In plan mode only agents of the type "{PLANNERS}" can be started'
    return None


class Ruling(Struct, frozen=True):
    """The ruling about one call, the rule that decided it, and all asking rules."""

    verdict: Verdict
    rule: str | None = None
    asking: tuple[str, ...] = ()


def build_layers(
    user: Any, project: Any, mode: Any, report: Callable[[str], None], doubts: Sequence[str] = ()
) -> PermissionLayers:
    """The rules of the settings. A project can only add denying and asking rules.

    Invalid rules are reported, and so are `doubts`: other reasons why rules may be missing. With either, everything
    that is not denied is asked about, even if a rule allows it, because another rule may be missing.
    """
    problems: list[str] = list(doubts)
    own = parse_rules(user, mode, problems)
    if problems:
        own = replace(own, by_verdict={**own.by_verdict, "allow": ()}, default=strictest_verdict((own.default, "ask")))
    wrong: list[str] = []
    added = parse_rules(project, "yolo", wrong)
    for problem in (*problems, *wrong):
        report(f"{problem}; until this is fixed, every tool call that is not denied needs approval")
    return PermissionLayers(
        own, PermissionRules({**added.by_verdict, "allow": ()}, default="ask" if wrong else "allow")
    )


def parse_host_rules(value: Any, mode: ApprovalMode) -> PermissionRules:
    """The rules of the host; raises `Refusal` for what cannot be understood."""
    problems: list[str] = [] if isinstance(value, dict) else [NO_RULES]
    rules = parse_rules(value, mode, problems)
    if problems:
        raise Refusal("; ".join(problems[:MOST_SHOWN]))
    return rules


def describe_wrong_rules(value: Any) -> list[str]:
    """A sentence for each invalid rule in a settings file."""
    problems: list[str] = []
    parse_rules(value, "yolo", problems)
    return problems


def parse_rules(value: Any, mode: Any, problems: list[str]) -> PermissionRules:
    """The rules of one source, and its approval mode; errors are added to `problems`."""
    section = _read_section(value, problems)
    default = section.get("default", "allow")
    if default not in VERDICTS:
        shown = to_alternatives(f'"{verdict}"' for verdict in get_args(Verdict))
        problems.append(f"permissions.default must be {shown}")
        default = "ask"
    timeout = section.get("timeoutMs")
    if timeout is not None and (type(timeout) is not int or not 0 < timeout <= LONGEST_ASK_MS):
        problems.append(f"permissions.timeoutMs must be a number of milliseconds from 1 to {LONGEST_ASK_MS}")
        timeout = None
    if mode not in APPROVAL_MODES:
        problems.append(f"the approval mode must be one of {', '.join(APPROVAL_MODES)}")
        mode = "always-ask"
    return PermissionRules(
        {verdict: tuple(_read_rule_list(section, verdict, problems)) for verdict in VERDICTS},
        default,
        timeout,
        mode,
    )


def ruling_of(rules: PermissionLayers, tool: str, subject: Subject, paths: PathResolver) -> Ruling:
    """The ruling about a call: deny before ask before allow, else the default."""
    if isinstance(subject, PathSubject):
        place = PlacedPath(subject.path.names, subject.path.place)
        # Text that a search shows counts as read.
        named = (READ, tool) if subject.access == "search" else (tool,)
        return _ruling_of_layers(
            rules,
            tool,
            lambda some, strictly: _find_rule_for_place(some, (tool,) if strictly else named, place, paths, strictly),
        )
    return _ruling_of_layers(rules, tool, _CalledWith(tool, subject, paths).find_first)


def _make_shell_command(command: str, paths: PathResolver) -> ShellCommand:
    from pigeon.permissions.shell_commands import ShellCommand  # compiles much, and is only needed for commands

    return ShellCommand(command, {"HOME": paths.home, "PWD": paths.cwd, "OLDPWD": paths.cwd})


def find_redirected_files(command: str, paths: PathResolver) -> list[PlacedPath] | None:
    """The files that the redirections of a command write, as far as that can be seen; None if there are too many."""
    read = _make_shell_command(command, paths)
    files = None if read.has_overflowed else read.find_files(paths.cwd, paths.home, "write")
    if files is None or len(files) > MOST_WRITTEN:
        return None
    found = []
    for file in files:
        with suppress(ToolFailed), paths.hold_path(file, for_reading=False) as held:
            found.append(PlacedPath(held.names, held.place))
    return found


class PlacedPath(Struct, frozen=True):
    """A path by its names, links not followed, and by its real place."""

    names: tuple[str, ...]
    place: str


def make_concealment_test(
    rules: PermissionLayers, tool: str, answered: Container[str], paths: PathResolver
) -> Callable[[str], bool]:
    """A test for places that a search by this tool must not show: those denied to `read` or to the tool itself."""

    def conceals_from(name: str, place: PlacedPath) -> bool:
        said = _ruling_of_layers(
            rules, name, lambda some, strictly: _find_rule_for_place(some, (name,), place, paths, strictly)
        )
        return said.verdict == "deny" or any(rule not in answered for rule in said.asking)

    def conceals(place: str) -> bool:
        found = PlacedPath((), place)
        return conceals_from(READ, found) or conceals_from(tool, found)

    return conceals


def _ruling_of_layers(layers: PermissionLayers, tool: str, first: FirstRule) -> Ruling:
    rulings = [_ruling_of_source(rules, tool, first) for rules in layers.all_sources]
    strictest = min(rulings, key=lambda ruling: VERDICTS.index(ruling.verdict))
    asking = tuple(ruling.rule for ruling in rulings if ruling.verdict == "ask" and ruling.rule is not None)
    return Ruling(strictest.verdict, strictest.rule, asking)


def _ruling_of_source(rules: PermissionRules, tool: str, first: FirstRule) -> Ruling:
    for verdict, some in rules.by_verdict.items():
        rule = first(some, verdict == "allow")
        if rule is not None:
            return Ruling(verdict, rule.text)
    return Ruling(rules.default_verdict(tool))


def describe_unknown_tools(layers: PermissionLayers, known: Iterable[str]) -> Iterator[str]:
    """A sentence for each rule for a tool that does not exist now. A host or an extension may add it later, and tools
    of servers always come later."""
    names = sorted(known)
    for rule in (rule for rules in layers.all_sources for some in rules.by_verdict.values() for rule in some):
        later = rule.tool.startswith(PREFIX)
        if later or any(sign in rule.tool for sign in "*?"):
            continue
        if not any(_is_for_tool(rule, name, False) for name in names):
            from difflib import get_close_matches

            near = get_close_matches(rule.tool.lower(), names, 1)
            meant = f', did you mean "{near[0]}"?' if near else ""
            yield f'permissions: there is no tool "{rule.tool}" now (rule "{rule.text}"{meant})'


def parse_rule(text: str) -> PermissionRule | None:
    """A rule from its text; None if it is invalid. The name of a built-in tool may have any case."""
    found = _RULE.fullmatch(text)
    if found is None:
        return None
    tool, inner = found[1], found[2]
    known = facts_of(tool.lower()).subject
    tool = tool.lower() if known else tool
    if inner is None or inner.strip() in ("", "*", "**"):
        return PermissionRule(text, tool, None, None)
    named = _NAMED.fullmatch(inner.strip())
    if named and not known:
        return PermissionRule(text, tool, named[1], named[2])
    return PermissionRule(text, tool, None, inner.strip())


def _read_section(value: Any, problems: list[str]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        problems.append(NO_RULES)
        return {}
    unknown = set(value) - {*VERDICTS, "default", "timeoutMs"}
    problems.extend(f"permissions.{key[:LONGEST_SHOWN]} is unknown" for key in sorted(unknown)[:MOST_SHOWN])
    return value


def _read_rule_list(section: dict[str, Any], name: str, problems: list[str]) -> list[PermissionRule]:
    items = section.get(name, [])
    if not isinstance(items, list):
        problems.append(f"permissions.{name} must be a list of rules")
        return []
    if len(items) > MOST_RULES:
        problems.append(f"permissions.{name} has {len(items)} rules; at most {MOST_RULES} are allowed")
    rules = []
    for item in items[:MOST_RULES]:
        rule = parse_rule(item) if isinstance(item, str) else None
        if rule is None:
            problems.append(f'permissions.{name}: {_shorten_item(item)} is not a rule; write "tool" or "tool(pattern)"')
        else:
            rules.append(rule)
    return rules


def _shorten_item(item: object) -> str:
    text = repr(item)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def matches_place(
    rule: PermissionRule, tools: tuple[str, ...], place: PlacedPath, paths: PathResolver, strictly: bool
) -> bool:
    """Whether a rule is for one of these tools and matches a place; `strictly` is set for allowing rules."""
    if not any(_is_for_tool(rule, tool, strictly) for tool in tools):
        return False
    return rule.pattern is None or _path_matches(rule.pattern, place, paths, strictly)


def _find_rule_for_place(
    rules: Sequence[PermissionRule], tools: tuple[str, ...], place: PlacedPath, paths: PathResolver, strictly: bool
) -> PermissionRule | None:
    return next((rule for rule in rules if matches_place(rule, tools, place, paths, strictly)), None)


def _is_for_tool(rule: PermissionRule, tool: str, strictly: bool) -> bool:
    """Whether a rule is for a tool; for denying and asking rules the case of the name is ignored. The name of a tool
    server, such as `mcp__server`, covers all of its tools."""
    named = rule.tool if strictly else rule.tool.lower()
    tool = tool if strictly else tool.lower()
    if named.startswith(PREFIX) and tool.startswith(f"{named}__"):
        return True
    return compile_text_glob(named, classes=False)(tool)


class _CalledWith:
    """One call about a command or other arguments, and the rules that match it.

    Results for one rule are kept for the next one.
    """

    def __init__(self, tool: str, subject: CommandSubject | ArgumentSubject, paths: PathResolver) -> None:
        self._tool = tool
        self._subject = subject
        self._paths = paths
        self._readings: dict[str, ShellCommand] = {}
        self._places: dict[str, PlacedPath | None] = {}
        # The files that the command's redirections write and read, by the name of the tool that does the same.
        self._files: dict[str, list[str] | None] = {}
        self._arguments: dict[str | None, _ArgumentTexts] = {}

    def find_first(self, rules: Sequence[PermissionRule], strictly: bool) -> PermissionRule | None:
        """The first rule that matches; of allowing rules, the first of those that cover the call together."""
        if not strictly:
            return next((rule for rule in rules if self._is_match(rule)), None)
        meant = [rule for rule in rules if _is_for_tool(rule, self._tool, True)]
        whole = next((rule for rule in meant if rule.pattern is None), None)
        if whole is not None or not meant:
            return whole
        subject = self._subject
        if isinstance(subject, ArgumentSubject):
            return self._find_covering_rule(meant, subject.arguments)
        patterns = [rule.pattern for rule in meant if rule.pattern is not None]
        return meant[0] if self._is_covered(patterns, subject.command) else None

    def _find_covering_rule(self, rules: Sequence[PermissionRule], arguments: dict[str, Json]) -> PermissionRule | None:
        """One of the allowing rules that cover all arguments: each by a rule that names it, and all others by one rule
        that names none."""
        naming = {
            rule.argument: rule
            for rule in reversed(rules)
            if rule.argument in arguments and self._is_certain(rule, self._texts_of(rule.argument))
        }
        others = {name: value for name, value in arguments.items() if name not in naming}
        if not others:
            return next((rule for rule in rules if rule in naming.values()), None)
        texts = _ArgumentTexts("", others) if naming else self._texts_of(None)
        return next((rule for rule in rules if rule.argument is None and self._is_certain(rule, texts)), None)

    def _is_certain(self, rule: PermissionRule, texts: _ArgumentTexts) -> bool:
        """Whether an allowing rule covers all of these texts."""
        pattern = rule.pattern
        return (
            pattern is not None
            and bool(texts.all)
            and not texts.too_many
            and all(self._certainly_matches(pattern, name, text) for name, text in texts.all)
        )

    def _texts_of(self, argument: str | None) -> _ArgumentTexts:
        """The texts in an argument, or in all of them."""
        texts = self._arguments.get(argument)
        if texts is None:
            assert isinstance(self._subject, ArgumentSubject)
            given = self._subject.arguments
            chosen = given if argument is None else given.get(argument, "")
            texts = self._arguments[argument] = _ArgumentTexts(argument or "", chosen)
        return texts

    def _is_match(self, rule: PermissionRule) -> bool:
        """Whether a denying or asking rule may match."""
        subject = self._subject
        if not _is_for_tool(rule, self._tool, False):
            return isinstance(subject, CommandSubject) and self._has_redirection_match(rule, subject.command)
        if rule.pattern is None:
            return True
        if isinstance(subject, CommandSubject):
            read = self._parse_command(subject.command)
            return read.has_overflowed or read.can_run(rule.pattern)
        texts = self._texts_of(rule.argument)
        return (
            texts.has_match(rule.pattern)
            or texts.too_many
            or any(self._may_match(rule.pattern, *one) for one in texts.short)
        )

    def _has_redirection_match(self, rule: PermissionRule, command: str) -> bool:
        """Whether a rule for `write` or `read` covers a file that the command's redirections write or read."""
        for tool, access in ((WRITE, "write"), (READ, "read")):
            if _is_for_tool(rule, tool, False):
                if tool not in self._files:
                    read = self._parse_command(command)
                    files = None if read.has_overflowed else read.find_files(self._paths.cwd, self._paths.home, access)
                    self._files[tool] = files
                files = self._files[tool]
                if files is None or len(files) > MOST_TEXTS:
                    return True
                places = (self._resolve_place(file) for file in files)
                if any(place and _find_rule_for_place([rule], (tool,), place, self._paths, False) for place in places):
                    return True
        return False

    def _certainly_matches(self, pattern: str, name: str, text: str) -> bool:
        matches = compile_text_glob(unicodedata.normalize("NFC", pattern), classes=False)
        if not matches(text) or (".." in text.split("/") and not matches(os.path.normpath(text))):
            return False
        return not self._is_command_argument(name) or self._is_covered([pattern], text)

    def _may_match(self, pattern: str, name: str, text: str) -> bool:
        """Whether a pattern may match an argument of an unknown tool, which may be a command or a path."""
        read = self._parse_command(text)
        if (self._is_command_argument(name) and read.has_overflowed) or read.can_run(pattern):
            return True
        if len(text) > LONGEST_PATH:
            return False
        places = map(self._resolve_place, dict.fromkeys((text, _FILE_URL.sub("file://", text, count=1))))
        return any(place is not None and _path_matches(pattern, place, self._paths, False) for place in places)

    def _is_command_argument(self, name: str) -> bool:
        return bool(facts_of(self._tool).command) or name.lower() in _COMMAND_ARGUMENTS

    def _is_covered(self, patterns: Sequence[str], command: str) -> bool:
        return self._parse_command(command).is_covered(patterns)

    def _parse_command(self, command: str) -> ShellCommand:
        read = self._readings.get(command)
        if read is None:
            read = self._readings[command] = _make_shell_command(command, self._paths)
        return read

    def _resolve_place(self, path: str) -> PlacedPath | None:
        """The place that a text names, or None if no file can have such a name."""
        if path not in self._places:
            try:
                with self._paths.hold_path(path) as held:
                    self._places[path] = PlacedPath(held.names, held.place)
            except ToolFailed:
                self._places[path] = None
        return self._places[path]


class _ArgumentTexts:
    """Every text, number and boolean in arguments, with its name.

    Names are texts, too, if they are no plain words (`{"files": {"a/b": …}}`), and for denying and asking rules, all
    names inside an argument are. Those that may be commands or paths are `short`; `too_many` is True if there are more
    than can be checked in time.
    """

    def __init__(self, name: str, value: Json) -> None:
        self.all: list[tuple[str, str]] = []
        self.short: list[tuple[str, str]] = []
        size = 0
        names: dict[str, None] = {}
        waiting = [(name, value)]
        # The top-level names are the tool's own.
        outermost = value if not name else None
        self.too_many = False
        while waiting and not self.too_many:
            name, value = waiting.pop()
            if isinstance(value, dict):
                waiting.extend(value.items())
                waiting.extend(("", key) for key in value if not _PLAIN_NAME.fullmatch(key))
                if value is not outermost:
                    names.update(dict.fromkeys(key for key in value if len(key) <= LONGEST_PATH))
            elif isinstance(value, list):
                waiting.extend((name, item) for item in value)
            elif isinstance(value, str):
                self.all.append((name, value))
                if name.lower() in _COMMAND_ARGUMENTS:
                    self.short.append((name, value))
                elif len(value) <= LONGEST_PATH:
                    self.short.append((name, value))
                    size += len(value)
            elif isinstance(value, bool) or value is None:
                self.all.append((name, {True: "true", False: "false", None: "null"}[value]))
            else:
                self.all.append((name, str(value)))
            most = len(self.short) + len(names)
            self.too_many = most > MOST_TEXTS or size > MOST_TEXT or len(self.all) > MOST_VALUES
        self.short.extend(("", name) for name in names)
        texts_and_names = (*names, *(text for _, text in self.all))
        joined = "\0".join(text.replace("\0", " ") for text in texts_and_names)
        self._joined = f"\0{joined}\0{'' if joined.isascii() else unicodedata.normalize('NFC', joined)}\0"

    def has_match(self, pattern: str) -> bool:
        return compile_any_text_glob(unicodedata.normalize("NFC", pattern))(self._joined)


def _path_matches(pattern: str, path: PlacedPath, paths: PathResolver, strictly: bool) -> bool:
    pattern = expand_home(pattern, paths.home)
    roots = [paths.cwd, paths.view.real_path(paths.cwd)]
    places = dict.fromkeys((*path.names, path.place))
    composed = unicodedata.normalize("NFC", pattern)
    if strictly:
        return all(_place_matches(composed, place, roots) for place in places)
    alike, alike_roots = fold_spelling(pattern), [fold_spelling(root) for root in roots]
    return any(
        _place_matches(composed, place, roots) or _place_matches(alike, fold_spelling(place), alike_roots)
        for place in places
    )


def _place_matches(pattern: str, place: str, roots: list[str]) -> bool:
    """Whether a pattern covers a place: a name at any depth, a path from the working directory, or an absolute one."""
    below = [place[len(root.rstrip("/")) + 1 :] or "." for root in roots if _is_below(place, root)]
    if "/" not in pattern.rstrip("/"):
        matches = compile_rule_glob(pattern.rstrip("/"))
        parts = (below[0] if below else place).split("/")
        return any(matches(part) for part in parts if part)
    matches = compile_rule_glob(pattern.removeprefix("./").rstrip("/"))
    if pattern.startswith("/"):
        return matches(place)
    return any(matches(text) for text in below) or (pattern.startswith("**/") and matches(place.lstrip("/")))


def _is_below(place: str, root: str) -> bool:
    return place == root or place.startswith(root.rstrip("/") + "/")
