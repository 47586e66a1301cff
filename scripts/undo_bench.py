"""What checkpoints cost: `make undo-bench`.

Folders of 1,000 and 50,000 files are made below a temporary folder. A checkpoint is all that a prompt with one command
costs: the look before it, the look after it, and recording the one file that it has changed. Each figure is the median
of some rounds, in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.recorded_workspace import RecordedWorkspace

SIZES = (1_000, 50_000)
LINES = 100


def make_folder(folder: Path, files: int) -> None:
    """Folders of 20 files of about 1.5 KB."""
    for number in range(files):
        place = folder / f"d{number // 800}" / f"s{number // 20 % 40}"
        if number % 20 == 0:
            place.mkdir(parents=True, exist_ok=True)
        (place / f"f{number % 20}.py").write_text(f"file {number}\n" * LINES)


async def measure(rounds: int, work: Callable[[int], Awaitable[object]]) -> float:
    times = []
    for number in range(rounds):
        began = time.perf_counter()
        await work(number)
        times.append((time.perf_counter() - began) * 1000)
    return median(times)


async def measure_folder(base: Path, files: int, rounds: int) -> dict[str, float]:
    folder = base / f"files-{files}"
    make_folder(folder, files)
    # Just made, all files would be read once more: their times could not tell a change.
    await asyncio.sleep(3)
    recorded = RecordedWorkspace(folder, base / f"base-{files}")
    found: dict[str, float] = {}
    recorded.begin_prompt()

    async def look_first(number: int) -> None:
        recorded.checkpoints.prepare()
        await recorded.checkpoints.list_checkpoints()

    found["first look"] = await measure(1, look_first)

    async def run_prompt(change: Callable[[int], object], number: int) -> None:
        recorded.begin_prompt()
        await recorded.command(lambda: change(number))
        await recorded.end_prompt()

    def change_one(number: int) -> None:
        (folder / "d0" / "s0" / "f1.py").write_text(f"{number}\n")

    found["command, nothing changed"] = await measure(rounds, lambda number: run_prompt(lambda _: None, number))
    found["command, one file changed"] = await measure(rounds, lambda number: run_prompt(change_one, number))

    async def write_one(number: int) -> None:
        recorded.begin_prompt()
        await recorded.write("d0/s0/f2.py", b"%d\n" % number)
        await recorded.end_prompt()

    found["write"] = await measure(rounds, write_one)

    async def read_only(number: int) -> None:
        recorded.begin_prompt()
        await recorded.end_prompt()

    found["prompt without changes"] = await measure(rounds, read_only)
    tree = recorded.checkpoints._open_workspace().tree
    assert tree is not None
    found["one look"] = await measure(rounds, lambda number: tree.look(keeps_ignored=False))
    await recorded.close()
    return found


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--files", type=int, nargs="*", default=SIZES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pigeon-undo-bench-") as made:
        columns = {files: await measure_folder(Path(made), files, options.rounds) for files in options.files}
    rows = [f"{'ms, median':32}" + "".join(f"{files:>12,}" for files in columns)]
    for name in next(iter(columns.values())):
        rows.append(f"{name:32}" + "".join(f"{column[name]:12.2f}" for column in columns.values()))
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
