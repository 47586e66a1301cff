"""The chat in plain lines: nothing is drawn over, nothing moves. For screen readers, simple terminals and slow lines.

Everything is written in words, in the order in which it happens, and each speaker is named. A line is sent with Enter,
also while the agent works. An agent's question is answered by a slash and a number, so that no line of a message is an
answer; a list that the person asked for by a number or a name. Each explains how.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import singledispatchmethod
from typing import TextIO

from pigeon.frontends.cleaning import clean_text
from pigeon.frontends.terminal.blocks import (
    AnswerText,
    BackgroundOutput,
    Block,
    ChatHead,
    Notice,
    ShellCard,
    ThinkingText,
    ToolCard,
    UserText,
)
from pigeon.frontends.terminal.content.spoken import spoken_diff, spoken_markdown
from pigeon.frontends.terminal.content.tool_details import (
    ToolDetails,
    details_of,
    first_line,
    first_words,
    format_count,
    tail_of_output,
)
from pigeon.frontends.terminal.inputs import Input, Inputs
from pigeon.frontends.terminal.live_parts import SHELL_NAME
from pigeon.frontends.terminal.painting import SHELL_LINES
from pigeon.frontends.terminal.transcript import ChatTranscript
from pigeon.frontends.terminal.view import Choice, ChoiceQuestion, Question, TextQuestion, find_by_key
from pigeon.system.clock import duration_text

LISTED = 20
# A tool that takes longer than this is announced; a quick one is only reported when it has ended.
ANNOUNCED_SECONDS = 3.0
AND_MORE = "and more"
DECLINE = "/no"
HOW_TO = "Type a message and press Enter. /help lists the commands. Ctrl-C stops the agent, Ctrl-D leaves."
NOTICE_WORDS = {"error": "Error: ", "warning": "Warning: ", "info": "", "faint": ""}


class PlainView:
    """Writes lines and reads lines."""

    def __init__(self, transcript: ChatTranscript, inputs: Inputs, source: TextIO, target: TextIO) -> None:
        self._transcript = transcript
        self._inputs = inputs
        self._source = source
        self._target = target
        # The lines that were typed while a question is open; None declines it.
        self._answers: asyncio.Queue[str | None] | None = None
        self._turn = asyncio.Lock()
        self._told = ""
        self._queued: list[str] = []
        # The line that was typed last, which is cleared once anything was printed after it, and the line typed before.
        self._line_before = self._typed_last = ""
        self._asked = ""
        self._announced: set[str] = set()
        self._running: set[str] = set()
        self._left = asyncio.Event()
        self.shown = asyncio.Event()

    # Output

    def show(self, block: Block) -> None:
        lines = self._describe_block(block)
        if lines:
            self._typed_last = ""
            self._print_line("\n".join(lines))

    @singledispatchmethod
    def _describe_block(self, block: Block) -> Sequence[str]:
        raise TypeError(f"no words for {block!r}")

    @_describe_block.register(UserText)
    def _user_words(self, block: UserText) -> Sequence[str]:
        # The line above already has what was typed just now.
        if block.text.strip() == self._typed_last.strip() and not block.images:
            return []
        images = f" with {format_count(block.images, 'image')}" if block.images else ""
        return [f"You said{images}: {clean_text(block.text).strip()}"]

    @_describe_block.register(AnswerText)
    def _answer_words(self, block: AnswerText) -> Sequence[str]:
        lines = spoken_markdown(block.text)
        if not block.first or not lines:
            return lines
        return ["Answer:", *lines] if len(lines) > 1 else [f"Answer: {lines[0]}"]

    @_describe_block.register(ThinkingText)
    def _thinking_words(self, block: ThinkingText) -> Sequence[str]:
        return (
            []
            if block.seconds is None or block.seconds < 1
            else [f"Thought for {duration_text(block.seconds, tenths=True)}."]
        )

    @_describe_block.register(ToolCard)
    def _tool_words(self, block: ToolCard) -> Sequence[str]:
        details = details_of(block, AND_MORE)
        how = "failed" if block.failed else "done"
        if block.seconds is not None and block.seconds >= 1:
            how += f" after {duration_text(block.seconds, tenths=True)}"
        facts = [fact for fact in (details.reason, details.note) if fact]
        changed = {"added": details.added, "removed": details.removed}
        facts += [f"{format_count(number, 'line')} {verb}" for verb, number in changed.items() if number]
        # Details that were printed when the call began are not repeated.
        about = "" if block.call_id in self._running else details.about
        called = f"Tool {clean_text(block.name)}{': ' if about else ''}{about}"
        title = ", ".join([called, how, *facts])
        if block.failed and not facts and len(details.lines) == 1:
            return [f"{title}: {details.lines[0]}"]
        asked, self._asked = self._asked, ""
        if asked and details.about in asked and (details.diff or details.first_number) and not block.failed:
            return [f"{title}."]
        if details.diff:
            return [f"{title}.", *spoken_diff(block.diff or "")]
        return [f"{title}.", *_output_lines("Content" if details.first_number else "Output", details)]

    @_describe_block.register(ShellCard)
    def _shell_words(self, block: ShellCard) -> Sequence[str]:
        code = f", exit code {block.exit_code}" if block.exit_code else ""
        alone = "" if block.for_model else ", only for you"
        lines, before = tail_of_output(block.output, SHELL_LINES)
        title = f"Command {first_line(block.command, AND_MORE)}, done{code}{alone}."
        return [title, *_output_lines("Output", ToolDetails("", lines=lines, before=before))]

    @_describe_block.register(BackgroundOutput)
    def _job_words(self, block: BackgroundOutput) -> Sequence[str]:
        lines, before = tail_of_output(block.output, SHELL_LINES)
        title = f"{first_words(block.title)}, {block.state}."
        return [title, *_output_lines("Output", ToolDetails("", lines=lines or ["none"], before=before))]

    @_describe_block.register(Notice)
    def _notice_words(self, block: Notice) -> Sequence[str]:
        return [NOTICE_WORDS[block.kind] + clean_text(block.text).strip()]

    @_describe_block.register(ChatHead)
    def _head_words(self, block: ChatHead) -> Sequence[str]:
        model = f"Model {clean_text(block.model)}" if block.model else "No model"
        return [f"Pigeon {block.version}. {model}. Folder {clean_text(block.cwd)}.", HOW_TO]

    def refresh(self) -> None:
        """Print what has begun, what waits, and when it is the person's turn."""
        self._print_activity(self._transcript.activity)
        for text in self._transcript.queued:
            if text not in self._queued:
                self._print_line("Your message is queued until the agent's next break.")
        self._queued = list(self._transcript.queued)
        for card in self._transcript.cards:
            if card.call_id not in self._announced:
                self._announced.add(card.call_id)
                asyncio.get_running_loop().call_later(ANNOUNCED_SECONDS, self._announce_call, card)

    def _print_activity(self, activity: str) -> None:
        if activity == self._told:
            return
        if not activity:
            self._print_line("Ready.")
        elif activity.startswith(("Compacting", "Trying")):
            self._print_line(f"{activity}.")
        self._told = activity

    def _announce_call(self, card: ToolCard) -> None:
        if card.is_running and not self._left.is_set():
            self._running.add(card.call_id)
            called = "Command" if card.name == SHELL_NAME else f"Tool {clean_text(card.name)}:"
            way = " /background lets it run in the background." if card is self._transcript.running_command else ""
            self._print_line(f"{called} {details_of(card, AND_MORE).about}, running.{way}")

    # Questions

    async def ask(self, question: Question) -> str | None:
        async with self._turn:
            if not isinstance(question, TextQuestion) and not question.choices:
                self._print_line(f"{clean_text(question.title)} There is nothing to choose from.")
                return None
            self._print_question(question)
            answers = self._answers = asyncio.Queue()
            try:
                async with asyncio.timeout(question.seconds):
                    return await self._wait_for_answer(question, answers)
            except TimeoutError:
                self._print_line("The time to answer is over.")
                return None
            finally:
                self._answers = None
                while not answers.empty():
                    self._on_line(answers.get_nowait() or "")

    def _print_question(self, question: Question) -> None:
        title = clean_text(question.title)
        if isinstance(question, TextQuestion):
            self._print_line(f"Question: {title}")
            if question.text:
                self._print_line(f"It is now: {clean_text(question.text)}")
            kept = "keeps it" if question.text else "cancels"
            self._print_line(f"Type your answer and press Enter. An empty line {kept}.")
            return
        detail = clean_text(question.detail).rstrip()
        if question.diff:
            # The proposed change is not printed again after it was made.
            self._asked = title
            detail = "\n".join(spoken_diff(question.diff)) or clean_text(question.diff).rstrip()
        self._print_line(f"Question: {title}")
        if detail:
            self._print_line(detail)
        if question.search:
            self._print_list(question.choices)
        else:
            self._print_answers(question.choices)

    def _print_answers(self, choices: Sequence[Choice]) -> None:
        for number, one in enumerate(choices, 1):
            self._print_line(f"/{number}: {_describe_choice(one)}")
        self._print_how_to_answer(choices)

    def _print_how_to_answer(self, choices: Sequence[Choice]) -> None:
        numbers = "/1" if len(choices) == 1 else f"/1 to /{len(choices)}"
        self._print_line(f"Type {numbers} and press Enter, or {DECLINE} to decline, with or without a message.")

    def _print_list(self, choices: Sequence[Choice]) -> None:
        for number, one in enumerate(choices[:LISTED], 1):
            self._print_line(f"{number}: {_describe_choice(one)}")
        if len(choices) > LISTED:
            self._print_line(f"And {len(choices) - LISTED} more. Type a part of a name to find it.")
        if any(one.key for one in choices):
            self._print_line("Type y or n and press Enter. An empty line means the first answer.")
        else:
            self._print_line("Type a number and press Enter. An empty line means no.")

    async def _wait_for_answer(self, question: Question, answers: asyncio.Queue[str | None]) -> str | None:
        if isinstance(question, TextQuestion):
            given = await answers.get()
            return None if given is None else (given or question.text or None)
        if question.search:
            return await self._wait_for_listed_choice(list(question.choices), answers)
        return await self._wait_for_choice(question.choices, answers)

    async def _wait_for_choice(self, choices: Sequence[Choice], answers: asyncio.Queue[str | None]) -> str | None:
        """The value of an answer like "/1". Other lines are messages: their writing may have begun before the
        question."""
        while True:
            given = await answers.get()
            if given is None:
                return None
            word, _, message = given.strip().partition(" ")
            if word == DECLINE:
                if message:
                    self._inputs.put_nowait(Input("reply", message.strip()))
                    while (line := await answers.get()) is not None:
                        self._send_line(line)
                return None
            number = word.removeprefix("/")
            if word != number and not message and number.isdecimal() and 1 <= int(number) <= len(choices):
                return choices[int(number) - 1].value
            if word:
                self._send_line(given)
                self._print_line("The question is still open.")
            self._print_how_to_answer(choices)

    async def _wait_for_listed_choice(self, choices: list[Choice], answers: asyncio.Queue[str | None]) -> str | None:
        while True:
            given = await answers.get()
            word = (given or "").strip().lower()
            if given is not None and choices[0].key and not word:
                return choices[0].value
            if not word:
                return None
            if (value := find_by_key(ChoiceQuestion("", choices), word)) is not None:
                return value
            found = _matching_choices(choices, word)
            if len(found) == 1:
                return found[0].value
            if found:
                self._print_list(choices := found)
            else:
                self._print_line(f"{clean_text(word)} is not one of the answers.")

    def decline(self) -> None:
        if self._answers is not None:
            self._answers.put_nowait(None)

    # The rest of `View`

    def set_input(self, text: str) -> None:
        """Print the text: a line that is being typed cannot be changed."""
        if text and text != self._line_before:
            self._print_line(f"To send it again, type: {clean_text(text)}")

    def prepend_input(self, text: str) -> None:
        """Print a text that did not reach the agent: unlike a refused line, it would be lost unseen."""
        self._print_line(f"Not sent to the agent: {clean_text(text)}")

    def set_title(self, title: str) -> None:
        """Does nothing: there is no window to name."""

    def send_control(self, sequence: str) -> None:
        """Does nothing: only text is written."""

    def clear(self) -> None:
        """Does nothing: printed lines cannot be removed."""

    def leave(self) -> None:
        """End the chat and stop reading lines."""
        self._inputs.put_nowait(Input("leave"))
        self._left.set()

    async def run(self) -> None:
        """Read lines until `leave` or the end of the input."""
        loop = asyncio.get_running_loop()

        def read_lines() -> None:
            # A separate thread: the terminal edits the line, which may never end. A loop that is closed by then refuses
            # the line: the chat is over.
            with suppress(RuntimeError):
                for line in self._source:
                    loop.call_soon_threadsafe(self._on_line, line.rstrip("\n"))
                loop.call_soon_threadsafe(self.leave)

        threading.Thread(target=read_lines, daemon=True, name="pigeon-lines").start()
        self.shown.set()
        await self._left.wait()

    def _on_line(self, line: str) -> None:
        if self._answers is not None:
            self._answers.put_nowait(line)
        elif line.strip():
            self._send_line(line)

    def _send_line(self, line: str) -> None:
        self._typed_last = self._line_before = line
        self._inputs.put_nowait(Input("send", line))

    def on_interrupt(self) -> None:
        """Ctrl-C: stop the agent, or leave if it is idle."""
        if self._answers is not None:
            self._answers.put_nowait(None)
        elif self._transcript.activity:
            self._inputs.put_nowait(Input("stop"))
        else:
            self.leave()

    def _print_line(self, text: str) -> None:
        self._target.write(text + "\n")
        self._target.flush()


def _output_lines(what: str, details: ToolDetails) -> list[str]:
    lines = [line for line in details.lines if line.strip()]
    if not lines:
        return []
    total = details.before + len(details.lines)
    title = (
        f"{what}, the last {format_count(len(details.lines), 'line')} of {total:,}:" if details.before else f"{what}:"
    )
    rest = [f"And {format_count(details.after, 'more line')}."] if details.after else []
    return [title, *lines, *rest, f"End of {what.lower()}."]


def _describe_choice(choice: Choice) -> str:
    hint = f", {clean_text(choice.hint)}" if choice.hint else ""
    return f"{clean_text(choice.label).strip()}{hint}"


def _matching_choices(choices: Sequence[Choice], word: str) -> list[Choice]:
    """The choice of that number or label; else those whose label contains the word."""
    for number, one in enumerate(choices, 1):
        if word in (str(number), one.label.strip().lower()):
            return [one]
    return [one for one in choices if len(word) > 1 and word in f"{one.label} {one.hint}".lower()]
