"""What configured tool servers cost the start of Pigeon: the time to its first answers, with ten servers and with none.

Runs alternate between the two, so that what else the machine does falls on both. Of the ten, some hang, some are slow,
some do not exist. Beside the time that passes stands the time of a processor that the agent itself has taken until
then, which says the same on a machine that has other work. `make mcp-bench` runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SERVER = ROOT / "tests" / "fakes" / "mcp_server.py"
ROWS = ("the answer of the first command", "the first text of a prompt", "its end")
MODES = ("well", "well", "well", "hangs", "hangs", "silent_lists", "dies", "garbage", "floods_stderr")


def folders(place: Path, servers: bool) -> dict[str, str]:
    """The environment of an agent that has ten servers, or none."""
    agent = place / ("ten" if servers else "none")
    (agent / "work").mkdir(parents=True)
    if servers:
        entries = {
            f"s{number}": {"command": sys.executable, "args": [str(SERVER), mode]} for number, mode in enumerate(MODES)
        }
        entries["missing"] = {"command": "no-such-program"}
        (agent / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    return {**os.environ, "PIGEON_CODING_AGENT_DIR": str(agent), "HOME": str(place)}


def processor_time(process: int) -> float:
    """Milliseconds that all threads of a process have run."""
    tasks = Path(f"/proc/{process}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e6


def measured(environment: dict[str, str]) -> list[float]:
    """Milliseconds to the answer of the first command, to the first text of a prompt, and to its end: as time passes,
    and then those of a processor."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "pigeon", "--mode", "rpc", "--model", "demo", "--no-session"],
        cwd=Path(environment["PIGEON_CODING_AGENT_DIR"], "work"),
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"id":1,"type":"get_state"}\n{"id":2,"type":"prompt","message":"hello"}\n')
    process.stdin.flush()
    signs = iter((b'"command":"get_state"', b'"text_delta"', b'"agent_settled"'))
    sign: bytes | None = next(signs)
    passed, used = [], []
    while sign is not None:
        if sign in process.stdout.readline():
            passed.append((time.perf_counter() - began) * 1000)
            used.append(processor_time(process.pid))
            sign = next(signs, None)
    process.stdin.close()
    process.stdout.read()
    process.wait()
    return passed + used


def main() -> None:
    """Print the medians of both, and their difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    given = parser.parse_args()
    found: dict[bool, list[list[float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="pigeon-mcp-bench-") as place:
        environments = {servers: folders(Path(place), servers) for servers in (False, True)}
        for servers in (False, True):
            measured(environments[servers])
        for number in range(given.runs):
            for servers in (False, True) if number % 2 else (True, False):
                found[servers].append(measured(environments[servers]))
    print(f"{'ms, median of ' + str(given.runs):45} {'none':>8} {'ten':>8} {'more':>8}")  # noqa: T201
    for index, what in enumerate([f"to {row}" for row in ROWS] + [f"processor, to {row}" for row in ROWS]):
        none, ten = (statistics.median(one[index] for one in found[servers]) for servers in (False, True))
        print(f"{what:45} {none:8.1f} {ten:8.1f} {ten - none:8.1f}")  # noqa: T201


if __name__ == "__main__":
    main()
