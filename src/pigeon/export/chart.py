"""Tokens and cost over a run, drawn as SVG inside the page, with the same figures as a table for those who read it.

Nothing of a session is text here: all that is drawn are numbers. A long run is drawn in groups of answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pigeon.wire.model import Usage

MOST_BARS = 90
MOST_ROWS = 30
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 340, 150, 8, 22, 18


class Spent(Struct):
    """The usage of answers: new tokens, tokens from the cache, tokens written to it, and dollars."""

    new: float = 0
    cached: float = 0
    out: float = 0
    cost: float = 0

    def add(self, usage: Usage) -> None:
        """Add the usage of one more answer to the sums."""
        self.new += _to_sane_figure(usage.input) + _to_sane_figure(usage.cache_write)
        self.cached += _to_sane_figure(usage.cache_read)
        self.out += _to_sane_figure(usage.output)
        self.cost += _to_sane_figure(usage.cost.total)


def spent_of(usage: Usage) -> Spent:
    """Returns the tokens and dollars that one answer used."""
    spent = Spent()
    spent.add(usage)
    return spent


def chart_html(answers: Sequence[Spent]) -> str:
    """Both pictures and the table; empty for fewer than two answers."""
    if len(answers) < 2:
        return ""
    bars = _group_answers(answers, MOST_BARS)
    total = sum(spent.cost for spent in answers)
    most = max(spent.new + spent.cached + spent.out for spent in bars)
    per = "answer" if len(bars) == len(answers) else f"{-(-len(answers) // len(bars))} answers"
    tokens = (
        f"Tokens of {len(answers):,} answers in order. At most {most:,.0f} tokens for each {per}; "
        f"{sum(spent.cached for spent in answers):,.0f} tokens in all were read from the cache, "
        f"{sum(spent.new for spent in answers):,.0f} were new and {sum(spent.out for spent in answers):,.0f} written."
    )
    cost = f"Cost so far after each {per}: ${total:,.4f} in the end."
    return (
        '<div class="charts">'
        f"{_figure_svg('Tokens per ' + per, tokens, _bars_svg(bars, most), f'{most:,.0f}', len(answers))}"
        f"{_figure_svg('Cost so far', cost, _cost_line_svg(bars, total), f'${total:,.2f}', len(answers))}</div>"
        '<p class="legend"><span class="key-cached">from cache</span> <span class="key-new">new</span> '
        f'<span class="key-out">written by the model</span></p>{_table_html(answers)}'
    )


def _group_answers(answers: Sequence[Spent], most: int) -> list[Spent]:
    size = -(-len(answers) // most)
    groups = []
    for at in range(0, len(answers), size):
        group = Spent()
        for spent in answers[at : at + size]:
            group.new += spent.new
            group.cached += spent.cached
            group.out += spent.out
            group.cost += spent.cost
        groups.append(group)
    return groups


def _figure_svg(title: str, said: str, drawing: str, top: str, count: int) -> str:
    return (
        f'<figure><svg role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-label="{title}. {said}">'
        f'<text x="{_LEFT}" y="14" class="head">{title}</text>'
        f'<text x="{_WIDTH - _LEFT}" y="14" class="top" text-anchor="end">{top}</text>'
        f'<line x1="{_LEFT}" y1="{_TOP}" x2="{_WIDTH - _LEFT}" y2="{_TOP}"/>{drawing}'
        f'<line x1="{_LEFT}" y1="{_HEIGHT - _BOTTOM}" x2="{_WIDTH - _LEFT}" y2="{_HEIGHT - _BOTTOM}"/>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 4}">answer 1</text>'
        f'<text x="{_WIDTH - _LEFT}" y="{_HEIGHT - 4}" text-anchor="end">answer {count:,}</text></svg></figure>'
    )


def _bars_svg(bars: Sequence[Spent], most: float) -> str:
    room = (_WIDTH - 2 * _LEFT) / len(bars)
    gap = min(2.0, room / 4)
    drawn = []
    for at, spent in enumerate(bars):
        bottom = float(_HEIGHT - _BOTTOM)
        for kind, value in (("cached", spent.cached), ("new", spent.new), ("out", spent.out)):
            height = _share(value, most) * (_HEIGHT - _TOP - _BOTTOM)
            bottom -= height
            if height >= 0.05:
                drawn.append(
                    f'<rect class="{kind}" x="{_LEFT + at * room + gap / 2:.1f}" y="{bottom:.1f}" '
                    f'width="{room - gap:.1f}" height="{height:.1f}"/>'
                )
    return "".join(drawn)


def _cost_line_svg(bars: Sequence[Spent], total: float) -> str:
    """A line of steps, filled below."""
    room = (_WIDTH - 2 * _LEFT) / len(bars)
    base = _HEIGHT - _BOTTOM
    steps, so_far = [f"M{_LEFT} {base}"], 0.0
    for at, spent in enumerate(bars):
        so_far += spent.cost
        height = _share(so_far, total) * (_HEIGHT - _TOP - _BOTTOM)
        steps.append(f"V{base - height:.1f}H{_LEFT + (at + 1) * room:.1f}")
    return f'<path class="cost" d="{"".join(steps)}V{base}Z"/>'


def _to_sane_figure(figure: float) -> float:
    """A figure that can be added and drawn, whatever the session contains."""
    return min(1e12, max(0.0, figure))


def _share(value: float, most: float) -> float:
    return min(1.0, value / most) if most > 0 else 0.0


def _table_html(answers: Sequence[Spent]) -> str:
    size = -(-len(answers) // MOST_ROWS)
    so_far, rows = 0.0, []
    for at, spent in enumerate(_group_answers(answers, MOST_ROWS)):
        so_far += spent.cost
        first, last = at * size + 1, min(len(answers), (at + 1) * size)
        name = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        figures = "".join(f"<td>{value:,.0f}</td>" for value in (spent.cached, spent.new, spent.out))
        rows.append(f"<tr><th>{name}</th>{figures}<td>${spent.cost:,.4f}</td><td>${so_far:,.4f}</td></tr>")
    heads = "".join(f"<th>{head}</th>" for head in ("answer", "from cache", "new", "written", "cost", "cost so far"))
    return (
        f'<details><summary>the figures</summary><div class="inner"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></details>"
    )
