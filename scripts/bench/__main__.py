"""Measures Pigeon beside the other agents that are installed, and writes docs/speed.md and its pictures.

    make bench-peers                                        installs the others, once
    make bench                                              everything: about half an hour on two idle cores
    make bench ARGS="--parts answers --agents pigeon,codex --rounds 9"
    make bench ARGS="--draw"                                page and pictures once more, from docs/speed.json

Figures are CPU seconds of all processes of an agent, which other work on the machine disturbs little; times that pass
need an idle machine. Only complete parts replace what stands in docs/speed.json: with `--agents` nothing is written,
and the tables are printed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import time
from typing import Any

from bench import growth, page, rows
from bench.peers import ALL
from bench.rounds import report

TABLES = {
    "answers": rows.measure_answers,
    "staying": rows.measure_staying,
    "libraries": rows.measure_libraries,
    "sizes": rows.measure_sizes,
}
PARTS = (*TABLES, "growth", "conversations")
NAMES = ("pigeon", *(peer.name for peer in ALL[1:]), "openai-agents", "pydantic-ai")


def measure(part: str, names: set[str], rounds: int) -> dict[str, Any]:
    """What one part has found, with the load of the machine while it was measured."""
    began = time.monotonic()
    if part in TABLES:
        figures: Any = TABLES[part](rounds, names)
    elif part == "growth":
        rounds = max(1, rounds // 2)
        figures = {chart.title: growth.measure(chart, rounds, names) for chart in growth.CHARTS}
    else:
        rounds = max(1, rounds // 3)
        figures = growth.measure_conversations(rounds, names)
    report(f"{part}: measured in {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"figures": figures, "load": round(os.getloadavg()[2], 1), "rounds": rounds, "date": today}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--agents", help=f"some of: {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    asked = parser.parse_args(arguments)
    asked.parts = asked.parts.split(",")
    asked.chosen = asked.agents.split(",") if asked.agents else list(NAMES)
    for option, given, known in (("--parts", asked.parts, PARTS), ("--agents", asked.chosen, NAMES)):
        unknown = sorted(set(given) - set(known))
        if unknown:
            parser.error(f"{option}: {', '.join(unknown)} is none of {', '.join(known)}")
    if asked.rounds < 1:
        parser.error("--rounds must be at least 1")
    return asked


def main(arguments: list[str]) -> int:
    asked = parse(arguments)
    if asked.draw:
        page.write_all(page.load())
        return 0
    names = set(asked.chosen)
    if asked.agents:
        sys.stdout.write(page.render({part: measure(part, names, asked.rounds) for part in asked.parts}))
        return 0
    versions = {peer.title: peer.version for peer in ALL if peer.is_installed()}
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.machine()}
    for part in asked.parts:
        # Each part at once: what comes later may take long, or fail.
        found = {part: measure(part, names, asked.rounds)}
        page.write_all({**page.load(), "versions": versions, "machine": machine, **found})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
