from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.agent.inference import BlockGrew, BlockOpened, Finished, Metered, ModelMessage, ModelRequest, ToolSpec
from pigeon.providers.demo.model import DemoModel, build_answer, make_demo_model
from pigeon.providers.demo.phrases import DemoReply, DemoStep, phrases_of
from pigeon.providers.scripted.script import Block, CallBlock, TextBlock, ThinkingBlock
from pigeon.wire.content import TextContent, ToolCall
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage
from pigeon.wire.model import ThinkingLevel, zero_usage

BASIC = ("read", "bash", "edit", "write")


def request(*messages: ModelMessage, tools: tuple[str, ...] = BASIC, thinking: ThinkingLevel = "off") -> ModelRequest:
    specs = [ToolSpec(name=name, description="", parameters={"type": "object"}) for name in tools]
    return ModelRequest(
        model=make_demo_model(), system_prompt="", messages=list(messages), tools=specs, thinking=thinking
    )


def user(text: str) -> UserMessage:
    return UserMessage(content=[TextContent(text=text)], timestamp=1)


def message_with_call(call: CallBlock) -> AssistantMessage:
    return AssistantMessage(
        content=[ToolCall(id="c", name=call.name, arguments=call.arguments)],
        api="demo",
        provider="demo",
        model="guide",
        usage=zero_usage(),
        stop_reason="toolUse",
        timestamp=1,
    )


def result(text: str, is_error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(
        tool_call_id="c", tool_name="t", content=[TextContent(text=text)], is_error=is_error, timestamp=1
    )


def call_in(blocks: list[Block]) -> CallBlock:
    return next(block for block in blocks if isinstance(block, CallBlock))


def text_in(blocks: list[Block]) -> str:
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("List the files", [("list", {})]),
        ("hello, list the files here please.", [("list", {})]),
        ("What files are in src?", [("list", {"path": "src"})]),
        ("read README.md", [("read", {"path": "README.md"})]),
        ("what's in `my notes.txt`?", [("read", {"path": "my notes.txt"})]),
        ("run `git status`", [("run", {"command": "git status"})]),
        ("$ echo hi!", [("run", {"command": "echo hi!"})]),
        ('replace "a b" with "c" in f.txt', [("replace", {"old": "a b", "new": "c", "path": "f.txt"})]),
        ("change x to y in the file f.txt.", [("replace", {"old": "x", "new": "y", "path": "f.txt"})]),
        ("write hello to notes.txt", [("write", {"path": "notes.txt", "content": "hello"})]),
        ('write "a\\n\\"b\\"" to n', [("write", {"path": "n", "content": 'a\n"b"'})]),
        ("create a file called x with the text hello world", [("write", {"path": "x", "content": "hello world"})]),
        ("search for TODO in src", [("search", {"text": "TODO", "path": "src"})]),
        ("list the files, then read a.txt", [("list", {}), ("read", {"path": "a.txt"})]),
        (
            'read a and replace "then run" with "x" in a',
            [("read", {"path": "a"}), ("replace", {"old": "then run", "new": "x", "path": "a"})],
        ),
    ],
)
def test_plain_sentences_are_understood(text: str, steps: list[tuple[str, dict[str, str]]]) -> None:
    phrases = [phrase for phrase in phrases_of(text) if isinstance(phrase, DemoStep)]
    assert [(step.action.name, step.named) for step in phrases] == steps


@pytest.mark.parametrize(
    ("text", "beginning", "is_understood"),
    [
        ("Hi!", "Hello! I am the demo model", True),
        ("thanks", "You are welcome.", True),
        ("What can you do?", "I am the demo model", True),
        ("prove the theorem", 'I do not understand "prove the theorem". ', False),
        ("fix the bug and run the tests", 'I do not understand "fix the bug and run the tests". ', False),
        ("", "I was not asked anything. ", False),
    ],
)
def test_other_sentences_are_answered_without_a_tool(text: str, beginning: str, is_understood: bool) -> None:
    (reply,) = phrases_of(text)
    assert isinstance(reply, DemoReply)
    assert reply.text.startswith(beginning)
    assert reply.is_understood == is_understood


@given(st.text())
def test_any_text_gets_an_answer(text: str) -> None:
    assert build_answer(request(user(text)))


@pytest.mark.parametrize(
    ("text", "tools", "name", "arguments"),
    [
        ("list the files", BASIC, "bash", {"command": "ls -A ."}),
        ("list the files in src", ("ls", "bash"), "ls", {"path": "src"}),
        ("read a.txt", BASIC, "read", {"path": "a.txt"}),
        ("read 'it is'", ("bash",), "bash", {"command": "cat 'it is'"}),
        ("run `true`", BASIC, "bash", {"command": "true"}),
        ("write hi to n.txt", BASIC, "write", {"path": "n.txt", "content": "hi\n"}),
        ("replace a with b in n", BASIC, "edit", {"path": "n", "edits": [{"oldText": "a", "newText": "b"}]}),
        ("search for a.b", ("grep",), "grep", {"pattern": "a\\.b", "path": "."}),
    ],
)
def test_an_action_becomes_a_call_of_an_offered_tool(
    text: str, tools: tuple[str, ...], name: str, arguments: dict[str, object]
) -> None:
    call = call_in(build_answer(request(user(text), tools=tools)))
    assert (call.name, call.arguments) == (name, arguments)


def test_an_older_edit_tool_gets_its_own_form() -> None:
    old = ToolSpec(name="edit", description="", parameters={"properties": {"path": {}, "oldText": {}, "newText": {}}})
    asked = request(user("replace a with b in n"))
    asked.tools = [old]
    assert call_in(build_answer(asked)).arguments == {"path": "n", "oldText": "a", "newText": "b"}


def test_without_a_fitting_tool_it_says_so() -> None:
    blocks = build_answer(request(user("write a to b"), tools=("read",)))
    assert "tool write" in text_in(blocks)
    assert not any(isinstance(block, CallBlock) for block in blocks)


def test_the_answer_uses_the_result() -> None:
    asked = user("list the files")
    call = call_in(build_answer(request(asked)))
    text = text_in(build_answer(request(asked, message_with_call(call), result("a.txt\nb.txt\n"))))
    assert "2 entries" in text
    assert "- b.txt" in text


def test_several_actions_are_done_one_after_the_other() -> None:
    asked = user("list the files, then read a.txt")
    first = call_in(build_answer(request(asked)))
    second = build_answer(request(asked, message_with_call(first), result("a.txt")))
    assert call_in(second).name == "read"
    assert "1 entry" in text_in(second)
    last = build_answer(
        request(asked, message_with_call(first), result("a.txt"), message_with_call(call_in(second)), result("moo"))
    )
    assert text_in(last) == "a.txt has 1 line:\n\n```\nmoo\n```"


def test_a_failed_tool_ends_the_answer_with_its_reason() -> None:
    asked = user("read x, then read y")
    call = call_in(build_answer(request(asked)))
    blocks = build_answer(request(asked, message_with_call(call), result("ENOENT: x", is_error=True)))
    assert "I could not read x" in text_in(blocks)
    assert "ENOENT: x" in text_in(blocks)
    assert not any(isinstance(block, CallBlock) for block in blocks)


def test_results_of_earlier_messages_are_not_told_again() -> None:
    call = call_in(build_answer(request(user("read x"))))
    blocks = build_answer(request(user("read x"), message_with_call(call), result("old"), user("read y")))
    assert call_in(blocks).arguments == {"path": "y"}


def test_a_fence_in_a_result_does_not_end_the_block() -> None:
    call = call_in(build_answer(request(user("read x"))))
    text = text_in(build_answer(request(user("read x"), message_with_call(call), result("```\ncode\n```"))))
    assert text.endswith("````\n```\ncode\n```\n````")


@pytest.mark.parametrize(
    ("asked", "given", "answer"),
    [
        ("read x", "1\n" * 20, "x has 20 lines:\n\n```\n" + "1\n" * 20 + "```"),
        ("read x", "1\n" * 21, "x has 21 lines. It begins:\n\n```\n" + "1\n" * 20 + "…\n```"),
        ("read x", "1" * 2001, f"x has 1 line:\n\n```\n{'1' * 2000}\n…\n```"),
        ("read x", "", "x is empty."),
        ("list the files", "a\n" * 30, "I see 30 entries in this folder:\n\n" + "- a\n" * 29 + "- a"),
        ("list the files", "a\n" * 31, "I see 31 entries in this folder:\n\n" + "- a\n" * 30 + "- and 1 more"),
        ("list the files in src", "(no output)", "There is nothing in src."),
        ("run `true`", "(no output)", "I ran `true`."),
        ("run `id`", "me", "I ran `id`. It printed:\n\n```\nme\n```"),
        ("search for b", "", '"b" is nowhere there.'),
        ("search for b in src", "src/a:1:b", '"b" in src:\n\n```\nsrc/a:1:b\n```'),
    ],
)
def test_a_result_is_told_in_a_sentence_and_of_a_long_one_the_beginning(asked: str, given: str, answer: str) -> None:
    call = call_in(build_answer(request(user(asked))))
    assert text_in(build_answer(request(user(asked), message_with_call(call), result(given)))) == answer


def test_what_it_cannot_do_is_said_with_examples() -> None:
    text = text_in(build_answer(request(user("write me a compiler"))))
    assert "do not understand" in text
    assert "list the files" in text


def test_it_thinks_unless_thinking_is_off() -> None:
    assert not any(isinstance(block, ThinkingBlock) for block in build_answer(request(user("hi"))))
    assert isinstance(build_answer(request(user("hi"), thinking="low"))[0], ThinkingBlock)


async def test_it_streams_small_pieces_and_counts_tokens() -> None:
    asked = request(user("read a.txt"), thinking="high")
    deltas = [delta async for delta in DemoModel(pace_ms=0).stream(asked)]
    again = [delta async for delta in DemoModel(pace_ms=0).stream(asked)]
    assert deltas == again
    grown = [delta for delta in deltas if isinstance(delta, BlockGrew)]
    assert all(len(delta.text) <= 11 for delta in grown)
    opened = [delta for delta in deltas if isinstance(delta, BlockOpened)]
    assert [delta.kind for delta in opened] == ["thinking", "text", "toolCall"]
    assert json.loads("".join(delta.text for delta in grown if delta.index == 2)) == {"path": "a.txt"}
    metered = [delta.usage for delta in deltas if isinstance(delta, Metered)]
    assert metered[0].input == 3
    assert metered[-1].output > 10
    assert isinstance(deltas[-1], Finished)
    assert deltas[-1].stop == "toolUse"
