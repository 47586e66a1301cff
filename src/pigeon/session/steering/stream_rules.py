"""Stream rules: advice that is given when it is needed, and not before.

A rule watches what the model writes. When one matches, the answer is cut there, the host is told, the rule is put into
the conversation, and the run goes on. Each rule is given once per conversation unless it says otherwise, and however
the rules are written, a model is not cut off more than a few times for one thing that the user says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pigeon.agent.interfaces import Publish, Spoken
from pigeon.session.history.entry_line import Kept
from pigeon.session.steering.rule_matching import CompiledRule, Kind, Window, matching
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
from pigeon.wire.rules import Rule

CUSTOM_TYPE = "ttsr-injection"
MOST_CUTS = 10


class StreamRules:
    """The rules of one conversation: which there are, which were given, and what is to be said next."""

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

    def enter(self, branch: Iterable[Kept]) -> None:
        """Another conversation: remember what it was given; the files are read again when they are needed."""
        self._rules = None
        self._given = {}
        self._messages = self._cuts = 0
        for line in branch:
            self._messages += line.type in ("message", "custom_message")
            entry = line.entry if line.type == "custom_message" else None
            if isinstance(entry, CustomMessageEntry) and entry.custom_type == CUSTOM_TYPE:
                self._given.update(dict.fromkeys(_names(entry), self._messages))

    def notes(self, event: Outbound) -> None:
        """Something was said."""
        if isinstance(event, MessageEnd):
            self._messages += 1
            if isinstance(event.message, UserMessage):
                self._cuts = 0

    def watch(self) -> RuleWatch | None:
        """Somebody to look at the next answer; nobody if no rule could match."""
        self._cut = []
        self._later = []
        rules = [rule for rule in self._known() if self._may_match(rule)]
        return RuleWatch(rules, self) if rules and self._cuts < MOST_CUTS else None

    def matched(self, rules: list[CompiledRule], kind: Kind) -> TtsrTriggered | None:
        """Rules match in this kind of block; what to announce if that cuts the answer."""
        cutting = [rule for rule in rules if rule.interrupts(kind)]
        self._later.extend(rule for rule in rules if rule not in cutting)
        if not cutting:
            return None
        self._cuts += 1
        self._cut = cutting
        return TtsrTriggered(rules=[rule.rule for rule in cutting])

    def too_slow(self, rules: list[CompiledRule]) -> None:
        """Rules whose expressions take too long are not asked again in this conversation."""
        for rule in rules:
            self._report(f"The rule {rule.rule.path} is switched off: its condition takes too long to check")
        self._rules = [rule for rule in self._known() if rule not in rules]

    async def adds(self) -> list[Spoken]:
        """The rules that the last answer has brought up, as a message to go on with."""
        cut, later = self._cut, self._later
        self._cut, self._later = [], []
        if later:
            await self._publish(TtsrTriggered(rules=[rule.rule for rule in later]))
        rules = [*cut, *later]
        if not rules:
            return []
        names = [rule.name for rule in rules]
        self._given.update(dict.fromkeys(names, self._messages))
        text = injection([rule.rule for rule in rules], stopped=bool(cut))
        return [
            CustomMessage(
                custom_type=CUSTOM_TYPE, content=text, display=False, details={"rules": names}, timestamp=self._now()
            )
        ]

    def _known(self) -> list[CompiledRule]:
        if self._rules is None:
            self._rules = []
            for rule in self._load():
                try:
                    self._rules.append(CompiledRule(rule))
                except ValueError as error:
                    self._report(f"The rule {rule.path} is ignored: {error}")
        return self._rules

    def _may_match(self, rule: CompiledRule) -> bool:
        last = self._given.get(rule.name)
        return last is None or (rule.gap > 0 and self._messages - last >= rule.gap)


class RuleWatch:
    """Looks at one answer."""

    def __init__(self, rules: list[CompiledRule], owner: StreamRules) -> None:
        self._rules = rules
        self._owner = owner
        self._blocks: dict[int, tuple[Window, list[CompiledRule]]] = {}

    def sees(self, event: StreamEvent) -> TtsrTriggered | None:
        """What to announce if the answer must be cut here."""
        if isinstance(event, (TextDelta, ThinkingDelta, ToolcallDelta)):
            block = self._blocks.get(event.content_index)
            return None if block is None else self._grew(*block, event.delta)
        if isinstance(event, TextStart):
            self._open(event.content_index, "text")
        elif isinstance(event, ThinkingStart):
            self._open(event.content_index, "thinking")
        elif isinstance(event, ToolcallStart):
            self._open(event.content_index, "toolCall", event.tool_name)
        else:
            block = self._blocks.pop(event.content_index, None)
            return None if block is None else self._ended(*block)
        return None

    def _open(self, index: int, kind: Kind, tool: str = "") -> None:
        rules = [rule for rule in self._rules if rule.looks_at(kind, tool)]
        if rules:
            self._blocks[index] = (Window(kind, tool), rules)

    def _grew(self, window: Window, rules: list[CompiledRule], delta: str) -> TtsrTriggered | None:
        for _ in window.pieces(delta):
            cut = self._look(window, rules)
            if cut is not None:
                return cut
        return None

    def _ended(self, window: Window, rules: list[CompiledRule]) -> TtsrTriggered | None:
        window.close()
        return self._look(window, rules)

    def _look(self, window: Window, rules: list[CompiledRule]) -> TtsrTriggered | None:
        matched, slow = matching(rules, window)
        if slow:
            self._owner.too_slow(slow)
        for rule in (*matched, *slow):
            rules.remove(rule)
            self._rules = [other for other in self._rules if other is not rule]
        return self._owner.matched(matched, window.kind) if matched else None


def injection(rules: list[Rule], stopped: bool) -> str:
    """What the model is told."""
    opening = (
        "Your answer was stopped in the middle because it went against the following, and what you had written of it "
        "is gone. Begin it again, keep to this, and do not speak of the interruption."
        if stopped
        else "What you wrote last calls for the following. Keep to it from here on."
    )
    texts = "\n".join(f'<rule name="{rule.name}" path="{rule.path}">\n{rule.content}\n</rule>' for rule in rules)
    return f"<notice>\n{opening}\n{texts}\n</notice>"


def _names(entry: CustomMessageEntry) -> list[str]:
    details = entry.details
    names = details.get("rules") if isinstance(details, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
