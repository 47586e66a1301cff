"""The part of the screen that changes while the agent works: text that grows, tools that run, what waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pigeon.frontends.cleaning import cleaned
from pigeon.frontends.terminal.content.tool_details import LONGEST_LINE
from pigeon.frontends.terminal.painting import Painter
from pigeon.frontends.terminal.transcript import ChatTranscript
from pigeon.system.clock import duration_text

TURNS_A_SECOND = 8
QUEUE_ROWS = 5
THOUGHT_CHARACTERS = 600


class LiveView:
    """Draws the live part of a transcript; the lines are made anew only after `changed`."""

    def __init__(self, transcript: ChatTranscript, painter: Painter, now: Callable[[], float]) -> None:
        self._transcript = transcript
        self._painter = painter
        self._now = now
        self._made: tuple[int, int, bool, list[str]] | None = None

    def changed(self) -> None:
        """What was drawn is out of date."""
        self._made = None

    def lines(self, width: int, rows: int, asking: bool = False) -> list[str]:
        """At most so many, the newest of them; while the person is asked, nothing is said to be going on."""
        if self._made is None or self._made[:3] != (width, rows, asking):
            self._made = (width, rows, asking, self._draw(width, rows, asking))
        return self._made[3]

    def _draw(self, width: int, rows: int, asking: bool) -> list[str]:
        """What grows, what runs and what waits, with a blank line between them, as between finished blocks."""
        now = self._now()
        cards = [self._painter.live_card(card, now, width).splitlines() for card in self._transcript.cards]
        activity = self._transcript.activity
        status = [self._status(activity, width)] if activity and not asking else []
        before, after = [self._thought(width), self._answer(width, rows)], [self._queue(width), status]
        lines = _apart(*before, *([] if asking else cards), *after)
        if len(lines) > rows and cards and not asking:
            # What runs matters more than what it writes.
            lines = _apart(*before, [line for card in cards for line in card[:1]], *after)
        # The last line stands on the rule of the input; before a question it is blank.
        return lines[-rows:] if asking else lines[:-1][-rows:]

    def _thought(self, width: int) -> list[str]:
        text = self._transcript.thinking_tail(THOUGHT_CHARACTERS) if self._painter.shows_thinking else ""
        return self._painter.faint(text, width).splitlines()[-3:] if text.strip() else []

    def _answer(self, width: int, rows: int) -> list[str]:
        """The unfinished block; of a very long one the last lines, as a block of code if it is one."""
        text = self._transcript.text
        lines, before = text.tail_lines(rows)
        shown = "\n".join(lines)
        if not shown.strip():
            return []
        if before and text.fence:
            shown = f"{text.fence}\n{shown}"
        return self._painter.live_markdown(shown, width).splitlines()

    def _queue(self, width: int) -> list[str]:
        queued = self._transcript.queued
        rows = [f"Next: {' '.join(cleaned(text[:LONGEST_LINE]).split())}" for text in queued[:QUEUE_ROWS]]
        if len(queued) > QUEUE_ROWS:
            rows.append(f"and {len(queued) - QUEUE_ROWS} more")
        return [self._painter.faint_line(row, width) for row in rows]

    def _status(self, activity: str, width: int) -> str:
        spinner = self._painter.spinner
        turn = spinner[int(self._now() * TURNS_A_SECOND) % len(spinner)]
        dot = f" {self._painter.signs['dot']} "
        text = dot.join((f"{turn} {activity}", duration_text(self._transcript.seconds, tenths=True)))
        hint = f"{dot}Esc stops it"
        return self._painter.faint_line(text + (hint if len(text) + len(hint) <= width else ""), width)


def _apart(*parts: Sequence[str]) -> list[str]:
    """The lines of those that have some, each with a blank one behind it."""
    return [line for part in parts if part for line in (*part, "")]
