"""From entries to what a model sees: valid after every entry, whatever came before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pigeon.agent.inference import ModelMessage
from pigeon.providers.history.normalize import CallIds, normalize_messages
from pigeon.session.context.transcript import (
    CAME_BACK,
    COMPACTED,
    NO_IMAGES,
    Transcript,
    context_of,
    estimate_branch_tokens,
    format_bash_execution,
    strip_images,
    to_model_messages,
    used_tokens,
    visible_entries,
)
from pigeon.session.history.entry_line import EntryLine, line_from_bytes
from pigeon.session.history.journal import Journal, append_missing_results
from pigeon.session.history.reading import load_session
from pigeon.wire import codec
from pigeon.wire.base import ABSENT
from pigeon.wire.content import TextContent, ToolCall, text_of
from pigeon.wire.entries import BranchSummaryEntry, CompactionEntry, ContextEdit, CustomMessageEntry
from pigeon.wire.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    ToolResultMessage,
    UserMessage,
)
from pigeon.wire.model import Cost, Usage
from support.model_requests import PNG, a_model, assistant_message, tool_result, user_message
from support.sessions import NOW, RECORDED, recorded_session_names, user
from support.strategies import STORIES, apply_step, empty_journal, journal_of

OTHER = a_model(id="m-2", provider="there")


def must_be_valid(messages: list[ModelMessage]) -> None:
    """As providers want it: every call has its result right behind it, and there is no other result."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            assert message.tool_call_id in waiting
            waiting.remove(message.tool_call_id)
            continue
        assert waiting == []
        if isinstance(message, AssistantMessage):
            assert message.stop_reason not in ("error", "aborted")
            waiting = [block.id for block in message.content if isinstance(block, ToolCall)]
            assert len(set(waiting)) == len(waiting)
    assert waiting == []


def messages_sent(branch: list[EntryLine], model: Any = None) -> list[ModelMessage]:
    return normalize_messages(
        to_model_messages(context_of(branch)), model or a_model(), CallIds(lambda name, same: name)
    )


@given(STORIES)
def test_every_prefix_of_a_journal_is_valid_for_a_model(story: list[Any]) -> None:
    journal = empty_journal()
    for step in story:
        apply_step(journal, step)
        must_be_valid(messages_sent(journal.branch))
        must_be_valid(messages_sent(journal.branch, OTHER))


@given(STORIES)
def test_after_reopening_no_call_of_the_last_answer_is_open(story: list[Any]) -> None:
    journal = journal_of(story)
    append_missing_results(journal, NOW)
    assert append_missing_results(journal, NOW) == 0
    must_be_valid(messages_sent(journal.branch))


@pytest.mark.parametrize("name", recorded_session_names())
def test_every_prefix_of_a_recorded_session_is_valid(name: str) -> None:
    loaded = load_session(str(RECORDED / name))
    assert loaded is not None
    for end in range(len(loaded.lines) + 1):
        journal = Journal("x", "/", b"", None, lambda: NOW)
        journal.load(type(loaded)(loaded.header, b"", loaded.lines[:end], False, False))
        must_be_valid(messages_sent(journal.branch))
        append_missing_results(journal, NOW)
        must_be_valid(messages_sent(journal.branch))


@settings(max_examples=50)
@given(STORIES)
def test_what_is_known_is_extended_to_the_same_as_anew(story: list[Any]) -> None:
    journal = empty_journal()
    current = Transcript(journal)
    for number, step in enumerate(story):
        apply_step(journal, step)
        anew = visible_entries(journal.branch)
        if number % 3:
            assert [line.id for line in current.visible_entries.lines] == [line.id for line in anew.lines]
        if number % 2:
            assert current.context == anew.messages()
        if number % 5 == 0:
            assert current.model_messages == to_model_messages(anew.messages())
    assert current.context == context_of(journal.branch)
    assert current.model_messages == to_model_messages(current.context)


@settings(max_examples=50)
@given(STORIES, st.integers(1, 4))
def test_what_is_read_ahead_in_steps_is_the_same_as_read_at_once(story: list[Any], most: int) -> None:
    journal = journal_of(story)
    ahead = Transcript(journal)
    while ahead.parse_more_ahead(most):
        pass
    assert ahead.context == context_of(journal.branch)
    assert ahead.model_messages == to_model_messages(ahead.context)


def test_what_was_said_is_the_very_same_each_time() -> None:
    journal = empty_journal()
    current = Transcript(journal)
    apply_step(journal, ("bash", "ls"))
    apply_step(journal, ("user", "hello"))
    first = current.model_messages
    apply_step(journal, ("answer", "hi", [], "stop"))
    assert all(one is other for one, other in zip(first, current.model_messages, strict=False))
    assert len(current.model_messages) == len(first) + 1


@settings(max_examples=50)
@given(STORIES)
def test_a_host_sees_the_same_messages_as_the_model(story: list[Any]) -> None:
    shown = visible_entries(journal_of(story).branch)
    assert len(shown.lines) == len(shown.messages())
    assert [plain(message) for message in map(shown.to_host_message, shown.lines)] == [
        plain(message) for message in shown.messages()
    ]


def plain(record: Any) -> Any:
    return json.loads(codec.encode(record))


def texts(messages: list[Message]) -> list[str]:
    return [text_of(getattr(message, "content", getattr(message, "summary", ""))) for message in messages]


def journal_with(*texts: str) -> Journal:
    journal = empty_journal()
    for text in texts:
        journal.append_message(user(text))
    return journal


def compact(journal: Journal, first_kept: str, summary: str = "the summary") -> CompactionEntry:
    return journal.append(CompactionEntry, summary=summary, first_kept_entry_id=first_kept, tokens_before=1)


def test_a_compaction_stands_before_what_it_kept() -> None:
    journal = journal_with("one", "two", "three")
    compact(journal, journal.lines[1].id)
    journal.append_message(user("four"))
    assert texts(context_of(journal.branch)) == ["the summary", "two", "three", "four"]


def test_only_the_last_compaction_counts_and_older_ones_in_what_it_kept_say_nothing() -> None:
    journal = journal_with("one", "two")
    compact(journal, journal.lines[1].id, "first summary")
    journal.append_message(user("three"))
    compact(journal, journal.lines[1].id, "second summary")
    assert texts(context_of(journal.branch)) == ["second summary", "two", "three"]


@pytest.mark.parametrize("first_kept", ["nowhere", "own"])
def test_a_compaction_that_kept_nothing_is_all_there_is(first_kept: str) -> None:
    journal = journal_with("one", "two")
    line = {
        "type": "compaction", "id": "own", "parentId": journal.leaf_id, "timestamp": "", "summary": "the summary",
        "firstKeptEntryId": first_kept, "tokensBefore": 1,
    }  # fmt: skip
    kept = line_from_bytes(codec.encode(line))
    assert kept is not None
    assert texts(context_of([*journal.branch, kept])) == ["the summary"]


def test_an_edit_hides_or_replaces_and_the_last_one_wins() -> None:
    journal = journal_with("one", "two", "three")
    one, two, three = (line.id for line in journal.lines)
    journal.append(ContextEdit, target_id=one, replacement=None)
    journal.append(ContextEdit, target_id=two, replacement={"content": "not two"})
    journal.append(ContextEdit, target_id=three, replacement=None)
    journal.append(ContextEdit, target_id=three, replacement={"content": [{"type": "text", "text": "not three"}]})
    assert texts(context_of(journal.branch)) == ["not two", "not three"]


def test_an_edit_that_makes_no_sense_changes_nothing() -> None:
    journal = journal_with("one")
    for replacement in (5, {"content": 5}, {"content": [{"type": "strange"}]}, {}):
        journal.append(ContextEdit, target_id=journal.lines[0].id, replacement=replacement)
        assert texts(context_of(journal.branch)) == ["one"]


def test_a_string_becomes_a_block_where_only_blocks_are_allowed() -> None:
    journal = empty_journal()
    journal.append_message(assistant_message(TextContent(text="long"), ToolCall(id="c1", name="bash", arguments={})))
    journal.append_message(tool_result("c1", "very long"))
    answer, result = (line.id for line in journal.lines)
    journal.append(ContextEdit, target_id=answer, replacement={"content": "short"})
    journal.append(ContextEdit, target_id=result, replacement={"content": "also short"})
    first, second = context_of(journal.branch)
    assert isinstance(first, AssistantMessage)
    assert isinstance(second, ToolResultMessage)
    assert first.content == [TextContent(text="short")]
    assert second.content == [TextContent(text="also short")]


def test_a_custom_message_has_the_time_of_its_entry() -> None:
    journal = empty_journal()
    journal.append(CustomMessageEntry, custom_type="x", content="hello", display=False)
    (message,) = context_of(journal.branch)
    assert message.timestamp == NOW


ODD = {
    "half a character": (b'{"role":"user","content":"a\\ud83d","timestamp":1}', "a\ud83d"),
    "nothing for content": (b'{"role":"assistant","content":null,"api":"a","provider":"p","model":"m","usage":'
        b'{"input":1,"output":1,"cacheRead":0,"cacheWrite":0,"totalTokens":2,"cost":{"input":0,"output":0,'
        b'"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"stop","timestamp":1}', ""),
    "a block of another kind": (
        b'{"role":"user","content":[{"type":"hologram","x":1},{"type":"text","text":"seen"}],"timestamp":1}', "seen"
    ),
    "bytes that are no text": (b'{"role":"user","content":"a\xffb","timestamp":1}', "a\ufffdb"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_a_message_that_is_a_little_odd_is_still_heard(name: str) -> None:
    raw, text = ODD[name]
    line = line_from_bytes(b'{"type":"message","id":"a","parentId":null,"timestamp":"","message":' + raw + b"}")
    assert line is not None
    shown = visible_entries([line])
    assert texts(shown.messages()) == [text]
    assert json.loads(codec.encode(list(map(shown.to_host_message, shown.lines))))[0]["role"] == line.role
    assert json.loads(codec.encode(line.to_host_json()))["id"] == "a"


def test_roles_that_nobody_knows_are_left_out() -> None:
    line = line_from_bytes(
        b'{"type":"message","id":"a","parentId":null,"timestamp":"","message":{"role":"system","content":""}}'
    )
    assert line is not None
    assert visible_entries([line]).lines == []
    assert user_message("x").timestamp == 1


def ran(output: str = "out", **more: Any) -> BashExecutionMessage:
    facts = {"exit_code": 0, "cancelled": False, "truncated": False, "timestamp": 1, **more}
    return BashExecutionMessage(command="ls", output=output, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (ran(), "Ran `ls`\n```\nout\n```"),
        (ran(""), "Ran `ls`\n(no output)"),
        (ran(exit_code=2), "Ran `ls`\n```\nout\n```\n\nCommand exited with code 2"),
        (ran(exit_code=2, cancelled=True), "Ran `ls`\n```\nout\n```\n\n(command cancelled)"),
        (ran(exit_code=ABSENT), "Ran `ls`\n```\nout\n```"),
        (ran(truncated=True), "Ran `ls`\n```\nout\n```"),
        (
            ran(truncated=True, full_output_path="/all"),
            "Ran `ls`\n```\nout\n```\n\n[Output truncated. Full output: /all]",
        ),
        (ran(full_output_path="/all"), "Ran `ls`\n```\nout\n```"),
    ],
)
def test_a_model_reads_how_a_shell_command_ended(message: BashExecutionMessage, text: str) -> None:
    assert format_bash_execution(message) == text


def test_every_kind_of_message_is_said_in_a_role_that_models_know() -> None:
    hidden = ran("secret", exclude_from_context=True)
    messages: list[Any] = [
        user("hello"),
        assistant_message(TextContent(text="hi")),
        tool_result("c1", "done"),
        ran(timestamp=7),
        hidden,
        CustomMessage(custom_type="x", content="a note", display=False, timestamp=8),
        CustomMessage(custom_type="x", content=[PNG], display=False, timestamp=9),
        CompactionSummaryMessage(summary="before", tokens_before=1, timestamp=10),
        BranchSummaryMessage(summary="elsewhere", from_id="x", timestamp=11),
    ]
    converted = to_model_messages(messages)
    assert converted[:3] == messages[:3]
    assert [message.timestamp for message in converted[3:]] == [7, 8, 9, 10, 11]
    assert all(isinstance(message, UserMessage) for message in converted[3:])
    contents = [message.content for message in converted[3:]]
    assert contents[1:3] == [[TextContent(text="a note")], [PNG]]
    assert text_of(contents[3]) == f"{COMPACTED}\n\n<summary>\nbefore\n</summary>"
    assert text_of(contents[4]) == f"{CAME_BACK}\n\n<summary>\nelsewhere\n</summary>"


def test_images_give_way_to_one_note_where_they_are_blocked() -> None:
    note = TextContent(text=NO_IMAGES)
    words = TextContent(text="look")
    plain, several, answer = user("x"), user_message([PNG, PNG, words, PNG]), assistant_message(words)
    plain.content = "as a string"
    shown = strip_images([plain, several, answer, tool_result("c1", PNG)])
    assert [message.content for message in shown] == ["as a string", [note, words, note], [words], [note]]
    assert shown[2] is answer
    assert several.content == [PNG, PNG, words, PNG], "the conversation keeps them"


def test_a_summary_without_words_says_nothing() -> None:
    journal = empty_journal()
    journal.append(BranchSummaryEntry, from_id="root", summary="")
    journal.append(BranchSummaryEntry, from_id="root", summary="there")
    assert texts(context_of(journal.branch)) == ["there"]


def test_a_time_that_cannot_be_read_is_the_beginning_of_time() -> None:
    line = line_from_bytes(
        b'{"type":"custom_message","id":"a","parentId":null,"timestamp":"soon","customType":"x","content":"c","display":true}'
    )
    assert line is not None
    assert context_of([line])[0].timestamp == 0


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (Usage(input=1, output=2, cache_read=4, cache_write=8, total_tokens=99, cost=Cost()), 99),
        (Usage(input=1, output=2, cache_read=4, cache_write=8, cost=Cost()), 15),
    ],
)
def test_the_size_of_an_answer_is_its_total_or_the_sum_of_its_parts(usage: Usage, tokens: int) -> None:
    assert used_tokens(usage) == tokens


def test_the_last_count_that_can_be_trusted_counts_and_the_rest_is_estimated() -> None:
    journal = empty_journal()
    journal.append_message(user("x" * 400))
    assert estimate_branch_tokens(journal.branch) == 100
    journal.append_message(assistant_message(TextContent(text="hi"), tokens=1_000))
    journal.append_message(user("x" * 400))
    assert estimate_branch_tokens(journal.branch) == 1_100
    for stop in ("error", "aborted"):
        journal.append_message(assistant_message(TextContent(text="x" * 40), tokens=5_000, stop_reason=stop))
    assert estimate_branch_tokens(journal.branch) == 1_100, "what failed is never sent"
    journal.append_message(assistant_message(TextContent(text="x" * 40), tokens=0))
    assert estimate_branch_tokens(journal.branch) == 1_110, "a provider that does not count is estimated"
    journal.append(ContextEdit, target_id=journal.lines[0].id, replacement=None)
    assert estimate_branch_tokens(journal.branch) < 200, "a count from before an edit is not trusted"
