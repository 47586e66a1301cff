"""`report.html`: one page about a batch, and one that compares two. No script, no request to elsewhere.

Both are built from the same pieces and allow their style sheet by its hash, as exported sessions do (`export/html.py`).
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from msgspec import Struct

from pigeon.export.escaping import escape_html
from pigeon.export.style import COLOURS
from pigeon.frontends.batch.records import TaskResult
from pigeon.frontends.batch.report.measured import MEASURES, BatchFigures, GroupFigures
from pigeon.frontends.batch.report.plots import NO_EXTRA, Plot, Plotter
from pigeon.frontends.batch.report.statistics import Estimate
from pigeon.system.clock import duration_text

MOST_ROWS = 5000
MOST_REASONS = 50
FORMS = {
    "cost": "${:,.4f}",
    "tokens": "{:,.0f}",
    "time": "{:,.2f} s",
    "turns": "{:,.1f}",
    "tool calls": "{:,.1f}",
    "agents": "{:,.1f}",
}
SHEET = """
:root { --plot1: #2f6fc1; --plot2: #c2701a; --plot3: #1b7f3b; --plot4: #9a2393; --plot5: #0b6e75; --plot6: #b3261e; }
@media screen and (prefers-color-scheme: dark) { :root { --plot1: #6ea3e8; --plot2: #e5a44b; --plot3: #6fd08c;
  --plot4: #d79bf0; --plot5: #7fd3da; --plot6: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main, header, footer { max-width: 84rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 1.6rem; } footer { color: var(--dim); font-size: .85rem; padding: 2rem 1.25rem 3rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
header p { color: var(--dim); margin: 0 0 1.2rem; }
a { color: var(--link); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; padding: 0;
  margin: 0; list-style: none; }
.tiles li { background: var(--side); border: 1px solid var(--line); border-radius: 10px; padding: .7rem .9rem; }
.tiles b { display: block; font-size: 1.45rem; line-height: 1.2; font-weight: 650; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--dim); font-size: .84rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(27rem, 100%), 1fr)); gap: 1rem;
  align-items: start; }
figure { margin: 0; padding: .8rem .9rem .5rem; border: 1px solid var(--line); border-radius: 10px; }
figcaption { font-weight: 600; font-size: .95rem; margin-bottom: .35rem; }
svg { display: block; width: 100%; height: auto; max-height: 34rem; overflow: visible; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .38rem .7rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
tr:last-child > * { border-bottom: 0; }
th:first-child, td:first-child, .left { text-align: left; }
thead th { background: var(--side); font-weight: 600; position: sticky; top: 0; white-space: normal;
  vertical-align: bottom; min-width: 4.5rem; }
tbody th { font-weight: 500; }
td small { display: block; }
.why { white-space: normal; min-width: 16rem; max-width: 34rem; text-align: left; overflow-wrap: anywhere; }
.id { min-width: 15rem; max-width: 34rem; white-space: normal; overflow-wrap: anywhere; }
.id small { display: block; font-weight: 400; }
.name { max-width: 16rem; overflow: hidden; text-overflow: ellipsis; }
.keys { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; font-size: .88rem; margin: 0 0 .3rem; padding: 0;
  list-style: none; overflow-wrap: anywhere; }
.key1::before, .key2::before { content: "\\25CF\\a0"; color: var(--plot1); } .key2::before { color: var(--plot2); }
.how { color: var(--dim); font-size: .88rem; margin: -.3rem 0 .7rem; }
small { color: var(--dim); }
.status { border-radius: 5px; padding: .05rem .45rem; font-weight: 600; font-size: .84rem;
  border: 1px solid currentColor; }
.done { color: var(--good); } .failed, .error { color: var(--bad); } .limit { color: var(--mark); }
.note { background: var(--tag); color: var(--mark); padding: .6rem .9rem; border-radius: 10px; }
.skip { position: absolute; left: -99rem; } .skip:focus { left: .5rem; top: .5rem; background: var(--page); }
@media (max-width: 40rem) { body { font-size: 15px; } th, td { padding: .34rem .5rem; }
  main, header, footer { padding-left: .8rem; padding-right: .8rem; }
  figure > div { overflow-x: auto; } svg { min-width: 27rem; } }
@media print { @page { size: landscape; margin: 1cm; } body { font-size: 11px; } figure { break-inside: avoid; }
  .wide { overflow: visible; } thead th { position: static; } th, td { padding: .2rem .35rem; }
  .id, thead th { min-width: 0; } .plots { grid-template-columns: 1fr 1fr; } }
"""
LEFT = ' class="left"'
NAME = ' class="left name"'
ID = ' class="id"'
WHY = ' class="why"'
# Columns of words; the others have figures.
WORDS = ("model", "group", "reason")
BOXES = (
    "Points with bars are shares with their 95 % intervals. Boxes hold the middle half of the tasks, with a line at "
    "the median; bars reach from the 5th to the 95th percentile, and dots are single tasks beyond."
)


class BatchView(Struct, frozen=True, kw_only=True):
    """A batch for a page: its name, its figures, and the cost of unfinished attempts."""

    title: str
    began: int
    total: int
    figures: BatchFigures
    wasted: float = 0.0


class PageParts:
    """The pieces of a page, and their style sheet; plots are left out where they cannot be drawn."""

    def __init__(self) -> None:
        try:
            self.plotter: Plotter | None = Plotter()
        except ImportError:
            self.plotter = None

    def render_page(self, title: str, below: str, parts: Sequence[str], rest: Iterable[str]) -> Iterator[str]:
        """The HTML of the whole page, in pieces."""
        sheet = COLOURS + SHEET + ("" if self.plotter is None else self.plotter.rules)
        digest = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
        yield (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            '<meta name="referrer" content="no-referrer"><meta name="robots" content="noindex">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape_html(title)}</title><style>{sheet}</style></head>\n<body>"
            '<a class="skip" href="#tasks">Skip to the tasks</a>\n'
            f"<header><h1>{escape_html(title)}</h1><p>{below}</p></header>\n<main>\n"
        )
        if self.plotter is None:
            yield f'<p class="note">{escape_html(NO_EXTRA)}</p>\n'
        yield from parts
        yield from rest
        yield "</main>\n<footer>Generated by pigeon batch. Ranges are 95 % confidence intervals: Wilson's for shares, "
        yield "Student's for means, Newcombe's for differences of shares.</footer>\n</body></html>\n"


def render_report(batch: BatchView, results: Callable[[], Iterable[TaskResult]]) -> Iterator[str]:
    """The page about a batch, in pieces; `results` gives all of them, each time it is called."""
    parts, figures = PageParts(), batch.figures
    day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(batch.began / 1000))
    below = f"Started {day} · {figures.everything.count:,} of {batch.total:,} tasks have ended"
    pieces = [tiles_html(_make_tiles(batch))]
    if figures.reasons:
        pieces.append(_reasons_html(figures.reasons))
    pieces.append(_groups_table_html("By model", figures.by_model))
    if len(figures.by_group) > 1:
        pieces.append(_groups_table_html("By group", figures.by_group))
    if parts.plotter is not None and figures.everything.count:
        pieces.append(plots_html("Figures", list(_make_plots(parts.plotter, figures)), BOXES))
    return parts.render_page(batch.title or "A batch of tasks", below, pieces, _task_tables(results, figures))


def tiles_html(shown: Sequence[tuple[str, str]]) -> str:
    """The HTML of a few large figures, each with its label."""
    return (
        "<ul class=tiles>" + "".join(f"<li><b>{value}</b><span>{what}</span></li>" for value, what in shown) + "</ul>\n"
    )


def _make_tiles(batch: BatchView) -> list[tuple[str, str]]:
    every, figures = batch.figures.everything, batch.figures
    success, samples = every.success, every.samples
    bad = ", ".join(
        f"{figures.by_status[one]:,} {one}" for one in ("failed", "limit", "error") if figures.by_status.get(one)
    )
    per_done = f"; ${samples['cost'].total / every.done:,.4f} for each task that is done" if every.done else ""
    wasted = f"; ${batch.wasted:,.4f} more for attempts that were cut off" if batch.wasted else ""
    return [
        (f"{every.done:,} of {every.count:,}", f"done{f'; {bad}' if bad else ''}"),
        (f"{success.value:.0%}" if every.count else "none yet", f"success, {percent_range(success)}"),
        (f"${samples['cost'].total:,.2f}", f"cost{per_done}{wasted}"),
        (f"{samples['tokens'].total:,.0f}", "tokens"),
        (duration_text(samples["time"].total), "time of all tasks together"),
        (f"{samples['turns'].mean:,.1f}", "mean turns per task"),
        *([(f"{samples['agents'].total:,.0f}", "agents started")] if samples["agents"].total else []),
    ]


def _make_plots(plotter: Plotter, figures: BatchFigures) -> Iterator[Plot]:
    yield plotter.plot_success("Success by model", figures.by_model)
    if len(figures.by_group) > 1:
        yield plotter.plot_success("Success by group", figures.by_group)
    for name, (_, unit) in MEASURES.items():
        # A measure that is the same for all tasks needs no picture.
        if figures.everything.samples[name].squares > 0:
            title = f"{name.capitalize()} by model"
            yield plotter.plot_spread(title, unit, {model: one.values[name] for model, one in figures.by_model.items()})
    if len(figures.by_group) > 1 and figures.everything.samples["cost"].total:
        yield plotter.plot_spread(
            "Cost by group", "US dollars", {g: one.values["cost"] for g, one in figures.by_group.items()}
        )
    if figures.tools:
        yield plotter.plot_counts("Tools", "calls", figures.tools)


def plots_html(title: str, plots: Sequence[Plot], how: str) -> str:
    """Plots side by side, each with a description; `how` explains how to read them."""
    shown = "".join(
        f"<figure><figcaption>{escape_html(one.title)}</figcaption>{_legend_html(one.keys)}"
        f'<div role="img" aria-label="{escape_html(one.title)}. {escape_html(one.words)}">{one.svg}</div></figure>\n'
        for one in plots
    )
    return f"<h2>{escape_html(title)}</h2>\n<p class=how>{escape_html(how)}</p>\n<div class=plots>{shown}</div>\n"


def _legend_html(names: Sequence[str]) -> str:
    """The legend, or nothing for a single colour."""
    keys = "".join(f"<li class=key{number}>{escape_html(name)}</li>" for number, name in enumerate(names, 1))
    return f"<ul class=keys>{keys}</ul>" if keys else ""


def table_html(heads: Sequence[str], rows: Iterable[str]) -> Iterator[str]:
    """A table in pieces, which scrolls sideways on a narrow screen."""
    cells = "".join(f"<th scope=col{LEFT if head in WORDS else ''}>{head}</th>" for head in heads)
    yield f"<div class=wide tabindex=0><table><thead><tr>{cells}</tr></thead><tbody>\n"
    yield from rows
    yield "</tbody></table></div>\n"


def _groups_table_html(title: str, groups: Mapping[str, GroupFigures]) -> str:
    heads = ["", "tasks", "done", "success", *(f"mean {name}" for name in MEASURES), "cost in all"]

    def render_rows() -> Iterator[str]:
        for name, one in sorted(groups.items(), key=lambda item: (-item[1].count, item[0])):
            means = "".join(f"<td>{mean_text(measure, one.samples[measure].estimate)}</td>" for measure in MEASURES)
            success = f"{one.success.value:.0%} <small>{percent_range(one.success)}</small>"
            yield (
                f"<tr><th scope=row{ID}>{escape_html(name)}</th><td>{one.count:,}</td><td>{one.done:,}</td>"
                f"<td>{success}</td>{means}<td>${one.samples['cost'].total:,.4f}</td></tr>\n"
            )

    return f"<h2>{title}</h2>\n" + "".join(table_html(heads, render_rows()))


def _reasons_html(reasons: Mapping[str, int]) -> str:
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    rows = (
        f"<tr><td>{count:,}</td><td{WHY}>{escape_html(reason)}</td></tr>\n" for reason, count in ordered[:MOST_REASONS]
    )
    more = len(ordered) - MOST_REASONS
    note = f"<p><small>{more:,} more reasons are in results.csv.</small></p>\n" if more > 0 else ""
    return "<h2>Why tasks are not done</h2>\n" + "".join(table_html(["tasks", "reason"], rows)) + note


def _task_tables(results: Callable[[], Iterable[TaskResult]], figures: BatchFigures) -> Iterator[str]:
    """All tasks, those that need attention first; in large batches, only the first of each kind."""
    yield '<div id="tasks">\n'
    is_done = figures.everything.done
    for title, count, wanted in (
        ("Tasks that are not done", figures.everything.count - is_done, False),
        ("Tasks that are done", is_done, True),
    ):
        if not count:
            continue
        yield f"<h2>{title} ({count:,})</h2>\n"
        if count > MOST_ROWS:
            yield f"<p><small>The first {MOST_ROWS:,} of {count:,}; results.csv has all.</small></p>\n"
        shown = islice((one for one in results() if (one.status == "done") == wanted), MOST_ROWS)
        columns = _choose_columns(figures, wanted)
        yield from table_html(["task", *columns], (_task_row(one, columns.values()) for one in shown))
    yield "</div>\n"


def _choose_columns(figures: BatchFigures, is_done: bool) -> dict[str, Callable[[TaskResult], str]]:
    """The columns after the name of a task: only those in which tasks differ."""
    columns: dict[str, Callable[[TaskResult], str]] = {}
    if not is_done:
        columns["status"] = lambda one: f"<td>{status_html(one)}</td>"
    if len(figures.by_model) > 1:
        columns["model"] = lambda one: _name_cell(one.model)
    if len(figures.by_group) > 1:
        columns["group"] = lambda one: _name_cell(one.group)
    for name in MEASURES:
        columns[name] = partial(_cell_of_measure, name)
    return columns


def _name_cell(name: str | None) -> str:
    return f'<td{NAME} title="{escape_html(name or "")}">{escape_html(name or "")}</td>'


def _cell_of_measure(name: str, one: TaskResult) -> str:
    return f"<td>{FORMS[name].replace('.1f', '.0f').format(MEASURES[name][0](one))}</td>"


def _task_row(one: TaskResult, columns: Iterable[Callable[[TaskResult], str]]) -> str:
    cells = "".join(column(one) for column in columns)
    return f"<tr><th scope=row{ID}>{session_link(one, one.id)}{why_html(one)}</th>{cells}</tr>\n"


def why_html(one: TaskResult) -> str:
    """Why a task is not done, shown below its name; empty if it is done."""
    if one.status == "done":
        return ""
    return f"<small>{escape_html(' '.join((one.error or 'no reason was given').split())[:300])}</small>"


def status_html(one: TaskResult) -> str:
    return f'<span class="status {one.status}">{one.status}</span>'


def session_link(one: TaskResult, word: str, before: str = "") -> str:
    """A link to the page of a task's conversation; `before` is the path to the batch folder."""
    if one.session is None:
        return escape_html(word)
    return f'<a href="{escape_html(before)}{escape_html(one.folder)}/session.html">{escape_html(word)}</a>'


def percent_range(one: Estimate) -> str:
    """An interval in per cent: `62 to 81 %`."""
    return f"{100 * one.low:.0f} to {100 * one.high:.0f} %"


def mean_text(measure: str, one: Estimate) -> str:
    form = FORMS[measure]
    if one.count < 2 or one.low == one.high:
        return form.format(one.value)
    plain = form.replace(" s", "").replace("$", "")
    return f"{form.format(one.value)} <small>{plain.format(max(0.0, one.low))} to {plain.format(one.high)}</small>"
