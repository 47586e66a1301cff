"""What a task of `pigeon batch` costs: time beyond that of `pigeon -p`, and the memory of the driver.

    python scripts/batch_bench.py [--tasks 10000] [--calls 30]

The first half runs the same prompt with a scripted model, first by single calls of `pigeon -p`, one after the other,
then as a batch with one task at a time. The second half runs many tasks and looks at the memory of the driver
meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

PIGEON = [sys.executable, "-m", "pigeon"]
PROMPT = "Say hello."


def environment(folder: Path) -> dict[str, str]:
    """No key, and nothing of the user's own configuration."""
    agent = folder / "agent"
    agent.mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "HOME": str(folder), "PI_CODING_AGENT_DIR": str(agent), "PI_OFFLINE": "1"}


def single_calls(folder: Path, model: str, count: int) -> list[float]:
    """Seconds of each call of `pigeon -p`."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        subprocess.run(
            [*PIGEON, "-p", PROMPT, "--model", model],
            cwd=folder,
            env=environment(folder),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        times.append(time.perf_counter() - began)
    return times


def write_tasks(path: Path, model: str, count: int) -> None:
    """A file of tasks that differ in their ids alone."""
    with path.open("w") as file:
        for number in range(count):
            file.write(json.dumps({"id": f"t{number}", "prompt": PROMPT, "model": model}) + "\n")


def batch(folder: Path, count: int, model: str, *arguments: str) -> tuple[float, list[int]]:
    """Run a batch; its seconds without the start, and the memory of the driver as tasks ended, in KB."""
    tasks, out = folder / f"{count}.jsonl", folder / f"out-{count}-{len(arguments)}"
    write_tasks(tasks, model, count)
    driver = subprocess.Popen(
        [*PIGEON, "batch", str(tasks), "--out", str(out), "--no-report", "--keep", "none", *arguments],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    memory: list[int] = []
    while driver.poll() is None:
        try:
            lines = Path(f"/proc/{driver.pid}/status").read_text().splitlines()
            memory += [int(line.split()[1]) for line in lines if line.startswith("VmRSS")]
        except OSError:
            pass
        threading.Event().wait(0.25)
    results = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert len(results) == count
    assert all(one["status"] == "done" for one in results)
    began = [one["began"] for one in results]
    last = max(one["began"] + 1000 * one["seconds"] for one in results)
    return (last - min(began)) / 1000, memory


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=30)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batch-bench-") as name:
        folder = Path(name)
        script = folder / "hello.json"
        script.write_text(json.dumps({"default": "Hello."}))
        model = f"scripted/{script}"
        if asked.calls:
            alone = statistics.median(single_calls(folder, model, asked.calls))
            seconds, _ = batch(folder, 10 * asked.calls, model, "--concurrency", "1")
            each = seconds / (10 * asked.calls)
            print(  # noqa: T201
                f"pigeon -p: {1000 * alone:.0f} ms a call; pigeon batch, one at a time: {1000 * each:.0f} ms a task; ",
                end="",
            )
            print(f"difference {1000 * (each - alone):+.0f} ms")  # noqa: T201
        if asked.tasks:
            seconds, memory = batch(folder, asked.tasks, model)
            quarter = len(memory) // 4
            shown = [max(memory[at : at + quarter]) // 1024 for at in range(0, 4 * quarter, quarter)]
            print(f"{asked.tasks} tasks: {seconds:.0f} s, {asked.tasks / seconds:.1f} a second; the driver had")  # noqa: T201
            print(f"at most so many MB in each quarter of the time: {shown}")  # noqa: T201


if __name__ == "__main__":
    main()
