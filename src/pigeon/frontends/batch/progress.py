"""What a person sees of a batch: a live display in a terminal, plain lines elsewhere, and a summary.

Times are taken from the monotonic clock, so that setting the system clock changes nothing. The rate covers the last
minutes, and the estimate is based on it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from pigeon.frontends.batch.batch_folder import Tally
from pigeon.frontends.batch.driver import Outcome
from pigeon.frontends.batch.records import STATUSES, TaskResult, TaskSpec
from pigeon.system.clock import duration_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# Plain lines: one for each task that is not done, and one with the totals at this interval.
LINE_SECONDS = 10.0
LOOKUP_SECONDS = 3.0
RATE_SECONDS = 300.0
SHOWN_RUNNING = 5
SHOWN_REASONS = 10
COLOURS = {"done": "green", "failed": "red", "limit": "yellow", "error": "red"}


class Figures:
    """How far a batch is, and when it will probably end."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        # How many tasks ended in each second; one time per task would grow with the batch.
        self._ends: deque[tuple[int, int]] = deque()
        self._ended = 0
        self.pauses: Mapping[str, float] = {}
        self.tally = Tally()
        self.spent = 0.0
        self.running: dict[str, float] = {}

    def begin_batch(self, tally: Tally) -> None:
        self.tally, self.spent, self._began = tally, tally.cost, self._now()

    def start_task(self, id: str) -> None:
        self.running[id] = self._now()

    def end_task(self, id: str, tally: Tally, spent: float, is_finished: bool) -> None:
        """Count a task that has ended, for the rate and the totals."""
        self.running.pop(id, None)
        self.tally, self.spent = tally, spent
        if is_finished:
            second = int(self._now())
            before = self._ends.pop()[1] if self._ends and self._ends[-1][0] == second else 0
            self._ends.append((second, before + 1))
            self._ended += 1
            self._drop_old_ends()

    def _drop_old_ends(self) -> None:
        while self._ends and self._now() - self._ends[0][0] > RATE_SECONDS:
            self._ended -= self._ends.popleft()[1]

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the driver began."""
        return self._now() - self._began

    @property
    def waiting_count(self) -> int:
        """The number of tasks that have not begun."""
        return max(0, self.tally.total - self.tally.finished_count - len(self.running))

    @property
    def tasks_per_minute(self) -> float:
        """How many tasks per minute have ended recently."""
        self._drop_old_ends()
        return 60.0 * self._ended / max(min(self.elapsed_seconds, RATE_SECONDS), 0.001)

    @property
    def seconds_left(self) -> float | None:
        """The estimated seconds left, or None before any task has ended."""
        rate = self.tasks_per_minute
        return 60.0 * (self.tally.total - self.tally.finished_count) / rate if rate else None

    def note_pauses(self, pauses: Mapping[str, float]) -> None:
        self.pauses = pauses

    def describe_pauses(self) -> str:
        """The providers that all tasks wait for, as text; empty if there are none."""
        waited = (
            f"{name} refuses requests; all tasks wait {duration_text(seconds)}" for name, seconds in self.pauses.items()
        )
        return "; ".join(waited)

    def format_line(self) -> str:
        tally = self.tally
        states = [f"{tally.by_status[status]} {status}" for status in STATUSES if tally.by_status.get(status)]
        left = self.seconds_left
        parts = [
            f"{tally.finished_count}/{tally.total}",
            ", ".join([*states, f"{len(self.running)} running", f"{self.waiting_count} waiting"]),
            f"{self.tasks_per_minute:.1f}/min",
            f"${self.spent:,.4f}",
            "" if left is None or tally.finished_count == tally.total else f"about {duration_text(left)} left",
            self.describe_pauses(),
        ]
        return " · ".join(part for part in parts if part)


class LookupLines:
    """Lines about the look-up of repositories, shown only if it takes long enough to make people wonder."""

    def __init__(self, say: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._now = now
        self._next = now() + LOOKUP_SECONDS

    def __call__(self, ended: int, total: int) -> None:
        if self._now() >= self._next:
            self._next = self._now() + LINE_SECONDS
            self._say(f"Looking up the revisions of repositories: {ended:,} of {total:,}")


class PlainProgress:
    """Lines on a stream that is no terminal."""

    def __init__(self, stream: TextIO | None, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._figures = Figures(now)
        self._last = now()
        self._paused: set[str] = set()

    def on_batch_began(self, tally: Tally, slots: int) -> None:
        self._figures.begin_batch(tally)
        before = f", {tally.finished_count} of them already finished" if tally.finished_count else ""
        self._print_line(f"{format_count(tally.total)}{before}; {slots} at a time")

    def on_task_started(self, spec: TaskSpec) -> None:
        self._figures.start_task(spec.id)

    def on_task_ended(self, spec: TaskSpec, result: TaskResult | None, tally: Tally, spent: float) -> None:
        """Print how a task ended if it is not done, and the totals at intervals."""
        self._figures.end_task(spec.id, tally, spent, result is not None)
        if result is not None and result.status != "done":
            self._print_line(f"{result.status}: {spec.id}: {to_one_line(result.error or '')}")
        if self._now() - self._last >= LINE_SECONDS or tally.finished_count == tally.total:
            self._last = self._now()
            self._print_line(self._figures.format_line())

    def on_providers_paused(self, pauses: Mapping[str, float]) -> None:
        """Print once that a provider refuses, and the totals if nothing has ended for a while."""
        self._figures.note_pauses(pauses)
        is_new, self._paused = bool(pauses.keys() - self._paused), set(pauses)
        if is_new or (pauses and self._now() - self._last >= LINE_SECONDS):
            self._last = self._now()
            self._print_line(self._figures.format_line())

    def close(self) -> None:
        """Does nothing: nothing is left to show."""

    def _print_line(self, text: str) -> None:
        # A closed or full stream is no reason to end the batch.
        if self._stream is not None:
            with suppress(OSError):
                print(text, file=self._stream, flush=True)


class LiveProgress:
    """A live display in a terminal, redrawn a few times a second."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._figures = Figures()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4, transient=True)

    def on_batch_began(self, tally: Tally, slots: int) -> None:
        self._figures.begin_batch(tally)
        self._live.start()

    def on_task_started(self, spec: TaskSpec) -> None:
        self._figures.start_task(spec.id)

    def on_task_ended(self, spec: TaskSpec, result: TaskResult | None, tally: Tally, spent: float) -> None:
        """Print a line above the display for a task that is not done."""
        self._figures.end_task(spec.id, tally, spent, result is not None)
        if result is not None and result.status != "done":
            from rich.text import Text

            words = Text(f"{result.status} ", style=COLOURS[result.status])
            self._live.console.print(words + Text(f"{spec.id}: {to_one_line(result.error or '')}"))

    def on_providers_paused(self, pauses: Mapping[str, float]) -> None:
        self._figures.note_pauses(pauses)

    def close(self) -> None:
        """Remove the display from the terminal."""
        self._live.stop()

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        figures, tally = self._figures, self._figures.tally
        counts = Text()
        for status in STATUSES:
            if tally.by_status.get(status):
                counts.append(f"{tally.by_status[status]} {status}  ", style=COLOURS[status])
        counts.append(f"{len(figures.running)} running  {figures.waiting_count} waiting")
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=max(1, tally.total), completed=tally.finished_count, width=40),
            f"{tally.finished_count} of {tally.total}",
        )
        left = figures.seconds_left
        rate = [
            f"{figures.tasks_per_minute:.1f} a minute",
            f"${figures.spent:,.4f} so far",
            f"{duration_text(figures.elapsed_seconds)} gone",
        ]
        if left is not None:
            rate.append(
                f"about {duration_text(left)} left, until {time.strftime('%H:%M', time.localtime(time.time() + left))}"
            )
        now = time.monotonic()
        oldest = list(figures.running.items())[:SHOWN_RUNNING]
        tasks = [
            Text(f"  {duration_text(now - since):>8}  {id}", style="dim", overflow="ellipsis", no_wrap=True)
            for id, since in oldest
        ]
        waits = [Text(figures.describe_pauses(), style=COLOURS["limit"])] if figures.pauses else []
        return Group(bar, counts, Text(" · ".join(rate)), *waits, *tasks)


def format_count(tasks: int) -> str:
    """The number with its noun: `1 task`, `2 tasks`."""
    return f"{tasks:,} task{'' if tasks == 1 else 's'}"


def summarize_outcome(outcome: Outcome, spent: float, seconds: float) -> list[str]:
    """How a batch ended, as lines: the figures, then the failures by reason."""
    tally = outcome.tally
    states = [f"{tally.by_status[status]} {status}" for status in STATUSES if tally.by_status.get(status)]
    if outcome.remaining_count:
        states.append(f"{outcome.remaining_count} not run")
    lines = [
        f"{format_count(tally.total)}: {', '.join(states) or 'none finished'}. ${spent:,.4f}, {duration_text(seconds)}."
    ]
    if outcome.stopped:
        lines.append(outcome.stopped)
    by_count = sorted(tally.reasons.items(), key=lambda item: -item[1])
    lines += [f"  {format_count(count)}: {to_one_line(reason)}" for reason, count in by_count[:SHOWN_REASONS]]
    if len(by_count) > SHOWN_REASONS:
        lines.append(f"  and {len(by_count) - SHOWN_REASONS:,} other reasons; results.jsonl has them all")
    return lines


def to_one_line(text: str, most: int = 300) -> str:
    """A text in one line, cut to a size."""
    words = " ".join(text.split())
    return words if len(words) <= most else f"{words[: most - 1]}…"
