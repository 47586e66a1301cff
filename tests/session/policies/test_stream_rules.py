"""Stream rules: when they match, what is cut, what is said, and how often."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.agent_loop import answer_with_calls
from pigeon.agent.answer import AnswerStream
from pigeon.agent.inference import ModelRequest
from pigeon.agent.scope import Scope
from pigeon.providers.scripted.model import ScriptedModel, make_scripted_model
from pigeon.session.history.entry_line import line_from_entry
from pigeon.session.policies.policy import CompletedTurn
from pigeon.session.policies.stream_rules import (
    LONGEST_SEARCH,
    MOST_CUTS,
    SECONDS_PER_CHARACTER,
    WINDOW,
    CompiledRule,
    RuleWatch,
    StreamRules,
    Window,
)
from pigeon.wire import codec
from pigeon.wire.content import ToolCall
from pigeon.wire.entries import CustomMessageEntry
from pigeon.wire.events import (
    MessageEnd,
    MessageUpdate,
    Outbound,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolcallDelta,
    ToolcallEnd,
    ToolcallStart,
    TtsrTriggered,
)
from pigeon.wire.messages import CustomMessage, Message, UserMessage
from pigeon.wire.steering import Rule

SAID = UserMessage(content="x", timestamp=1)
TURN = CompletedTurn(answer_with_calls(), (), ends=False)


def rule(condition: str = "bad", name: str = "r", **more: Any) -> Rule:
    return Rule(name=name, path=f"/rules/{name}.md", content=f"About {name}.", condition=[condition], **more)


class RulesSetup:
    def __init__(self, *rules: Rule) -> None:
        self.published: list[Outbound] = []
        self.reports: list[str] = []
        self.rules = StreamRules(lambda: list(rules), self.publish, lambda: 7, self.reports.append)

    async def publish(self, event: Outbound) -> None:
        self.published.append(event)
        self.rules.on_event(event)

    def watch(self) -> RuleWatch:
        watch = self.rules.make_watch()
        assert watch is not None
        return watch

    async def names_given(self) -> list[str]:
        """The names that the next message brings."""
        said = await self.rules.after_turn(TURN)
        if not said:
            return []
        (message,) = said
        assert isinstance(message, CustomMessage)
        self.rules.on_event(MessageEnd(message=message))
        names: list[str] = message.details["rules"]
        return names


def text(*deltas: str, end: bool = True) -> list[StreamEvent]:
    events: list[StreamEvent] = [TextStart(content_index=0)]
    events += [TextDelta(content_index=0, delta=delta) for delta in deltas]
    return [*events, TextEnd(content_index=0, content="")] if end else events


def thinking(*deltas: str) -> list[StreamEvent]:
    events: list[StreamEvent] = [ThinkingStart(content_index=0)]
    events += [ThinkingDelta(content_index=0, delta=delta) for delta in deltas]
    return [*events, ThinkingEnd(content_index=0, content="")]


def call(arguments: dict[str, Any], tool: str = "write", size: int = 5) -> list[StreamEvent]:
    raw = json.dumps(arguments)
    events: list[StreamEvent] = [ToolcallStart(content_index=0, id="c", tool_name=tool)]
    events += [ToolcallDelta(content_index=0, delta=raw[at : at + size]) for at in range(0, len(raw), size)]
    return [*events, ToolcallEnd(content_index=0, tool_call=ToolCall(id="c", name=tool, arguments=arguments))]


def cut_at(setup: RulesSetup, events: list[StreamEvent]) -> int | None:
    """The place of the event at which the answer is cut."""
    watch = setup.rules.make_watch()
    if watch is None:
        return None
    return next((at for at, event in enumerate(events) if watch.check_for_cut(event) is not None), None)


def cuts(one: Rule, events: list[StreamEvent]) -> bool:
    return cut_at(RulesSetup(one), events) is not None


def test_a_match_is_found_across_deltas_as_soon_as_it_is_certain() -> None:
    assert cut_at(RulesSetup(rule()), text("this is b", "a", "d", " indeed", "more")) == 4


def test_a_word_that_goes_on_is_not_mistaken_for_its_beginning() -> None:
    assert not cuts(rule(r"\bbad\b"), text("bad", "ger ", "bad", "ly"))
    assert cuts(rule(r"\bbad\b"), text("bad", "ger bad", " luck"))


def test_the_end_of_a_block_makes_a_match_certain() -> None:
    assert cut_at(RulesSetup(rule()), text("bad")) == 2


def test_a_match_that_eats_everything_does_not_wait_for_ever() -> None:
    assert cut_at(RulesSetup(rule(r"bad[\s\S]*")), text("bad", *["x" * 100] * 30, end=False)) is not None


def test_lines_have_beginnings_and_ends() -> None:
    assert cuts(rule("^bad$"), text("ok\nba", "d\nok"))
    assert not cuts(rule("^bad"), text("not bad"))
    assert not cuts(rule("^bad"), text("x" * (5 * WINDOW), "bad"))


def test_a_block_that_is_very_long_is_looked_at_everywhere() -> None:
    assert cuts(rule("needle"), text("x" * 5 * WINDOW + "needle" + "y" * 5 * WINDOW))


def test_blocks_do_not_run_into_each_other() -> None:
    setup = RulesSetup(rule("badword"))
    watch = setup.watch()
    first = text("bad")
    second = [
        TextStart(content_index=1),
        TextDelta(content_index=1, delta="word"),
        TextEnd(content_index=1, content=""),
    ]
    assert [watch.check_for_cut(event) for event in [*first, *second]] == [None] * 6


@pytest.mark.parametrize(
    ("scope", "in_text", "in_thinking", "in_write", "in_bash"),
    [
        (None, True, False, True, True),
        (["text"], True, False, False, False),
        (["thinking"], False, True, False, False),
        (["tool"], False, False, True, True),
        (["toolcall"], False, False, True, True),
        (["tool:bash", "thinking"], False, True, False, True),
    ],
)
def test_scope_says_what_is_looked_at(
    scope: list[str] | None, in_text: bool, in_thinking: bool, in_write: bool, in_bash: bool
) -> None:
    one = rule(**({} if scope is None else {"scope": scope}))
    found = [cuts(one, text("bad.")), cuts(one, thinking("bad.")), cuts(one, call({"content": "bad."}))]
    assert [*found, cuts(one, call({"command": "bad."}, "bash"))] == [in_text, in_thinking, in_write, in_bash]


@pytest.mark.parametrize(
    ("path", "glob", "fits"),
    [
        ("src/a.py", "*.py", True),
        ("src/a.ts", "*.py", False),
        ("src/a.py", "src/*.py", True),
        ("src/a.py", "**/src/*.py", True),
        ("lib/a.py", "src/*.py", False),
        ('caf\u00e9 \\ "x".py', "*.py", True),
    ],
)
def test_a_rule_may_be_about_some_files_only(path: str, glob: str, fits: bool) -> None:
    events = call({"path": path, "content": "so bad."})
    assert cuts(rule(scope=[f"tool:write({glob})"]), events) is fits
    assert cuts(rule(scope=["tool"], globs=[glob]), events) is fits


def test_a_call_that_names_no_file_is_not_about_any_file() -> None:
    events = call({"content": "so bad."})
    assert not cuts(rule(scope=["tool:write(**)"]), events)
    assert cuts(rule(scope=["tool:write"]), events)


def test_an_escape_that_is_none_holds_nothing_back() -> None:
    opened = ToolcallStart(content_index=0, id="c", tool_name="write")
    events = [opened, *(ToolcallDelta(content_index=0, delta=piece) for piece in (r"\uZZ", "ZZ bad and more"))]
    assert cuts(rule("bad"), events)


def test_arguments_are_looked_at_with_their_escapes_resolved() -> None:
    events = call({"content": 'a\n  print("h\u00e9")\t\\d'})
    for pattern in (r'^  print\("', "h\u00e9", r"\t\\d", '"content": "a$'):
        assert cuts(rule(pattern), events), pattern


@given(st.text(), st.integers(1, 9))
def test_arguments_in_pieces_of_any_size_are_read_as_they_were_meant(content: str, size: int) -> None:
    window = Window("toolCall")
    raw = json.dumps(content)
    for at in range(0, len(raw), size):
        list(window.feed_pieces(raw[at : at + size]))
    shown = window._text.encode("utf-16", "surrogatepass").decode("utf-16")
    assert shown.endswith((content + '"')[-WINDOW:])


async def test_what_matched_is_announced_and_given_to_the_model() -> None:
    setup = RulesSetup(rule(), rule("bad|worse", "s"), rule("other", "t"))
    watch = setup.watch()
    seen = [event for event in map(watch.check_for_cut, text("so bad.")) if event is not None]
    assert [codec.to_plain(one)["name"] for one in seen[0].rules] == ["r", "s"]
    (said,) = await setup.rules.after_turn(TURN)
    assert isinstance(said, CustomMessage)
    assert (said.custom_type, said.display, said.details) == ("ttsr-injection", False, {"rules": ["r", "s"]})
    assert "About r." in str(said.content)
    assert "About s." in str(said.content)
    assert "stopped" in str(said.content)
    assert await setup.rules.after_turn(TURN) == ()


async def test_a_rule_is_given_once() -> None:
    setup = RulesSetup(rule())
    assert cut_at(setup, text("bad.")) is not None
    assert await setup.names_given() == ["r"]
    assert setup.rules.make_watch() is None


async def test_a_rule_whose_answer_was_aborted_may_still_come() -> None:
    setup = RulesSetup(rule())
    assert cut_at(setup, text("bad.")) is not None
    assert cut_at(setup, text("bad.")) is not None
    assert await setup.names_given() == ["r"]


async def test_a_rule_that_repeats_waits_for_its_gap() -> None:
    setup = RulesSetup(rule(repeat=3))
    assert cut_at(setup, text("bad.")) is not None
    assert await setup.names_given() == ["r"]
    for _ in range(2):
        assert cut_at(setup, text("bad.")) is None
        setup.rules.on_event(MessageEnd(message=SAID))
    assert cut_at(setup, text("bad.")) is not None


async def test_rules_that_come_again_and_again_cannot_go_on_for_ever() -> None:
    setup = RulesSetup(rule(repeat=1))
    for _ in range(MOST_CUTS):
        assert cut_at(setup, text("bad.")) is not None
        await setup.names_given()
    assert setup.rules.make_watch() is None
    setup.rules.on_event(MessageEnd(message=SAID))
    assert cut_at(setup, text("bad.")) is not None


async def test_a_conversation_remembers_what_it_was_given() -> None:
    setup = RulesSetup(rule(), rule("worse", "s"))
    cut_at(setup, text("bad."))
    (said,) = await setup.rules.after_turn(TURN)
    assert isinstance(said, CustomMessage)
    fields = {"custom_type": said.custom_type, "content": said.content, "display": False, "details": said.details}
    entry = CustomMessageEntry(id="1", parent_id=None, timestamp="t", **fields)
    later = RulesSetup(rule(), rule("worse", "s"))
    later.rules.restore_from_branch([line_from_entry(entry, bytes)])
    assert cut_at(later, text("bad, worse.")) is not None
    assert await later.names_given() == ["s"]
    later.rules.restore_from_branch([])
    assert cut_at(later, text("bad.")) is not None


@pytest.mark.parametrize(
    ("mode", "in_text", "in_tool"),
    [("always", True, True), ("never", False, False), ("prose-only", True, False), ("tool-only", False, True)],
)
async def test_a_rule_that_does_not_interrupt_is_given_after_the_turn(mode: Any, in_text: bool, in_tool: bool) -> None:
    for events, cutting in ((text("bad. bad."), in_text), (call({"content": "bad. bad."}), in_tool)):
        setup = RulesSetup(rule(interrupt_mode=mode))
        assert (cut_at(setup, events) is not None) is cutting
        assert await setup.names_given() == ["r"]
        announced = [event for event in setup.published if isinstance(event, TtsrTriggered)]
        assert len(announced) == int(not cutting)


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (rule("(bad"), "not a regular expression"),
        (rule("x*"), "matches everything"),
        (rule(scope=["shell"]), "scope 'shell' must be"),
        (rule(scope=["text:x"]), "scope 'text:x' must be"),
    ],
)
def test_a_rule_that_cannot_be_used_is_reported_once_and_left_out(one: Rule, reason: str) -> None:
    setup = RulesSetup(one, rule("worse", "s"))
    assert cut_at(setup, text("bad, worse.")) is not None
    setup.rules.make_watch()
    assert len(setup.reports) == 1
    assert one.path in setup.reports[0]
    assert reason in setup.reports[0]


def test_names_of_groups_may_be_written_either_way() -> None:
    assert cuts(rule(r"(?<word>bad)(?<=d)\."), text("bad."))


def test_an_expression_that_would_take_for_ever_is_switched_off() -> None:
    setup = RulesSetup(rule(r"(a|aa)+\1b", "slow"), rule("worse", "s"))
    began = time.process_time()
    assert cut_at(setup, text("a" * 300 + "!", " worse.")) is not None
    assert time.process_time() - began < 3
    assert "slow.md is switched off" in setup.reports[0]
    assert cut_at(setup, text("a" * 300 + "!", "fine.")) is None
    assert len(setup.reports) == 1


def test_a_delta_costs_the_same_at_the_end_of_a_long_answer() -> None:
    watch = RulesSetup(*(rule(f"never{number}", str(number)) for number in range(10))).watch()
    watch.check_for_cut(TextStart(content_index=0))
    began = time.process_time()
    for _ in range(5_000):
        watch.check_for_cut(TextDelta(content_index=0, delta="some words of text "))
    assert time.process_time() - began < 5


def test_slow_rules_share_the_time_of_an_answer_and_the_others_stay() -> None:
    slow = [rule(r"(?:[a-z]+ ?){9}\d|(a|b)+?\1{40}c", f"slow{number}") for number in range(20)]
    setup = RulesSetup(*slow, rule("worse", "good"))
    words = "a plain answer about nothing in particular " * 70
    began = time.process_time()
    assert cut_at(setup, text(*(words[at : at + 3] for at in range(0, len(words), 3)), "worse.")) is not None
    assert time.process_time() - began < 3
    assert {report.split()[2] for report in setup.reports} == {one.path for one in slow}
    assert len(setup.reports) == len(slow)


def test_a_rule_that_is_switched_off_in_one_block_is_not_checked_in_another() -> None:
    setup = RulesSetup(rule(r"(a|aa)+\1b", "slow"))
    watch = setup.watch()
    for index in range(3):
        watch.check_for_cut(TextStart(content_index=index))
    for index in range(3):
        watch.check_for_cut(TextDelta(content_index=index, delta="a" * 300))
    assert len(setup.reports) == 1


_atoms = st.sampled_from([r"a", r"[ab]", r"\w", r".", r"(?:a|aa)", r"(\w)\1?", r"(?=a*b)", r"\b", " "])
_repeated = st.builds(lambda atom, times: f"(?:{atom}){times}", _atoms, st.sampled_from(["+", "*", "+?", "{1,40}"]))
_expensive_conditions = st.lists(_atoms | _repeated, min_size=1, max_size=5).flatmap(
    lambda parts: st.sampled_from(["(?:{})+c", "(?:(?:{})+)+c", "{}c", "^(?:{})*?c$", "(?:{}){{30}}c"]).map(
        lambda form: form.format("".join(parts))
    )
)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(_expensive_conditions, min_size=1, max_size=20),
    st.text("ab ", min_size=20, max_size=200),
    st.integers(1, 50),
)
def test_no_rules_take_more_time_than_an_answer_has(conditions: list[str], words: str, size: int) -> None:
    compiled = []
    for one in (rule(condition, str(number)) for number, condition in enumerate(conditions)):
        with suppress(ValueError):
            compiled.append(CompiledRule(one))
    watch = RuleWatch(compiled, RulesSetup().rules, seconds=0.02)
    answer = (words * 100)[:2000]
    events = text(*(answer[at : at + size] for at in range(0, len(answer), size)))
    began = time.thread_time()
    for event in events:
        watch.check_for_cut(event)
    # Twice the budget, what grows with the text, and one search that may have been too long.
    assert time.thread_time() - began < 2 * 0.02 + 2000 * SECONDS_PER_CHARACTER + LONGEST_SEARCH + 0.5


@given(st.lists(st.text(), max_size=8))
def test_a_plain_word_is_found_if_and_only_if_it_is_there(deltas: list[str]) -> None:
    assert cuts(rule("ab"), text(*deltas)) is ("ab" in "".join(deltas))
    CompiledRule(rule("ab"))


async def test_the_answer_is_cut_in_the_stream(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    reply = {"blocks": [{"type": "text", "text": "this is bad and goes on and on", "repeat": 50}], "hang": True}
    script.write_text(json.dumps({"replies": [reply], "chunk": 4}))
    setup = RulesSetup(rule())
    asked = ModelRequest(model=make_scripted_model(str(script), str), system_prompt="", messages=[SAID], tools=[])

    async def keep_message(message: Message) -> Message:
        return message

    answer = AnswerStream(asked, setup.publish, lambda: 1, keep_message, (setup.watch(),))
    message = await answer.stream(ScriptedModel(str), Scope())
    assert answer.cut
    assert message.stop_reason == "aborted"
    kinds = [type(event) for event in setup.published]
    assert kinds[-3:] == [TtsrTriggered, MessageUpdate, MessageEnd]
    assert await setup.names_given() == ["r"]
