"""The chat on a screen: finished blocks scroll away above, the live part, the input and the footer stay below.

Nothing but the lower part is ever redrawn, so the terminal's own scrolling, searching and copying work on all that was
said. What changes is drawn twenty times a second at most, whatever arrives; a key is drawn at once. Terminals that know
synchronized output get each change as a whole and do not flicker.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from pigeon.frontends.cleaning import cleaned
from pigeon.frontends.terminal.blocks import Block, Notice
from pigeon.frontends.terminal.footer import FooterFacts, footer_text
from pigeon.frontends.terminal.inputs import Input, InputKind, Inputs
from pigeon.frontends.terminal.painting import Painter
from pigeon.frontends.terminal.screen.block_queue import BlockQueue
from pigeon.frontends.terminal.screen.input_history import InputHistory
from pigeon.frontends.terminal.screen.input_line import InputLine
from pigeon.frontends.terminal.screen.keys import chat_keys, typed_ahead
from pigeon.frontends.terminal.screen.live_rows import LiveRows
from pigeon.frontends.terminal.screen.live_view import LiveView
from pigeon.frontends.terminal.screen.question_panel import QuestionPanel
from pigeon.frontends.terminal.transcript import ChatTranscript
from pigeon.frontends.terminal.view import Choice, ChoiceQuestion, Question
from pigeon.frontends.terminal.widgets import Widgets

if TYPE_CHECKING:
    from prompt_toolkit.layout.containers import AnyContainer

    from pigeon.frontends.terminal.screen.completion import ChatCompleter

DRAWS_A_SECOND = 20
TICK_SECONDS = 0.12
INPUT_ROWS = 12
MENU_ROWS = 8
TWICE_SECONDS = 2.0
# How long an Esc waits for a second key: Alt-Enter arrives as both.
ESCAPE_SECONDS = 0.05
# Fewer rows than these are for the input and the conversation alone.
ROOMY_ROWS = 8
SEARCHED = 500
LONGEST_ROW = 200
# Keep the place, clear the row, go down, clear the rest, go back.
ERASE_DOWN = "\x1b7\x1b[K\x1b[B\x1b[J\x1b8"
BEGIN_UPDATE, END_UPDATE = "\x1b[?2026h", "\x1b[?2026l"
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


class _ChatOutput(Vt100_Output):
    """One whose terminal shows each drawing as a whole, and never half of it.

    It clears nothing from the first cell of the screen on: tmux keeps a screen that is cleared so, and who scrolls back
    would find the lower part there once more.
    """

    _drawing = False

    def erase_down(self) -> None:
        """Clear the rest of the row and the rows below it."""
        self.write_raw(ERASE_DOWN)

    def flush(self) -> None:
        """Send what was written, as one update."""
        if self._buffer and not self._drawing:
            self._buffer = [BEGIN_UPDATE, *self._buffer, END_UPDATE]
            super().flush()

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """What is written in here, flushed or not, is one update."""
        self._drawing = True
        try:
            yield
        finally:
            self._drawing = False
            self.flush()


class _ChatApplication(Application[None]):
    """One that takes an Esc for what it is after a moment."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.ttimeoutlen = ESCAPE_SECONDS
        self.timeoutlen = ESCAPE_SECONDS * 4

    def draw_now(self) -> None:
        """Draw the lower part at once, from what it is made of now."""
        self.render_counter += 1
        with set_app(self):
            self.renderer.render(self, self.layout)
        self.after_render.fire()


class Screen:
    """The view that draws."""

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
    ) -> None:
        self._transcript = transcript
        self._facts = facts
        self._widgets = widgets
        self._painter = painter
        self._inputs = inputs
        self._is_picture = is_picture
        self._now = now
        self._interrupted = float("-inf")
        self._blocks = BlockQueue(painter, self.refresh)
        self._away = 0
        self._refreshing: asyncio.Handle | None = None
        self.shown = asyncio.Event()
        self._left = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._live = LiveView(transcript, painter, now)
        self._rows = LiveRows(self._live_lines, lambda: self.app.renderer.last_rendered_screen)
        self._roomy = Condition(lambda: self._output.get_size().rows >= ROOMY_ROWS)
        self.panel = QuestionPanel(painter, self.refresh, self._focus_input, self._roomy, self._blocks.add_lines)
        self.line = InputLine(completer, InputHistory(history), now)
        # Nothing is asked of the terminal: an answer that does not come would hold up the first line.
        self._output = _ChatOutput(sys.stdout, _size, enable_cpr=False)
        self.app = _ChatApplication(
            layout=Layout(self._layout(), focused_element=self.line.buffer),
            key_bindings=chat_keys(self),
            style=Style.from_dict(STYLE if colours else {}),
            full_screen=False,
            erase_when_done=True,
            after_render=self._after_drawing,
            # A key is drawn at once, however much else there is to do.
            max_render_postpone_time=None,
            mouse_support=False,
            include_default_pygments_style=False,
            output=self._output,
            color_depth=None if colours else ColorDepth.DEPTH_1_BIT,
        )
        self.app.after_render.add_handler(self._rows.drawn)

    # View

    def show(self, block: Block) -> None:
        """Write a finished block above the input."""
        self._blocks.add(block, self.width)

    def refresh(self) -> None:
        """Draw anew, soon: many changes together are one drawing, and a key is not held up by them."""
        if self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().call_later(1 / DRAWS_A_SECOND, self._draw)

    def _draw(self) -> None:
        """Both parts in one drawing: what has left the live part stands above it at the same moment."""
        self._refreshing = None
        if self._blocks.has_text and not self._away and self.app.is_running:
            self._flush()
            if self._blocks.has_text:
                self._refreshing = asyncio.get_running_loop().call_soon(self._draw)
        else:
            self._renew_live()
            # Now, not when it is drawn: what has ended by then must not be missing in both parts.
            self._live_lines()
            # Behind the keys that came meanwhile: they are drawn with it, instead of before it and again after it.
            asyncio.get_running_loop().call_later(0, self.app.invalidate)

    def _renew_live(self) -> None:
        """What has left the live part while it is painted stands there until then."""
        if not self._blocks.painting:
            self._live.changed()

    async def ask(self, question: Question) -> str | None:
        """Show the question in place of the input until it is answered.

        Not while the person is writing: the next letter would be taken for an answer.
        """
        detail = await asyncio.to_thread(self.panel.painted_detail, question, self.width)
        while left := self.line.seconds_to_pause:  # noqa: ASYNC110 - writing begins and pauses many times
            await asyncio.sleep(left)
        try:
            return await self.panel.ask(question, detail, self.app)
        finally:
            self._focus_input()

    def _focus_input(self) -> None:
        with suppress(ValueError):
            self.app.layout.focus(self.line.buffer)
        self.refresh()

    def set_input(self, text: str) -> None:
        """Replace what stands in the input."""
        self.line.set(text)

    def put_back(self, text: str) -> None:
        """Put a text before what stands in the input."""
        self.line.put_back(text)

    def set_title(self, title: str) -> None:
        """Name the window of the terminal."""
        self._output.set_title(" ".join(cleaned(title).split()))
        self._output.flush()

    def control(self, sequence: str) -> None:
        """Send a sequence to the terminal."""
        self._output.write_raw(sequence)
        self._output.flush()

    def clear(self) -> None:
        """Begin with an empty screen."""
        self.app.renderer.clear()

    def leave(self) -> None:
        """End."""
        self.give("leave")
        self._left = True
        if self.app.is_running:
            self.app.exit()

    def _leave_again(self) -> None:
        """What was asked for before there was anything to end."""
        if self._left:
            self.app.exit()

    # Running

    async def run(self) -> None:
        """Draw until `leave`; the terminal is afterwards as it was. Raises `OSError` where it is gone."""
        ticking = asyncio.ensure_future(self._tick())
        store_typeahead(self.app.input, typed_ahead(self.app.input.fileno()))
        try:
            await self.app.run_async(pre_run=self._leave_again, handle_sigint=False, set_exception_handler=False)
        except EOFError:
            raise OSError(errno.EIO, "the terminal is gone") from None
        finally:
            ticking.cancel()
            await self._blocks.painted()
            self._flush_rest()

    def _after_drawing(self, app: Application[None]) -> None:
        app.after_render.remove_handler(self._after_drawing)
        self.shown.set()

    def start(self, work: asyncio.Task[None]) -> None:
        """Keep a task that a key began until it is done."""
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)

    def accept(self, how: InputKind) -> None:
        """Hand on what was written."""
        if text := self.line.take():
            self.give(how, text)

    def give(self, kind: InputKind, text: str = "") -> None:
        """Hand on what the person did."""
        self._inputs.put_nowait(Input(kind, text))

    def paste(self, text: str) -> None:
        """Write what was pasted, or attach it where it is the path of a picture."""
        if self._is_picture(text):
            self.give("attach", text)
        else:
            self.line.paste(text)

    async def search_history(self) -> None:
        """Have the person choose among what was written before."""
        choices = [Choice(text, " ".join(text[:LONGEST_ROW].split())) for text in self.line.written(SEARCHED)]
        if not choices:
            self.show(Notice("You have not sent any messages yet", "faint"))
            return
        chosen = await self.ask(ChoiceQuestion("Which message?", choices, search=True))
        if chosen is not None:
            self.set_input(chosen)

    def interrupt(self) -> None:
        """Ctrl-C with nothing to stop: the second one soon after leaves."""
        now = self._now()
        if now - self._interrupted < TWICE_SECONDS:
            self.leave()
        else:
            self._interrupted = now
            self.show(Notice("Press Ctrl-C again to leave", "faint"))

    @property
    def working(self) -> bool:
        """Whether the agent is at work."""
        return bool(self._transcript.activity)

    @property
    def width(self) -> int:
        """The columns of the terminal."""
        return self._output.get_size().columns

    async def edit_outside(self) -> None:
        """Edit the input in the person's editor."""
        self._away += 1
        try:
            await self.line.buffer.open_in_editor()
        finally:
            self._away -= 1
            self.refresh()

    def toggle_thinking(self) -> None:
        """Show thoughts from now on, or fold them."""
        self._painter.toggle_thinking()
        self.refresh()

    async def _tick(self) -> None:
        """The clock of what runs."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self.working:
                self.refresh()

    def _flush(self) -> None:
        """Write what is finished above the lower part, which is drawn anew below it."""
        text = self._blocks.take().replace("\n", "\r\n")
        with self._output.drawing():
            self.app.renderer.erase(leave_alternate_screen=False)
            self._output.write_raw(text)
            self._renew_live()
            self.app.draw_now()

    def _flush_rest(self) -> None:
        while self._blocks.has_text:
            text = self._blocks.take().replace("\n", "\r\n")
            with suppress(OSError):
                self._output.write_raw(text)
                self._output.flush()

    # Drawing

    def _layout(self) -> AnyContainer:
        asking = Condition(lambda: self.panel.active)
        writing = ~asking
        rule = Window(height=1, char=self._painter.signs["rule"], style="class:rule")
        return HSplit(
            [
                # Without a live part there is no row for it: a block has its blank line already.
                ConditionalContainer(
                    self._rows,
                    filter=Condition(lambda: bool(self._live_lines())),
                ),
                self._widget_window("aboveEditor"),
                ConditionalContainer(self.panel.container(), filter=asking),
                ConditionalContainer(rule, filter=writing),
                ConditionalContainer(
                    Window(
                        BufferControl(self.line.buffer),
                        height=Dimension(min=1, max=INPUT_ROWS),
                        wrap_lines=True,
                        dont_extend_height=True,
                        get_line_prefix=self._prefix,
                    ),
                    filter=writing,
                ),
                ConditionalContainer(rule, filter=writing),
                ConditionalContainer(CompletionsMenu(max_height=MENU_ROWS, scroll_offset=1), filter=writing),
                self._widget_window("belowEditor"),
                ConditionalContainer(
                    Window(FormattedTextControl(self._footer), height=1, style="class:footer", always_hide_cursor=True),
                    filter=self._roomy,
                ),
            ]
        )

    def _widget_window(self, placement: str) -> AnyContainer:
        def lines() -> StyleAndTextTuples:
            return [("", "\n".join(self._widgets.lines(placement)))]

        control = FormattedTextControl(lines)
        shown = Condition(lambda: bool(self._widgets.lines(placement)))
        return ConditionalContainer(Window(control, wrap_lines=True, dont_extend_height=True), filter=shown)

    def _prefix(self, line: int, wrapped: int) -> StyleAndTextTuples:
        first = line == 0 and wrapped == 0
        return [("class:prompt", f"{self._painter.signs['user']} " if first else "  ")]

    def _live_lines(self) -> Sequence[str]:
        size = self._output.get_size()
        return self._live.lines(size.columns, max(1, size.rows - 8), self.panel.active)

    def _footer(self) -> StyleAndTextTuples:
        return [("", footer_text(self._facts, self.width))]


def _size() -> Size:
    """That of the terminal; of one that does not say it, or is gone, the usual one."""
    with suppress(OSError, ValueError):
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        if columns and rows:
            return Size(rows, columns)
    return Size(24, 80)
