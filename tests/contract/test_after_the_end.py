"""Whatever a client takes for the end of its prompt, and whatever follows the run: its next command works.

Each loop here reads until the record that real clients of its dialect take for the end (`LOOPS`), and then sends a
command and its next prompt at once. Each thing that may follow a run (`FOLLOWING`) stands still at a gate of the model
server, which is opened only when the client has been answered, if it has seen its end before. So every command is sent
in every such gap, and none of them needs a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from fakes.model_server import Call, Cut, Gate, ModelServer, Text
from support.agent_folders import AgentFolders, extension, model
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.processes import eventually
from support.records import finished_messages, text_of

Record = dict[str, Any]
SETTINGS = {
    "retry": {"baseDelayMs": 1, "maxRetries": 2},
    "compaction": {"keepRecentTokens": 50, "reserveTokens": 1000},
    "jobs": {"startRun": True},
}
SMALL = [model("fake-1", contextWindow=10_000, maxTokens=1000), model("fake-2")]
FULL = {"input_tokens": 9_500}
LONG = "lorem ipsum dolor sit amet " * 40
TOO_LONG = "prompt is too long: 213462 tokens > 200000 maximum"
EXTENSION = """
import os

wanted = set()
held = []

@ext.command("want")
async def want(args, ctx):
    wanted.add(args)
    if args == "job to end" and not held:
        os.mkfifo(os.path.join(ctx.cwd, "go"))
        held.append(os.open(os.path.join(ctx.cwd, "go"), os.O_RDWR | os.O_NONBLOCK))

@ext.on(AgentBeforeSettle)
async def go_on(event, ctx):
    if "more" in wanted:
        wanted.discard("more")
        return GoOn("and more")

@ext.on(AgentSettled)
async def begin(event, ctx):
    if "job to end" in wanted:
        wanted.discard("job to end")
        os.write(held[0], b"go\\n")
    if "own run" in wanted:
        wanted.discard("own run")
        ctx.session.send("begin by itself", trigger_turn=True)
"""
RULE = "---\ncondition: forbidden\n---\nSay allowed.\n"


# --- the client -------------------------------------------------------------------------------------------------------


def is_end(record: Record) -> bool:
    return bool(record["type"] == "agent_end")


def is_last_end(record: Record) -> bool:
    return record["type"] == "agent_end" and record.get("willRetry") is not True


def is_settled(record: Record) -> bool:
    return record["type"] in ("agent_settled", "session_settled")


@dataclass(frozen=True)
class Loop:
    """A client that sends its next prompt when it has read the end of the previous one."""

    dialect: str
    name: str
    ends: Callable[[Record, str], bool]
    # Whether every command of the simple client is tried: it is the one that the documents describe.
    every_command: bool = False


LOOPS = (
    Loop("pi", "agent_end", lambda record, id: is_end(record), every_command=True),
    Loop("pi", "agent_end without willRetry", lambda record, id: is_last_end(record)),
    Loop("pi", "agent_settled", lambda record, id: is_settled(record)),
    Loop("pi-0.73", "agent_end", lambda record, id: is_end(record)),
    Loop("pi-latest", "agent_settled", lambda record, id: is_settled(record)),
    Loop("omp", "agent_end", lambda record, id: is_end(record)),
    Loop("omp", "prompt_result", lambda record, id: record["type"] == "prompt_result" and record.get("id") == id),
    Loop("omp", "session_settled", lambda record, id: is_settled(record)),
    Loop("xcsh", "agent_end", lambda record, id: is_end(record)),
    Loop("companion", "agent_end", lambda record, id: is_end(record)),
)


class Client:
    """One loop, talking to one agent."""

    def __init__(self, loop: Loop, agent: RpcProcess) -> None:
        self.loop = loop
        self.agent = agent
        self._count = 0
        self._id = ""
        self._start = 0

    @property
    def is_answered(self) -> bool:
        return self.loop.dialect != "companion"

    def send_command(self, kind: str, **fields: Any) -> Record | None:
        """The answer to a command, in dialects that have answers."""
        if self.is_answered:
            return self.agent.request(kind, **fields)
        self.agent.send({"type": kind, **fields})
        return None

    def prompt(self, text: str) -> None:
        """Send a prompt, which must be accepted; what comes before the answer is not of its run."""
        self._count += 1
        self._id, self._start = f"p{self._count}", self.agent.mark()
        self.agent.send({"id": self._id, "type": "prompt", "message": text})
        if self.is_answered:
            answer = self.agent.response(self._id)
            assert answer["success"] is True, answer
            self._start += next(n for n, record in enumerate(self.agent.since(self._start)) if record is answer)

    def has_seen_end(self) -> bool:
        """Whether the end has come, of everything that was sent until now."""
        if self.is_answered:
            self.agent.ask("get_state")
        return any(self.loop.ends(record, self._id) for record in self.agent.since(self._start))

    def wait_for_end(self) -> list[Record]:
        """The records of the prompt, as this client sees them."""
        end = self.agent.wait(lambda record: self.loop.ends(record, self._id), self._start)
        records = self.agent.since(self._start)
        return records[: next(n for n, record in enumerate(records) if record is end) + 1]

    def check_answered(self, text: str) -> None:
        """The prompt was said, and answered after that, before the end."""
        records = [record for record in self.wait_for_end() if record["type"] == "message_end"]
        said = [n for n, record in enumerate(records) if text_of(record["message"]) == text]
        assert said, f"{text!r} was not said before its end: {[text_of(one['message'])[:30] for one in records]}"
        answers = finished_messages(records[said[0] :], "assistant")
        assert answers, f"{text!r} has no answer before its end"
        assert answers[-1]["stopReason"] == "stop", answers[-1]


# --- what follows a run -----------------------------------------------------------------------------------------------


Prepare = Callable[[Client, ModelServer], Gate | None]


def nothing(client: Client, server: ModelServer) -> Gate | None:
    server.answers("ok")
    return None


def compaction(client: Client, server: ModelServer) -> Gate:
    gate = Gate()
    server.answers("ok", usage=FULL)
    server.answers("THE SUMMARY", gate)
    return gate


def overflow(client: Client, server: ModelServer) -> Gate:
    gate = Gate()
    server.fails(400, TOO_LONG, kind="invalid_request_error")
    server.answers("THE SUMMARY", gate)
    return gate


def request_after_overflow(client: Client, server: ModelServer) -> Gate:
    gate = Gate()
    server.fails(400, TOO_LONG, kind="invalid_request_error")
    server.answers("THE SUMMARY")
    server.answers("ok", gate)
    return gate


def retry(client: Client, server: ModelServer) -> Gate:
    gate = Gate()
    server.fails(529, "Overloaded", kind="overloaded_error")
    server.answers("ok", gate)
    return gate


def second_retry(client: Client, server: ModelServer) -> Gate:
    gate = Gate()
    server.fails(529, "Overloaded", kind="overloaded_error")
    server.answers("half", gate, Cut())
    return gate


def last_retry(client: Client, server: ModelServer) -> Gate:
    gate = Gate()
    server.fails(529, "Overloaded", kind="overloaded_error")
    server.fails(529, "Overloaded", kind="overloaded_error")
    server.answers("half", gate, Cut())
    return gate


def queued_message(client: Client, server: ModelServer) -> Gate | None:
    """After a failure: in newer dialects its answer follows at once, in older ones it goes with the next prompt."""
    if not client.is_answered:
        return nothing(client, server)
    client.send_command("follow_up", message="queued before")
    gate = Gate()
    server.fails(400, "no", kind="invalid_request_error")
    follows = client.loop.dialect in ("pi-latest", "omp", "xcsh")
    server.answers("ok", *([gate] if follows else []))
    return gate if follows else None


def continuation(client: Client, server: ModelServer) -> Gate:
    gate = Gate()
    client.send_command("prompt", message="/want more")
    server.answers("ok")
    server.answers("more", gate)
    return gate


def own_run(client: Client, server: ModelServer) -> Gate:
    gate = Gate()
    client.send_command("prompt", message="/want own run")
    server.answers("ok")
    server.answers("by itself", gate)
    return gate


def job(client: Client, server: ModelServer) -> Gate:
    """A command in the background whose end starts a run, after the end of the one that began it."""
    gate = Gate()
    client.send_command("prompt", message="/want job to end")
    server.answers(Call("bash", {"command": "read -r _ <go", "background": True}))
    server.answers("ok")
    server.answers("the job has ended", gate)
    return gate


def stream_rule(client: Client, server: ModelServer) -> Gate:
    gate = Gate()
    server.answers(Text("this is forbidden and so on", piece=3))
    server.answers("this is allowed", gate)
    return gate


FOLLOWING: tuple[Prepare, ...] = (
    nothing, compaction, overflow, request_after_overflow, retry, second_retry, last_retry, queued_message,
    continuation, own_run, job, stream_rule,
)  # fmt: skip


# --- what the client sends then ---------------------------------------------------------------------------------------


READS = ("get_state", "get_messages", "get_last_assistant_text", "get_session_stats", "get_available_models")
COMMANDS: dict[str, Record] = {
    "nothing else": {},
    "all that reads": {},
    "steer": {"message": "steered"},
    "follow_up": {"message": "followed"},
    "abort": {},
    "compact": {},
    "new_session": {},
    "set_model": {"provider": "fake", "modelId": "fake-1"},
    "set_thinking_level": {"level": "low"},
    "set_session_name": {"name": "named"},
    "bash": {"command": "true"},
}
# For the other clients, what could be under way then.
FEW = ("nothing else", "follow_up", "abort", "new_session")
# A client may ask for a summary when there is nothing to summarize, and is told so, as at any other time.
NO_SUMMARY = ("Already compacted", "Nothing to compact (session too small)")


def send_then(client: Client, command: str) -> None:
    """Send a command, or all that only read; each has to work."""
    if command == "nothing else":
        return
    for kind in READS if command == "all that reads" else (command,):
        answer = client.send_command(kind, **COMMANDS.get(kind, {}))
        refused = kind == "compact" and answer is not None and str(answer.get("error")).endswith(NO_SUMMARY)
        assert answer is None or answer["success"] or refused, answer


def play(client: Client, server: ModelServer, follows: Prepare, command: str) -> None:
    """The prompt after which something follows, the command, and two prompts more."""
    agent = client.agent
    start = agent.mark()
    server.forget()
    client.send_command("new_session")
    if follows in (compaction, overflow, request_after_overflow) or command == "compact":
        server.answers("ok")
        client.prompt(f"zero {LONG}")
        client.check_answered(f"zero {LONG}")
    if client.is_answered:
        wait_until_settled(agent)
    gate = follows(client, server)
    for _ in range(8):
        server.answers("ok")
    client.prompt(f"one {LONG}")
    if gate is not None:
        gate.wait_reached()
    if gate is not None and not client.has_seen_end():
        gate.open()
    client.wait_for_end()
    send_then(client, command)
    client.prompt("two")
    if gate is not None:
        gate.open()
    client.check_answered("two")
    client.prompt("three")
    client.check_answered("three")
    if not client.is_answered:
        return
    if command in ("steer", "follow_up"):
        said = [text_of(message) for message in finished_messages(agent.since(start), "user")]
        assert str(COMMANDS[command]["message"]) in said, "what was queued is lost"
    wait_until_settled(agent)
    state = agent.ask("get_state")
    assert state.get("pendingMessageCount", state.get("queuedMessageCount")) == 0, state


def wait_until_settled(agent: RpcProcess) -> None:
    """Nothing more happens by itself; not every dialect has a record for that, so the state is asked."""
    assert eventually(lambda: not agent.ask("get_state")["isStreaming"])


def cases() -> Iterator[Any]:
    """A loop with what follows its runs: all of it at once, or by itself if every command is tried."""
    for loop in LOOPS:
        name = f"{loop.dialect}-{loop.name}"
        if not loop.every_command:
            yield pytest.param(loop.dialect, loop, FOLLOWING, id=name)
        else:
            for follows in FOLLOWING:
                yield pytest.param(loop.dialect, loop, (follows,), id=f"{name}-{follows.__name__}")


@proves("prompt.after_any_end", dialects=("pi", "pi-latest", "pi-0.73", "omp", "xcsh", "companion"))
@pytest.mark.parametrize(("dialect", "loop", "following"), list(cases()), indirect=["dialect"])
def test_after_the_end_that_a_client_sees_every_command_works(
    start: Start, folders: AgentFolders, server: ModelServer, dialect: str, loop: Loop, following: tuple[Prepare, ...]
) -> None:
    (folders.agent / "rules").mkdir()
    (folders.agent / "rules" / "words.md").write_text(RULE, "utf-8")
    agent = start(*extension(folders, EXTENSION), "--tools", "+jobs", dialect=dialect, settings=SETTINGS, models=SMALL)
    client = Client(loop, agent)
    # Without answers, nobody can tell when an abort has ended.
    commands = COMMANDS if loop.every_command else FEW if client.is_answered else ("nothing else",)
    for follows, command in product(following, commands):
        try:
            play(client, server, follows, command)
        except AssertionError as error:
            raise AssertionError(f"{follows.__name__}, then {command}: {str(error)[:2000]}") from None
