"""The counters of `pigeon serve`, and their text form for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CountName = Literal["runs", "worker_restarts", "worker_wakes", "events", "sent_bytes", "received_bytes"]


TOTALS: dict[CountName, str] = {
    "runs": "Runs that have ended.",
    "worker_restarts": "Workers that died and were started again.",
    "worker_wakes": "Workers that were started.",
    "events": "Events that conversations have announced.",
    "sent_bytes": "Bytes of records sent to clients.",
    "received_bytes": "Bytes of records received from clients.",
}


class ServeCounts:
    """Counters since the start: `refused` by reason, `answered` by method, route and status.

    `write_log` is called with everything that `count_and_log` counts.
    """

    def __init__(self, write_log: Callable[[CountName, str], None] = lambda name, session: None) -> None:
        self._write_log = write_log
        self.totals: Counter[CountName] = Counter()
        self.refused: Counter[str] = Counter()
        self.answered: Counter[tuple[str, str, int]] = Counter()

    def count(self, name: CountName, number: int = 1) -> None:
        self.totals[name] += number

    def count_and_log(self, name: CountName, session: str) -> None:
        """Increment a counter, and log the event with its conversation."""
        self.count(name)
        self._write_log(name, session)

    def count_refusal(self, reason: str) -> None:
        self.refused[reason] += 1

    def count_answer(self, method: str, route: str, status: int) -> None:
        self.answered[method, route, status] += 1


class Gauge(Struct, frozen=True):
    """A current value, by the values of one label."""

    name: str
    help: str
    label: str
    values: dict[str, float]


def prometheus_text_of(counts: ServeCounts, gauges: Sequence[Gauge]) -> str:
    """All counters and gauges in the text format of Prometheus."""
    lines: list[str] = []
    for name, help in TOTALS.items():
        lines += _format_metric_head(f"pigeon_{name}_total", help, "counter")
        lines.append(f"pigeon_{name}_total {counts.totals[name]}")
    lines += _format_metric_head("pigeon_refused_total", "What was refused, by reason.", "counter")
    lines += [f'pigeon_refused_total{{reason="{reason}"}} {value}' for reason, value in sorted(counts.refused.items())]
    lines += _format_metric_head("pigeon_http_requests_total", "Requests that were answered.", "counter")
    for (method, route, status), value in sorted(counts.answered.items()):
        labels = f'method="{method}",route="{route}",status="{status}"'
        lines.append(f"pigeon_http_requests_total{{{labels}}} {value}")
    for gauge in gauges:
        lines += _format_metric_head(gauge.name, gauge.help, "gauge")
        for value_of_label, figure in gauge.values.items():
            labels = f'{{{gauge.label}="{value_of_label}"}}' if gauge.label else ""
            lines.append(f"{gauge.name}{labels} {figure:g}" if figure < 1e6 else f"{gauge.name}{labels} {figure:.0f}")
    return "\n".join(lines) + "\n"


def _format_metric_head(name: str, help: str, kind: str) -> list[str]:
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
