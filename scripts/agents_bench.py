"""What agents that an agent starts cost: real memory, processor time, and how fast the process still answers.

    make agents-bench                                     50 agents at once, with a model server on loopback
    make agents-bench ARGS="--agents 20"
    make agents-bench ARGS="--peer /path/to/omp"          oh-my-pi's program beside it

One conversation starts all agents in one answer. The model server holds the answers of the agents back until all of
them have asked, so that all are at work at once; then each gets its answer piece by piece, while `get_state` is asked
again and again. The memory is the most that was seen in that time: PSS of the process and all below it, beyond what it
was before, after a prompt and an agent that were only to warm it up. In another run nothing is held back: the processor
time of that run, without its two turns of the conversation, is divided among the agents and compared with an ordinary
turn of the same length in the same process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

PIECES, PACE = 100, 0.05
TURNS = 60
WORDS = "a piece of an answer, "
MODELS = {
    "providers": {
        "bench": {
            "baseUrl": "",
            "api": "openai-completions",
            "apiKey": "bench",
            "models": [{"id": "bench", "name": "bench", "contextWindow": 200000, "maxTokens": 8000, "reasoning": False,
                        "input": ["text"], "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}}],
        }
    }
}  # fmt: skip
Record = dict[str, Any]


class ModelServer(threading.Thread):
    """Chat completions on loopback. A prompt `START n` starts so many agents, whose prompts are `CHILD`; the answers to
    these wait for `release` while `hold` is set, and come at a pace if `slowly` is. Any other prompt gets a text."""

    def __init__(self, start_calls: Any) -> None:
        super().__init__(daemon=True)
        self._start_calls = start_calls
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self.port = 0
        self.waiting = 0
        self.answered = 0
        self.hold = self.slowly = False
        self._gate = asyncio.Event()

    def run(self) -> None:
        """Serve until the program ends."""
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connect, "127.0.0.1", 0, limit=1 << 26))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    def start_and_wait(self) -> None:
        """Start it; returns when it takes connections."""
        self.start()
        self._ready.wait()

    def release(self) -> None:
        """Let the agents that wait have their answers."""
        self.hold = False
        self._loop.call_soon_threadsafe(self._gate.set)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
                await self._answer(json.loads(await reader.readexactly(length)), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, request: Record, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        users = [text_of(message) for message in request["messages"] if message["role"] == "user"]
        last = request["messages"][-1]
        if last["role"] == "user" and "START " in users[-1]:
            calls = self._start_calls(int(users[-1].partition("START ")[2].split()[0]))
            for index, (name, arguments) in enumerate(calls):
                call = {"name": name, "arguments": json.dumps(arguments)}
                delta = {"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": call}]}
                send(writer, delta)
            send(writer, {}, "tool_calls")
        else:
            is_agent = any("CHILD" in text for text in users)
            if is_agent and self.hold:
                self.waiting += 1
                await self._gate.wait()
            for number in range(PIECES):
                send(writer, {"content": f"{WORDS}{number} "})
                if is_agent and self.slowly:
                    await asyncio.sleep(PACE)
            send(writer, {}, "stop")
            self.answered += is_agent
        data = b"data: [DONE]\n\n"
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
        await writer.drain()


def text_of(message: Record) -> str:
    """The text of a message."""
    content = message["content"]
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content or ())


def send(writer: asyncio.StreamWriter, delta: Record, reason: str | None = None) -> None:
    """One piece of an answer."""
    chunk: Record = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    chunk["choices"] = [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": reason}]
    if reason:
        chunk["usage"] = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    data = b"data: %s\n\n" % json.dumps(chunk).encode()
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


class Program:
    """A running agent in RPC mode; everything that it writes is read by a thread."""

    def __init__(self, command: list[str], env: dict[str, str], cwd: Path, is_ours: bool) -> None:
        self._is_ours = is_ours
        self._process = subprocess.Popen(
            command, env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._records: list[Record] = []
        self._news = threading.Condition()
        self._count = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Only what is waited for: parsing the rest would take the time that is measured.
            if b'"type":"response"' in line[:200] or b"_settled" in line[:60] or b"agent_end" in line[:40]:
                with self._news:
                    self._records.append(json.loads(line))
                    self._news.notify_all()

    def send(self, kind: str, **fields: Any) -> str:
        """Send a command; its id."""
        assert self._process.stdin is not None
        self._count += 1
        line = json.dumps({"id": f"b{self._count}", "type": kind, **fields}).encode() + b"\n"
        self._process.stdin.write(line)
        self._process.stdin.flush()
        return f"b{self._count}"

    def wait(self, wanted: Any, seconds: float = 120) -> Record:
        """The first record of that kind; records before it are forgotten."""
        end = time.monotonic() + seconds
        with self._news:
            while True:
                for index, record in enumerate(self._records):
                    if wanted(record):
                        del self._records[: index + 1]
                        return record
                if not self._news.wait(end - time.monotonic()) and time.monotonic() > end:
                    raise TimeoutError(f"the program says nothing more; the last: {self._records[-3:]}")

    def ask(self, kind: str, **fields: Any) -> Record:
        """The answer to a command, which must not be refused."""
        id = self.send(kind, **fields)
        answer = self.wait(lambda record: record.get("id") == id)
        if not answer.get("success"):
            raise RuntimeError(str(answer)[:300])
        return answer

    def prompt(self, text: str) -> None:
        """Send a prompt."""
        self.ask("prompt", message=text)

    def wait_until_settled(self) -> None:
        """Wait for the end of a run."""
        self.wait(lambda record: record["type"] == ("agent_settled" if self._is_ours else "agent_end"))

    def wait_for_agents(self, server: ModelServer, agents: int) -> None:
        """Wait until so many agents have had their answers and nothing runs any more; the peer's conversation goes on
        when they have ended."""
        eventually(lambda: server.answered >= agents)
        idle = 0
        while not self._is_ours and idle < 3:
            time.sleep(0.2)
            idle = 0 if self.ask("get_state")["data"]["isStreaming"] else idle + 1
        with self._news:
            self._records.clear()

    def processes(self) -> list[int]:
        """It and all below it."""
        found, waiting = [], [self._process.pid]
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                waiting += map(int, task.read_text().split())
        return found

    def memory(self) -> float:
        """Real memory in MB."""
        total = 0
        for pid in self.processes():
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(next(line for line in rollup.splitlines() if line.startswith("Pss:")).split()[1])
        return total / 1024

    def processor_time(self) -> float:
        """Milliseconds that it has used, with all below it."""
        ticks = 0
        for pid in self.processes():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
        return ticks * 1000 / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def calls_of_pigeon(count: int) -> list[tuple[str, Record]]:
    """The calls that start so many agents."""
    return [("task", {"prompt": f"CHILD {number}", "title": f"part {number}"}) for number in range(count)]


def calls_of_oh_my_pi(count: int) -> list[tuple[str, Record]]:
    """The same in the words of its tool."""
    tasks = [{"name": f"Part{number}", "task": f"CHILD {number}"} for number in range(count)]
    return [("task", {"i": "work on all parts", "context": "There is nothing to know.", "tasks": tasks})]


def start_pigeon(home: Path, agents: int) -> list[str]:
    """The command of Pigeon, with its settings in place."""
    folder = home / "agent"
    folder.mkdir(parents=True)
    (folder / "models.json").write_text(json.dumps(MODELS))
    (folder / "settings.json").write_text(json.dumps({"quietStartup": True, "agents": {"maxParallel": agents}}))
    words = [sys.executable, "-m", "pigeon", "--mode", "rpc", "--dialect", "pi-latest", "--model", "bench/bench"]
    return [*words, "--tools", "+task,+jobs"]


def start_peer(home: Path, program: str, agents: int) -> list[str]:
    """The same for oh-my-pi's program."""
    folder = home / ".omp" / "agent"
    folder.mkdir(parents=True)
    (folder / "models.yml").write_text(json.dumps(MODELS))
    settings = {"startup": {"checkUpdate": False, "setupWizard": False, "quiet": True},
                "marketplace": {"autoUpdate": "off"}, "task": {"maxConcurrency": agents}}  # fmt: skip
    (folder / "config.yml").write_text(json.dumps(settings))
    return [program, "--mode", "rpc", "--provider", "bench", "--model", "bench"]


def measure(program: Program, server: ModelServer, agents: int) -> Record:
    """The figures of one program."""
    try:
        program.ask("get_state")
        for text in ("Say something.", "START 1", "Say something."):
            program.prompt(text)
            program.wait_until_settled()
        program.wait_for_agents(server, 1)
        figures = {**_measure_at_once(program, server, agents), **_measure_processor(program, server, agents)}
    finally:
        program.stop()
    return figures


def _measure_at_once(program: Program, server: ModelServer, agents: int) -> Record:
    """Memory with all agents at work, and how fast `get_state` is answered while all get their answers."""
    time.sleep(1)
    before, server.waiting, server.answered = program.memory(), 0, 0
    server.hold = server.slowly = True
    server._gate.clear()
    program.prompt(f"START {agents}")
    eventually(lambda: server.waiting >= agents)
    time.sleep(0.5)
    at_work = program.memory()
    server.release()
    took: list[float] = []
    looked = time.monotonic()
    while server.answered < agents:
        began = time.perf_counter()
        program.ask("get_state")
        took.append((time.perf_counter() - began) * 1000)
        if time.monotonic() > looked + 1:
            at_work, looked = max(at_work, program.memory()), time.monotonic()
        time.sleep(0.005)
    program.wait_until_settled()
    program.wait_for_agents(server, agents)
    server.slowly = False
    took.sort()
    return {
        "MB of each agent": (at_work - before) / agents,
        "MB of all": at_work,
        "get_state p50, ms": statistics.median(took),
        "get_state p99, ms": took[int(len(took) * 0.99)],
        "answers of get_state": len(took),
    }


def _measure_processor(program: Program, server: ModelServer, agents: int) -> Record:
    """What an agent costs, and an ordinary turn."""
    server.answered = 0
    began = program.processor_time()
    for _ in range(TURNS):
        program.prompt("Say something.")
        program.wait_until_settled()
    turn = (program.processor_time() - began) / TURNS
    began = program.processor_time()
    program.prompt(f"START {agents}")
    program.wait_until_settled()
    program.wait_for_agents(server, agents)
    agent = (program.processor_time() - began - 2 * turn) / agents
    return {"processor of a turn, ms": turn, "processor of an agent, ms": agent, "agent in turns": agent / turn}


def eventually(condition: Any, seconds: float = 120) -> None:
    """Wait until it holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the agents did not ask the model")
        time.sleep(0.01)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--peer", default="", help="the program of oh-my-pi, to measure beside it")
    given = parser.parse_args()
    columns: dict[str, Record] = {}
    for name in ("Pigeon", *(("oh-my-pi",) if given.peer else ())):
        is_ours = name == "Pigeon"
        server = ModelServer(calls_of_pigeon if is_ours else calls_of_oh_my_pi)
        server.start_and_wait()
        MODELS["providers"]["bench"]["baseUrl"] = f"http://127.0.0.1:{server.port}/v1"
        with tempfile.TemporaryDirectory(prefix="pigeon-agents-bench-", ignore_cleanup_errors=True) as place:
            home = Path(place)
            (home / "work").mkdir()
            command = start_pigeon(home, given.agents) if is_ours else start_peer(home, given.peer, given.agents)
            kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
            folder = Path(given.peer).resolve().parent if given.peer else home
            path = f"{Path(given.peer).parent}:{folder}:{kept['PATH']}" if given.peer else kept["PATH"]
            env = {**kept, "PATH": path, "HOME": place, "PI_OFFLINE": "1"}
            env["PIGEON_CODING_AGENT_DIR"] = str(home / "agent")
            program = Program(command, env, home / "work", is_ours)
            columns[name] = measure(program, server, given.agents)
    print(f"{given.agents} agents at once {'':15}" + "".join(f"{name:>12}" for name in columns))  # noqa: T201
    for row in columns["Pigeon"]:
        print(f"{row:33}" + "".join(f"{column[row]:12.1f}" for column in columns.values()))  # noqa: T201


if __name__ == "__main__":
    main()
