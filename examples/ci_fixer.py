"""A fixer for CI: runs a check, lets an agent mend the code if it fails, and runs the check again.

    python examples/ci_fixer.py --model anthropic/claude-sonnet-5 --folder . python -m pytest -q

Prints a report as JSON. Exit code 0: the check passes; 1: it does not; 3: the agent used up its limits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass

import pigeon

# Nobody watches: what is not meant to happen is denied, not asked.
RULES = {"deny": ["bash(git push*)", "bash(git commit*)", "bash(curl *)", "write(.github/**)", "edit(.github/**)"]}
PROMPT = """The check `{command}` fails in this folder. The end of its output:

{output}

Find the cause and mend it in the code. Do not weaken the check, and change nothing that has no part in the failure.
Run the check yourself before you report."""


@dataclass
class Report:
    """What the agent says that it did."""

    cause: str
    changed_files: list[str]
    confident: bool


def check(command: list[str], folder: str) -> tuple[bool, str]:
    """Run the check; returns whether it passes, and the end of what it prints."""
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode == 0, done.stdout[-8_000:]


def main() -> int:
    """Check, mend, check again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=None, help="by default that of your settings")
    parser.add_argument("--folder", default=".")
    parser.add_argument("--max-cost", type=float, default=1.0, help="US dollars")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the check to run")
    options = parser.parse_args()
    if not options.command:
        parser.error("name the check to run, such as: python -m pytest -q")
    passes, output = check(options.command, options.folder)
    if passes:
        print(json.dumps({"status": "nothing to do"}))
        return 0
    result = pigeon.run_sync(
        PROMPT.format(command=" ".join(options.command), output=output),
        model=options.model,
        cwd=options.folder,
        output=Report,
        unattended=True,
        permissions=RULES,
        limits=pigeon.Limits(turns=60, cost=options.max_cost, seconds=1_800),
    )
    # What counts is the check, not what the model says about it.
    passes, _ = check(options.command, options.folder)
    report = {
        "status": "fixed" if passes else "not fixed",
        "ended": result.ended,
        "error": result.error,
        "report": asdict(result.output) if result.output else None,
        "cost": result.usage.cost.total,
        "session": result.session_file,
    }
    print(json.dumps(report, indent=2))
    if passes:
        return 0
    return 3 if result.ended == "limit" else 1


if __name__ == "__main__":
    sys.exit(main())
