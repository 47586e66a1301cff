"""Plots as SVG that stands in a page: drawn by matplotlib (extra `report`), coloured by the page.

matplotlib writes colours and fonts as `style` attributes, which the page's content security policy does not allow. So
each style becomes a class with a rule in the page's sheet, and the colours that a plot is drawn with are stand-ins for
the page's own, which differ between light and dark. Text stays text, so that it can be selected, found and read aloud.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from pigeon.frontends.batch.report.measured import MOST_ROWS, GroupFigures, largest_groups, title_of_largest
from pigeon.frontends.batch.report.statistics import Estimate, median

NO_EXTRA = "Plots need matplotlib, and Parquet needs pyarrow"
# The colours used for drawing, and the page's colours that replace them.
TEXT, LINE, DIM = "#010101", "#020202", "#030303"
SERIES = ("#110101", "#110202", "#110303", "#110404", "#110505", "#110606")
VARIABLES = {TEXT: "--text", LINE: "--line", DIM: "--dim"} | {
    colour: f"--plot{number}" for number, colour in enumerate(SERIES, 1)
}
LONGEST_LABEL = 26
# Inches.
WIDTH = 5.4
_STYLE = re.compile(r' style="([^"]*)"')
_ID = re.compile(r'(\bid="|url\(#|href="#)')


class Plot(Struct, frozen=True):
    """A plot: its title, a description in words, its SVG, and the names of its colours in order."""

    title: str
    words: str
    svg: str
    keys: tuple[str, ...] = ()


class Plotter:
    """Draws plots for one page; `rules` is what its sheet needs for them. Raises `ImportError` without matplotlib."""

    def __init__(self) -> None:
        import matplotlib
        import matplotlib.figure
        import matplotlib.ticker

        self._matplotlib = matplotlib
        self._classes: dict[str, str] = {}
        self._count = 0

    @property
    def rules(self) -> str:
        return "\n".join(f".{name} {{ {rule} }}" for rule, name in self._classes.items())

    def plot_success(self, title: str, groups: Mapping[str, GroupFigures]) -> Plot:
        """The share of tasks that are done, with its interval."""
        rows = [(name, groups[name].success) for name in largest_groups(groups)]
        return self.plot_side_by_side(title_of_largest(title, groups), {"": rows})

    def plot_side_by_side(self, title: str, batches: Mapping[str, Sequence[tuple[str, Estimate]]]) -> Plot:
        """The success of two batches, group by group."""
        words = "; ".join(
            f"{batch} {name}: {one.value:.0%} of {one.count}" for batch, rows in batches.items() for name, one in rows
        )
        return self._plot_estimates(title, words, batches, "share of tasks that are done", 100)

    def plot_differences(self, title: str, rows: Sequence[tuple[str, Estimate]]) -> Plot:
        """Changes in per cent, with their intervals."""
        words = "; ".join(f"{name}: {one.value:+.1%}, from {one.low:+.1%} to {one.high:+.1%}" for name, one in rows)
        return self._plot_estimates(title, words, {"": rows}, "change in %", None)

    def _plot_estimates(
        self,
        title: str,
        words: str,
        batches: Mapping[str, Sequence[tuple[str, Estimate]]],
        label: str,
        most: float | None,
    ) -> Plot:
        names = list(dict.fromkeys(name for rows in batches.values() for name, _ in rows))
        # The page shows no plot higher than wide, because its letters would shrink.
        height = min(WIDTH, 0.75 + 0.34 * len(names) * max(1, len(batches)) ** 0.7)
        figure, axes = self._make_figure(WIDTH, height)
        for number, rows in enumerate(batches.values()):
            shift = (number - (len(batches) - 1) / 2) * 0.3
            places = [names.index(name) + shift for name, _ in rows]
            values = [100 * one.value for _, one in rows]
            spread = [
                [100 * max(0.0, one.value - one.low) for _, one in rows],
                [100 * max(0.0, one.high - one.value) for _, one in rows],
            ]
            axes.errorbar(
                values,
                places,
                xerr=spread,
                fmt="o",
                color=SERIES[number],
                markersize=6,
                capsize=3,
                linewidth=2,
            )
        axes.set_yticks(range(len(names)), [_shorten_label(name) for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
        if most is not None:
            axes.set_xlim(-2, most + 2)
        else:
            axes.axvline(0, color=DIM, linewidth=1)
        axes.set_xlabel(label if most is None else f"{label}, in %")
        return self._to_plot(figure, title, words, tuple(batches) if len(batches) > 1 else ())

    def plot_spread(self, title: str, unit: str, groups: Mapping[str, Sequence[float]]) -> Plot:
        """The distribution of a measure: the middle half as a box, the rest as lines, single tasks as points."""
        shown = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))[:MOST_ROWS]
        words = "; ".join(f"{name}: median {median(list(values)):,.4g}" for name, values in shown)
        figure, axes = self._make_figure(5.4, 0.85 + 0.42 * len(shown))
        drawn = axes.boxplot(
            [list(values) for _, values in shown],
            orientation="horizontal",
            widths=0.55,
            patch_artist=True,
            whis=(5, 95),
            flierprops={"marker": ".", "markersize": 4, "markerfacecolor": DIM, "markeredgecolor": DIM},
        )
        for part in ("whiskers", "caps"):
            for line in drawn[part]:
                line.set(color=SERIES[0], linewidth=1.5)
        for box in drawn["boxes"]:
            box.set(facecolor=SERIES[0], edgecolor=SERIES[0], alpha=0.45)
        for line in drawn["medians"]:
            line.set(color=TEXT, linewidth=2)
        axes.set_yticks(range(1, len(shown) + 1), [_shorten_label(name) for name, _ in shown])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel(f"{unit} per task")
        return self._to_plot(figure, title, words)

    def plot_counts(self, title: str, label: str, counted: Mapping[str, float]) -> Plot:
        shown = sorted(counted.items(), key=lambda item: -item[1])[:MOST_ROWS]
        words = "; ".join(f"{name}: {count:,.0f}" for name, count in shown)
        figure, axes = self._make_figure(5.4, 0.75 + 0.3 * len(shown))
        axes.barh(range(len(shown)), [count for _, count in shown], color=SERIES[0], height=0.62)
        axes.set_yticks(range(len(shown)), [_shorten_label(name) for name, _ in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlabel(label)
        return self._to_plot(figure, title, words)

    def plot_pairs(self, title: str, unit: str, names: tuple[str, str], pairs: Sequence[tuple[float, float]]) -> Plot:
        """Each task as a point: the first batch on one axis, the second on the other."""
        figure, axes = self._make_figure(5.4, 4.4)
        most = max((max(pair) for pair in pairs), default=1.0) * 1.05 or 1.0
        axes.plot([0, most], [0, most], color=DIM, linewidth=1)
        axes.plot([one for one, _ in pairs], [other for _, other in pairs], ".", color=SERIES[0], alpha=0.6)
        axes.set_xlim(0, most)
        axes.set_ylim(0, most)
        axes.set_xlabel(f"{unit}, {_shorten_label(names[0])}")
        axes.set_ylabel(f"{unit}, {_shorten_label(names[1])}")
        above = sum(other > one for one, other in pairs)
        words = f"{above} of {len(pairs)} tasks took more in {names[1]} than in {names[0]}"
        return self._to_plot(figure, title, words)

    def _make_figure(self, width: float, height: float) -> tuple[Any, Any]:
        # Not pyplot, which keeps all figures and needs a display.
        figure = self._matplotlib.figure.Figure(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(LINE)
        axes.tick_params(colors=TEXT, length=0, labelsize=10)
        axes.xaxis.label.set_color(DIM)
        axes.yaxis.label.set_color(DIM)
        axes.xaxis.grid(visible=True, color=LINE, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.xaxis.set_major_locator(self._matplotlib.ticker.MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(self._matplotlib.ticker.FuncFormatter(_format_number))
        axes.patch.set_visible(False)
        figure.patch.set_visible(False)
        return figure, axes

    def _to_plot(self, figure: Any, title: str, words: str, keys: tuple[str, ...] = ()) -> Plot:
        self._count += 1
        written = io.StringIO()
        settings = {"svg.fonttype": "none", "svg.hashsalt": "pigeon"}
        # The browser draws the text with its own fonts, so glyphs that matplotlib lacks do not matter.
        with self._matplotlib.rc_context(settings), warnings.catch_warnings(), self._silenced_logging():
            warnings.simplefilter("ignore")
            figure.savefig(written, format="svg", metadata={"Date": None})
        return Plot(title, words, self._make_svg_embeddable(written.getvalue()), keys)

    @contextmanager
    def _silenced_logging(self) -> Iterator[None]:
        logger = logging.getLogger("matplotlib")
        before = logger.level
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(before)

    def _make_svg_embeddable(self, text: str) -> str:
        """The SVG alone, with classes instead of styles, and with ids that are unique on the page."""
        svg = text[text.index("<svg") :].strip()
        svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
        svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
        svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
        svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
        svg = _ID.sub(rf"\g<1>g{self._count}-", svg)
        return _STYLE.sub(self._to_class_attribute, svg)

    def _to_class_attribute(self, found: re.Match[str]) -> str:
        rule = re.sub(r"font: ([\d.]+)px [^;]*", r"font-size: \1px", found[1])
        for colour, variable in VARIABLES.items():
            rule = rule.replace(colour, f"var({variable})")
        name = self._classes.setdefault(rule, f"s{len(self._classes)}")
        return f' class="{name}"'


def _shorten_label(name: str) -> str:
    """A label that fits: the last part or the end of a long one. `$` would begin a formula."""
    name = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
    last = name.rpartition("/")[2] if len(name) > LONGEST_LABEL else name
    text = last if len(last) <= LONGEST_LABEL else f"…{last[-LONGEST_LABEL + 1 :]}"
    return text.replace("$", r"\$")


def _format_number(value: float, _: object) -> str:
    """A figure of an axis: `0.05`, `1,200`, `150k`, `2.5M`."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * unit or (abs(value) >= unit > 1e3):
            return f"{value / unit:g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
