"""The part of the screen that changes while the agent works: growing text, running tools, queued messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pigeon.frontends.cleaning import clean_text
from pigeon.frontends.terminal.content.tool_details import LONGEST_LINE
from pigeon.frontends.terminal.painting import Painter
from pigeon.frontends.terminal.transcript import ChatTranscript
from pigeon.system.clock import duration_text

TURNS_A_SECOND = 8
QUEUE_ROWS = 5
THOUGHT_CHARACTERS = 600


class LiveView:
    """Draws the live part of a transcript; its lines are rebuilt only after `invalidate`."""

    def __init__(self, transcript: ChatTranscript, painter: Painter, now: Callable[[], float]) -> None:
        self._transcript = transcript
        self._painter = painter
        self._now = now
        self._made: tuple[int, int, bool, list[str]] | None = None

    def discard_drawn_lines(self) -> None:
        self._made = None

    def draw_or_reuse_lines(self, width: int, rows: int, asking: bool = False) -> list[str]:
        """The newest lines, at most `rows`; without the current activity while the person is being asked."""
        if self._made is None or self._made[:3] != (width, rows, asking):
            self._made = (width, rows, asking, self._draw(width, rows, asking))
        return self._made[3]

    def _draw(self, width: int, rows: int, asking: bool) -> list[str]:
        """Text, running calls and the queue, separated by a blank line like finished blocks."""
        now = self._now()
        cards = [self._painter.paint_live_card(card, now, width).splitlines() for card in self._transcript.cards]
        activity = self._transcript.activity
        status = [self._status_line(activity, width)] if activity and not asking else []
        before, after = (
            [self._thinking_lines(width), self._answer_lines(width, rows)],
            [self._queue_lines(width), status],
        )
        lines = _join_with_blank_lines(*before, *([] if asking else cards), *after)
        if len(lines) > rows and cards and not asking:
            # The name of what runs matters more than its output.
            lines = _join_with_blank_lines(*before, [line for card in cards for line in card[:1]], *after)
        # The last line touches the rule of the input; before a question it is blank.
        return lines[-rows:] if asking else lines[:-1][-rows:]

    def _thinking_lines(self, width: int) -> list[str]:
        text = self._transcript.thinking_tail(THOUGHT_CHARACTERS) if self._painter.shows_thinking else ""
        return self._painter.paint_faint(text, width).splitlines()[-3:] if text.strip() else []

    def _answer_lines(self, width: int, rows: int) -> list[str]:
        """The unfinished block, or the last lines of a very long one, as a code block if it is one."""
        text = self._transcript.text
        lines, before = text.tail_lines(rows)
        shown = "\n".join(lines)
        if not shown.strip():
            return []
        if before and text.fence:
            shown = f"{text.fence}\n{shown}"
        return self._painter.paint_live_markdown(shown, width).splitlines()

    def _queue_lines(self, width: int) -> list[str]:
        queued = self._transcript.queued
        rows = [f"Next: {' '.join(clean_text(text[:LONGEST_LINE]).split())}" for text in queued[:QUEUE_ROWS]]
        if len(queued) > QUEUE_ROWS:
            rows.append(f"and {len(queued) - QUEUE_ROWS} more")
        return [self._painter.paint_faint_line(row, width) for row in rows]

    def _status_line(self, activity: str, width: int) -> str:
        spinner = self._painter.spinner
        turn = spinner[int(self._now() * TURNS_A_SECOND) % len(spinner)]
        dot = f" {self._painter.signs['dot']} "
        text = dot.join((f"{turn} {activity}", duration_text(self._transcript.seconds, tenths=True)))
        hint = f"{dot}Esc stops it"
        return self._painter.paint_faint_line(text + (hint if len(text) + len(hint) <= width else ""), width)


def _join_with_blank_lines(*parts: Sequence[str]) -> list[str]:
    """Join non-empty parts, each followed by a blank line."""
    return [line for part in parts if part for line in (*part, "")]
