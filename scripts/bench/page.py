"""The generated part of docs/speed.md and its pictures, made of docs/speed.json."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import charts
from bench.growth import CHARTS, Curves
from bench.rounds import Figures

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = DOCS / "speed.json"
PAGE = DOCS / "speed.md"
GROWTH_PICTURE, ANSWER_PICTURE = DOCS / "pictures/growth.svg", DOCS / "pictures/answer.svg"
BEGIN, END = "<!-- made by `make bench`: begin -->", "<!-- made by `make bench`: end -->"
# From this exponent on, growth between the two largest sizes is called worse than linear; medians are not exact.
STEEP = 1.15
Column = tuple[str, str, str]
ANSWERS: list[Column] = [
    ("cpu", "CPU", "ms"),
    ("wall", "time", "ms"),
    ("tools_cpu", "CPU with ten shell calls", "ms"),
    ("peak_mb", "memory at its peak", "MB"),
]
STAYING: list[Column] = [
    ("ready_cpu", "start, CPU", "ms"),
    ("answer_cpu", "with the first answer", "ms"),
    ("prompt_cpu", "a short prompt, CPU", "ms"),
    ("first", "prompt to first text", "ms"),
    ("stream_cpu", "10,000 pieces of text, CPU", "ms"),
    ("memory_mb", "memory after an answer", "MB"),
]
LIBRARIES: list[Column] = [("cpu", "one more, CPU", "ms"), ("memory_kb", "memory", "KB")]
SIZES: list[Column] = [("mb", "on the disk", "MB")]


def load() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    return found


def write_all(results: dict[str, Any]) -> None:
    """Write figures, page and pictures."""
    FIGURES.write_text(json.dumps(results, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{render(results)}\n{END}{after}")
    for picture, drawn in draw(results).items():
        picture.write_text(drawn)


def draw(results: dict[str, Any]) -> dict[Path, str]:
    """The pictures that these figures are enough for."""
    drawn = {}
    if "growth" in results:
        drawn[GROWTH_PICTURE] = charts.draw_curves(list(_charts(results)))
    if "answers" in results:
        cpu = {name: 1000 * figures["cpu"] for name, figures in results["answers"]["figures"].items()}
        drawn[ANSWER_PICTURE] = charts.draw_bars("CPU time of one answer, in milliseconds", _plain_names(cpu))
    return drawn


def _plain_names(figures: dict[str, float]) -> dict[str, float]:
    return {name.replace("`", ""): figure for name, figure in figures.items()}


def _charts(results: dict[str, Any]) -> Iterator[tuple[str, Curves]]:
    """The title and the curves of each chart, those of conversations last."""
    for chart in CHARTS:
        if curves := results.get("growth", {"figures": {}})["figures"].get(chart.title):
            yield f"{chart.title}: CPU, {chart.unit}", _numbered(curves)
    if "conversations" in results:
        for figure, unit in (("memory", "memory, MB"), ("cpu", "CPU, s")):
            yield f"conversations of a server: {unit}", _numbered(results["conversations"]["figures"][figure])


def _numbered(curves: dict[str, dict[Any, float]]) -> Curves:
    """JSON has made texts of the sizes."""
    return {
        name.replace("`", ""): {int(size): figure for size, figure in points.items()} for name, points in curves.items()
    }


def render(results: dict[str, Any]) -> str:
    """The tables as Markdown."""
    parts = [_tell_run(results)] if "versions" in results else []
    if "answers" in results:
        parts += ["### One answer from the command line", _table(results["answers"]["figures"], ANSWERS)]
        parts += ["![CPU time of one answer](pictures/answer.svg)"]
    if "staying" in results:
        parts += ["### Agents that stay", _table(results["staying"]["figures"], STAYING)]
    if "libraries" in results:
        parts += ["### Agents in one Python process", _table(results["libraries"]["figures"], LIBRARIES)]
    if "sizes" in results:
        parts += ["### Size of an installation", _table(results["sizes"]["figures"], SIZES)]
    if "growth" in results or "conversations" in results:
        parts += ["### Growth", "![How cost grows](pictures/growth.svg)", _growth_table(results)]
    return "\n\n".join(parts) + "\n"


def _tell_run(results: dict[str, Any]) -> str:
    machine = results["machine"]
    versions = ", ".join(f"{title} {version}" for title, version in results["versions"].items())
    measured = [part for part in results.values() if "load" in part]
    dates = sorted({part["date"] for part in measured})
    load = max(part["load"] for part in measured)
    rounds = sorted({part["rounds"] for part in measured})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    counted = " to ".join(dict.fromkeys((str(rounds[0]), str(rounds[-1]))))
    told = "One interleaved round" if rounds == [1] else f"Medians of {counted} interleaved rounds"
    return (
        f"{told}, {when}, {machine['cores']} cores, Python {machine['python']}. The machine had a load of up to "
        f"{load}, which disturbs times more than CPU time. {versions}."
    )


def _table(table: dict[str, Figures], columns: list[Column]) -> str:
    """The rows in the order of their first column; the best figure of each column is bold."""
    names = sorted(table, key=lambda name: table[name].get(columns[0][0], math.inf))
    best = {
        key: min((row[key] for row in table.values() if row.get(key, math.nan) > 0), default=0) for key, _, _ in columns
    }
    lines = ["| agent |" + "".join(f" {title} |" for _, title, _ in columns), "|---|" + "---:|" * len(columns)]
    for name in names:
        cells = []
        for key, _, unit in columns:
            figure = table[name].get(key)
            shown = (
                "" if figure is None or math.isnan(figure) else f"{show(figure * (1000 if unit == 'ms' else 1))} {unit}"
            )
            cells.append(f" **{shown}** |" if shown and figure == best[key] else f" {shown} |")
        lines.append(f"| {name} |" + "".join(cells))
    return "\n".join(lines)


def show(figure: float) -> str:
    """Two digits that count, or all before the point."""
    return f"{figure:,.0f}" if figure >= 10 else f"{figure:.2g}" if figure >= 1 else f"{figure:.2f}"


def _growth_table(results: dict[str, Any]) -> str:
    lines = ["| growing | agent | figures | growth |", "|---|---|---|---|"]
    for title, curves in _charts(results):
        for name, points in curves.items():
            shown = ", ".join(f"{show(figure)} at {size:,}" for size, figure in sorted(points.items()))
            power = exponent_of(points)
            grown = (
                "no growth"
                if power is None
                else f"{'**' if power > STEEP else ''}n^{power:.1f}{'**' if power > STEEP else ''}"
            )
            lines.append(f"| {title} | {name} | {shown} | {grown} |")
    return "\n".join(lines)


def exponent_of(points: dict[int, float]) -> float | None:
    """By which power cost grew between the two largest sizes, over what the smallest costs; None if it hardly did."""
    sizes = sorted(points)
    if len(sizes) < 3:
        return None
    base, before, last = (points[size] for size in (sizes[0], sizes[-2], sizes[-1]))
    if last - base < 0.25 * base or before <= base:
        return None
    return math.log((last - base) / (before - base)) / math.log(sizes[-1] / sizes[-2])
