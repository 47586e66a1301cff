"""The chat on a screen: finished blocks scroll away above; the live part, the input and the footer stay below.

Only the lower part is ever redrawn, so the terminal's own scrolling, searching and copying work on everything above it.
Changes are drawn at most twenty times a second, whatever arrives; a key is drawn at once. Terminals that support
synchronized output get each change as a whole and do not flicker.
"""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from prompt_toolkit.application import Application
from prompt_toolkit.filters import Condition
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.layout import Layout
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.styles import Style

from pigeon.frontends.cleaning import clean_text
from pigeon.frontends.terminal.blocks import Block, Notice
from pigeon.frontends.terminal.footer import FooterFacts
from pigeon.frontends.terminal.inputs import Input, InputKind, Inputs
from pigeon.frontends.terminal.painting import Painter
from pigeon.frontends.terminal.screen.chat_output import ChatApplication, ChatOutput, terminal_size
from pigeon.frontends.terminal.screen.drawing import Drawing
from pigeon.frontends.terminal.screen.input_history import InputHistory
from pigeon.frontends.terminal.screen.input_line import InputLine
from pigeon.frontends.terminal.screen.keys import make_chat_keys, read_typed_ahead
from pigeon.frontends.terminal.screen.live_rows import LiveRows
from pigeon.frontends.terminal.screen.live_view import LiveView
from pigeon.frontends.terminal.screen.question_panel import QuestionPanel
from pigeon.frontends.terminal.screen.question_turns import QuestionTurns
from pigeon.frontends.terminal.screen.screen_layout import ScreenLayout
from pigeon.frontends.terminal.transcript import ChatTranscript
from pigeon.frontends.terminal.view import Choice, ChoiceQuestion, Question
from pigeon.frontends.terminal.widgets import Widgets

if TYPE_CHECKING:
    from pigeon.frontends.terminal.screen.completion import ChatCompleter

TICK_SECONDS = 0.12
TWICE_SECONDS = 2.0
# With fewer rows than this, only the input and the conversation are shown.
ROOMY_ROWS = 8
SEARCHED = 500
LONGEST_ROW = 200
STYLE = {
    "prompt": "bold ansicyan",
    "rule": "dim",
    "footer": "dim",
    "placeholder": "dim",
    "question": "bold",
    "hint": "dim",
    "chosen": "bold ansicyan",
    "completion-menu": "",
    "completion-menu.completion": "bg:default dim",
    "completion-menu.completion.current": "bold ansicyan noreverse bg:default",
    "completion-menu.meta.completion": "bg:default dim",
    "completion-menu.meta.completion.current": "bg:default dim",
}


class Screen:
    """The view that draws the chat with prompt_toolkit."""

    def __init__(  # noqa: PLR0913 - the parts of the screen
        self,
        *,
        transcript: ChatTranscript,
        facts: FooterFacts,
        widgets: Widgets,
        painter: Painter,
        now: Callable[[], float],
        inputs: Inputs,
        completer: ChatCompleter,
        history: str,
        colours: bool,
        is_picture: Callable[[str], bool],
        edit_file: Callable[[str], bool],
    ) -> None:
        self._transcript = transcript
        self._painter = painter
        self._inputs = inputs
        self._is_picture = is_picture
        self._now = now
        self._interrupted = float("-inf")
        self.shown = asyncio.Event()
        self._left = False
        self._tasks: set[asyncio.Task[None]] = set()
        # The terminal is not queried: a missing reply would delay the first line.
        self._output = ChatOutput(sys.stdout, terminal_size, enable_cpr=False)
        self._drawing = Drawing(
            self._output,
            painter,
            LiveView(transcript, painter, now),
            lambda: self.panel.rows if self.panel.is_active else 0,
            lambda: self.app,
        )
        is_roomy = Condition(lambda: self._output.get_size().rows >= ROOMY_ROWS)
        self.line = InputLine(completer, InputHistory(history), now, edit_file)
        show_lines = self._drawing.show_lines
        self.panel = QuestionPanel(
            painter, self.line, self.refresh, self._focus_input, is_roomy, show_lines, lambda: self.width
        )
        self._questions = QuestionTurns(self.panel, self.line, now, self.show)
        rows = LiveRows(self._drawing.live_lines, lambda: self.app.renderer.last_rendered_screen)
        layout = ScreenLayout(self.line, self.panel, facts, widgets, painter.signs, lambda: self.width, is_roomy)
        self.app = ChatApplication(
            layout=Layout(layout.make_container(rows), focused_element=self.line.buffer),
            key_bindings=make_chat_keys(self),
            style=Style.from_dict(STYLE if colours else {}),
            full_screen=False,
            erase_when_done=True,
            after_render=self._on_drawn,
            # A key is drawn at once, however much else there is to do.
            max_render_postpone_time=None,
            mouse_support=False,
            include_default_pygments_style=False,
            output=self._output,
            color_depth=None if colours else ColorDepth.DEPTH_1_BIT,
        )
        self.app.after_render.add_handler(rows.restore_left_out_rows)
        self._questions.watch_keys(self.app)

    # View

    def show(self, block: Block) -> None:
        self._drawing.show(block)

    def refresh(self) -> None:
        self._drawing.refresh()

    async def ask(self, question: Question) -> str | None:
        return await self._questions.ask(question, self.app)

    def decline(self) -> None:
        self.panel.decline_held()

    def _focus_input(self) -> None:
        with suppress(ValueError):
            self.app.layout.focus(self.line.buffer)
        self.refresh()

    def set_input(self, text: str) -> None:
        self.line.set_text(text)

    def prepend_input(self, text: str) -> None:
        self.line.prepend_text(text)

    def set_title(self, title: str) -> None:
        """Name the window of the terminal."""
        self._output.set_title(" ".join(clean_text(title).split()))
        self._output.flush()

    def send_control(self, sequence: str) -> None:
        """Send a sequence to the terminal."""
        self._output.write_raw(sequence)
        self._output.flush()

    def clear(self) -> None:
        self.app.renderer.clear()

    def leave(self) -> None:
        self.put_input("leave")
        self._left = True
        if self.app.is_running:
            self.app.exit()

    def _leave_if_requested(self) -> None:
        """Leave now if that was requested before the application ran."""
        if self._left:
            self.app.exit()

    # Running

    async def run(self) -> None:
        """Draw until `leave`, which restores the terminal. Raises `OSError` if the terminal is gone."""
        ticking = asyncio.ensure_future(self._redraw_periodically())
        store_typeahead(self.app.input, read_typed_ahead(self.app.input.fileno()))
        try:
            await self.app.run_async(pre_run=self._leave_if_requested, handle_sigint=False, set_exception_handler=False)
        except EOFError:
            raise OSError(errno.EIO, "the terminal is gone") from None
        finally:
            ticking.cancel()
            await self._drawing.finish()

    def _on_drawn(self, app: Application[None]) -> None:
        app.after_render.remove_handler(self._on_drawn)
        self.shown.set()

    def keep_task(self, work: asyncio.Task[None]) -> None:
        """Keep a reference to a task that a key started until it is done."""
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)

    def press_enter(self, followed: bool) -> None:
        """Enter in the input: send what is written, or answer the open question.

        With a question open, an Enter that came together with further keys belongs to a text, as when it is pasted.
        """
        panel, line = self.panel, self.line
        if panel.is_active and followed:
            line.buffer.insert_text("\n")
        elif panel.is_answered_by_text:
            panel.finish(line.pop_text(remembers=False))
        elif panel.has_choices and not line.text:
            # Not by an Enter that was pressed twice to send a message.
            if not line.was_just_popped:
                panel.select()
        elif panel.is_declined_by_text:
            panel.hold()
            self.submit_input("reply")
        else:
            self.submit_input("send")

    def submit_input(self, how: InputKind) -> None:
        """Submit the written text as an input of this kind."""
        if text := self.line.pop_text():
            self.put_input(how, text)

    def put_input(self, kind: InputKind, text: str = "") -> None:
        self._inputs.put_nowait(Input(kind, text))

    def paste(self, text: str) -> None:
        """Insert pasted text, or attach it if it is the path of a picture."""
        if self._is_picture(text):
            self.put_input("attach", text)
        else:
            self.line.paste(text)

    async def search_history(self) -> None:
        """Let the person choose an earlier input."""
        choices = [Choice(text, " ".join(text[:LONGEST_ROW].split())) for text in self.line.list_history(SEARCHED)]
        if not choices:
            self.show(Notice("You have not sent any messages yet", "faint"))
            return
        chosen = await self.ask(ChoiceQuestion("Which message?", choices, search=True))
        if chosen is not None:
            self.set_input(chosen)

    def on_interrupt(self) -> None:
        """Ctrl-C with nothing to stop: the second one soon after leaves."""
        now = self._now()
        if now - self._interrupted < TWICE_SECONDS:
            self.leave()
        else:
            self._interrupted = now
            self.show(Notice("Press Ctrl-C again to leave", "faint"))

    @property
    def is_working(self) -> bool:
        return bool(self._transcript.activity)

    @property
    def has_running_command(self) -> bool:
        """True if a command of the model runs that could go on in the background."""
        return self._transcript.running_command is not None

    @property
    def width(self) -> int:
        return self._output.get_size().columns

    async def edit_in_editor(self) -> None:
        with self._drawing.pausing():
            await self.line.buffer.open_in_editor()

    def toggle_thinking(self) -> None:
        self._painter.toggle_thinking()
        self.refresh()

    async def _redraw_periodically(self) -> None:
        """Redraw regularly while the agent works, for the clock."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self.is_working:
                self.refresh()
