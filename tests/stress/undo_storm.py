"""Thousands of random sequences of changes and undos: `make undo-storm N=10000 SEED=1`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hypothesis import HealthCheck, given, seed, settings

from support.undo_sequences import COUNTS, STEPS, run_sequence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()

    @seed(options.seed)
    @settings(
        max_examples=options.n, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True
    )
    @given(STEPS)
    def run(steps: list[tuple[str, int]]) -> None:
        run_sequence(steps)
        COUNTS["sequences"] += 1

    run()
    lines = [f"{name:20}{count:10,}" for name, count in sorted(COUNTS.items())]
    sys.stdout.write("\n".join([*lines, f"no violation in {time.monotonic() - began:.0f} s\n"]))


if __name__ == "__main__":
    main()
