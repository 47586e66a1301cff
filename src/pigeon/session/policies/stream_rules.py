"""Stream rules: advice that enters the conversation when the model's own output shows that it is needed.

A rule is a regular expression on what the model writes. When it matches, the answer is cut there, `ttsr_triggered` is
published, the text of the rule is put into the conversation, and the run goes on. Each rule is given once per
conversation unless it says otherwise, and at most `MOST_CUTS` answers are cut between two messages of the user.

Matching looks at a window of fixed size that moves along with each block (`Window`). All searches of one answer share
a budget of processor time (`SearchBudget`), which grows a little with each character: when half of it is gone, the
window is searched only after every `STRIDE` characters, and when it is used up, the rules that took most of it are
switched off. Arguments of tools are matched as their JSON with the escapes resolved, so that a line break in a file to
be written is a line break here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pigeon.agent.inference import BlockKind
from pigeon.agent.interfaces import Publish, Spoken
from pigeon.session.history.entry_line import EntryLine
from pigeon.session.policies.policy import CompletedTurn, RunPolicy
from pigeon.wire.base import Absent
from pigeon.wire.entries import CustomMessageEntry
from pigeon.wire.events import (
    MessageEnd,
    Outbound,
    StreamEvent,
    TextDelta,
    TextStart,
    ThinkingDelta,
    ThinkingStart,
    ToolcallDelta,
    ToolcallStart,
    TtsrTriggered,
)
from pigeon.wire.messages import CustomMessage, UserMessage
from pigeon.wire.steering import Rule

if TYPE_CHECKING:
    from pigeon.system.expressions import Expression

WINDOW = 1000
HEAD = 4000
# What the searches of one answer may take of the processor, and how much more for each character of it.
SECONDS_PER_ANSWER = 0.25
SECONDS_PER_CHARACTER = 1e-5
LONGEST_SEARCH = 0.05
_SHORTEST_LIMIT = 0.002
_MOST_HALVINGS = 6
STRIDE = WINDOW // 4
CUSTOM_TYPE = "ttsr-injection"
_SAID = frozenset({"message", "custom_message"})
MOST_CUTS = 10
# Patterns as texts: `re` compiles them when first needed, and most sessions have no rules.
_SCOPE = r"(text|thinking|tool|toolcall)(?::([^()\s]+))?(?:\((.+)\))?"
_WHOLE_ESCAPES = r"(?>(?:[^\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*)"
_ESCAPE = r"(?s)\\(?:u([0-9a-fA-F]{4})|(.))"
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_PATH = r'"(?:path|file_path|filePath|file)"\s*:\s*"((?>(?:[^"\\]++|\\.)*))"'
_OTHER_GROUP = r"(?<!\\)\(\?<(?=[A-Za-z_])"


class RuleScope:
    """One kind of output that a rule looks at."""

    def __init__(self, kind: BlockKind, tool: str | None = None, glob: str | None = None) -> None:
        self.kind: BlockKind = kind
        self.tool = tool
        self.glob = glob


class CompiledRule:
    """A rule that is ready for matching; raises `ValueError` if it is invalid."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.name = rule.name
        self.mode = "always" if isinstance(rule.interrupt_mode, Absent) else rule.interrupt_mode
        self.gap = 0 if isinstance(rule.repeat, Absent) else rule.repeat
        self._conditions = [_compile_condition(text) for text in rule.condition or []]
        self._scopes = list(_parse_scopes(rule))

    def can_match_block(self, kind: BlockKind, tool: str) -> bool:
        """True if the rule applies to this kind of block."""
        return any(scope.kind == kind and scope.tool in (None, tool) for scope in self._scopes)

    def is_match(self, window: Window, seconds: float = LONGEST_SEARCH) -> bool:
        """True if the end of a block matches; a match that could still change waits for more text.

        Raises `TimeoutError` if one search takes longer than `seconds`.
        """
        return any(window.has_match(one, seconds) for one in self._conditions) and self._is_in_scope(window)

    def should_interrupt(self, kind: BlockKind) -> bool:
        """True if a match in this kind of block cuts the answer."""
        return self.mode in ("always", "tool-only" if kind == "toolCall" else "prose-only")

    def _is_in_scope(self, window: Window) -> bool:
        fitting = [scope for scope in self._scopes if scope.kind == window.kind and scope.tool in (None, window.tool)]
        return any(scope.glob is None or _is_glob_match(window.find_path(), scope.glob) for scope in fitting)


class Window:
    """The end of one block, as much of it as rules look at."""

    def __init__(self, kind: BlockKind, tool: str = "") -> None:
        self.kind: BlockKind = kind
        self.tool = tool
        self._text = ""
        self._start = 0
        self._head = ""
        self._broken = ""
        self._closed = False
        self.unsearched = 0

    def feed_pieces(self, delta: str) -> Iterator[int]:
        """Add text in steps that fit, and yield the length of each; check the window after each."""
        if self.kind == "toolCall":
            delta = self._decode_delta(delta)
        for at in range(0, len(delta), WINDOW):
            piece = delta[at : at + WINDOW]
            self._append_piece(piece)
            self.unsearched += len(piece)
            yield len(piece)

    def mark_searched(self) -> None:
        self.unsearched = 0

    def close(self) -> None:
        self._closed = True

    def has_match(self, condition: Expression, seconds: float) -> bool:
        """True if the condition matches in the window, and more text could not undo that."""
        found = condition.search(self._text, self._start, seconds)
        if found is None:
            return False
        start, end = found
        return self._closed or end < len(self._text) or end - start > WINDOW // 2

    def find_path(self) -> str:
        """The file that a tool call is about, as far as it is known."""
        found = re.search(_PATH, self._head)
        return _unescape_json(found[1]) if found else ""

    def _append_piece(self, piece: str) -> None:
        text = self._text + piece
        if len(text) > 2 * WINDOW:
            # One character more than is searched, so that ^ and \b do not match at the cut.
            text = text[-WINDOW - len(piece) - 1 :]
            self._start = 1
        self._text = text

    def _decode_delta(self, delta: str) -> str:
        if len(self._head) < HEAD:
            self._head += delta[: HEAD - len(self._head)]
        text = self._broken + delta
        whole = re.match(_WHOLE_ESCAPES, text)
        end = whole.end() if whole else 0
        if len(text) - end > 6:
            end = len(text)
        self._broken = text[end:]
        return _unescape_json(text[:end])


class SearchBudget:
    """The processor time that the rules may take for one answer, and what each of them has taken."""

    def __init__(self, seconds: float) -> None:
        self._whole = self._left = seconds
        self._taken: dict[CompiledRule, float] = {}
        self._halvings = 0

    @property
    def is_used_up(self) -> bool:
        """True if halving the budget again and again was of no use: what is left of the answer must not be checked."""
        return self._halvings > _MOST_HALVINGS

    @property
    def is_scarce(self) -> bool:
        return self._left < self._whole / 2

    @property
    def longest_search(self) -> float:
        return min(LONGEST_SEARCH, max(self._left, _SHORTEST_LIMIT))

    def grow(self, characters: int) -> None:
        self._left = min(self._left + SECONDS_PER_CHARACTER * characters, self._whole)

    def spend(self, rule: CompiledRule, seconds: float) -> None:
        self._taken[rule] = self._taken.get(rule, 0.0) + seconds
        self._left -= seconds

    def take_wasteful_rules(self) -> list[CompiledRule]:
        """The rules to switch off because the budget is used up: those that took clearly more than a fair share.

        The others continue with half the budget, so that no number of rules can take more than twice as much.
        """
        if self._left > 0:
            return []
        fair = sum(self._taken.values()) / len(self._taken) / 4
        wasteful = [rule for rule, taken in self._taken.items() if taken > fair]
        self._taken.clear()
        self._halvings += 1
        self._whole /= 2
        self._left = self._whole
        return wasteful


def _compile_condition(text: str) -> Expression:
    from pigeon.system.expressions import Expression

    try:
        expression = Expression(re.sub(_OTHER_GROUP, "(?P<", text), multiline=True)
    except ValueError as error:
        raise ValueError(f"the condition {text!r} is not a regular expression: {error}") from None
    if expression.search("") is not None:
        raise ValueError(f"the condition {text!r} matches everything, because it matches an empty text")
    return expression


def _parse_scopes(rule: Rule) -> Iterator[RuleScope]:
    globs: list[str | None] = [None] if isinstance(rule.globs, Absent) or not rule.globs else list(rule.globs)
    if isinstance(rule.scope, Absent) or not rule.scope:
        yield RuleScope("text")
        yield from (RuleScope("toolCall", None, glob) for glob in globs)
        return
    for text in rule.scope:
        found = re.fullmatch(_SCOPE, text)
        if found is None or (found[1] in ("text", "thinking") and (found[2] or found[3])):
            raise ValueError(f"scope {text!r} must be text, thinking, tool, tool:NAME or tool:NAME(GLOB)")
        if found[1] == "text":
            yield RuleScope("text")
        elif found[1] == "thinking":
            yield RuleScope("thinking")
        else:
            yield from (RuleScope("toolCall", found[2], glob) for glob in ([found[3]] if found[3] else globs))


def _is_glob_match(path: str, glob: str) -> bool:
    if not path:
        return False
    from pigeon.system.globs import compile_text_glob

    matches = compile_text_glob(glob)
    if "/" not in glob:
        return matches(path.rpartition("/")[2])
    return matches(path) or matches(f"/{path.lstrip('/')}")


def _unescape_json(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(_ESCAPE, lambda found: chr(int(found[1], 16)) if found[1] else _PLAIN.get(found[2], found[2]), text)


class StreamRules(RunPolicy):
    """The rules of one conversation: all of them, those given already, and those to give next."""

    def __init__(
        self, load: Callable[[], list[Rule]], publish: Publish, now: Callable[[], int], report: Callable[[str], None]
    ) -> None:
        self._load = load
        self._publish = publish
        self._now = now
        self._report = report
        self._rules: list[CompiledRule] | None = None
        self._given: dict[str, int] = {}
        self._messages = 0
        self._cuts = 0
        self._cut: list[CompiledRule] = []
        self._later: list[CompiledRule] = []

    def restore_from_branch(self, branch: Iterable[EntryLine]) -> None:
        """Restore which rules another conversation was given; the files are read again when needed."""
        self.mark_for_reload()
        self._given = {}
        said = [line for line in branch if line.type in _SAID]
        self._messages, self._cuts = len(said), 0
        for at, line in enumerate(said, 1):
            entry = line.entry if line.type == "custom_message" else None
            if isinstance(entry, CustomMessageEntry) and entry.custom_type == CUSTOM_TYPE:
                self._given.update(dict.fromkeys(_rule_names_of(entry), at))

    def mark_for_reload(self) -> None:
        """Read the files again when they are next needed."""
        self._rules = None

    def on_event(self, event: Outbound) -> None:
        """Count the messages of the conversation, and the cuts since the user's last one."""
        if isinstance(event, MessageEnd):
            self._messages += 1
            if isinstance(event.message, UserMessage):
                self._cuts = 0

    def warm_up(self) -> None:
        """Read the rules now instead of at the first answer."""
        self._load_rules()

    def make_watch(self) -> RuleWatch | None:
        """What checks the next answer; None if no rule could match."""
        self._cut = []
        self._later = []
        rules = [rule for rule in self._load_rules() if self._can_fire(rule)]
        return RuleWatch(rules, self) if rules and self._cuts < MOST_CUTS else None

    def on_match(self, rules: list[CompiledRule], kind: BlockKind) -> TtsrTriggered | None:
        """Note rules that match in this kind of block; returns the event to announce if that cuts the answer."""
        cutting = [rule for rule in rules if rule.should_interrupt(kind)]
        self._later.extend(rule for rule in rules if rule not in cutting)
        if not cutting:
            return None
        self._cuts += 1
        self._cut = cutting
        return TtsrTriggered(rules=[rule.rule for rule in cutting])

    def report_unchecked_answer(self) -> None:
        self._report("The rest of this answer is not checked against rules: their conditions take too long to check")

    def disable_slow_rules(self, rules: Container[CompiledRule]) -> None:
        """Switch off rules whose expressions take too long, for this conversation."""
        before = self._load_rules()
        for rule in before:
            if rule in rules:
                self._report(f"The rule {rule.rule.path} is switched off: its condition takes too long to check")
        self._rules = [rule for rule in before if rule not in rules]

    async def after_turn(self, turn: CompletedTurn) -> Sequence[Spoken]:
        """The rules that the last answer triggered, as a message to continue with."""
        cut, later = self._cut, self._later
        self._cut, self._later = [], []
        if later:
            await self._publish(TtsrTriggered(rules=[rule.rule for rule in later]))
        rules = [*cut, *later]
        if not rules:
            return ()
        names = [rule.name for rule in rules]
        self._given.update(dict.fromkeys(names, self._messages))
        text = make_injection_text([rule.rule for rule in rules], stopped=bool(cut))
        return [
            CustomMessage(
                custom_type=CUSTOM_TYPE, content=text, display=False, details={"rules": names}, timestamp=self._now()
            )
        ]

    def _load_rules(self) -> list[CompiledRule]:
        if self._rules is None:
            self._rules = []
            for rule in self._load():
                try:
                    self._rules.append(CompiledRule(rule))
                except ValueError as error:
                    self._report(f"The rule {rule.path} is ignored: {error}")
        return self._rules

    def _can_fire(self, rule: CompiledRule) -> bool:
        last = self._given.get(rule.name)
        return last is None or (rule.gap > 0 and self._messages - last >= rule.gap)


class RuleWatch:
    """Checks one streaming answer against the rules that may match."""

    def __init__(self, rules: list[CompiledRule], owner: StreamRules, seconds: float = SECONDS_PER_ANSWER) -> None:
        self._rules = dict.fromkeys(rules)
        self._owner = owner
        self._budget = SearchBudget(seconds)
        self._blocks: dict[int, tuple[Window, list[CompiledRule]]] = {}

    def check_for_cut(self, event: StreamEvent) -> TtsrTriggered | None:
        """Returns the event to announce if the answer must be cut here."""
        if isinstance(event, (TextDelta, ThinkingDelta, ToolcallDelta)):
            block = self._blocks.get(event.content_index)
            return None if block is None else self._match_growth(*block, event.delta)
        if isinstance(event, TextStart):
            self._open_window(event.content_index, "text")
        elif isinstance(event, ThinkingStart):
            self._open_window(event.content_index, "thinking")
        elif isinstance(event, ToolcallStart):
            self._open_window(event.content_index, "toolCall", event.tool_name)
        else:
            block = self._blocks.pop(event.content_index, None)
            return None if block is None else self._match_at_end(*block)
        return None

    def _open_window(self, index: int, kind: BlockKind, tool: str = "") -> None:
        rules = [rule for rule in self._rules if rule.can_match_block(kind, tool)]
        if rules:
            self._blocks[index] = (Window(kind, tool), rules)

    def _match_growth(self, window: Window, rules: list[CompiledRule], delta: str) -> TtsrTriggered | None:
        for size in window.feed_pieces(delta):
            self._budget.grow(size)
            if self._budget.is_scarce and window.unsearched < STRIDE:
                continue
            cut = self._match_window(window, rules)
            if cut is not None:
                return cut
        return None

    def _match_at_end(self, window: Window, rules: list[CompiledRule]) -> TtsrTriggered | None:
        window.close()
        return self._match_window(window, rules)

    def _match_window(self, window: Window, rules: list[CompiledRule]) -> TtsrTriggered | None:
        window.mark_searched()
        rules[:] = [rule for rule in rules if rule in self._rules]
        matched = []
        for rule in rules:
            if rule in self._rules and self._is_match(rule, window):
                matched.append(rule)
        for rule in matched:
            self._rules.pop(rule, None)
        return self._owner.on_match(matched, window.kind) if matched else None

    def _is_match(self, rule: CompiledRule, window: Window) -> bool:
        """Whether a rule matches; this may switch off rules that took too long."""
        began = time.thread_time()
        slow: dict[CompiledRule, None] = {}
        try:
            return rule.is_match(window, self._budget.longest_search)
        except TimeoutError:
            slow[rule] = None
            return False
        finally:
            self._budget.spend(rule, time.thread_time() - began)
            slow |= dict.fromkeys(self._budget.take_wasteful_rules())
            if slow:
                self._owner.disable_slow_rules(slow)
                self._rules = {other: None for other in self._rules if other not in slow}
            if self._budget.is_used_up and self._rules:
                self._owner.report_unchecked_answer()
                self._rules = {}


def make_injection_text(rules: list[Rule], stopped: bool) -> str:
    """The text of the message that puts rules into the conversation."""
    opening = (
        "Your answer was stopped in the middle because it went against the following, and what you had written of it "
        "is gone. Begin it again, keep to this, and do not speak of the interruption."
        if stopped
        else "What you wrote last calls for the following. Keep to it from here on."
    )
    texts = "\n".join(f'<rule name="{rule.name}" path="{rule.path}">\n{rule.content}\n</rule>' for rule in rules)
    return f"<notice>\n{opening}\n{texts}\n</notice>"


def _rule_names_of(entry: CustomMessageEntry) -> list[str]:
    details = entry.details
    names = details.get("rules") if isinstance(details, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
