"""The agent under test as a process of its own: commands in, records out, and nothing left behind.

`PIGEON_BIN` names the program (words as in a shell); without it, it is the `pigeon` beside the running Python. When
that program is one of the originals, `PIGEON_AGAINST` says which (`pi-0.73`, `pi-0.87`), and what is ours alone is left
out. Each process gets a fresh home, an agent folder with pi's `models.json` and `settings.json`, and a working folder.
Every line of stdout is checked to be one JSON object with a type, and what our own program says and takes to be as the
schema has it. All waiting has a deadline.

Our own program is forked by `support.fork_server`, which saves the time of its imports, unless a test says
`by_exec=True` because the start is its subject, names another program, or sets what the interpreter reads when it
starts. `run_pigeon` calls it from a command line instead: arguments and piped text in, exit code and output out.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakes.strict_client import traffic_problems
from support.agent_folders import AgentFolders
from support.fork_server import READ_AT_START, can_fork_agents, fork_server, relay_command
from support.processes import eventually, kill_all, processes_in

Record = dict[str, Any]
DEADLINE = 15.0
MARK = "RPC_PROCESS_MARK"
KEPT_LINES = 2_000
AGAINST = os.environ.get("PIGEON_AGAINST", "")
# What says that a run is over and nothing more happens by itself; `agent_end` in the other dialects.
LAST_EVENTS = {"pi": "agent_settled", "pi-latest": "agent_settled", "omp": "session_settled"}
ENDS_WITHIN = 30.0


def command_line() -> list[str]:
    given = os.environ.get("PIGEON_BIN")
    return shlex.split(given) if given else [str(Path(sys.executable).with_name("pigeon"))]


def light_command_line() -> list[str]:
    """The program under test for those who start it themselves and do not care how it starts."""
    words = command_line()
    return relay_command(words[0]) if _is_ours() else words


def start_program(
    arguments: Iterable[str],
    stderr: int,
    folders: AgentFolders,
    env: dict[str, str] | None = None,
    *,
    program: list[str] | None = None,
    by_exec: bool = False,
) -> Any:
    """The program under test with pipes to its stdin and stdout; a `Popen`, or as much of it as is used."""
    environment = folders.environment(env)
    if not by_exec and not program and _can_fork(env or {}):
        return fork_server(command_line()[0]).start([*arguments], stderr, folders.work, environment)
    return subprocess.Popen(
        [*(program or command_line()), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=folders.work,
        env=environment,
        bufsize=0,
        start_new_session=True,
    )


def _is_ours() -> bool:
    return not AGAINST and "PIGEON_BIN" not in os.environ


def _can_fork(env: dict[str, str]) -> bool:
    """True for our own program in an environment that a running interpreter can take over."""
    return _is_ours() and can_fork_agents() and not any(name.startswith(READ_AT_START) for name in env)


class RpcProcess:
    """A running agent. Use as a context manager: leaving closes stdin and expects a clean end."""

    def __init__(
        self,
        folders: AgentFolders,
        *args: str,
        env: dict[str, str] | None = None,
        reads: bool = True,
        mode: Iterable[str] = ("--mode", "rpc"),
        program: list[str] | None = None,
        by_exec: bool = False,
    ) -> None:
        self.records: list[Record] = []
        self.raw: list[bytes] = []
        self.faults: list[str] = []
        self.last_event = "agent_end" if AGAINST == "pi-0.73" else "agent_settled"
        self.folders = folders
        self.arguments = args
        # In mode `json` the first line is that of a session file.
        self._schema = "AgentLine" if "json" not in mode else "ProtocolLine"
        self._is_checked = program is None and _is_ours()
        self._sent: list[Any] = []
        self._cut_short: list[Record] = []
        self._mark = f"{MARK}={uuid.uuid4().hex}"
        self._news = threading.Condition()
        self._next_id = 0
        self._reads = threading.Event()
        self._ended = False
        self._deaf = False
        self._said_all = False
        self._stderr_path = folders.temp / f"stderr-{uuid.uuid4().hex}"
        with self._stderr_path.open("wb") as stderr:
            variables = {**(env or {}), MARK: self._mark.partition("=")[2]}
            self._process = start_program(
                [*mode, *args], stderr.fileno(), folders, variables, program=program, by_exec=by_exec
            )
        if reads:
            self._reads.set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> RpcProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self.kill()
            return
        if not self._ended:
            self.close()

    # Talking

    def send(self, *records: Record | str | bytes) -> None:
        """Write lines, all in one write."""
        self._sent += records
        self.write(b"".join(_line(record) for record in records))

    def write(self, data: bytes) -> None:
        """Write raw bytes; blocks while the process does not read."""
        assert self._process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self._process.stdin.write(view) :]

    def request(self, kind: str, *, deadline: float = DEADLINE, **fields: Any) -> Record:
        """Send a command with an id of its own and wait for its response."""
        self._next_id += 1
        name = f"auto-{self._next_id}"
        self.send({"id": name, "type": kind, **fields})
        return self.wait(lambda record: record["type"] == "response" and record.get("id") == name, deadline=deadline)

    def ask(self, kind: str, **fields: Any) -> Any:
        """The data of a command that must succeed."""
        response = self.request(kind, **fields)
        assert response["success"] is True, response
        return response.get("data")

    def expect_error(self, kind: str, **fields: Any) -> str:
        """The error of a command that must fail."""
        response = self.request(kind, **fields)
        assert response["success"] is False, response
        assert response["command"] == kind, response
        return str(response["error"])

    def run(self, message: str, **fields: Any) -> list[Record]:
        """Prompt, wait for the end of the run, and give all records since."""
        start = self.mark()
        self.ask("prompt", message=message, **fields)
        self.wait_end(start)
        return self.since(start)

    # Listening

    def mark(self) -> int:
        """The place where the records end now."""
        with self._news:
            return len(self.records)

    def since(self, start: int, kind: str | None = None) -> list[Record]:
        """The records from a place on, of one type if asked."""
        with self._news:
            found = self.records[start:]
        return [record for record in found if kind is None or record["type"] == kind]

    def wait(self, wanted: Callable[[Record], bool], start: int = 0, deadline: float = DEADLINE) -> Record:
        """The first record from `start` on that is wanted."""
        end = time.monotonic() + deadline
        at = start
        with self._news:
            while True:
                while at < len(self.records):
                    if wanted(self.records[at]):
                        return self.records[at]
                    at += 1
                self._must_be_well()
                left = end - time.monotonic()
                if left <= 0 or self._said_all:
                    raise AssertionError(f"the record never came; got {self._tail()}")
                self._news.wait(left)

    def wait_event(self, kind: str, start: int = 0, deadline: float = DEADLINE, **fields: Any) -> Record:
        """The first event of this type (and with these fields) from `start` on."""
        items = fields.items()
        return self.wait(lambda r: r["type"] == kind and all(r.get(k) == v for k, v in items), start, deadline)

    def wait_end(self, start: int = 0, deadline: float = DEADLINE) -> Record:
        """The end of the run: nothing more happens by itself."""
        end = self.wait_event("agent_end", start, deadline)
        if self.last_event != "agent_end":
            self.wait_event(self.last_event, start, deadline)
        return end

    def wait_delta(self, text: str, start: int = 0) -> Record:
        """The update that brings this piece of text."""
        return self.wait(lambda r: text in r.get("assistantMessageEvent", {}).get("delta", ""), start)

    def wait_count(self, kind: str, count: int, start: int = 0, deadline: float = DEADLINE) -> list[Record]:
        """The first so many records of a type."""
        seen = 0

        def enough(record: Record) -> bool:
            nonlocal seen
            seen += int(record["type"] == kind)
            return bool(seen == count)

        self.wait(enough, start, deadline)
        return self.since(start, kind)[:count]

    def raw_with(self, part: bytes) -> bytes:
        """The first line, as it came, that contains these bytes."""
        return next(line for line in self.raw if part in line)

    def response(self, name: Any, deadline: float = DEADLINE) -> Record:
        return self.wait(lambda r: r["type"] == "response" and r.get("id") == name, deadline=deadline)

    # The process

    @property
    def is_over(self) -> bool:
        return self._ended

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        return self._stderr_path.read_text("utf-8", "replace")

    def start_reading(self) -> None:
        """Read stdout from now on (only after `reads=False`)."""
        self._reads.set()

    def resident(self) -> int:
        """Bytes of resident memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def wait_ready(self, deadline: float = DEADLINE) -> None:
        """Wait for output without reading it: the process has started and answered something."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], deadline)
        assert readable, f"no output; stderr: {self.stderr}"

    def write_in_background(self, data: bytes) -> threading.Thread:
        """Write without waiting; join the thread when the process has taken everything."""
        thread = threading.Thread(target=self.write, args=(data,), daemon=True)
        thread.start()
        return thread

    def wait_blocked(self, writer: threading.Thread) -> None:
        """Wait until the process takes no more of what is being written."""
        self._until_still(writer.is_alive)

    def wait_quiet(self) -> None:
        """Wait until the process reads nothing more, from anywhere: it is waiting for us."""
        self._until_still(lambda: True)

    def _until_still(self, goes_on: Callable[[], bool]) -> None:
        last, still = (-1, -1), 0
        while still < 8 and goes_on():
            threading.Event().wait(0.03)
            now = self._work_done()
            last, still = (last, still + 1) if now == last else (now, 0)

    def _work_done(self) -> tuple[int, int]:
        """What the process has done so far: bytes read from pipes and files, and ticks of processor time."""
        taken = 0
        # Pigeon hides from processes of the same user; root sees it all the same.
        with contextlib.suppress(PermissionError):
            taken = int(Path(f"/proc/{self.pid}/io").read_text().split()[1])
        times = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return taken, sum(map(int, times))

    def close_stdin(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def close_stdout(self) -> None:
        """Stop listening for good; the agent's next write fails."""
        assert not self._reads.is_set(), "only for a process that was started with reads=False"
        self._deaf = True
        self._reads.set()
        self._reader.join(DEADLINE)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait_exit(self, deadline: float = DEADLINE) -> int:
        """Wait for the process to end by itself; nothing of it may be left."""
        try:
            code = self._process.wait(deadline)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the process did not end; got {self._tail()}") from None
        self._finish()
        left = self._left_running()
        kill_all(left)
        assert not left, f"left running: {left}"
        self._check_traffic()
        self._must_be_well()
        return code

    def wait_exit_unread(self, deadline: float = DEADLINE) -> int:
        """As `wait_exit`, for a process whose output was never read and may end anywhere."""
        self._deaf = True
        return self.wait_exit(deadline)

    def close(self, expect: int = 0) -> None:
        """End of input, then a clean end of the process."""
        self.close_stdin()
        code = self.wait_exit()
        assert code == expect, f"exit code {code}: {self.stderr}"

    def kill(self) -> None:
        """End it whatever it does; for tests that have failed already."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(DEADLINE)
        kill_all(processes_in(self._mark))
        self._finish()

    def _finish(self) -> None:
        self._ended = True
        self._reads.set()
        self.close_stdin()
        self._reader.join(DEADLINE)

    def _check_traffic(self) -> None:
        """At the end, so that no check keeps the agent waiting for its reader."""
        if self._is_checked:
            whole = [record for record in self.records if not any(record is cut for cut in self._cut_short)]
            self.faults += traffic_problems(self._sent, whole, self._schema)

    def _left_running(self) -> dict[int, str]:
        """Processes that carry our mark after they had a moment to go."""
        gone = eventually(lambda: not processes_in(self._mark))
        return {} if gone else processes_in(self._mark)

    def _must_be_well(self) -> None:
        assert not self.faults, self.faults[0]

    def _tail(self) -> str:
        shown = "\n".join(json.dumps(record)[:300] for record in self.records[-12:])
        return f"{len(self.records)} records, the last ones:\n{shown}\nstderr: {self.stderr[-2000:]}"

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        self._reads.wait()
        rest = b""
        with stream:
            while not self._deaf and (data := stream.read(65536)):
                *lines, rest = (rest + data).split(b"\n")
                self._handle_lines(lines)
        if rest:
            self.faults.append(f"stdout ended inside a line: {rest[:200]!r}")
        with self._news:
            self._said_all = True
            self._news.notify_all()

    def _handle_lines(self, lines: list[bytes]) -> None:
        parsed = [self._parse_line(line) for line in lines]
        with self._news:
            self.raw.extend(lines[: KEPT_LINES - len(self.raw)])
            self.records.extend(record for record in parsed if record is not None)
            self._news.notify_all()

    def _parse_line(self, line: bytes) -> Record | None:
        try:
            value = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
        except RecursionError:
            # Nested deeper than this parser goes, as the tree of a long session is: the line is in `raw`.
            value = json.loads(line.partition(b',"data":')[0] + b"}")
            self._cut_short.append(value)
        except ValueError as error:
            self.faults.append(f"not JSON ({error}): {line[:300]!r}")
            return None
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            self.faults.append(f"not an object with a type: {line[:300]!r}")
            return None
        return value


Start = Callable[..., RpcProcess]


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _line(record: Record | str | bytes) -> bytes:
    if isinstance(record, bytes):
        return record + b"\n"
    text = record if isinstance(record, str) else json.dumps(record)
    return text.encode("utf-8", "surrogatepass") + b"\n"


def command_line_named(folders: AgentFolders, name: str) -> list[str]:
    """A command line whose program has this name."""
    return [str(folder_with(folders, name) / name)]


def folder_with(folders: AgentFolders, name: str) -> Path:
    """A folder for the search path in which the program has this name."""
    folder = folders.temp / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / name
    if program.exists():
        return folder
    words = command_line()
    if len(words) == 1:
        program.symlink_to(words[0])
    else:
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o755)
    return folder


@dataclass(frozen=True)
class ProgramResult:
    """How a call ended, and what it printed."""

    code: int
    out: str
    err: str


class RunningProgram:
    """A call that goes on; `wait_for_end` waits for it."""

    def __init__(self, folders: AgentFolders, arguments: tuple[str, ...], env: dict[str, str] | None = None) -> None:
        read, write = os.pipe()
        self.process = start_program(arguments, write, folders, env)
        os.close(write)
        self._errors: list[bytes] = []
        self._reader = threading.Thread(target=self._read, args=(read,), daemon=True)
        self._reader.start()

    def _read(self, descriptor: int) -> None:
        with open(descriptor, "rb") as stream:
            self._errors.append(stream.read())

    def wait_for_end(self) -> ProgramResult:
        self.process.stdin.close()
        out = b"".join(iter(lambda: self.process.stdout.read(65536), b""))
        self.process.stdout.close()
        return ProgramResult(self.process.wait(ENDS_WITHIN), out.decode(), self.errors())

    def errors(self) -> str:
        """What it said on stderr until its end."""
        self._reader.join(ENDS_WITHIN)
        return b"".join(self._errors).decode()


def run_pigeon(
    folders: AgentFolders, *arguments: str, given: str = "", env: dict[str, str] | None = None
) -> ProgramResult:
    """Call the program, pipe text into it, and wait for its end."""
    calling = RunningProgram(folders, arguments, env)
    if given:
        calling.process.stdin.write(given.encode())
    return calling.wait_for_end()
