"""What a prompt runs through, traced on the real program until its first `text_delta`.

The parent starts `pigeon --mode rpc` of a checkout in a child Python, waits for the answer to a `get_state` and for the
warm-up behind it, sends a prompt to the fake model server of the tests (Anthropic Messages over HTTP on loopback), and
reads until the first `text_delta`. The first prompt also does what is done once (reading context files, opening a
connection, starting the process helper); a second one shows what every prompt does.

The child is this same file: it installs a profile function for every thread, then calls the entry point that
`pyproject.toml` declares. Its log has one entry per call with the time of `CLOCK_MONOTONIC`, which is the same clock in
both processes: the calls between sending and reading are the prompt's.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

OWN_ROOT = Path(__file__).resolve().parent.parent
DEADLINE = 60.0
QUIET_LOOKS = 10
# What the event loop calls of its own accord each time it turns: how often depends on the machine, not on the prompt.
LOOP_OWN = ("_WatchedSelector.", "SteadyLoop.")


class Call(NamedTuple):
    """One call of a function of the package: its file below `src/pigeon`, its name, when and in which thread."""

    file: str
    function: str
    at: float
    thread: int

    @property
    def package(self) -> str:
        """The first folder, or the file itself at the top of the package."""
        return self.file.partition("/")[0]


class Trace(NamedTuple):
    """The calls of one prompt in the order in which they were made, over all threads."""

    calls: list[Call]

    @property
    def files(self) -> list[str]:
        """Distinct files in the order in which the prompt reaches them."""
        return list(dict.fromkeys(call.file for call in self.calls))

    @property
    def functions(self) -> set[tuple[str, str]]:
        """Distinct functions."""
        return {(call.file, call.function) for call in self.calls}

    @property
    def changes_of_package(self) -> int:
        """How often a call is in another package than the call before it in the same thread."""
        changes = 0
        last: dict[int, str] = {}
        for call in self.calls:
            changes += last.get(call.thread, call.package) != call.package
            last[call.thread] = call.package
        return changes


def trace_prompts(root: Path) -> tuple[Trace, Trace]:
    """Run two prompts on the program of a checkout and say what each of them called."""
    sys.path.insert(0, str(OWN_ROOT / "tests"))
    from fakes.model_server import Gate, ModelServer, Text
    from support.agent_folders import AgentFolders, providers

    with tempfile.TemporaryDirectory() as folder, ModelServer() as server:
        gates = [Gate(), Gate()]
        for gate in gates:
            server.answers(Text("Hello there.", piece=100, closes=False), gate)
        folders = AgentFolders(Path(folder))
        folders.configure(providers(server.url))
        log = Path(folder) / "calls.json"
        command = [_python_of(root), str(Path(__file__).resolve()), str(root), str(log)]
        with subprocess.Popen(
            [*command, "--mode", "rpc", "--model", "fake/fake-1"],
            cwd=folders.work,
            env=folders.environment({"PYTHONPATH": str(root / "src")}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            timer = threading.Timer(DEADLINE, process.kill)
            timer.start()
            try:
                times = _converse(process, [gate.open for gate in gates])
            finally:
                timer.cancel()
                process.kill()
        calls = [Call(*entry) for entry in json.loads(log.read_text("utf-8"))]
    first, second = (Trace([call for call in calls if sent <= call.at <= read]) for sent, read in times)
    return first, second


def _converse(process: subprocess.Popen[bytes], finish: list[Callable[[], None]]) -> list[tuple[float, float]]:
    """Play the conversation; for each prompt the times of sending it and of reading its first delta.

    The server sends one delta and holds the rest of each answer back until `finish` is called, so that none of it is in
    the trace, however late the delta is read.
    """
    assert process.stdin is not None
    _send(process, {"id": "1", "type": "get_state"})
    _read_until(process, lambda record: record.get("id") == "1")
    _wait_quiet(process.pid)
    times = [_prompted(process, go_on) for go_on in finish]
    process.stdin.close()
    assert process.wait(DEADLINE) == 0, "the program ended with an error"
    return times


def _prompted(process: subprocess.Popen[bytes], finish: Callable[[], None]) -> tuple[float, float]:
    sent = time.monotonic()
    _send(process, {"id": "2", "type": "prompt", "message": "Say hello."})
    _read_until(process, lambda record: record.get("assistantMessageEvent", {}).get("type") == "text_delta")
    read = time.monotonic()
    finish()
    _read_until(process, lambda record: record["type"] == "agent_settled")
    return sent, read


def _wait_quiet(pid: int) -> None:
    """Wait until all its threads wait and use no processor time: its warm-up is over.

    A thread that could run and gets no processor, on a busy machine, uses none either.
    """
    last, still = "", 0
    while still < QUIET_LOOKS:
        time.sleep(0.03)
        try:
            stats = [file.read_text("utf-8") for file in Path(f"/proc/{pid}/task").glob("*/stat")]
        except OSError:
            # A thread has just ended.
            still = 0
            continue
        threads = [stat.rpartition(")")[2].split() for stat in stats]
        used = str([fields[11:13] for fields in threads])
        waits = all(fields[0] == "S" for fields in threads)
        last, still = (last, still + 1) if used == last and waits else (used, 0)


def _send(process: subprocess.Popen[bytes], record: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(record).encode() + b"\n")
    process.stdin.flush()


def _read_until(process: subprocess.Popen[bytes], wanted: Callable[[dict[str, Any]], bool]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if wanted(json.loads(line)):
            return
    raise SystemExit("the program ended before it said what the trace waits for")


def _python_of(root: Path) -> str:
    own = root / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


# The child


def _run_traced(root: Path, log: Path, arguments: list[str]) -> None:
    """Call the program's entry point under a profile function; what was called is written when the process ends."""
    package = f"{root / 'src' / 'pigeon'}{os.sep}"
    calls: list[tuple[str, str, float, int]] = []

    def profile(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package) and _is_named_function(code):
            calls.append((code.co_filename[len(package) :], code.co_qualname, time.monotonic(), threading.get_ident()))

    _at_exit(lambda: log.write_text(json.dumps(calls), "utf-8"))
    sys.path.insert(0, str(root / "src"))
    sys.argv = ["pigeon", *arguments]
    threading.setprofile(profile)
    sys.setprofile(profile)
    importlib.import_module("pigeon.cli.main").main()


def _is_named_function(code: CodeType) -> bool:
    """Not the body of a module or class (those are not optimized), a lambda or comprehension (`<...>`), or the loop."""
    name = code.co_qualname
    return bool(code.co_flags & CO_OPTIMIZED) and not name.endswith(">") and not name.startswith(LOOP_OWN)


def _at_exit(write: Callable[[], object]) -> None:
    """The program ends with `os._exit`, which runs no handlers; forked children must not write the log."""
    leave, traced = os._exit, os.getpid()

    def write_and_leave(code: int) -> None:
        if os.getpid() == traced:
            sys.setprofile(None)
            write()
        leave(code)

    os._exit = write_and_leave  # type: ignore[assignment]


if __name__ == "__main__":
    _run_traced(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
