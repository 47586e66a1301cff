"""Agents that stay: a program that is started, has conversations, and answers prompts in them.

Each kind speaks the protocol of its agent: JSON lines of pi's family, the Agent Client Protocol, Codex's app server,
Claude Code's streams, and the WebSockets of `pigeon serve`.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.headless import RunFailed, Site
from bench.model_formats import Record
from bench.peers import BY_NAME, Peer
from bench.tree_meter import descendants, memory_kb

PATIENCE = 120.0
END_SECONDS = 5.0
QUIET_SECONDS = 15.0
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Sequence[int]) -> float:
    """CPU time of these processes, exactly, and of children that they have reaped, in ticks."""
    total = 0.0
    for pid in pids:
        try:
            total += time.clock_gettime((~pid << 3) | 2)
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += (int(fields[13]) + int(fields[14])) / _TICKS
    return total


class Turn:
    """One prompt: when its first text came, when it ended, and how much text there was."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._ended = threading.Event()
        self._failure = ""
        self.first_seconds = 0.0
        self.seconds = 0.0
        self.characters = 0

    def on_text(self, text: str) -> None:
        if text and not self.characters:
            self.first_seconds = time.perf_counter() - self._began
        self.characters += len(text)

    def end(self, failure: str = "") -> None:
        if not self._ended.is_set():
            self.seconds = time.perf_counter() - self._began
            self._failure = failure
            self._ended.set()

    def wait(self) -> Turn:
        if not self._ended.wait(PATIENCE):
            raise RunFailed("a prompt did not end")
        if self._failure:
            raise RunFailed(self._failure)
        return self


class Lines:
    """A child process with JSON lines on its standard streams."""

    def __init__(self, command: Sequence[str], site: Site) -> None:
        self.on_record: Callable[[Record], None] = lambda record: None
        self.program = subprocess.Popen(
            command,
            env=site.variables,
            cwd=site.work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.program.stdout is not None
        for line in self.program.stdout:
            if line.startswith(b"{"):
                self.on_record(json.loads(line))

    def send(self, record: Record) -> None:
        assert self.program.stdin is not None
        self.program.stdin.write(json.dumps(record).encode() + b"\n")
        self.program.stdin.flush()


class Agent:
    """Subclasses open conversations and send prompts; what is common is what its processes have used."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.programs: list[subprocess.Popen[Any]] = []

    def start(self) -> None:
        """Start the program, as far as that is not part of opening a conversation."""

    def open(self) -> Any:
        """A new conversation that takes prompts."""
        raise NotImplementedError

    def prompt(self, conversation: Any, text: str) -> Turn:
        raise NotImplementedError

    def processes(self) -> list[int]:
        found = [program.pid for program in self.programs]
        return found + [pid for program in found for pid in descendants(program)]

    def cpu(self) -> float:
        return cpu_seconds(self.processes())

    def memory_mb(self) -> float:
        return memory_kb(self.processes()) / 1024

    def wait_until_quiet(self) -> None:
        """Wait until what the program does after its start is done, so that prompts are not charged for it."""
        until = time.monotonic() + QUIET_SECONDS
        used = self.cpu()
        while time.monotonic() < until:
            time.sleep(0.3)
            before, used = used, self.cpu()
            if used - before < 0.01:
                return

    def stop(self) -> None:
        """End everything: kindly, then not."""
        running = self.processes()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in running:
                try:
                    os.kill(pid, number)
                except OSError:
                    continue
            until = time.monotonic() + END_SECONDS
            while any(program.poll() is None for program in self.programs) and time.monotonic() < until:
                time.sleep(0.01)
        for program in self.programs:
            for stream in (program.stdin, program.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except OSError:
                        continue


class RpcAgent(Agent):
    """pi's family: a process for each conversation."""

    def __init__(self, site: Site, ending: str = "agent_settled") -> None:
        super().__init__(site)
        self._ending = ending

    def open(self) -> Lines:
        lines = Lines(self.site.peer.rpc(), self.site)  # type: ignore[attr-defined]
        self.programs.append(lines.program)
        ready = threading.Event()
        lines.on_record = lambda record: ready.set() if record.get("id") == "open" else None
        lines.send({"id": "open", "type": "get_state"})
        if not ready.wait(PATIENCE):
            raise RunFailed("it did not answer get_state")
        return lines

    def prompt(self, conversation: Lines, text: str) -> Turn:
        turn = Turn()
        conversation.on_record = lambda record: follow_rpc(turn, record, self._ending)
        conversation.send({"id": "prompt", "type": "prompt", "message": text})
        return turn


def follow_rpc(turn: Turn, record: Record, ending: str) -> None:
    """What a record of pi's family means for a prompt."""
    kind = record.get("type")
    if kind == "message_update":
        event = record.get("assistantMessageEvent") or {}
        if event.get("type") == "text_delta":
            turn.on_text(event.get("delta", ""))
    elif kind == ending:
        turn.end()
    elif kind == "response" and record.get("success") is False:
        turn.end(str(record))


class AcpAgent(Agent):
    """The Agent Client Protocol: one process, many sessions."""

    def start(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Callable[[Record], None]] = {}
        self._turns: dict[str, Turn] = {}
        self._lines = Lines(self._command(), self.site)
        self.programs.append(self._lines.program)
        self._lines.on_record = self._on_record
        self._initialize()

    def _command(self) -> list[str]:
        return self.site.peer.acp()  # type: ignore[attr-defined, no-any-return]

    def _initialize(self) -> None:
        files = {"readTextFile": False, "writeTextFile": False}
        client = {
            "clientCapabilities": {"fs": files, "terminal": False},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        self._call("initialize", {"protocolVersion": 1, **client})

    def _frame(self, record: Record) -> Record:
        return {"jsonrpc": "2.0", **record}

    def _on_record(self, record: Record) -> None:
        if "method" in record and "id" in record:
            self._lines.send(self._frame({"id": record["id"], "result": self._permission(record)}))
        elif "method" in record:
            self._on_notification(record["method"], record.get("params") or {})
        elif record.get("id") in self._waiting:
            self._waiting.pop(record["id"])(record)

    def _permission(self, record: Record) -> Record:
        allowed = [one for one in record["params"].get("options", []) if one.get("kind", "").startswith("allow")]
        return {"outcome": {"outcome": "selected", "optionId": allowed[0]["optionId"]}} if allowed else {}

    def _on_notification(self, method: str, given: Record) -> None:
        turn = self._turns.get(given.get("sessionId", ""))
        update = given.get("update") or {}
        if turn is not None and update.get("sessionUpdate") == "agent_message_chunk":
            turn.on_text(update["content"].get("text", ""))

    def _request(self, method: str, given: Record, on_answer: Callable[[Record], None]) -> None:
        number = next(self._numbers)
        self._waiting[number] = on_answer
        self._lines.send(self._frame({"id": number, "method": method, "params": given}))

    def _call(self, method: str, given: Record) -> Record:
        answers: queue.Queue[Record] = queue.Queue()
        self._request(method, given, answers.put)
        try:
            answer = answers.get(timeout=PATIENCE)
        except queue.Empty:
            raise RunFailed(f"no answer to {method}") from None
        if "error" in answer:
            raise RunFailed(f"{method}: {answer['error']}")
        result: Record = answer["result"]
        return result

    def open(self) -> str:
        return str(self._call("session/new", {"cwd": str(self.site.work), "mcpServers": []})["sessionId"])

    def prompt(self, conversation: str, text: str) -> Turn:
        turn = self._turns[conversation] = Turn()
        given = {"sessionId": conversation, "prompt": [{"type": "text", "text": text}]}
        self._request("session/prompt", given, lambda answer: turn.end(str(answer.get("error") or "")))
        return turn


class CodexServer(AcpAgent):
    """Codex's app server, whose conversations are threads of one process."""

    def _command(self) -> list[str]:
        return [*self.site.peer.program, "app-server"]

    def _initialize(self) -> None:
        self._call("initialize", {"clientInfo": {"name": "bench", "title": "bench", "version": "1"}})
        self._lines.send({"method": "initialized"})

    def _frame(self, record: Record) -> Record:
        return record

    def _permission(self, record: Record) -> Record:
        return {"decision": "accept"}

    def _on_notification(self, method: str, given: Record) -> None:
        turn = self._turns.get(given.get("threadId", ""))
        if turn is None:
            return
        if method == "item/agentMessage/delta":
            turn.on_text(given["delta"])
        elif method in ("turn/completed", "error"):
            turn.end("" if method == "turn/completed" else str(given))

    def open(self) -> str:
        rights = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
        return str(self._call("thread/start", {"cwd": str(self.site.work), **rights})["thread"]["id"])

    def prompt(self, conversation: str, text: str) -> Turn:
        turn = self._turns[conversation] = Turn()
        given = {"threadId": conversation, "input": [{"type": "text", "text": text, "text_elements": []}]}
        self._request("turn/start", given, lambda answer: turn.end(str(answer["error"])) if "error" in answer else None)
        return turn


class ClaudeStreams(Agent):
    """Claude Code with JSON lines both ways, as its SDKs start it."""

    def open(self) -> Lines:
        peer = self.site.peer
        streams = [
            "--input-format",
            "stream-json",
            "--output-format",
            "stream-json",
            "--include-partial-messages",
            "--verbose",
        ]
        lines = Lines([*peer.command("")[:-1], *streams], self.site)
        self.programs.append(lines.program)
        ready = threading.Event()
        lines.on_record = lambda record: ready.set() if record.get("type") == "control_response" else None
        lines.send({"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}})
        if not ready.wait(PATIENCE):
            raise RunFailed("it did not answer initialize")
        return lines

    def prompt(self, conversation: Lines, text: str) -> Turn:
        turn = Turn()

        def follow(record: Record) -> None:
            if record.get("type") == "stream_event":
                turn.on_text((record["event"].get("delta") or {}).get("text", ""))
            elif record.get("type") == "result":
                turn.end(str(record)[:300] if record.get("is_error") else "")

        conversation.on_record = follow
        conversation.send({"type": "user", "message": {"role": "user", "content": text}})
        return turn


class PigeonServe(Agent):
    """`pigeon serve`: the supervisor, the parent of its workers, a WebSocket for each conversation."""

    def __init__(self, site: Site, options: Sequence[str] = ()) -> None:
        super().__init__(site)
        self._options = options

    def start(self) -> None:
        model = ["--model", "bench/bench"]
        command = [*self.site.peer.program, "serve", *model, "--port", "0", *self._options]
        program = subprocess.Popen(
            command,
            env=self.site.variables,
            cwd=self.site.work,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.programs.append(program)
        assert program.stdout is not None
        self._address = program.stdout.readline().split()[-1]
        self._token = (self.site.home / ".pigeon/agent/serve.token").read_text().split()[1]

    def open(self) -> Any:
        from websockets.sync.client import connect

        right = {"Authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(
            f"{self._address}/api/sessions",
            json.dumps({"cwd": str(self.site.work)}).encode(),
            {"Content-Type": "application/json", **right},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            id = json.load(answer)["id"]
        address = f"{self._address.replace('http', 'ws', 1)}/api/sessions/{id}/rpc"
        socket = connect(address, additional_headers=right, max_size=None, compression=None)
        socket.send('{"id": "open", "type": "get_state"}')
        while json.loads(socket.recv(PATIENCE)).get("id") != "open":
            continue
        return socket

    def prompt(self, conversation: Any, text: str) -> Turn:
        turn = Turn()

        def read() -> None:
            while not turn.seconds:
                follow_rpc(turn, json.loads(conversation.recv(PATIENCE)), "agent_settled")

        conversation.send(json.dumps({"id": "prompt", "type": "prompt", "message": text}))
        threading.Thread(target=read, daemon=True).start()
        return turn


class WarmPigeon(RpcAgent):
    """`pigeon --mode rpc` with a warm parent; what the parent uses counts, too."""

    def start(self) -> None:
        warm_up(self.site)
        self._parent = warm_parent(self.site)
        self._used = cpu_seconds([self._parent])

    def cpu(self) -> float:
        return super().cpu() + cpu_seconds([self._parent]) - self._used

    def processes(self) -> list[int]:
        return super().processes() + descendants(self._parent)

    def memory_mb(self) -> float:
        return memory_kb([*self.processes(), self._parent]) / 1024


def warm_up(site: Site) -> None:
    """Start the warm parent of a home, if it has none."""
    subprocess.run([*site.peer.program, "warm"], env=site.variables, cwd=site.work, capture_output=True, check=True)


def warm_parent(site: Site) -> int:
    """The process of the warm parent."""
    shown = subprocess.run(
        [*site.peer.program, "warm", "--status"], env=site.variables, capture_output=True, text=True, check=True
    )
    return int(shown.stdout.splitlines()[1].split()[0])


def cool_down(site: Site) -> None:
    subprocess.run([*site.peer.program, "warm", "--stop"], env=site.variables, capture_output=True, check=False)


# What stays, by the name in tables: the agent, and how it is spoken to.
KINDS: dict[str, tuple[str, Callable[[Site], Agent]]] = {
    "Pigeon, `--mode rpc`": ("pigeon", RpcAgent),
    "Pigeon, `--mode rpc` after `pigeon warm`": ("pigeon", WarmPigeon),
    "Pigeon, `pigeon serve`": ("pigeon", PigeonServe),
    "Codex, app server": ("codex", CodexServer),
    "pi, RPC": ("pi", RpcAgent),
    "tau, RPC": ("tau", lambda site: RpcAgent(site, "agent_end")),
    "oh-my-pi, RPC": ("oh-my-pi", lambda site: RpcAgent(site, "agent_end")),
    "Claude Code, stream-json": ("claude", ClaudeStreams),
    "opencode, ACP": ("opencode", AcpAgent),
    "Gemini CLI, ACP": ("gemini", AcpAgent),
    "Qwen Code, ACP": ("qwen", AcpAgent),
    "Copilot CLI, ACP": ("copilot", AcpAgent),
    "Mistral Vibe, ACP": ("vibe", AcpAgent),
}


def peer_of(kind: str) -> Peer:
    return BY_NAME[KINDS[kind][0]]
