"""Keys while a question of the agent is open: what can be part of a sentence answers nothing, at any speed.

The whole screen runs here, on a clock that jumps: keys come through a pipe, one by one with pauses between them, or
all at once.
"""

from __future__ import annotations

import asyncio
import string
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input

from fakes.clock import virtually
from pigeon.frontends.terminal.footer import FooterFacts
from pigeon.frontends.terminal.host_questions import PERMISSION_CHOICES, YES_OR_NO
from pigeon.frontends.terminal.inputs import Input, Inputs
from pigeon.frontends.terminal.painting import Painter
from pigeon.frontends.terminal.screen.completion import ChatCompleter
from pigeon.frontends.terminal.screen.input_line import PAUSE_SECONDS
from pigeon.frontends.terminal.screen.screen import Screen
from pigeon.frontends.terminal.transcript import ChatTranscript
from pigeon.frontends.terminal.view import Choice, ChoiceQuestion, Question, TextQuestion
from pigeon.frontends.terminal.widgets import Widgets
from pigeon.system.project_files import ProjectFiles

NOWHERE = "/dev/null/nothing"
ENTER, ESC, UP, DOWN, CTRL_C = "\r", "\x1b", "\x1b[A", "\x1b[B", "\x03"
KINDS = {
    "permission": ChoiceQuestion("Allow bash?", PERMISSION_CHOICES, detail="rm -rf build"),
    "trust": ChoiceQuestion("Do you trust the files?", [*YES_OR_NO, Choice("x", "No")], chosen="x"),
    "confirm": ChoiceQuestion("Fly south?", YES_OR_NO, detail="It is cold."),
    "select": ChoiceQuestion("Which?", [Choice(str(number), f"number {number}") for number in range(40)]),
}
# Each example opens a screen, so none is made smaller.
MOST = settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])
ANY_KIND = st.sampled_from(sorted(KINDS))
# A sentence as a person types it; what begins with a sign is a command, and a backslash before Enter a new line.
SENTENCES = st.text(
    st.characters(exclude_categories=("C", "Z", "M"), exclude_characters="\\/!@") | st.just(" "),
    min_size=1,
    max_size=12,
).map(lambda text: f"a{text.strip()}")
# Seconds between two keys of a person who types.
SPEEDS = st.sampled_from([0.0, 0.05, 0.2, 0.4])


class Typed:
    """A screen and the person in front of it."""

    def __init__(self, pipe: PipeInput, view: Screen, inputs: Inputs) -> None:
        self._pipe = pipe
        self.view = view
        self.inputs = inputs

    async def keys(self, keys: str, gap: float = 0.0) -> None:
        """Press them with so many seconds between two, or all at once."""
        for part in keys if gap else [keys]:
            self._pipe.send_text(part)
            # An Esc waits for a second key for a moment.
            await asyncio.sleep(gap or 0.3)

    async def ask(self, question: Question) -> asyncio.Task[str | None]:
        """Ask, and wait until the question is on the screen."""
        asking = asyncio.ensure_future(self.view.ask(question))
        await self.wait_until_asked()
        return asking

    async def wait_until_asked(self) -> None:
        while not self.view.panel.is_active:  # noqa: ASYNC110 - the clock jumps
            await asyncio.sleep(0.05)

    def sent(self) -> list[Input]:
        """What was sent since the last call."""
        return [self.inputs.get_nowait() for _ in range(self.inputs.qsize())]


@asynccontextmanager
async def in_front_of_a_screen() -> AsyncIterator[Typed]:
    loop = asyncio.get_running_loop()
    inputs: Inputs = asyncio.Queue()
    with create_pipe_input() as pipe, create_app_session(input=pipe):
        files = ProjectFiles(lambda: NOWHERE, {}, NOWHERE)
        view = Screen(
            transcript=ChatTranscript(loop.time),
            facts=FooterFacts(),
            widgets=Widgets(),
            painter=Painter(None),
            now=loop.time,
            inputs=inputs,
            completer=ChatCompleter({}, files, {}),
            history=NOWHERE,
            colours=False,
            is_picture=lambda text: False,
            edit_file=lambda path: False,
        )
        running = asyncio.ensure_future(view.run())
        await view.shown.wait()
        try:
            yield Typed(pipe, view, inputs)
        finally:
            view.leave()
            await running


@pytest.mark.parametrize("kind", KINDS)
def test_no_printable_key_answers(kind: str) -> None:
    async def type_all() -> None:
        async with in_front_of_a_screen() as typed:
            asking = await typed.ask(KINDS[kind])
            for key in string.printable[:95]:
                await typed.keys(key, 0.6)
                assert not asking.done(), key
                await typed.keys(CTRL_C)
            await typed.keys(string.printable[:95])
            assert (asking.done(), typed.view.line.text) == (False, string.printable[:95])
            assert typed.sent() == []
            await typed.keys(CTRL_C + ESC)
            assert await asking is None

    virtually(type_all())


@MOST
@given(ANY_KIND, st.lists(SENTENCES, min_size=1, max_size=4), st.lists(SENTENCES, min_size=1, max_size=3), SPEEDS)
def test_sentences_before_and_after_a_question_are_messages(
    kind: str, before: Sequence[str], after: Sequence[str], gap: float
) -> None:
    """The first ones are typed while the question comes; those after it decline it, the first one in its place."""

    async def talk() -> None:
        async with in_front_of_a_screen() as typed:
            asking = asyncio.ensure_future(typed.view.ask(KINDS[kind]))
            for sentence in before:
                await typed.keys(sentence + ENTER, gap)
            assert not asking.done()
            assert typed.sent() == [Input("send", sentence) for sentence in before]
            await typed.wait_until_asked()
            await asyncio.sleep(PAUSE_SECONDS)
            for number, sentence in enumerate(after):
                await typed.keys(sentence + ENTER, gap)
                assert typed.sent() == [Input("send" if number else "reply", sentence)]
                assert not asking.done()
            typed.view.decline()
            assert await asking is None

    virtually(talk())


@MOST
@given(ANY_KIND, SENTENCES, SENTENCES, SPEEDS)
def test_the_enter_that_ends_a_sentence_begun_before_the_question_sends_it(
    kind: str, begin: str, end: str, gap: float
) -> None:
    async def talk() -> None:
        async with in_front_of_a_screen() as typed:
            await typed.keys(begin, gap)
            asking = await typed.ask(KINDS[kind])
            # Enter is struck twice.
            await typed.keys(end, gap)
            await typed.keys(ENTER, 0.1)
            await typed.keys(ENTER, 0.1)
            # A further sentence, without having looked up.
            await typed.keys("a" + end + ENTER, gap)
            assert typed.sent() == [Input("send", begin + end), Input("send", "a" + end)]
            assert not asking.done()
            await asyncio.sleep(PAUSE_SECONDS)
            await typed.keys(ENTER)
            assert await asking == (KINDS[kind].chosen or KINDS[kind].choices[0].value)

    virtually(talk())


@MOST
@given(ANY_KIND, st.lists(SENTENCES | st.just(""), min_size=2, max_size=5).filter(any))
def test_text_that_is_pasted_without_marks_waits_for_its_last_enter(kind: str, lines: Sequence[str]) -> None:
    text = "\n".join([*lines, "end"])

    async def paste() -> None:
        async with in_front_of_a_screen() as typed:
            asking = await typed.ask(KINDS[kind])
            await typed.keys(text.replace("\n", ENTER))
            assert (asking.done(), typed.view.line.text, typed.sent()) == (False, text, [])
            await typed.keys(CTRL_C)
            await typed.keys(f"\x1b[200~{text}\n\n\x1b[201~")
            assert (asking.done(), typed.view.line.text.strip("\n"), typed.sent()) == (False, text.strip("\n"), [])
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking

    virtually(paste())


@MOST
@given(SENTENCES, SENTENCES, SPEEDS)
def test_a_text_is_asked_for_when_the_message_is_sent(begin: str, end: str, gap: float) -> None:
    async def talk() -> None:
        async with in_front_of_a_screen() as typed:
            await typed.keys(begin, gap)
            asking = asyncio.ensure_future(typed.view.ask(TextQuestion("Name?", "Pi")))
            await asyncio.sleep(5)
            await typed.keys(end + ENTER, gap)
            assert typed.sent() == [Input("send", begin + end)]
            await typed.wait_until_asked()
            await typed.keys("a/b", 0.1)
            await typed.keys(ENTER)
            assert typed.sent() == []
            assert await asking == "Pia/b"
            assert typed.view.line.list_history(9) == [begin + end]

    virtually(talk())


def test_enter_takes_the_selected_answer_and_an_open_question_leaves_commands_alone() -> None:
    async def talk() -> None:
        async with in_front_of_a_screen() as typed:
            for keys, value in (
                (ENTER, "allow"),
                (DOWN + ENTER, "always"),
                (UP + ENTER, "deny"),
                (DOWN + UP + UP + UP + ENTER, "always"),
                ("\t" + ENTER, "always"),
                (ESC, None),
                (CTRL_C, None),
                ("\x04", None),
            ):
                asking = await typed.ask(KINDS["permission"])
                await typed.keys(keys)
                assert await asking == value, keys
            asking = await typed.ask(KINDS["permission"])
            for line in ("/help", "!ls", "/skill:nest now"):
                await typed.keys(line + ENTER)
                assert typed.sent() == [Input("send", line)]
            await typed.keys("   " + ENTER)
            assert (typed.view.line.text, asking.done(), typed.sent()) == ("", False, [])
            await typed.keys("draft" + ESC)
            assert await asking is None
            assert typed.view.line.text == "draft"

    virtually(talk())


def test_the_enter_that_answers_a_question_does_not_answer_the_next_one() -> None:
    async def talk() -> None:
        async with in_front_of_a_screen() as typed:
            first = await typed.ask(KINDS["permission"])
            second = asyncio.ensure_future(typed.view.ask(KINDS["permission"]))
            await typed.keys(ENTER * 30, 0.03)
            assert (await first, second.done()) == ("allow", False)
            await typed.wait_until_asked()
            second.cancel()
            with suppress(asyncio.CancelledError):
                await second
            assert not typed.view.panel.is_active

    virtually(talk())


def test_of_many_answers_the_keys_reach_all() -> None:
    async def talk() -> None:
        async with in_front_of_a_screen() as typed:
            for keys, value in (
                ("\x1b[6~" * 2, "20"),
                ("\x1b[6~" * 9, "39"),
                (UP, "39"),
                ("\x1b[6~\x1b[5~" + DOWN, "1"),
            ):
                asking = await typed.ask(KINDS["select"])
                await typed.keys(keys + ENTER)
                assert await asking == value

    virtually(talk())


def test_a_question_that_nobody_answers_in_its_time_ends_also_while_the_person_writes() -> None:
    async def talk() -> None:
        async with in_front_of_a_screen() as typed:
            await typed.keys("draft")
            asking = asyncio.ensure_future(typed.view.ask(TextQuestion("Name?", seconds=20)))
            await asyncio.sleep(30)
            assert await asking is None
            assert (typed.view.line.text, typed.view.panel.is_active) == ("draft", False)

    virtually(talk())
