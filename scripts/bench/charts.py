"""Charts as SVG: without scripts, with the fonts of the system, light or dark as the reader has chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

STYLE = """
svg{--back:#fff;--text:#1f2328;--dim:#6e7781;--grid:#d8dee4;--c0:#0969da;--c1:#cf222e;--c2:#8250df;--c3:#1a7f37;
--c4:#9a6700;--c5:#0a7ea4}
@media (prefers-color-scheme:dark){svg{--back:#0d1117;--text:#e6edf3;--dim:#8b949e;--grid:#30363d;--c0:#4493f8;
--c1:#ff7b72;--c2:#d2a8ff;--c3:#56d364;--c4:#e3b341;--c5:#39c5cf}}
text{font:12px system-ui,sans-serif;fill:var(--text)}
.back{fill:var(--back)}.dim{fill:var(--dim)}.grid{stroke:var(--grid)}.head{font-weight:600}.end{text-anchor:end}
.mid{text-anchor:middle}path{fill:none;stroke-width:2}
"""
COLOURS = 6
# The curves of one panel, and where its parts are.
PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 370, 250, 52, 34, 30, 34
Curves = dict[str, dict[int, float]]


def draw_curves(panels: Sequence[tuple[str, Curves]]) -> str:
    """Both axes of every panel are logarithmic, so that linear growth has the slope of the dotted line."""
    names = list(dict.fromkeys(name for _, curves in panels for name in curves))
    colours = {name: f"var(--c{min(number, COLOURS - 1)})" for number, name in enumerate(names)}
    rows = -(-len(panels) // 2)
    width, height = 2 * PANEL_WIDTH, rows * PANEL_HEIGHT + 60
    shown = []
    for number, (title, curves) in enumerate(panels):
        place = f"translate({number % 2 * PANEL_WIDTH},{number // 2 * PANEL_HEIGHT})"
        shown.append(f'<g transform="{place}">{_panel(title, curves, colours)}</g>')
    legend, at = [], 20.0
    for name in names:
        y = rows * PANEL_HEIGHT + 20
        legend.append(
            f'<path d="M{at} {y}h18" stroke="{colours[name]}"/><text x="{at + 24}" y="{y + 4}">{escape(name)}</text>'
        )
        at += 50 + 7 * len(name)
    legend.append(f'<text class="dim end" x="{width - 14}" y="{rows * PANEL_HEIGHT + 46}">dotted: linear growth</text>')
    return _picture(width, height, "How cost grows with the work", [*shown, *legend])


def _panel(title: str, curves: Curves, colours: dict[str, str]) -> str:
    points = [(size, figure) for one in curves.values() for size, figure in one.items() if figure > 0]
    left, right = _powers(size for size, _ in points)
    low, high = _powers(figure for _, figure in points)
    across, up = PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM

    def x(size: float) -> float:
        return LEFT + across * (math.log10(size) - left) / (right - left)

    def y(figure: float) -> float:
        return TOP + up * (1 - (math.log10(figure) - low) / (high - low))

    parts = [f'<text class="head" x="{LEFT}" y="18">{escape(title)}</text>']
    for power in range(left, right + 1):
        at = x(10**power)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{TOP + up}"/>')
        parts.append(f'<text class="dim mid" x="{at:.1f}" y="{TOP + up + 16}">{_short(power)}</text>')
    for power in range(low, high + 1):
        at = y(10**power)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{LEFT + across}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="dim end" x="{LEFT - 6}" y="{at + 4:.1f}">{_short(power)}</text>')
    steps = min(right - left, high - low)
    end = f"{x(10**right):.1f} {y(10 ** (low + steps)):.1f}"
    guide = f"M{x(10 ** (right - steps)):.1f} {y(10**low):.1f}L{end}"
    parts.append(f'<path d="{guide}" stroke="var(--dim)" style="stroke-width:1;stroke-dasharray:2 4"/>')
    for name, curve in curves.items():
        line = "L".join(f"{x(size):.1f} {y(figure):.1f}" for size, figure in sorted(curve.items()) if figure > 0)
        parts.append(f'<path d="M{line}" stroke="{colours[name]}"/>')
        parts += [
            f'<circle cx="{x(size):.1f}" cy="{y(figure):.1f}" r="3" fill="{colours[name]}"/>'
            for size, figure in curve.items()
            if figure > 0
        ]
    return "".join(parts)


def _powers(figures: object) -> tuple[int, int]:
    """The powers of ten around these figures, two at least."""
    some = [math.log10(figure) for figure in figures]  # type: ignore[attr-defined]
    low, high = math.floor(min(some) + 1e-9), math.ceil(max(some) - 1e-9)
    return (low, high) if high > low else (low, low + 1)


def _short(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10**power:.{-power}f}"


def draw_bars(title: str, figures: dict[str, float]) -> str:
    """One bar for each, the shortest first."""
    width, line, left = 720, 24, 200
    longest = max(figures.values())
    parts = [f'<text class="head" x="14" y="20">{escape(title)}</text>']
    for number, (name, figure) in enumerate(sorted(figures.items(), key=lambda item: item[1])):
        y = 36 + line * number
        size = (width - left - 80) * figure / longest
        colour = "var(--c0)" if name.startswith("Pigeon") else "var(--dim)"
        parts.append(f'<text class="end" x="{left - 8}" y="{y + 13}">{escape(name)}</text>')
        parts.append(f'<rect x="{left}" y="{y}" width="{size:.1f}" height="{line - 7}" fill="{colour}"/>')
        parts.append(f'<text class="dim" x="{left + size + 6:.1f}" y="{y + 13}">{figure:,.0f}</text>')
    return _picture(width, 44 + line * len(figures), title, parts)


def _picture(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
    return "\n".join(
        [
            f'{head}role="img" aria-labelledby="title">',
            f'<title id="title">{escape(title)}</title>',
            f"<style>{STYLE}</style>",
            f'<rect class="back" width="{width}" height="{height}"/>',
            *parts,
            "</svg>\n",
        ]
    )
