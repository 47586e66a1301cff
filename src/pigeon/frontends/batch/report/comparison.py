"""Two batches side by side: the same tasks, done differently. Tasks are paired by their ids.

The question is whether the second is better, and whether that is more than chance. Differences are taken task by task,
so that a hard task counts as hard in both; a task that only one batch has is named and not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote

from msgspec import Struct, field

from pigeon.export.escaping import escape_html
from pigeon.frontends.batch.progress import format_count
from pigeon.frontends.batch.records import TaskResult
from pigeon.frontends.batch.report.measured import MEASURES, BatchFigures, largest_groups, title_of_largest
from pigeon.frontends.batch.report.page import (
    FORMS,
    ID,
    NAME,
    BatchView,
    PageParts,
    percent_range,
    plots_html,
    session_link,
    status_html,
    table_html,
    tiles_html,
    why_html,
)
from pigeon.frontends.batch.report.statistics import Estimate, Sample, flip_probability, paired_difference

NO_PAIRS = (
    '<p class="note">No task has ended in both batches under the same id, so there is nothing to compare. Give tasks '
    "ids, or let only <code>--model</code> differ.</p>\n"
)
HOW = (
    "Bars are 95 % intervals: of each share, and of the change of the mean, task by task. In the plot of costs, a "
    "point below the line became cheaper."
)
MOST_FLIPS = 1000
MOST_PAIRS = 5000


class Compared(Struct, kw_only=True):
    """The comparison of two batches, pair by pair."""

    pairs: int = 0
    only_first: int = 0
    only_second: int = 0
    better: list[tuple[TaskResult, TaskResult]] = field(default_factory=list)
    worse: list[tuple[TaskResult, TaskResult]] = field(default_factory=list)
    both: int = 0
    figures: tuple[BatchFigures, BatchFigures] = field(default_factory=lambda: (BatchFigures(), BatchFigures()))
    changes: dict[str, Sample] = field(default_factory=lambda: {name: Sample() for name in MEASURES})
    costs: list[tuple[float, float]] = field(default_factory=list)

    def add(self, one: TaskResult, other: TaskResult) -> None:
        """Add a task that both batches have, with both results."""
        self.pairs += 1
        was, now = one.status == "done", other.status == "done"
        self.both += was and now
        if was != now:
            flips = self.better if now else self.worse
            flips.append((_without_texts(one), _without_texts(other)))
        for figures, result in zip(self.figures, (one, other), strict=True):
            figures.add(result)
        for name, (measure, _) in MEASURES.items():
            self.changes[name].add(measure(other) - measure(one))
        if len(self.costs) < MOST_PAIRS:
            self.costs.append((one.cost, other.cost))

    @property
    def success_change(self) -> Estimate:
        better, worse = len(self.better), len(self.worse)
        return paired_difference(self.both, better, worse, self.pairs - self.both - better - worse)

    def means(self, name: str) -> tuple[float, float]:
        """What a task took in each batch, on average."""
        first, second = self.figures
        return first.everything.samples[name].mean, second.everything.samples[name].mean


def _without_texts(one: TaskResult) -> TaskResult:
    from msgspec.structs import replace

    return replace(one, text="", output=None, check=None)


def compare_results(first: Iterator[TaskResult], find: Callable[[str], TaskResult | None], second: int) -> Compared:
    """Pair the results of two batches; `find` returns the second batch's result for an id, `second` is its size."""
    found = Compared()
    for one in first:
        other = find(one.id)
        if other is None:
            found.only_first += 1
        else:
            found.add(one, other)
    found.only_second = second - found.pairs
    return found


def render_comparison(batches: tuple[BatchView, BatchView], folders: tuple[str, str], found: Compared) -> Iterator[str]:
    """The page, in pieces; `folders` are the relative paths from it to the folders of the batches."""
    parts = PageParts()
    names = _make_distinct_names(*batches)
    alone = [
        f"{format_count(count)} only in {escape_html(name)}, and not counted here"
        for count, name in ((found.only_first, names[0]), (found.only_second, names[1]))
        if count
    ]
    below = " · ".join([f"{format_count(found.pairs)} in both batches, paired by id", *alone])
    pieces = [tiles_html(_make_tiles(names, found)) if found.pairs else NO_PAIRS]
    if found.pairs:
        pieces.append(_measures_html(names, found))
    if parts.plotter is not None and found.pairs:
        plotter = parts.plotter
        title = title_of_largest("Success by group", found.figures[1].by_group)
        drawn = [plotter.plot_side_by_side(title, _success_by_group(names, *found.figures))]
        changes = [
            (name, one) for name, one in ((name, _relative_change(found, name)) for name in MEASURES) if one is not None
        ]
        if changes:
            drawn.append(plotter.plot_differences("Change of the mean", changes))
        if any(one or other for one, other in found.costs):
            drawn.append(plotter.plot_pairs("Cost of each task", "US dollars", names, found.costs))
        pieces.append(plots_html("Figures", drawn, HOW))
    if found.pairs:
        ways = tuple(f"{quote(one)}/" if one else "" for one in folders)
        pieces.append('<div id="tasks">\n')
        pieces.append(_flips_html("Worse: done before, not done now", names, ways, found.worse))
        pieces.append(_flips_html("Better: not done before, done now", names, ways, found.better))
        pieces.append("</div>\n")
    return parts.render_page(f"{names[0]} → {names[1]}", below, pieces, ())


def _make_distinct_names(first: BatchView, second: BatchView) -> tuple[str, str]:
    """The names of the batches, numbered if they are equal."""
    one, other = first.title or "first", second.title or "second"
    return (f"{one} (1)", f"{other} (2)") if one == other else (one, other)


def _make_tiles(names: tuple[str, str], found: Compared) -> list[tuple[str, str]]:
    shown = [
        (
            f"{figures.everything.success.value:.0%}",
            f"success of {escape_html(name)}, {percent_range(figures.everything.success)}",
        )
        for name, figures in zip(names, found.figures, strict=True)
    ]
    change = found.success_change
    chance = flip_probability(len(found.better), len(found.worse))
    verdict = "more than chance explains" if chance < 0.05 else "may well be chance"
    shown_chance = "p < 0.001" if chance < 0.001 else f"p = {chance:.3f}"
    return [
        *shown,
        (
            f"{100 * change.value:+.1f} points",
            f"difference of success, {100 * change.low:+.1f} to {100 * change.high:+.1f}",
        ),
        (f"{len(found.better):,} up, {len(found.worse):,} down", f"tasks that flipped; {shown_chance}: {verdict}"),
    ]


def _success_by_group(
    names: tuple[str, str], first: BatchFigures, second: BatchFigures
) -> Mapping[str, list[tuple[str, Estimate]]]:
    # The same rows for both, whatever groups their tasks are in.
    largest = largest_groups(second.by_group) if len(second.by_group) > 1 else []

    def list_success_rates(figures: BatchFigures) -> list[tuple[str, Estimate]]:
        groups = {name: figures.by_group[name] for name in largest if name in figures.by_group}
        return [(name, one.success) for name, one in {"all tasks": figures.everything, **groups}.items()]

    return {names[0]: list_success_rates(first), names[1]: list_success_rates(second)}


def _relative_change(found: Compared, name: str) -> Estimate | None:
    """The relative change of a measure; or None if it was zero before."""
    before, change = found.means(name)[0], found.changes[name].estimate
    if not before:
        return None
    return Estimate(change.value / before, change.low / before, change.high / before, change.count)


def _measures_html(names: tuple[str, str], found: Compared) -> str:
    heads = ["mean per task", *map(escape_html, names), "difference", "95 % interval", "more than chance?"]

    def render_rows() -> Iterator[str]:
        for name in MEASURES:
            change, form = found.changes[name].estimate, FORMS[name]
            signed = form.replace("${:", "{:").replace("{:", "{:+")
            before, after = (form.format(mean) for mean in found.means(name))
            verdict = "too few tasks" if change.count < 2 else "yes" if change.is_clear else "no"
            yield (
                f"<tr><th scope=row>{name}</th><td>{before}</td><td>{after}</td><td>{signed.format(change.value)}</td>"
                f"<td>{signed.format(change.low)} to {signed.format(change.high)}</td><td>{verdict}</td></tr>\n"
            )

    return "<h2>Resources per task</h2>\n" + "".join(table_html(heads, render_rows()))


def _flips_html(
    title: str, names: tuple[str, str], ways: tuple[str, ...], flips: list[tuple[TaskResult, TaskResult]]
) -> str:
    if not flips:
        return f"<h2>{title}</h2>\n<p>None.</p>\n"
    heads = ["task", "group", *(f"{escape_html(name)}" for name in names)]

    def render_rows() -> Iterator[str]:
        for one, other in flips[:MOST_FLIPS]:
            links = "".join(
                f"<td>{status_html(result)} {session_link(result, 'conversation', way)}</td>"
                for result, way in zip((one, other), ways, strict=True)
            )
            bad = one if one.status != "done" else other
            yield (
                f"<tr><th scope=row{ID}>{escape_html(one.id)}{why_html(bad)}</th>"
                f"<td{NAME}>{escape_html(other.group or '')}</td>{links}</tr>\n"
            )

    more = f"<p><small>{len(flips) - MOST_FLIPS:,} more are not shown.</small></p>\n" if len(flips) > MOST_FLIPS else ""
    return f"<h2>{title} ({len(flips):,})</h2>\n" + "".join(table_html(heads, render_rows())) + more
