"""What configured tool servers cost the start of Pigeon: the time to its first answers, with ten servers and with none.

Runs alternate between the two, so that what else the machine does falls on both. Of the ten, some hang, some are slow,
some do not exist. `make mcp-bench` runs it.
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
SERVER = ROOT / "tests" / "fakes" / "tool_server.py"
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


def measured(environment: dict[str, str]) -> tuple[float, float, float]:
    """Milliseconds to the answer of the first command, to the first text of a prompt, and to its end."""
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
    marks: dict[str, float] = {}
    for line in process.stdout:
        now = (time.perf_counter() - began) * 1000
        if b'"command":"get_state"' in line:
            marks.setdefault("answer", now)
        elif b'"text_delta"' in line:
            marks.setdefault("text", now)
        elif b'"agent_settled"' in line:
            marks["settled"] = now
            break
    process.stdin.close()
    process.stdout.read()
    process.wait()
    return marks["answer"], marks["text"], marks["settled"]


def main() -> None:
    """Print the medians of both, and their difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    given = parser.parse_args()
    found: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="pigeon-mcp-bench-") as place:
        environments = {servers: folders(Path(place), servers) for servers in (False, True)}
        for servers in (False, True):
            measured(environments[servers])
        for number in range(given.runs):
            for servers in (False, True) if number % 2 else (True, False):
                found[servers].append(measured(environments[servers]))
    print(f"{'ms, median of ' + str(given.runs):32} {'none':>8} {'ten':>8} {'more':>8}")  # noqa: T201
    for index, what in enumerate(("to the answer of the first command", "to the first text of a prompt", "to its end")):
        none, ten = (statistics.median(one[index] for one in found[servers]) for servers in (False, True))
        print(f"{what:34} {none:8.1f} {ten:8.1f} {ten - none:8.1f}")  # noqa: T201


if __name__ == "__main__":
    main()
