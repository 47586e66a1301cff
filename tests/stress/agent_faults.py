"""Agents with faults at random points, from a seed: what the model sends, the disk, extensions, tools and the host.

Each case is a whole agent in this process, with its scripted model and the server that hosts talk to. A host sends
commands, answers questions or does not, reads slowly; meanwhile the stream of the model breaks, the disk refuses writes
and handlers of extensions fail or hang. Afterwards `judge` checks what the host got: every command answered, every
accepted prompt ended exactly once, everything that was begun also ended. The program itself is ended at random moments
by a signal or the end of its input (`end_somewhere`). `make faults N=10000 SEED=1` plays many cases; a few are part of
the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from pigeon.agent.inference import BlockGrew, BlockOpened, Delta, Failure, Finished, ModelRequest
from pigeon.dialects.choice import make_dialect
from pigeon.providers.scripted.model import ScriptedModel
from pigeon.rpc.handlers.all import HANDLERS
from pigeon.rpc.lanes import CommandRunner
from pigeon.rpc.outbox import Outbox
from pigeon.rpc.server import Server
from pigeon.rpc.session_connection import SessionConnection
from pigeon.session.history.reading import load_session
from pigeon.system.append_file import AppendFile
from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess
from support.in_process_agent import InProcessAgent

Record = dict[str, Any]
PROMPTS = ("prompt", "abort_and_prompt")
SILENT = ("host_tool_result", "host_tool_update", "extension_ui_response")
PAIRS = {"agent_end": "agent_start", "turn_end": "turn_start", "message_end": "message_start"}
HOW = ("SIGTERM", "SIGHUP", "SIGINT", "SIGKILL", "EOF", "EOF", "SIGTERM")
CODES = {"SIGTERM": (143,), "SIGHUP": (129,), "SIGINT": (-2, 130), "EOF": (0,)}
DIALECTS = ("pi-latest", "omp")
PATIENCE = 20.0
SETTINGS = {
    "retry": {"baseDelayMs": 1, "maxRetries": 2},
    "compaction": {"keepRecentTokens": 200, "reserveTokens": 500},
}
EXTENSION = """
from pigeon.extensions import *
import asyncio, random

ext = Extension("faults")
chance = random.Random({seed})

async def trouble(usual=None, other=None):
    roll = chance.random()
    if roll < 0.08:
        raise RuntimeError("on purpose")
    if roll < 0.12:
        await asyncio.Event().wait()
    if roll < 0.2:
        return other
    for _ in range(chance.randrange(3)):
        await asyncio.sleep(0)
    return usual

@ext.on(Input, timeout=0.05)
async def heard(event, ctx):
    return await trouble(None, Handled())

@ext.on(BeforeAgentStart, timeout=0.05)
async def begins(event, ctx):
    return await trouble()

@ext.on(ModelContext, timeout=0.05)
async def context(event, ctx):
    return await trouble()

@ext.on(MessageEnd, timeout=0.05)
async def message(event, ctx):
    return await trouble()

@ext.on(ToolCall, timeout=0.05)
async def call(event, ctx):
    return await trouble(None, Block("not now"))

@ext.on(ToolResult, timeout=0.05)
async def result(event, ctx):
    return await trouble()

@ext.on(TurnStart)
async def turn(event, ctx):
    await trouble()

@ext.on(SessionBeforeCompact, timeout=0.05)
async def compacts(event, ctx):
    return await trouble(None, Cancel())

@ext.on(AgentBeforeSettle, timeout=0.05)
async def settles(event, ctx):
    return await trouble()

@ext.on(SessionBeforeSwitch, timeout=0.05)
async def switches(event, ctx):
    return await trouble(None, Cancel())

@ext.command("handled")
async def handled(args, ctx):
    await trouble()
"""
BAD_LINES = (b"null", b"{", b'{"type":"prompt"}', b'{"type":"nope","id":"n"}', b'"text"', b"\xff")
_STREAM = ScriptedModel.stream
_APPEND = AppendFile.append


def judge(records: list[Record], sent: list[Record], dialect: str, settled: bool) -> None:
    """Raise `AssertionError` for the first thing that is wrong; `settled` if everything had time to end."""
    _judge_answers(records, sent, dialect, settled)
    _judge_pairs(records, settled)
    if dialect == "omp":
        _judge_results(records, settled)
    else:
        _judge_settled(records, settled)
    for record in records:
        assert "Internal error" not in str(record.get("error", "")), record


def _judge_answers(records: list[Record], sent: list[Record], dialect: str, settled: bool) -> None:
    answers: dict[Any, list[bool]] = {}
    for record in records:
        if record["type"] == "response" and str(record.get("id", "")).startswith("c"):
            answers.setdefault(record["id"], []).append(record["success"])
    for command in sent:
        given = answers.get(command["id"], [])
        if not given and not settled:
            continue
        refused_twice = dialect == "omp" and command["type"] in PROMPTS and given == [True, False]
        assert len(given) == 1 or refused_twice, f"{command} was answered {given}"


def _judge_pairs(records: list[Record], settled: bool) -> None:
    """What begins ends before the agent settles, in the right order; a tool call by its id."""
    open_now = dict.fromkeys(PAIRS.values(), 0)
    calls: set[str] = set()
    for record in records:
        kind = record["type"]
        if kind in open_now:
            assert not open_now[kind], f"a second {kind}"
            open_now[kind] = 1
        elif kind in PAIRS:
            assert open_now[PAIRS[kind]], f"{kind} without its start"
            open_now[PAIRS[kind]] = 0
        elif kind == "message_update":
            assert open_now["message_start"], "an update outside of a message"
        elif kind == "tool_execution_start":
            assert record["toolCallId"] not in calls
            calls.add(record["toolCallId"])
        elif kind == "tool_execution_end":
            calls.remove(record["toolCallId"])
        elif kind in ("agent_settled", "session_settled"):
            assert not any((*open_now.values(), *calls)), f"settled with {open_now} {calls} open"
    if settled:
        assert not any((*open_now.values(), *calls)), f"{open_now} {calls} left open"


def _judge_settled(records: list[Record], settled: bool) -> None:
    """pi: `agent_settled` once for each prompt that started a run, and while one runs for those that are queued.

    A prompt that comes behind the `agent_end` of the one before may start as well; then the next end is its own.
    """
    running = None
    has_end = False
    for record in records:
        if record["type"] == "response" and record["command"] in PROMPTS and record["success"]:
            disposition = record["data"]["disposition"]
            if disposition == "started":
                assert running is None or has_end, f"{record['id']} started while {running} ran"
                running, has_end = record["id"], False
            elif disposition == "queued":
                assert running is not None, f"{record['id']} is queued, and nothing runs"
        elif record["type"] in ("agent_start", "turn_start"):
            assert running is not None, f"{record['type']} before the prompt was answered"
        elif record["type"] == "agent_end":
            has_end = True
        elif record["type"] == "agent_settled":
            assert running is not None, "settled twice"
            assert record["aborted"] == (record["reason"] == "aborted")
            running = None
    assert running is None or not settled, f"{running} never ended"


def _judge_results(records: list[Record], settled: bool) -> None:
    """omp: `prompt_result` once for each prompt, behind its answer; then `session_settled` if it was promised."""
    owed: list[Any] = []
    done: set[Any] = set()
    refused: set[Any] = set()
    promised = False
    for record in records:
        id = record.get("id")
        if record["type"] == "response" and record["command"] in PROMPTS:
            if not record["success"]:
                if id in owed:
                    refused.add(id)
            elif record.get("data", {}).get("agentInvoked") is not False:
                assert id not in (*owed, *done), f"{id} was accepted twice"
                owed.append(id)
        elif record["type"] == "prompt_result":
            assert id in owed, f"a result for {id}, which is not open"
            assert id not in refused or not (record["agentInvoked"] or record["status"] == "completed"), record
            owed.remove(id)
            done.add(id)
            promised = promised or not record["sessionSettled"]
        elif record["type"] == "session_settled":
            promised = False
            assert not owed, f"settled while {owed} had no result"
        elif record["type"] == "agent_start":
            promised = True
    if settled:
        assert not owed, f"no result for {owed}"
        assert not promised, "session_settled never came"
        states = [record for record in records if record["type"] == "response" and record["command"] == "get_state"]
        assert states[-1]["data"]["isSettled"] is True


def end_somewhere(seed: int, dialect: str, root: Path) -> str:
    """Play once; returns how it was ended."""
    chance = random.Random(f"{seed}/{dialect}/process")
    how = chance.choice(HOW)
    folders = AgentFolders(root)
    folders.configure({}, {"retry": {"baseDelayMs": 1}})
    script = folders.temp / "script.json"
    script.write_text(json.dumps({"replies": [_reply(chance) for _ in range(6)], "default": "Nothing more."}))
    agent = RpcProcess(folders, "--model", f"scripted/{script}", "--dialect", dialect)
    try:
        sent = _commands(chance)
        agent.send(*sent)
        agent.wait(lambda record: True)  # before, a signal finds no handler
        _wait_records(agent, chance.randrange(1, 80))
        code = _end(agent, how)
    except BaseException:
        agent.kill()
        raise
    assert code in CODES.get(how, (None,)), f"exit code {code} after {how}"
    judge(agent.records, sent, dialect, settled=False)
    _judge_files(folders.agent, agent.records)
    return how


def _end(agent: RpcProcess, how: str) -> int | None:
    """End it; its exit code, none after SIGKILL, which may cut off a line."""
    if how == "SIGKILL":
        agent.kill()
        return None
    if how == "EOF":
        agent.close_stdin()
    else:
        agent.signal(signal.Signals[how])
    return agent.wait_exit()


def _reply(chance: random.Random) -> Any:
    call: Record = {
        "name": "bash",
        "arguments": {"command": chance.choice(["echo hi", "sleep 600", "sleep 600 & sleep 600"])},
    }
    return chance.choice(
        [
            "word " * 30,
            {"text": "slow " * 30, "chunkDelayMs": 2},
            {"text": "x", "toolCalls": [call]},
            {"toolCalls": [{"name": "ls", "arguments": {}}, {"name": "unknown", "arguments": {}}]},
            {"text": "half", "error": {"message": "busy", "retryable": True}},
            {"text": "half", "hang": True},
        ]
    )


def _commands(chance: random.Random) -> list[Record]:
    prompt: Record = {"type": "prompt", "message": "go"}
    more: list[Record] = [
        prompt,
        {**prompt, "streamingBehavior": "followUp"},
        {**prompt, "streamingBehavior": "steer"},
        {"type": "abort"},
        {"type": "new_session"},
        {"type": "compact"},
        {"type": "get_state"},
        {"type": "set_session_name", "name": "n"},
        {"type": "abort_and_prompt", "message": "instead"},
        {"type": "bash", "command": chance.choice(["echo host", "sleep 600"])},
    ]
    commands = [prompt, *(chance.choice(more) for _ in range(chance.randrange(8)))]
    return [{"id": f"c{number}", **command} for number, command in enumerate(commands)]


def _wait_records(agent: RpcProcess, count: int) -> None:
    """Wait for so many records, or until the program waits for us."""
    try:
        seen = 0

        def enough(record: Record) -> bool:
            nonlocal seen
            seen += 1
            return seen >= count

        agent.wait(enough, deadline=0.2)
    except AssertionError:
        return


def _judge_files(folder: Path, records: list[Record]) -> None:
    kept = set()
    for path in folder.rglob("*.jsonl"):
        loaded = load_session(str(path)) if path.stat().st_size else None
        for line in loaded.lines if loaded is not None else ():
            if line.type == "message":
                kept.add(json.dumps(json.loads(line.raw)["message"], sort_keys=True))
    for record in records:
        if record["type"] == "message_end":
            message = json.dumps(record["message"], sort_keys=True)
            assert message in kept, f"announced and not in the file: {message[:300]}"


class SlowOutput:
    """In the place of the writer: keeps the records, and now and then says that the host is behind."""

    def __init__(self, chance: random.Random) -> None:
        self.records: list[Record] = []
        self.times: list[float] = []
        self._chance = chance
        self._behind = 0

    def put(self, buffers: Any, apart: bool = False, can_wait: bool = False) -> None:
        self.records.append(json.loads(b"".join(buffers)))
        self.times.append(time.monotonic())
        if self._chance.random() < 0.01:
            self._behind = self._chance.randrange(20)

    @property
    def is_full(self) -> bool:
        return self._behind > 0

    @property
    def is_overfull(self) -> bool:
        return False

    async def wait_for_room(self) -> None:
        while self._behind > 0:
            self._behind -= 1
            await asyncio.sleep(0)


class FaultCase:
    """One agent and what happens to it."""

    def __init__(self, seed: int, dialect: str, root: Path) -> None:
        self.chance = random.Random(f"{seed}/{dialect}")
        self.root = root
        self.disk_fails = 0
        self.sent: list[Record] = []
        self.prompts = 0
        self.dialect = dialect
        self._agent = InProcessAgent(root)
        self._output = SlowOutput(self.chance)
        self.records, self.times = self._output.records, self._output.times
        self._asked = 0
        self._uses_bash = self.chance.random() < 0.1

    async def play(self) -> None:
        """Play to the end; raises `AssertionError` where the host was told something wrong."""
        chance = self.chance
        self._configure()
        with_extension = chance.random() < 0.2
        more = {"extensions": [self._extension()]} if with_extension else {}
        more |= self.more_options()
        with faults_of(self):
            built = await self._agent.start(**more)
            session = built.session
            connection = SessionConnection(session, make_dialect(self.dialect, "0", {}), record_cap=1 << 20)
            outbox = Outbox(self._output, connection)  # type: ignore[arg-type]
            subjects = {"session": session, "connection": connection}
            self._server = Server(CommandRunner(subjects, HANDLERS), outbox)
            session.bus.add_announcer(outbox.send_event, outbox.wait_if_full)
            self._session = session
            try:
                await self._act()
                await self._calm_down()
            finally:
                self.disk_fails = 0
                await self._agent.stop()
        judge(self.own_records(), self.sent, self.dialect, settled=True)
        self.judge_more(self.records)
        self._judge_files()

    def begin(self) -> None:
        """What the host sends before anything else."""

    def own_records(self) -> list[Record]:
        """The records that are about the conversation itself."""
        return self.records

    def judge_more(self, records: list[Record]) -> None:
        """What else must be true of the records."""

    def on_model_request(self, request: ModelRequest) -> Callable[[Delta], None]:
        """The model was asked; what is returned is given each delta of its answer."""
        return lambda delta: None

    def more_options(self) -> Record:
        """What else the agent is started with."""
        return {}

    def more_of_the_script(self) -> Record:
        """What else the model says of itself."""
        return {}

    def _configure(self) -> None:
        replies = self._replies()
        self._agent.configure(SETTINGS, replies)
        window = self.chance.choice([200_000, 200_000, 3000])
        script = {"replies": replies, "default": "Nothing more.", "contextWindow": window, **self.more_of_the_script()}
        (self.root / "script.json").write_text(json.dumps(script))

    def _replies(self) -> list[Any]:
        return [self._reply() for _ in range(self.chance.randrange(1, 6))]

    def _reply(self) -> Any:
        chance = self.chance
        text = "word " * chance.choice([1, 10, 200])
        calls: list[Record] = [
            {"name": "ls", "arguments": {}},
            {"name": "read", "arguments": {"path": "none.txt"}},
            {"name": "write", "arguments": {"path": "a.txt", "content": "a"}},
            {"name": "unknown", "arguments": {}},
            {"name": "read", "raw": '{"path": "'},
            {"name": "at_host", "arguments": {"x": 1}},
        ]
        if self._uses_bash:
            calls += [
                {"name": "bash", "arguments": {"command": command}}
                for command in ("echo hi", "kill -9 $$", "kill -9 $PPID", "sleep 600", "exec sleep 600 & echo x")
            ]
        error = {"message": "broken", "retryable": chance.random() < 0.5, "overflow": chance.random() < 0.2}
        return chance.choice(
            [
                text,
                {"text": text, "toolCalls": chance.sample(calls, 2)},
                {"toolCalls": chance.sample(calls, 1)},
                {"thinking": "hm", "text": text},
                {"text": text, "error": error},
                {"text": text, "hang": True},
                {"text": text, "stop": "length"},
            ]
        )

    def _extension(self) -> str:
        path = self.root / "faults_extension.py"
        path.write_text(EXTENSION.replace("{seed}", str(self.chance.randrange(1 << 30))))
        return str(path)

    # The host.

    async def _act(self) -> None:
        chance = self.chance
        self.begin()
        if chance.random() < 0.5:
            tool = {"name": "at_host", "description": "d", "parameters": {"type": "object"}}
            self._send({"type": "set_host_tools", "tools": [tool]})
        if chance.random() < 0.2:
            self._send({"type": "set_permissions", "permissions": {"ask": ["write", "ls", "at_host"]}})
        self._prompt()
        for _ in range(chance.randrange(1, 12)):
            await self._turns()
            self._answer_questions()
            self._do_something()

    async def _turns(self) -> None:
        for _ in range(self.chance.choice([0, 1, 2, 5, 20, 60])):
            await asyncio.sleep(0)

    def _prompt(self) -> None:
        chance = self.chance
        command: Record = {"type": "prompt", "message": chance.choice(["go", "go on", "/handled", "x" * 2000])}
        command |= self.more_of_a_prompt()
        behavior = chance.choice([None, None, "steer", "followUp"])
        self._send({**command, "streamingBehavior": behavior} if behavior else command)

    def more_of_a_prompt(self) -> Record:
        """Members that a prompt has besides its message."""
        return {}

    def _do_something(self) -> None:
        chance = self.chance
        roll = chance.random()
        if roll < 0.3:
            self._prompt()
        elif roll < 0.34:
            self._server.handle_frames([chance.choice(BAD_LINES)])
        elif roll < 0.4:
            self.disk_fails = chance.randrange(1, 6)
        elif roll < 0.43:
            self._lose_the_file()
        else:
            self._send(chance.choice(self._commands()))

    def _commands(self) -> list[Record]:
        lines = self._session.journal.lines
        entry = self.chance.choice(lines).id if lines else "none"
        files = [str(path) for path in self._agent.agent_dir.rglob("*.jsonl")] or [
            str(self.root / "agent" / "none.jsonl")
        ]
        # `open_session` and paths that do not exist are left to the tests of sessions.
        return [
            {"type": "abort"},
            {"type": "abort"},
            {"type": "steer", "message": "steer"},
            {"type": "follow_up", "message": "follow"},
            {"type": "abort_and_prompt", "message": "instead"},
            {"type": "clear_queue"},
            {"type": "new_session"},
            {"type": "switch_session", "sessionPath": self.chance.choice(files)},
            {"type": "fork", "entryId": entry},
            {"type": "branch", "entryId": entry},
            {"type": "clone"},
            {"type": "compact"},
            {"type": "navigate_tree", "entryId": entry, "summarize": self.chance.random() < 0.5},
            {"type": "abort_retry"},
            {"type": "set_auto_retry", "enabled": self.chance.random() < 0.5},
            {"type": "set_auto_compaction", "enabled": self.chance.random() < 0.5},
            {"type": "set_session_name", "name": "n"},
            {"type": "set_model", "provider": "nobody", "modelId": "none"},
            {"type": "get_state"},
            {"type": "get_messages"},
            {"type": "get_messages_page"},
            {"type": "set_steering_mode", "mode": self.chance.choice(["all", "one-at-a-time"])},
            {"type": "set_interrupt_mode", "mode": self.chance.choice(["immediate", "wait"])},
        ]

    def _answer_questions(self) -> None:
        """Answer what the agent has asked since, wrongly or not at all now and then."""
        records = self.records
        asked, self._asked = records[self._asked :], len(records)
        for record in asked:
            roll = self.chance.random()
            if record["type"] == "host_tool_call" and roll < 0.8:
                result = {"content": [{"type": "text", "text": "from the host"}]}
                id = record["id"] if roll < 0.7 else "wrong"
                self._send_record({"type": "host_tool_result", "id": id, "result": result})
            if record["type"] == "extension_ui_request" and "options" in record and roll < 0.8:
                value = self.chance.choice([*record["options"], "no such option"])
                self._send_record({"type": "extension_ui_response", "id": record["id"], "value": value})

    def _lose_the_file(self) -> None:
        """Delete the session's file; the next entry must bring all of it back."""
        file = self._session.journal.file
        if file is not None and os.path.exists(file) and not self.disk_fails and not self._waiting():
            os.unlink(file)
            self._send({"type": "set_session_name", "name": "found again"})

    async def _calm_down(self) -> None:
        """Stop what still runs; everything must come to its end then."""
        deadline = time.monotonic() + PATIENCE
        while not self._is_calm():
            assert time.monotonic() < deadline, "it does not come to its end"
            self._send({"type": "abort"})
            self._answer_questions()
            for _ in range(50):
                await asyncio.sleep(0)
            await asyncio.wait({asyncio.ensure_future(self._all_over())}, timeout=0.05)
        self._send({"type": "get_state"})

    async def _all_over(self) -> None:
        await self._server.wait_until_drained()
        await self._session.prompting.wait_for_commands()
        await self._session.activity.wait_until_idle()
        await self._session.engine.wait_until_prompts_reported()

    def _is_calm(self) -> bool:
        return not self._session.activity.is_busy and self._session.engine.is_settled and not self._waiting()

    def _waiting(self) -> set[str]:
        """The commands that were not answered yet."""
        answered = {record.get("id") for record in self.records if record["type"] == "response"}
        return {command["id"] for command in self.sent} - answered

    def _send(self, command: Record) -> None:
        record = {"id": f"c{len(self.sent)}", **command}
        self.sent.append({**record, "at": len(self.records)})
        self.prompts += command["type"] in ("prompt", "abort_and_prompt")
        self._send_record(record)

    def _send_record(self, record: Record) -> None:
        self._server.handle_frames([json.dumps(record).encode()])

    # The file.

    def _judge_files(self) -> None:
        """Every message that was announced is in a file, and every file can be read."""
        kept = set()
        for path in self._agent.agent_dir.rglob("*.jsonl"):
            if not path.stat().st_size:
                continue  # the disk was full when the first entry was written
            loaded = load_session(str(path))
            assert loaded is not None, f"{path} cannot be read"
            for line in loaded.lines:
                if line.type == "message":
                    kept.add(json.dumps(json.loads(line.raw)["message"], sort_keys=True))
        if any("could not be saved completely" in str(record) for record in self.records):
            return
        for record in self.records:
            # What Pigeon tells the model itself has entries of another kind.
            if record["type"] == "message_end" and record["message"]["role"] != "custom":
                message = json.dumps(record["message"], sort_keys=True)
                assert message in kept, f"announced and not in the file: {message[:300]}"

    # The model and the disk.

    def spoil(self) -> str | None:
        """What goes wrong with the next answer, if anything."""
        kinds = (
            "raise", "key", "timeout", "cut", "hang", "wrong index", "opened twice", "finished twice", "overflow",
            "retryable", "error", "too long", "cancelled",
        )  # fmt: skip
        return self.chance.choice(kinds) if self.chance.random() < 0.3 else None

    def append(self, file: AppendFile, data: bytes) -> None:
        """The disk: it refuses for a while, once in a while."""
        if self.disk_fails:
            self.disk_fails -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _APPEND(file, data)


_CASES: dict[str, FaultCase] = {}


@contextlib.contextmanager
def faults_of(case: FaultCase) -> Iterator[None]:
    """The faults of a case are in force; other cases beside it have their own."""
    _CASES[str(case.root)] = case
    try:
        yield
    finally:
        del _CASES[str(case.root)]


def _case_of(path: str) -> FaultCase | None:
    return next((case for root, case in _CASES.items() if path.startswith(root + os.sep)), None)


async def _faulty_stream(self: ScriptedModel, request: ModelRequest) -> AsyncIterator[Delta]:
    case = _case_of(request.model.id)
    assert case is not None
    heard = case.on_model_request(request)
    kind, at = case.spoil(), case.chance.randrange(1, 12)
    number = 0
    async for delta in _STREAM(self, request):
        number += 1
        for _ in range(case.chance.randrange(3)):
            await asyncio.sleep(0)
        if kind is not None and number == at:
            async for bad in _broken_stream(kind):
                heard(bad)
                yield bad
            if kind in ("cut", "overflow", "retryable", "error"):
                return
        heard(delta)
        yield delta


async def _broken_stream(kind: str) -> AsyncIterator[Delta]:
    errors = {
        "raise": OSError("connection reset"),
        "key": KeyError("x"),
        "timeout": TimeoutError(),
        "cancelled": asyncio.CancelledError(),
    }
    if kind in errors:
        raise errors[kind]
    if kind == "hang":
        await asyncio.Event().wait()
    deltas: dict[str, Delta] = {
        "wrong index": BlockGrew(index=99, text="x"),
        "opened twice": BlockOpened(index=0, kind="text"),
        "finished twice": Finished(stop="stop"),
        "too long": BlockGrew(index=0, text="x" * 5_000_000),
        "overflow": _failed_end(overflow=True),
        "retryable": _failed_end(retryable=True),
        "error": _failed_end(),
    }
    if kind in deltas:
        yield deltas[kind]


def _failed_end(**facts: bool) -> Finished:
    return Finished(stop="error", failure=Failure(message="injected", **facts))


def _faulty_append(self: AppendFile, data: bytes) -> None:
    case = _case_of(self.path)
    if case is None:
        _APPEND(self, data)
    else:
        case.append(self, data)


def play_processes(seeds: list[int], tally: Tally) -> None:
    """Start the real program for each seed, and end it somewhere."""
    for seed in seeds:
        for dialect in DIALECTS:
            root = Path(tempfile.mkdtemp(prefix="pigeon-faults-"))
            try:
                end_somewhere(seed, dialect, root)
            except Exception:
                tally.failures.append(f"process of seed {seed}, {dialect}:\n{traceback.format_exc(limit=-3)}")
            finally:
                shutil.rmtree(root, ignore_errors=True)
            tally.processes += 1


class Tally:
    """How many cases were played, with how many prompts, how many processes, and which of them failed."""

    def __init__(self) -> None:
        self.cases = 0
        self.prompts = 0
        self.processes = 0
        self.failures: list[str] = []


async def play(
    seeds: list[int],
    dialects: tuple[str, ...] = DIALECTS,
    side_by_side: int = 12,
    kind: type[FaultCase] = FaultCase,
) -> Tally:
    """Play a case for each seed and dialect."""
    tally = Tally()
    waiting = [(seed, dialect) for seed in seeds for dialect in dialects]
    waiting.reverse()

    async def work() -> None:
        while waiting:
            seed, dialect = waiting.pop()
            await _play_one(kind(seed, dialect, Path(tempfile.mkdtemp(prefix="pigeon-faults-"))), seed, tally)

    with (
        mock.patch.object(ScriptedModel, "stream", _faulty_stream),
        mock.patch.object(AppendFile, "append", _faulty_append),
    ):
        await asyncio.gather(*(work() for _ in range(side_by_side)))
    return tally


async def _play_one(case: FaultCase, seed: int, tally: Tally) -> None:
    try:
        await case.play()
    except Exception:
        tally.failures.append(f"seed {seed}, {case.dialect}:\n{traceback.format_exc(limit=-3)}")
    finally:
        shutil.rmtree(case.root, ignore_errors=True)
    tally.cases += 1
    tally.prompts += case.prompts


def main(arguments: list[str]) -> int:
    """`python -m stress.agent_faults N SEED`: N cases in this process, and one of the program for each 20 of them."""
    count, first = int(arguments[0]) // len(DIALECTS), int(arguments[1])
    tally, began = Tally(), time.monotonic()
    for start in range(first, first + count, 100):
        part = asyncio.run(play(list(range(start, min(start + 100, first + count)))))
        tally.cases += part.cases
        tally.prompts += part.prompts
        tally.failures += part.failures
        print(f"{tally.cases} cases, {tally.prompts} prompts, {len(tally.failures)} failures", flush=True)  # noqa: T201
        for failure in part.failures:
            print(failure, flush=True)  # noqa: T201
    play_processes(list(range(first, first + count // 20)), tally)
    print(f"{tally.processes} processes, {len(tally.failures)} failures, {time.monotonic() - began:.0f} s")  # noqa: T201
    for failure in tally.failures:
        print(failure)  # noqa: T201
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
