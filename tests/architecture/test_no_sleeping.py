"""No test waits for time to pass: it waits for what it wants to see, or moves the clock (`fakes.clock`).

A pause is too long on a quiet machine and too short on a busy one. What counts is in the code of tests and in the
texts of programs that they run: `time.sleep`, `asyncio.sleep`, `sleep` in a shell, and waiting for an event that
nobody can set. Two figures are no pauses: 0, which is a turn of the event loop, and anything from FOREVER on, which is
never waited out because the test would have failed before. A file that runs its loops `virtually` may sleep in them.
`tests/interop` starts programs of others and is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.source_tree import ROOT, hold

TESTS = ROOT / "tests"
FOREVER = 60.0  # `timeout` in pyproject.toml
SLEEPS = {"time.sleep", "asyncio.sleep", "anyio.sleep"}
IN_TEXTS = re.compile(r"\bsleep(?: |\()(\d[\d_.]*)")

# file: pause: why it may stay.
ALLOWED = {
    "fakes/tcp_proxy.py: asyncio.sleep(max(0.0, due - loop.time()))": "what is sent over a slow network takes its time",
    "stress/batch_storm.py: threading.Event().wait(POLL)": "what is killed, and when, is a matter of chance",
    "support/processes.py: threading.Event().wait(BETWEEN_LOOKS)": "the one place that polls; its docstring says why",
    "support/agent_process.py: threading.Event().wait(0.03)": "that a process does no more shows only by looking again",
    "stress/delayed_shell.py: threading.Event().wait(max(0.0, due - time.monotonic()))": "the time of a slow network",
    "stress/workspace_storm.py: asyncio.sleep(chance.random() * most)": "something breaks at a moment of chance",
    "stress/serve_storm.py: asyncio.sleep(seconds)": "connections are lost at moments of chance",
    "faults/test_kills.py: threading.Event().wait(chance.random() * 0.003)": "a kill comes at a moment of chance",
    "faults/test_standstill.py: threading.Event().wait(STOPPED)": "a process stands still longer than a time-out",
    "permissions/test_permissions.py: sleep 1": "a command that rules are matched with; it is not run",
}


def pauses(source: str) -> Iterator[str]:
    """The calls and the shell commands of a file that wait for time to pass."""
    nodes = list(ast.walk(ast.parse(source)))
    jumps = any(isinstance(node, ast.alias) and node.name == "virtually" for node in nodes)
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and not jumps and _waits(node):
            yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (found[0] for found in IN_TEXTS.finditer(node.value) if _is_pause(found[1].rstrip(".")))


def _waits(call: ast.Call) -> bool:
    called, first = ast.unparse(call.func), call.args[0]
    if called in SLEEPS:
        return _is_pause(ast.unparse(first))
    return called.endswith("Event().wait")


def _is_pause(figure: str) -> bool:
    try:
        return 0 < float(figure) < FOREVER
    except ValueError:
        return True


def test_nothing_waits_for_time_to_pass() -> None:
    here = Path(__file__).name
    files = [path for path in TESTS.rglob("*.py") if path.name != here and "interop" not in path.parts]
    hold((f"{path.relative_to(TESTS)}: {pause}" for path in files for pause in pauses(path.read_text())), ALLOWED)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("time.sleep(0.1)", ["time.sleep(0.1)"]),
        ("await asyncio.sleep(pause)", ["asyncio.sleep(pause)"]),
        ("await asyncio.sleep(0)", []),
        ("await asyncio.sleep(60)", []),
        ("threading.Event().wait(1)", ["threading.Event().wait(1)"]),
        ("await asyncio.Event().wait()", []),
        ("run('true; sleep 0.2; false')", ["sleep 0.2"]),
        ("run(f'sleep 300; {x}')", []),
        ("text = 'import time\\ntime.sleep(2)'", ["sleep(2"]),
        ("from fakes.clock import virtually\nasyncio.sleep(5)", []),
    ],
)
def test_a_pause_is_found_in_code_and_in_texts(source: str, found: list[str]) -> None:
    assert list(pauses(source)) == found
