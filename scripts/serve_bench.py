"""What `pigeon serve` costs: memory, time to start, latency while others stream, reconnecting, waking.

    make serve-bench                                   all rows, with a model server on loopback
    make serve-bench ARGS="--conversations 20 --only memory"
    make serve-bench ARGS="--compare 'node pi/dist/cli.js'"    100 processes of another agent beside it

A row is measured from the client's side, over the network, on a server that this script starts in an empty folder; the
model is a server of its own process that streams as fast as it is told to. Real memory is PSS: pages that several
processes share are divided among them. All processes count, the supervisor and the warm parent too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import websockets

HERE = Path(__file__).resolve().parent
PACE_MS = 20
ROWS = ("memory", "start", "busy", "first", "reconnect", "wake")
MODELS = {
    "providers": {
        "bench": {
            "baseUrl": "http://127.0.0.1:PORT/v1",
            "api": "openai-completions",
            "apiKey": "bench",
            "models": [{"id": "bench", "contextWindow": 200000, "maxTokens": 8000}],
        }
    }
}
Record = dict[str, Any]


class ModelServer:
    """Chat completions on loopback: `tool` in the last prompt calls `bash`, `stream N` sends so many pieces."""

    async def serve(self) -> None:
        """Print the port, and answer until the process is ended."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=1 << 26)
        print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
        await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
                await self._answer(json.loads(await reader.readexactly(length)), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, request: Record, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        last = request["messages"][-1]
        text = last["content"] if isinstance(last["content"], str) else last["content"][0]["text"]
        if last["role"] == "user" and "tool" in text:
            call = {"name": "bash", "arguments": '{"command":"ls -la"}'}
            _send(writer, {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": call}]})
            _send(writer, {}, "tool_calls")
        else:
            words = text.split()
            count = int(words[1]) if words[0] == "stream" else 20
            for number in range(count):
                _send(writer, {"content": f"piece {number} of the answer. "})
                await asyncio.sleep(PACE_MS / 1000 if words[0] == "stream" else 0)
            _send(writer, {}, "stop")
        data = b"data: [DONE]\n\n"
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
        await writer.drain()


def _send(writer: asyncio.StreamWriter, delta: Record, reason: str | None = None) -> None:
    chunk: Record = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    chunk["choices"] = [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": reason}]
    if reason:
        chunk["usage"] = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    data = b"data: %s\n\n" % json.dumps(chunk).encode()
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


class Served:
    """A running `pigeon serve` and the clients of its conversations."""

    def __init__(self, home: Path, command: Sequence[str], model: str, shared: int) -> None:
        self._home = home
        self._command = [*command, "serve", "--port", "0", "--root", str(home), "--model", model]
        self._command += ["--shared", str(shared)] if shared > 1 else []
        self._program: subprocess.Popen[str] | None = None
        self._address = ""
        self._token = ""

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        with open(self._home / "stderr", "w", encoding="utf-8") as errors:
            self._program = subprocess.Popen(
                self._command,
                env=variables(self._home),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self._home,
            )
        assert self._program.stdout is not None
        self._address = self._program.stdout.readline().split()[-1]
        self._token = (self._home / "agent" / "serve.token").read_text().split()[1]

    def stop(self) -> None:
        """End it and its workers."""
        if self._program is not None:
            self._program.terminate()
            self._program.wait(60)

    def processes(self) -> list[int]:
        """All that belongs to it."""
        assert self._program is not None
        return descendants(self._program.pid)

    def _call(self, method: str, path: str, body: Record | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._address + path, method=method, headers=headers, data=data)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    async def new(self) -> str:
        """The id of a new conversation."""
        made = await asyncio.to_thread(self._call, "POST", "/api/sessions", {"cwd": str(self._home)})
        return str(made["id"])

    async def shown(self, id: str) -> Record:
        """What the server says about one."""
        shown: Record = await asyncio.to_thread(self._call, "GET", f"/api/sessions/{id}")
        return shown

    async def connect(self, id: str, after: int | None = None) -> Line:
        """A client of it."""
        address = f"{self._address.replace('http', 'ws', 1)}/api/sessions/{id}/rpc"
        address += "" if after is None else f"?after={after}"
        headers = {"Authorization": f"Bearer {self._token}"}
        return Line(await websockets.connect(address, additional_headers=headers, max_size=None, compression=None))


class Line:
    """One client over a WebSocket."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self._socket = socket
        self._count = 0

    async def send(self, command: str, **members: Any) -> str:
        """Send a command; its id."""
        self._count += 1
        await self._socket.send(json.dumps({"id": f"b{self._count}", "type": command, **members}))
        return f"b{self._count}"

    async def until(self, wanted: Callable[[Record], bool]) -> Record:
        """The next record of that kind."""
        while True:
            record = json.loads(await self._socket.recv())
            if record.get("success") is False:
                raise RuntimeError(str(record))
            if wanted(record):
                return record

    async def ask(self, command: str, **members: Any) -> Record:
        """The answer to a command."""
        id = await self.send(command, **members)
        return await self.until(lambda record: record["type"] == "response" and record.get("id") == id)

    async def run(self, text: str) -> None:
        """A prompt, to its end."""
        await self.send("prompt", message=text)
        settled = await self.until(lambda record: record["type"] == "agent_settled")
        if settled.get("reason") not in (None, "done"):
            raise RuntimeError(str(settled))

    async def close(self) -> None:
        """Leave."""
        await self._socket.close()


class Bench:
    """The rows. `figures` is what they have measured."""

    def __init__(self, served: Served, asked: argparse.Namespace) -> None:
        self._served = served
        self._asked = asked
        self._lines: list[Line] = []
        self._ids: list[str] = []
        self._started = 0.0
        self.figures: dict[str, Any] = {}

    async def run(self) -> None:
        """Measure."""
        began = time.perf_counter()
        await asyncio.to_thread(self._served.start)
        ready = time.perf_counter()
        await self._open_all()
        self._row("server ready", ready - began, "s")
        self._started = time.perf_counter() - ready
        self._row(f"{self._asked.conversations} conversations started", self._started, "s")
        self._row("the same with the start of the server", time.perf_counter() - began, "s")
        for name in ROWS:
            if name in self._asked.only:
                await getattr(self, f"_{name}")()
        for line in self._lines:
            await line.close()

    async def _open_all(self) -> None:
        """Make them, a few at a time as clients come; each has answered `get_state`."""
        room = asyncio.Semaphore(16)

        async def open_one() -> None:
            async with room:
                id = await self._served.new()
                line = await self._served.connect(id)
                await line.ask("get_state")
                self._ids.append(id)
                self._lines.append(line)

        await asyncio.gather(*(open_one() for _ in range(self._asked.conversations)))

    async def _memory(self) -> None:
        self._tell_memory("started")
        for _ in range(self._asked.prompts):
            await self._in_turn(lambda line: line.run("use a tool"))
        await asyncio.sleep(self._asked.settle)
        self._tell_memory(f"after {self._asked.prompts} prompt(s) with a tool")

    def _tell_memory(self, when: str) -> None:
        found = {pid: (real_memory(pid), what_is(pid)) for pid in self._served.processes()}
        kinds: dict[str, list[float]] = {}
        for memory, kind in found.values():
            kinds.setdefault(kind, []).append(memory)
        count = len(self._lines)
        self._row(f"memory of a conversation, {when}", sum(memory for memory, _ in found.values()) / count, "MB")
        for kind, memories in sorted(kinds.items()):
            print(f"    {kind}: {len(memories)} of {statistics.mean(memories):.2f} MB")  # noqa: T201

    async def _in_turn(self, work: Callable[[Line], Awaitable[None]]) -> None:
        room = asyncio.Semaphore(8)

        async def one(line: Line) -> None:
            async with room:
                await work(line)

        await asyncio.gather(*(one(line) for line in self._lines))

    async def _start(self) -> None:
        """The same number of processes of another agent."""
        if not self._asked.compare:
            return
        command = [*shlex.split(self._asked.compare), "--mode", "rpc", "--no-session"]
        homes = [Path(tempfile.mkdtemp(prefix="pigeon-bench-")) for _ in range(self._asked.compared)]
        first = Other(command, homes[0])
        await first.start()
        await first.stop()
        others = [Other(command, home) for home in homes]
        began = time.perf_counter()
        try:
            await asyncio.gather(*(other.start() for other in others))
            seconds = time.perf_counter() - began
            memory = sum(real_memory(pid) for other in others for pid in descendants(other.pid))
        finally:
            for other in others:
                await other.stop()
        self._row(f"{len(others)} processes of the other agent started", seconds, "s")
        share = (self._started / len(self._lines)) / (seconds / len(others))
        self._row("a conversation started, as part of such a process", share, "")
        self._row("memory of a process of the other agent", memory / len(others), "MB")

    async def _busy(self) -> None:
        """`get_state` of one while others stream."""
        streaming = self._lines[1 : 1 + self._asked.streaming]
        quiet = self._lines[0]
        events = 0

        async def stream(line: Line) -> None:
            nonlocal events
            await line.send("prompt", message=f"stream {int(self._asked.seconds * 1000 / PACE_MS)}")
            while (await line.until(lambda record: True))["type"] != "agent_settled":
                events += 1

        processes = {pid: what_is(pid) for pid in self._served.processes()}
        before = {pid: cpu_seconds(pid) for pid in processes}
        began = time.perf_counter()
        running = [asyncio.ensure_future(stream(line)) for line in streaming]
        await asyncio.sleep(0.5)
        times: list[float] = []
        while not any(one.done() for one in running):
            asked_at = time.perf_counter()
            await quiet.ask("get_state")
            times.append(time.perf_counter() - asked_at)
            await asyncio.sleep(0.02)
        await asyncio.gather(*running)
        seconds = time.perf_counter() - began
        cpu = {pid: cpu_seconds(pid) - before[pid] for pid in processes}
        supervisor = sum(used for pid, used in cpu.items() if processes[pid] == "supervisor")
        others = sum(used for pid, used in cpu.items() if processes[pid] != "supervisor")
        name = f"get_state with {len(streaming)} streaming"
        self._row(f"{name}, median", statistics.median(times) * 1000, "ms")
        self._row(f"{name}, p99", sorted(times)[int(len(times) * 0.99)] * 1000, "ms")
        self._row("events a second meanwhile", events / seconds, "")
        self._row("processor of the supervisor for an event", supervisor / events * 1e6, "us")
        self._row("processor of the workers for an event", others / events * 1e6, "us")

    async def _first(self) -> None:
        """From a prompt to the first piece of its answer: served, and by `--mode rpc`."""
        line = self._lines[0]
        times = []
        for _ in range(30):
            began = time.perf_counter()
            await line.send("prompt", message="hello")
            await line.until(lambda record: record["type"] == "message_update")
            times.append(time.perf_counter() - began)
            await line.until(lambda record: record["type"] == "agent_settled")
        self._row("first piece of an answer, served", statistics.median(times) * 1000, "ms")
        program = shlex.split(self._asked.pigeon)
        home = Path(self._asked.home)
        other = Other(
            [*program, "--mode", "rpc", "--no-session", "--dialect", "pi-latest", "--model", self._asked.model], home
        )
        await other.start()
        times = []
        for _ in range(30):
            began = time.perf_counter()
            other.send({"type": "prompt", "message": "hello"})
            await other.until("message_update")
            times.append(time.perf_counter() - began)
            await other.until("agent_settled")
        self._row("first piece of an answer, --mode rpc", statistics.median(times) * 1000, "ms")
        await other.stop()

    async def _reconnect(self) -> None:
        """A client that comes back for what it has missed."""
        shown = await self._served.shown(self._ids[0])
        times = []
        for _ in range(20):
            began = time.perf_counter()
            line = await self._served.connect(self._ids[0], max(0, shown["seq"] - 100))
            await line.until(lambda record: record.get("seq") == shown["seq"])
            times.append(time.perf_counter() - began)
            await line.close()
        self._row("reconnect and 100 missed events", statistics.median(times) * 1000, "ms")

    async def _wake(self) -> None:
        """A command to a conversation whose worker is gone, as after sleep."""
        times = []
        for id, line in list(zip(self._ids, self._lines, strict=True))[:10]:
            await line.close()
            pid = (await self._served.shown(id))["pid"]
            os.kill(pid, signal.SIGTERM)
            while (await self._served.shown(id))["state"] != "asleep":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            began = time.perf_counter()
            again = await self._served.connect(id)
            await again.ask("get_state")
            times.append(time.perf_counter() - began)
            self._lines[self._lines.index(line)] = again
        self._row("wake: connect and get_state", statistics.median(times) * 1000, "ms")

    def _row(self, name: str, value: float, unit: str) -> None:
        self.figures[name] = round(value, 3)
        print(f"{name:<60} {value:>10.2f} {unit}", flush=True)  # noqa: T201


class Other:
    """A process that speaks the protocol over its standard streams."""

    def __init__(self, command: Sequence[str], home: Path) -> None:
        self._command = command
        self._home = home
        self._program: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._program is not None
        return self._program.pid

    async def start(self) -> None:
        """Start it, until it has answered `get_state`."""
        self._program = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=variables(self._home),
            cwd=self._home,
            limit=1 << 26,
        )
        self.send({"type": "get_state"})
        await self.until("response")

    def send(self, command: Record) -> None:
        """Send a command."""
        assert self._program is not None
        assert self._program.stdin is not None
        self._program.stdin.write(json.dumps({"id": "1", **command}).encode() + b"\n")

    async def until(self, kind: str) -> None:
        """Read up to the next record of this type."""
        assert self._program is not None
        assert self._program.stdout is not None
        while True:
            line = await self._program.stdout.readline()
            if not line:
                raise RuntimeError(f"{self._command} has ended")
            if json.loads(line)["type"] == kind:
                return

    async def stop(self) -> None:
        """End it."""
        if self._program is not None:
            with suppress(ProcessLookupError):
                self._program.kill()
            await self._program.wait()


def variables(home: Path) -> dict[str, str]:
    """The environment of what is measured: nothing of ours but the path."""
    folder = str(home / "agent")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PIGEON_CODING_AGENT_DIR": folder,
        "PI_CODING_AGENT_DIR": folder,
        "PI_OFFLINE": "1",
    }


def descendants(root: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def real_memory(pid: int) -> float:
    """PSS in MB; 0 of a process that has ended."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def cpu_seconds(pid: int) -> float:
    """What a process has used of the processor."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def what_is(pid: int) -> str:
    """Which of the processes this is, by its command line and its parent."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return "gone"
    if b"warm_parent" not in arguments:
        return "supervisor" if b"\0serve\0" in arguments else "helper"
    try:
        return "worker" if b"warm_parent" in Path(f"/proc/{parent}/cmdline").read_bytes() else "warm parent"
    except OSError:
        return "warm parent"


async def main() -> None:
    """Measure what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pigeon", default=str(HERE.parent / ".venv" / "bin" / "pigeon"), help="the program")
    parser.add_argument("--compare", help="another agent, to which --mode rpc is added")
    parser.add_argument("--compared", type=int, default=100, help="how many processes of that")
    parser.add_argument("--conversations", type=int, default=100)
    parser.add_argument("--streaming", type=int, default=40, help="how many stream at once")
    parser.add_argument("--seconds", type=float, default=10, help="for how long they stream")
    parser.add_argument("--shared", type=int, default=1, help="so many in one process; leave out the row `wake` then")
    parser.add_argument("--prompts", type=int, default=1, help="prompts with a tool before memory is measured")
    parser.add_argument(
        "--settle", type=float, default=1.0, help="seconds between those and the measurement; after 30 helpers are gone"
    )
    parser.add_argument("--model", default="bench/bench", help="demo needs no model server")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(ROWS), help=",".join(ROWS))
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    asked = parser.parse_args()
    asked.home = tempfile.mkdtemp(prefix="pigeon-bench-")
    model = subprocess.Popen([sys.executable, __file__, "--model-server"], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    assert model.stdout is not None
    port = model.stdout.readline().strip()
    folder = Path(asked.home) / "agent"
    folder.mkdir()
    (folder / "models.json").write_text(json.dumps(MODELS).replace("PORT", port))
    served = Served(Path(asked.home), shlex.split(asked.pigeon), asked.model, asked.shared)
    bench = Bench(served, asked)
    try:
        await bench.run()
    finally:
        served.stop()
        model.terminate()
    if asked.json:
        asked.json.write_text(json.dumps(bench.figures, indent=2) + "\n")


if __name__ == "__main__":
    asyncio.run(ModelServer().serve() if sys.argv[1:] == ["--model-server"] else main())
