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
# A command that takes longer may be sent to the background.
LONG_COMMAND_SECONDS = 3.0


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
        agents = self._transcript.agents
        calls = [card for card in self._transcript.cards if not agents.shows_call(card.call_id)]
        cards = [self._painter.paint_live_card(card, now, width).splitlines() for card in calls]
        tree = self._agent_lines(now, width, rows)
        activity = self._transcript.activity
        status = [self._status_line(activity, width)] if activity and not asking else []
        before, after = (
            [self._thinking_lines(width), self._answer_lines(width, rows)],
            [self._queue_lines(width), status],
        )
        lines = _join_with_blank_lines(*before, *([] if asking else [*cards, tree]), *after)
        if len(lines) > rows and cards and not asking:
            # The name of what runs matters more than its output.
            lines = _join_with_blank_lines(*before, [line for card in cards for line in card[:1]], tree, *after)
        # The last line touches the rule of the input; before a question it is blank.
        return lines[-rows:] if asking else lines[:-1][-rows:]

    def _agent_lines(self, now: float, width: int, rows: int) -> list[str]:
        """The agents that work, in half of the rows: first without what each does, then only the first of them."""
        agents = [
            self._painter.paint_agent(row, now, width).splitlines() for row in self._transcript.agents.list_tree()
        ]
        room = max(3, rows // 2)
        for lines in ([line for agent in agents for line in agent], [agent[0] for agent in agents]):
            if len(lines) <= room:
                return lines
        more = f"  and {len(lines) - room + 1} more agents; /agents has all"
        return [*lines[: room - 1], self._painter.paint_faint_line(more, width)]

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
        for hint in self._hints():
            if len(text) + len(dot) + len(hint) <= width:
                text += dot + hint
        return self._painter.paint_faint_line(text, width)

    def _hints(self) -> list[str]:
        """What a person may want to do now, the most important first."""
        hints = ["Esc stops it"]
        command = self._transcript.running_command
        if command is not None and self._now() - command.started >= LONG_COMMAND_SECONDS:
            hints.append("Ctrl-B lets it run in the background")
        if self._transcript.agents.has_rows:
            hints.append("/agents shows their work")
        return hints


def _join_with_blank_lines(*parts: Sequence[str]) -> list[str]:
    """Join non-empty parts, each followed by a blank line."""
    return [line for part in parts if part for line in (*part, "")]
