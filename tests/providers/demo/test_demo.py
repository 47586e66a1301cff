from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.agent.inference import BlockGrew, BlockOpened, Finished, Metered, ModelMessage, ModelRequest, ToolSpec
from pigeon.providers.demo.model import DemoModel, answer_to, demo_model
from pigeon.providers.demo.phrases import (
    About,
    Greeting,
    ListFiles,
    Phrase,
    ReadFile,
    ReplaceText,
    RunCommand,
    SearchText,
    Unclear,
    WriteFile,
    phrases_of,
)
from pigeon.providers.scripted.script import Block, CallBlock, TextBlock, ThinkingBlock
from pigeon.wire.content import TextContent, ToolCall
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage
from pigeon.wire.model import ThinkingLevel, zero_usage

BASIC = ("read", "bash", "edit", "write")


def request(*messages: ModelMessage, tools: tuple[str, ...] = BASIC, thinking: ThinkingLevel = "off") -> ModelRequest:
    specs = [ToolSpec(name=name, description="", parameters={"type": "object"}) for name in tools]
    return ModelRequest(model=demo_model(), system_prompt="", messages=list(messages), tools=specs, thinking=thinking)


def user(text: str) -> UserMessage:
    return UserMessage(content=[TextContent(text=text)], timestamp=1)


def called(call: CallBlock) -> AssistantMessage:
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
    ("text", "phrases"),
    [
        ("Hi!", [Greeting()]),
        ("thanks", [Greeting(thanks=True)]),
        ("What can you do?", [About()]),
        ("List the files", [ListFiles()]),
        ("hello, list the files here please.", [ListFiles()]),
        ("What files are in src?", [ListFiles(path="src")]),
        ("read README.md", [ReadFile(path="README.md")]),
        ("what's in `my notes.txt`?", [ReadFile(path="my notes.txt")]),
        ("run `git status`", [RunCommand(command="git status")]),
        ("$ echo hi!", [RunCommand(command="echo hi!")]),
        ('replace "a b" with "c" in f.txt', [ReplaceText(old="a b", new="c", path="f.txt")]),
        ("change x to y in the file f.txt.", [ReplaceText(old="x", new="y", path="f.txt")]),
        ("write hello to notes.txt", [WriteFile(path="notes.txt", content="hello")]),
        ('write "a\\n\\"b\\"" to n', [WriteFile(path="n", content='a\n"b"')]),
        ("create a file called x with the text hello world", [WriteFile(path="x", content="hello world")]),
        ("search for TODO in src", [SearchText(text="TODO", path="src")]),
        ("list the files, then read a.txt", [ListFiles(), ReadFile(path="a.txt")]),
        (
            'read a and replace "then run" with "x" in a',
            [ReadFile(path="a"), ReplaceText(old="then run", new="x", path="a")],
        ),
        ("prove the theorem", [Unclear(text="prove the theorem")]),
        ("fix the bug and run the tests", [Unclear(text="fix the bug and run the tests")]),
        ("", [Unclear(text="")]),
    ],
)
def test_plain_sentences_are_understood(text: str, phrases: list[Phrase]) -> None:
    assert phrases_of(text) == phrases


@given(st.text())
def test_any_text_gets_an_answer(text: str) -> None:
    assert answer_to(request(user(text)))


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
    call = call_in(answer_to(request(user(text), tools=tools)))
    assert (call.name, call.arguments) == (name, arguments)


def test_an_older_edit_tool_gets_its_own_form() -> None:
    old = ToolSpec(name="edit", description="", parameters={"properties": {"path": {}, "oldText": {}, "newText": {}}})
    asked = request(user("replace a with b in n"))
    asked.tools = [old]
    assert call_in(answer_to(asked)).arguments == {"path": "n", "oldText": "a", "newText": "b"}


def test_without_a_fitting_tool_it_says_so() -> None:
    blocks = answer_to(request(user("write a to b"), tools=("read",)))
    assert "tool write" in text_in(blocks)
    assert not any(isinstance(block, CallBlock) for block in blocks)


def test_the_answer_uses_the_result() -> None:
    asked = user("list the files")
    call = call_in(answer_to(request(asked)))
    text = text_in(answer_to(request(asked, called(call), result("a.txt\nb.txt\n"))))
    assert "2 entries" in text
    assert "- b.txt" in text


def test_several_actions_are_done_one_after_the_other() -> None:
    asked = user("list the files, then read a.txt")
    first = call_in(answer_to(request(asked)))
    second = answer_to(request(asked, called(first), result("a.txt")))
    assert call_in(second).name == "read"
    assert "1 entry" in text_in(second)
    last = answer_to(request(asked, called(first), result("a.txt"), called(call_in(second)), result("moo")))
    assert text_in(last) == "a.txt has 1 line:\n\n```\nmoo\n```"


def test_a_failed_tool_ends_the_answer_with_its_reason() -> None:
    asked = user("read x, then read y")
    call = call_in(answer_to(request(asked)))
    blocks = answer_to(request(asked, called(call), result("ENOENT: x", is_error=True)))
    assert "I could not read x" in text_in(blocks)
    assert "ENOENT: x" in text_in(blocks)
    assert not any(isinstance(block, CallBlock) for block in blocks)


def test_results_of_earlier_messages_are_not_told_again() -> None:
    call = call_in(answer_to(request(user("read x"))))
    blocks = answer_to(request(user("read x"), called(call), result("old"), user("read y")))
    assert call_in(blocks).arguments == {"path": "y"}


def test_a_fence_in_a_result_does_not_end_the_block() -> None:
    call = call_in(answer_to(request(user("read x"))))
    text = text_in(answer_to(request(user("read x"), called(call), result("```\ncode\n```"))))
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
    call = call_in(answer_to(request(user(asked))))
    assert text_in(answer_to(request(user(asked), called(call), result(given)))) == answer


def test_what_it_cannot_do_is_said_with_examples() -> None:
    text = text_in(answer_to(request(user("write me a compiler"))))
    assert "do not understand" in text
    assert "list the files" in text


def test_it_thinks_unless_thinking_is_off() -> None:
    assert not any(isinstance(block, ThinkingBlock) for block in answer_to(request(user("hi"))))
    assert isinstance(answer_to(request(user("hi"), thinking="low"))[0], ThinkingBlock)


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
