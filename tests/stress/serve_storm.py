"""`make serve-storm`: clients of `pigeon serve` that lose their connection at random moments, a supervisor and workers
that are killed, and a judge of what everybody was told. Some clients are processes, which are killed; some connections
go over a relay that falls silent.

Every event must reach every client exactly once, over all its connections; every question must be answered or open;
every prompt that was accepted must end once; and what was announced must be in the session file.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection, connect

CLIENT = str(Path(__file__).with_name("storm_client.py"))
PROGRAM = str(Path(sys.executable).parent / "pigeon")
RULES = {"ask": ["bash"]}
# The share of connections that a process of its own has, and of those over a relay that can fall silent.
PROCESSES = 0.1
RELAYS = 0.25
PROMPTS = ("list the files", "run echo one", "run true", "run echo two; echo three", "list the files")
LOST = (OSError, websockets.WebSocketException, TimeoutError, EOFError)
Record = dict[str, Any]


class Relay:
    """A way to the service that can fall silent: nothing is forwarded any more, and neither end is told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._silent = asyncio.Event()
        self._links: set[asyncio.Task[None]] = set()

    async def open(self) -> socket.socket:
        """A connection that goes this way."""
        self._server = await asyncio.start_server(self._link, "127.0.0.1", 0)
        near = socket.socket()
        near.setblocking(False)
        await asyncio.get_running_loop().sock_connect(near, self._server.sockets[0].getsockname())
        return near

    def fall_silent(self) -> None:
        self._silent.set()

    def close(self) -> None:
        for link in self._links:
            link.cancel()
        if self._server is not None:
            self._server.close()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            back, there = await asyncio.open_connection("127.0.0.1", self._port)
            ways = [asyncio.ensure_future(self._copy(reader, there)), asyncio.ensure_future(self._copy(back, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                if self._silent.is_set():
                    # To the service the connection is there, for as long as it likes.
                    await asyncio.Event().wait()
            finally:
                for way in ways:
                    way.cancel()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for one in (writer, there):
                if one is not None:
                    one.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self._silent.is_set():
                    return
                writer.write(data)
                await writer.drain()


class ClientProcess:
    """A connection that a process of its own has, `stress.storm_client`, which can be killed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    async def recv(self) -> str:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line.decode()

    async def close(self) -> None:
        await self.kill()

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


class Service:
    """One `pigeon serve` in a folder of its own, on a port that it keeps over restarts."""

    def __init__(self, folder: str, options: tuple[str, ...] = ()) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        self.agent_dir = os.path.join(folder, "agent")
        self._options = options
        self._program: asyncio.subprocess.Process | None = None
        self.up = asyncio.Event()

    async def start(self) -> None:
        variables = {"HOME": self.folder, "PIGEON_CODING_AGENT_DIR": self.agent_dir, "PATH": os.environ["PATH"]}
        variables["PIGEON_SERVE_WARM_UP"] = "off"
        self._program = await asyncio.create_subprocess_exec(
            PROGRAM, "serve", "--port", str(self.port), "--root", self.folder, "--model", "demo", *self._options,
            env=variables, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self._program.stdout is not None
        line = await asyncio.wait_for(self._program.stdout.readline(), 60)
        assert b"Serving" in line, line
        self.up.set()

    @property
    def pid(self) -> int:
        assert self._program is not None
        return self._program.pid

    @property
    def token(self) -> str:
        return Path(self.agent_dir, "serve.token").read_text().split()[1]

    async def kill(self) -> None:
        """SIGKILL, and up again."""
        assert self._program is not None
        self.up.clear()
        self._program.kill()
        await self._program.wait()
        await self.start()

    async def stop(self) -> int:
        assert self._program is not None
        self._program.terminate()
        return await asyncio.wait_for(self._program.wait(), 60)

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return await asyncio.to_thread(self._call, method, path, body)

    def _call(self, method: str, path: str, body: Any) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            headers={"Authorization": f"Bearer {self.token}"},
            data=None if body is None else json.dumps(body).encode(),
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read() or b"null")

    async def connect(self, id: str, after: int, relay: Relay | None = None) -> ClientConnection:
        return await connect(
            self._address(id, after),
            additional_headers={"Authorization": f"Bearer {self.token}"},
            open_timeout=30,
            max_size=None,
            ping_interval=None,
            sock=None if relay is None else await relay.open(),
        )

    async def connect_process(self, id: str, after: int) -> ClientProcess:
        process = await asyncio.create_subprocess_exec(
            sys.executable, CLIENT, self._address(id, after), self.token,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            limit=1 << 26,
        )  # fmt: skip
        return ClientProcess(process)

    def _address(self, id: str, after: int) -> str:
        return f"ws://127.0.0.1:{self.port}/api/sessions/{id}/rpc?after={after}"


class StormClient:
    """A client that comes back with the last number it has; one that `talks` prompts and answers questions."""

    def __init__(self, service: Service, id: str, chance: random.Random, talks: bool) -> None:
        self._service = service
        self.id = id
        self._chance = chance
        self._talks = talks
        self._socket: ClientConnection | ClientProcess | None = None
        self._relay: Relay | None = None
        self.events: list[Record] = []
        self.faults: list[str] = []
        self.questions: dict[str, Record] = {}
        self.accepted: Counter[str] = Counter()
        self.unanswered: Record | None = None
        self.latencies: list[float] = []
        self.restarted = 0
        self.refused: list[str] = []
        self.connections = 0
        self.relays: list[Relay] = []
        self.prompts = 0
        self.running = False
        self.ending = False
        self._asked: dict[str, float] = {}

    @property
    def last(self) -> int:
        return self.events[-1]["seq"] if self.events else 0

    @property
    def quiet(self) -> bool:
        return not self.running and self.unanswered is None and not self.questions

    async def run(self) -> None:
        """Until it is told to end, and everything has come to its end."""
        while not (self.ending and self.quiet):
            await self._service.up.wait()
            try:
                self._socket = await self._connect()
            except LOST:
                await _pause(0.05)
                continue
            self.connections += 1
            with suppress(*LOST):
                await self._talk(self._socket)
            self._socket = None

    async def _connect(self) -> ClientConnection | ClientProcess:
        """By one of the ways in which connections can be lost."""
        self._relay = None
        way = self._chance.random()
        if way < PROCESSES:
            return await self._service.connect_process(self.id, self.last)
        if way < PROCESSES + RELAYS:
            self._relay = Relay(self._service.port)
            self.relays.append(self._relay)
        return await self._service.connect(self.id, self.last, self._relay)

    async def cut(self, how: str) -> str | None:
        """Lose the connection; returns how, none if there is none."""
        connection = self._socket
        if connection is None:
            return None
        self._socket = None
        if isinstance(connection, ClientProcess):
            await connection.kill()
            return "client killed"
        if self._relay is not None:
            # Neither side hears of it; the client gives up by itself.
            self._relay.fall_silent()
            connection.transport.abort()
            return "network silent"
        if how == "close":
            with suppress(*LOST):
                await asyncio.wait_for(connection.close(), 5)
        else:
            if how == "mid-frame":
                # The beginning of a long text frame.
                connection.transport.write(b'\x81\xfe\x10\x00abcd{"type":"get_st')
                await asyncio.sleep(0)
            connection.transport.abort()
        return how

    async def _talk(self, connection: ClientConnection | ClientProcess) -> None:
        if self._talks:
            if self.unanswered is not None:
                await connection.send(json.dumps(self.unanswered))
            for question in list(self.questions.values()):
                await self._answer(connection, question)
            await self._next(connection)
        while not (self.ending and self.quiet):
            try:
                line = await asyncio.wait_for(connection.recv(), 1)
            except TimeoutError:
                if self._talks:
                    await self._next(connection)
                continue
            record = json.loads(line)
            if record["type"] == "response":
                self._response(record)
            else:
                await self._event(connection, record)
            if self._talks:
                await self._next(connection)
        await connection.close()

    async def _next(self, connection: ClientConnection | ClientProcess) -> None:
        if self.ending or not self.quiet:
            return
        self.prompts += 1
        id = f"{self.id[-6:]}-{self.prompts}"
        message = self._chance.choice(PROMPTS)
        self.unanswered = {"id": id, "type": "prompt", "message": message, "clientMessageId": id}
        await connection.send(json.dumps(self.unanswered))
        self._asked[f"s{id}"] = time.monotonic()
        await connection.send(json.dumps({"id": f"s{id}", "type": "get_state"}))

    def _response(self, record: Record) -> None:
        asked = self._asked.pop(str(record.get("id")), None)
        if asked is not None:
            self.latencies.append(time.monotonic() - asked)
        if record["command"] != "prompt" or self.unanswered is None or record["id"] != self.unanswered["id"]:
            return
        if record["success"]:
            self.accepted[record["id"]] += 1
            self.unanswered = None
            self.running = not self._over(record["data"].get("runId"))
        else:
            self.refused.append(record["error"])
            self.unanswered = None

    def _over(self, run: str | None) -> bool:
        """Whether the end of a run has come before the answer to its prompt, which a lost connection had taken."""
        ends = [one for one in self.events if one["type"] == "agent_settled"]
        return any(one.get("runId") == run for one in ends)

    async def _event(self, connection: ClientConnection | ClientProcess, record: Record) -> None:
        number = record.get("seq")
        if number != self.last + 1:
            self.faults.append(f"event {number} after {self.last}: {str(record)[:200]}")
            if number is None or number <= self.last:
                return
        self.events.append(record)
        kind = record["type"]
        if kind == "agent_start":
            self.running = True
        elif kind == "agent_settled":
            self.running = False
        elif kind == "agent_restarted":
            self.restarted += 1
        elif kind == "extension_ui_request" and record["method"] == "select":
            self.questions[record["id"]] = record
            if self._talks and self._chance.random() < 0.7:
                await self._answer(connection, record)
            elif self._talks:
                # Answered only after the connection was lost.
                await self.cut("abort")
        elif kind == "extension_ui_request" and record["method"] == "cancel":
            self.questions.pop(record["targetId"], None)

    async def _answer(self, connection: ClientConnection | ClientProcess, question: Record) -> None:
        value = question["options"][0 if self._chance.random() < 0.8 else -1]
        await connection.send(json.dumps({"type": "extension_ui_response", "id": question["id"], "value": value}))


class Storm:
    """So many conversations, each with a client that talks and one that watches."""

    def __init__(self, folder: str, seed: int, count: int, shared: int) -> None:
        self.chance = random.Random(seed)
        options = ("--worker-restarts", "1000000", "--drain-seconds", "5", "--log-level", "off")
        self.service = Service(folder, (*options, "--shared", str(shared)))
        self._count = count
        self.talking: list[StormClient] = []
        self.watching: list[StormClient] = []
        self._running: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        await self.service.start()
        for _ in range(self._count):
            made = await self.service.call("POST", "/api/sessions", {"cwd": self.service.folder})
            socket = await self.service.connect(made["id"], 0)
            await socket.send(json.dumps({"type": "set_permissions", "permissions": RULES}))
            assert json.loads(await socket.recv())["success"]
            await socket.close()
            self.talking.append(StormClient(self.service, made["id"], self._chance(), True))
            self.watching.append(StormClient(self.service, made["id"], self._chance(), False))
        self._running = [asyncio.ensure_future(one.run()) for one in self.clients]

    def _chance(self) -> random.Random:
        return random.Random(self.chance.random())

    @property
    def clients(self) -> list[StormClient]:
        return [*self.talking, *self.watching]

    async def disconnect(self, times: int, kills_every: int) -> Counter[str]:
        """Cut connections at random, and kill the supervisor now and then."""
        done: Counter[str] = Counter()
        while sum(done.values()) < times:
            await _pause(self.chance.random() * 0.06)
            self._check_alive()
            if kills_every and self.chance.random() < 1 / kills_every:
                connected = sum(one._socket is not None for one in self.clients)
                await self.service.kill()
                done["supervisor killed"] += connected
                continue
            how = self.chance.choice(("abort", "mid-frame", "close", "abort"))
            if (cut := await self.chance.choice(self.clients).cut(how)) is not None:
                done[cut] += 1
        return done

    async def kill_workers(self, times: int) -> int:
        """Kill workers of the first half of the conversations; the others must not notice."""
        victims = [one.id for one in self.talking[: len(self.talking) // 2]]
        for _ in range(times):
            self._check_alive()
            pid = None
            while pid is None:
                await _pause(self.chance.random() * 0.15)
                shown = await self.service.call("GET", f"/api/sessions/{self.chance.choice(victims)}")
                pid = shown.get("pid")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return times

    def _check_alive(self) -> None:
        for task in self._running:
            if task.done():
                task.result()

    async def end(self) -> None:
        """Let everything come to its end."""
        for one in self.talking:
            one.ending = True
        await asyncio.wait_for(asyncio.gather(*self._running[: len(self.talking)]), 120)
        for talking, watching in zip(self.talking, self.watching, strict=True):
            watching.ending = True
            while watching.last < talking.last:
                self._check_alive()
                await _pause(0.05)
        await asyncio.wait_for(asyncio.gather(*self._running), 120)
        for relay in [relay for one in self.clients for relay in one.relays]:
            relay.close()
        assert await self.service.stop() == 0

    def judge(self) -> list[str]:
        wrong: list[str] = []
        for talking, watching in zip(self.talking, self.watching, strict=True):
            for one in (talking, watching):
                wrong += [f"{one.id}: {fault}" for fault in one.faults]
                wrong += [f"{one.id}: the question {id} is lost" for id in one.questions]
            wrong += [
                f"{talking.id}: two clients were told different things: {one} and {other}"
                for one, other in zip(talking.events, watching.events, strict=False)
                if one != other
            ][:3]
            wrong += self._judge_ends(talking)
            wrong += self._judge_file(talking)
        return wrong

    def _judge_ends(self, client: StormClient) -> list[str]:
        """A prompt whose agent died before it answered may have begun, and then it has ended too."""
        ends = Counter(event.get("runId") for event in client.events if event["type"] == "agent_settled")
        accepted, unsure = len(client.accepted), sum("before it answered" in error for error in client.refused)
        wrong = [f"{client.id}: the run {run} ended {count} times" for run, count in ends.items() if count > 1]
        if not accepted <= ends.total() <= accepted + unsure:
            wrong.append(f"{client.id}: {accepted} prompts were accepted, {unsure} perhaps, {ends.total()} ended")
        return wrong

    def _judge_file(self, client: StormClient) -> list[str]:
        files = list(Path(self.service.agent_dir, "sessions").rglob(f"*_{client.id}.jsonl"))
        if not files:
            return [] if not client.accepted else [f"{client.id}: there is no session file"]
        entries = [json.loads(line) for line in files[0].read_text().splitlines()]
        ids = {entry["id"] for entry in entries}
        wrong = [
            f"{client.id}: the parent of {entry['id']} is missing"
            for entry in entries[1:]
            if entry.get("parentId") is not None and entry["parentId"] not in ids
        ]
        kept = Counter(_text(entry["message"]) for entry in entries if entry["type"] == "message")
        said = Counter(_text(event["message"]) for event in client.events if event["type"] == "message_end")
        return wrong + [f"{client.id}: announced, and not in the file: {text[:200]}" for text in said - kept]


async def _pause(seconds: float) -> None:
    """Disconnects and kills come at moments of chance."""
    await asyncio.sleep(seconds)


def _text(message: Record) -> str:
    return json.dumps([message.get("role"), message.get("timestamp"), message.get("content")], sort_keys=True)


async def storm(
    disconnects: int,
    kills: int,
    seed: int,
    count: int = 6,
    kills_every: int = 60,
    say: Callable[[str], object] = lambda line: None,
    shared: int = 1,
) -> list[str]:
    """Both storms, one after the other; returns what is wrong. With `shared` above 1, so many are in one process."""
    wrong: list[str] = []
    for name, times in (("disconnects", disconnects), ("killed workers", kills)):
        if not times:
            continue
        with tempfile.TemporaryDirectory(prefix="storm-", ignore_cleanup_errors=True) as folder:
            one = Storm(folder, seed, count, shared)
            begun = time.monotonic()
            await one.open()
            done: Any
            if name == "disconnects":
                done = await one.disconnect(times, kills_every)
            else:
                done = await one.kill_workers(times)
            await one.end()
            wrong += one.judge()
            # Those in the same process notice.
            if name == "killed workers" and shared == 1:
                for calm in one.talking[count // 2 :]:
                    if calm.restarted or calm.refused:
                        wrong.append(f"{calm.id} noticed: {calm.restarted} restarts, {calm.refused[:3]}")
            for line in figures(name, done, one, time.monotonic() - begun):
                say(line)
    return wrong


def figures(name: str, done: Any, one: Storm, seconds: float) -> list[str]:
    """What has happened in a storm, in lines."""
    events = sum(len(client.events) for client in one.clients)
    asked = sum(event.get("method") == "select" for client in one.talking for event in client.events)
    calm = sorted(latency for client in one.talking[len(one.talking) // 2 :] for latency in client.latencies)
    lines = [
        f"{name}: {dict(done) if isinstance(done, Counter) else done} in {seconds:.0f} s",
        f"  events told {events}, connections {sum(client.connections for client in one.clients)}",
        f"  prompts accepted {sum(len(client.accepted) for client in one.talking)}, questions {asked}",
        f"  restarts told {sum(client.restarted for client in one.talking)}",
    ]
    if calm:
        middle, late = calm[len(calm) // 2] * 1e3, calm[int(len(calm) * 0.99)] * 1e3
        lines.append(f"  get_state of the conversations that were left alone: p50 {middle:.0f} ms, p99 {late:.0f} ms")
    return lines


def main(words: list[str]) -> int:
    """Disconnects, killed workers, seed, and how many conversations share a process."""
    disconnects, kills, seed, shared = (int(word) for word in words)
    found = asyncio.run(storm(disconnects, kills, seed, say=lambda line: sys.stdout.write(f"{line}\n"), shared=shared))
    sys.stdout.write("\n".join([f"wrong: {len(found)}", *found[:20], ""]))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
