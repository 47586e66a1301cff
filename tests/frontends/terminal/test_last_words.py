"""What is still to be written when a chat is left."""

from __future__ import annotations

import asyncio
import io
from typing import Any, cast

from prompt_toolkit.data_structures import Size

from pigeon.frontends.terminal.blocks import AnswerText, Notice
from pigeon.frontends.terminal.painting import Painter
from pigeon.frontends.terminal.screen.block_queue import LONGEST_AT_ONCE
from pigeon.frontends.terminal.screen.chat_output import ChatOutput
from pigeon.frontends.terminal.screen.drawing import Drawing
from pigeon.frontends.terminal.screen.live_view import LiveView
from pigeon.frontends.terminal.transcript import ChatTranscript


class UndrawnApplication:
    """An application that is not drawn any more."""

    is_running = False

    def __init__(self) -> None:
        self.drawings = 0
        self.drawn = asyncio.Event()

    def invalidate(self) -> None:
        self.drawings += 1
        self.drawn.set()


async def test_what_is_still_being_painted_when_a_chat_is_left_is_written_before_its_end() -> None:
    written = io.StringIO()
    output = ChatOutput(cast("Any", written), lambda: Size(rows=24, columns=80))
    live = LiveView(ChatTranscript(lambda: 0.0), Painter(None), lambda: 0.0)
    drawing = Drawing(output, Painter(None), live, lambda: False, lambda: cast("Any", UndrawnApplication()))
    drawing.show(Notice("the beginning", "faint"))
    drawing.show(AnswerText("long " * LONGEST_AT_ONCE + "answer"))
    drawing.show(Notice("the last words", "faint"))
    await drawing.finish()
    text = written.getvalue()
    assert 0 <= text.index("the beginning") < text.index("answer") < text.index("the last words")


async def test_when_another_program_gives_the_terminal_back_all_is_drawn_again() -> None:
    application = UndrawnApplication()
    output = ChatOutput(cast("Any", io.StringIO()), lambda: Size(rows=24, columns=80))
    live = LiveView(ChatTranscript(lambda: 0.0), Painter(None), lambda: 0.0)
    drawing = Drawing(output, Painter(None), live, lambda: False, lambda: cast("Any", application))
    with drawing.pausing():
        pass
    await asyncio.wait_for(application.drawn.wait(), 20)
    assert application.drawings == 1
