"""The chat in words, as a screen reader reads it."""

from __future__ import annotations

import asyncio
import io
import string
from collections.abc import Sequence

import pytest

from fakes.clock import virtually
from pigeon.frontends.terminal.blocks import (
    AnswerText,
    Block,
    ChatHead,
    Notice,
    ShellCard,
    ThinkingText,
    ToolCard,
    UserText,
)
from pigeon.frontends.terminal.inputs import Input, Inputs
from pigeon.frontends.terminal.plain import PlainView
from pigeon.frontends.terminal.transcript import ChatTranscript
from pigeon.frontends.terminal.view import Choice, ChoiceQuestion, Question, TextQuestion

YES_NO = (Choice("yes", "Yes"), Choice("no", "No"))


class Said:
    """A view whose lines are kept; `typed` are the lines of the person."""

    def __init__(self, typed: str = "") -> None:
        self.target = io.StringIO()
        self.inputs: Inputs = asyncio.Queue()
        self.view = PlainView(ChatTranscript(lambda: 0.0), self.inputs, io.StringIO(typed), self.target)

    def lines(self) -> list[str]:
        return self.target.getvalue().splitlines()

    def after(self, *blocks: Block) -> list[str]:
        for block in blocks:
            self.view.show(block)
        return self.lines()


def card(name: str, args: dict[str, str], output: str = "", failed: bool = False, diff: str | None = None) -> ToolCard:
    made = ToolCard("1", name, dict(args), 0.0)
    made.finish(2.0, failed, output, diff)
    return made


async def test_who_speaks_is_named_and_nothing_is_drawn() -> None:
    assert Said().after(
        ChatHead("1.0", "demo/guide", "/work", ["hint"]),
        UserText("hello", 1),
        ThinkingText("hm", 3.0),
        ThinkingText("hm", 0.2),
        AnswerText("Hi **there**, `you`."),
        AnswerText("# More\n\n- one\n- two", first=False),
        Notice("No key", "error"),
        ShellCard("false", "", 1, for_model=False),
    ) == [
        "Pigeon 1.0. Model demo/guide. Folder /work.",
        "Type a message and press Enter. /help lists the commands. Ctrl-C stops the agent, Ctrl-D leaves.",
        "You said with 1 image: hello",
        "Thought for 3.0 s.",
        "Answer: Hi there, you.",
        "Heading: More",
        "- one",
        "- two",
        "Error: No key",
        "Command false, done, exit code 1, only for you.",
    ]


async def test_code_tables_quotes_and_links_are_told_in_words() -> None:
    text = "```py\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> wise\n\n[here](https://x.org) ![p](y.png)"
    assert Said().after(AnswerText(text)) == [
        *("Answer:", "Code, py:", "x = 1", "End of code.", "Table with 1 row:", "a: 1; b: 2", "End of table."),
        *("Quote:", "wise", "End of quote.", "here (https://x.org) image p"),
    ]


@pytest.mark.parametrize(
    ("made", "lines"),
    [
        (
            card("bash", {"command": "ls"}, "a\n\nb\n"),
            ["Tool bash: ls, done after 2.0 s.", "Output:", "a", "b", "End of output."],
        ),
        (
            card("bash", {"command": "ls"}, "no\n\nCommand exited with code 2", True),
            ["Tool bash: ls, failed after 2.0 s, exit code 2.", "Output:", "no", "End of output."],
        ),
        (card("read", {"path": "x"}, "ENOENT: gone", True), ["Tool read: x, failed after 2.0 s: ENOENT: gone"]),
        (
            card("edit", {"path": "x"}, "", diff=" 1 a\n-2 b\n+2 c"),
            [
                "Tool edit: x, done after 2.0 s, 1 line added, 1 line removed.",
                "Removed line 2: b",
                "Added line 2: c",
            ],
        ),
    ],
)
async def test_a_tool_is_one_sentence_and_what_it_gave(made: ToolCard, lines: Sequence[str]) -> None:
    assert Said().after(made) == lines


async def answer_question(question: Question, *typed: str) -> tuple[str | None, list[str]]:
    said = Said("".join(f"{line}\n" for line in typed))
    asking = asyncio.ensure_future(said.view.ask(question))
    await asyncio.sleep(0)
    reading = asyncio.ensure_future(said.view.run())
    answer = await asking
    said.view.leave()
    await reading
    return answer, said.lines()


async def test_a_question_says_how_to_answer_it() -> None:
    answer, lines = await answer_question(ChoiceQuestion("Allow bash?", YES_NO, detail="ls"), "/1")
    assert answer == "yes"
    assert lines == [
        "Question: Allow bash?",
        "ls",
        "/1: Yes",
        "/2: No",
        "Type /1 to /2 and press Enter, or /no to decline, with or without a message.",
    ]


async def test_lines_of_a_message_answer_no_question() -> None:
    question = ChoiceQuestion("Allow bash?", YES_NO)
    lines = [*string.printable[:94].replace("/", ""), "yes", "Yes", "no", "1", "1 2 3", "wait, no", "/help", "/12", ""]
    said = Said("".join(f"{line}\n" for line in [*lines, "/2"]))
    asking = asyncio.ensure_future(said.view.ask(question))
    await asyncio.sleep(0)
    reading = asyncio.ensure_future(said.view.run())
    assert await asking == "no"
    said.view.leave()
    await reading
    sent = [said.inputs.get_nowait() for _ in range(said.inputs.qsize())]
    assert [one for one in sent if one.kind != "leave"] == [Input("send", line) for line in lines if line.strip()]


async def test_a_question_is_declined_with_a_message() -> None:
    said = Said("/no wait for me\nnext\n")
    asking = asyncio.ensure_future(said.view.ask(ChoiceQuestion("Allow bash?", YES_NO)))
    await asyncio.sleep(0)
    reading = asyncio.ensure_future(said.view.run())

    async def next_line() -> Input:
        # The end of the lines may be seen before the first of them is.
        while (given := await said.inputs.get()).kind == "leave":
            pass
        return given

    assert await next_line() == Input("reply", "wait for me")
    assert not asking.done()
    said.view.decline()
    assert await asking is None
    assert await next_line() == Input("send", "next")
    said.view.leave()
    await reading


async def test_one_of_many_is_found_by_a_part_of_its_name() -> None:
    question = ChoiceQuestion("Which?", [Choice(str(n), f"model {n}") for n in range(100, 140)], search=True)
    answer, lines = await answer_question(question, "model 13", "nothing", "7")
    assert answer == "136"
    assert "And 20 more. Type a part of a name to find it." in lines
    assert "nothing is not one of the answers." in lines


async def test_an_empty_line_keeps_a_text_or_cancels() -> None:
    assert (await answer_question(TextQuestion("Name?", "old"), ""))[0] == "old"
    answer, lines = await answer_question(TextQuestion("Name?"), "")
    assert answer is None
    assert lines == ["Question: Name?", "Type your answer and press Enter. An empty line cancels."]


async def test_a_change_that_was_asked_about_is_not_told_again() -> None:
    said = Said()
    asking = asyncio.ensure_future(said.view.ask(ChoiceQuestion("Allow edit x?", YES_NO, diff="+1 a")))
    await asyncio.sleep(0)
    said.view.on_interrupt()
    assert await asking is None
    before = said.lines()
    assert "Added line 1: a" in before
    after = said.after(card("edit", {"path": "x"}, "", diff="+1 a"))
    assert after[len(before) :] == ["Tool edit: x, done after 2.0 s, 1 line added."]


async def test_what_was_typed_just_now_is_not_repeated() -> None:
    said = Said("hello\n")
    await said.view.run()
    assert said.inputs.get_nowait() == Input("send", "hello")
    assert said.after(UserText("hello"), AnswerText("Hi."), UserText("hello")) == ["Answer: Hi.", "You said: hello"]


async def test_no_control_sequence_of_a_text_is_written() -> None:
    evil = "a\x1b[2Jb\x1b]0;t\x07c"
    said = Said()
    blocks: list[Block] = [UserText(evil), AnswerText(evil), Notice(evil), ShellCard(evil, evil)]
    said.after(*blocks, card("bash", {"command": evil}, evil), card(evil, {evil: evil}, evil, diff=f"+1 {evil}"))
    asking = asyncio.ensure_future(said.view.ask(ChoiceQuestion(evil, [Choice("x", evil, hint=evil)], diff=evil)))
    await asyncio.sleep(0)
    said.view.on_interrupt()
    await asking
    assert all(char.isprintable() or char == "\n" for char in said.target.getvalue())


async def test_a_question_without_answers_is_not_asked() -> None:
    said = Said()
    assert await said.view.ask(ChoiceQuestion("Which model?", ())) is None
    assert said.lines() == ["Which model? There is nothing to choose from."]


async def test_a_line_that_was_refused_is_not_read_out_again() -> None:
    said = Said("/modle\n")
    await said.view.run()
    said.view.show(Notice("There is no command /modle", "error"))
    said.view.set_input("/modle")
    said.view.set_input("another")
    assert said.lines() == ["Error: There is no command /modle", "To send it again, type: another"]


async def test_a_table_of_words_and_their_meaning_is_read_as_such() -> None:
    lines = Said().after(AnswerText("| key | |\n|---|---|\n| Enter | send |"))
    assert lines == ["Answer:", "Table with 1 row:", "Enter: send", "End of table."]


def test_a_question_whose_time_is_over_says_so_and_takes_no_later_line() -> None:
    async def story() -> tuple[str | None, Said]:
        said = Said()
        answer = await said.view.ask(ChoiceQuestion("Go on?", YES_NO, seconds=5.0))
        return answer, said

    answer, said = virtually(story())
    assert answer is None
    assert said.lines()[-1] == "The time to answer is over."
