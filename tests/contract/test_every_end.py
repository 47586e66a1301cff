"""Whatever breaks, a prompt ends in exactly one record that says why, and the next one works.

The three dialects are those whose last records differ: `pi` ends as `pi-latest`, `xcsh` as `companion`.
"""

from __future__ import annotations

import resource
import shutil
import socket
from collections.abc import Callable
from typing import Any

import pytest

from fakes.model_server import Call, Cut, Flood, Gate, ModelServer, Text, event_bytes
from support.agent_folders import AgentFolders, extension, model, providers
from support.agent_process import RpcProcess, Start
from support.contract import proves

Record = dict[str, Any]
ALL = ("pi-latest", "omp", "companion")
LAST = {"pi-latest": "agent_settled", "omp": "session_settled"}
SETTINGS = {"retry": {"baseDelayMs": 1, "maxRetries": 2}}


def refused_address() -> str:
    """An address where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def other_provider(base_url: str, **more: Any) -> Record:
    """models.json with a provider of its own beside that of the test."""
    return {"baseUrl": base_url, "api": "anthropic-messages", "apiKey": "k", "models": [model("broken-1")], **more}


PROVIDERS: dict[str, Callable[[str], Record]] = {
    "nothing listens": lambda url: other_provider(refused_address()),
    "no such name": lambda url: other_provider("http://two..dots"),
    "no TLS there": lambda url: other_provider(url.replace("http:", "https:")),
    "no such scheme": lambda url: other_provider("ftp://127.0.0.1/x"),
    "the command of the key fails": lambda url: other_provider(url, apiKey="!exit 3"),
    "the key is missing": lambda url: other_provider(url, apiKey="$NO_SUCH_KEY_ANYWHERE"),
}


def one_end(agent: RpcProcess, dialect: str, command: Record) -> tuple[list[Record], str]:
    """Send a prompt; its records to the end, and how it ended: `handled` by no run, `refused`, or the run's reason."""
    place = agent.mark()
    agent.send({"id": "p", **command})
    agent.wait(lambda record: _is_last(record, dialect), place)
    # What would come twice has come when a command that was sent afterwards is answered.
    if dialect != "companion":
        agent.send({"id": "after", "type": "get_state"})
        agent.wait(lambda record: record.get("id") == "after", place)
    records = agent.since(place)
    assert sum(_is_last(record, dialect) for record in records) == 1
    return records, _reason(records, dialect)


def _is_last(record: Record, dialect: str) -> bool:
    if record["type"] == "response" and record.get("id") == "p" and not record["success"]:
        return True
    return bool(record["type"] in (LAST.get(dialect, "agent_end"), "error"))


def _reason(records: list[Record], dialect: str) -> str:
    if any(record["type"] in ("error", "response") and not record.get("success") for record in records):
        return "refused"
    if dialect == "omp":
        (result,) = [record for record in records if record["type"] == "prompt_result"]
        return {"completed": "done"}.get(result["status"], result["status"])
    ends = [record for record in records if record["type"] in ("agent_settled", "agent_end")]
    if "reason" in ends[-1]:
        return str(ends[-1]["reason"])
    stops = {"stop": "done", "error": "error", "aborted": "aborted"}
    return stops[[message for message in ends[-1]["messages"] if message["role"] == "assistant"][-1]["stopReason"]]


def works(agent: RpcProcess, server: ModelServer, dialect: str) -> None:
    """The next prompt gets its answer."""
    server.answers("well")
    assert one_end(agent, dialect, {"type": "prompt", "message": "again"})[1] == "done"


@proves("end.provider", dialects=ALL)
@pytest.mark.parametrize("fault", PROVIDERS)
@pytest.mark.parametrize("dialect", ALL)
def test_a_provider_that_cannot_be_asked_ends_the_prompt(
    server: ModelServer, folders: AgentFolders, fault: str, dialect: str
) -> None:
    configured = providers(server.url)
    configured["providers"]["broken"] = PROVIDERS[fault](server.url)
    folders.configure(configured, SETTINGS)
    agent = RpcProcess(folders, "--no-session", "--provider", "broken", "--model", "broken-1", "--dialect", dialect)
    with agent:
        _, reason = one_end(agent, dialect, {"type": "prompt", "message": "go"})
        assert reason in ("error", "refused")
        if dialect != "companion":
            agent.ask("set_model", provider="fake", modelId="fake-1")
            works(agent, server, dialect)


PIECE = {"type": "text_delta", "text": "x"}
STREAMS: dict[str, list[Any]] = {
    "cut": ["half", Cut()],
    "cut in a character": [Flood(b'event: content_block_delta\ndata: {"type":"x","t":"\xc3', 1), Cut()],
    "malformed JSON": [Flood(b"event: content_block_delta\ndata: {nope\n\n", 1)],
    "no JSON object": [Flood(b"event: content_block_delta\ndata: 17\n\n", 1)],
    "a block that never was": [Flood(event_bytes("content_block_delta", index=9, delta=PIECE), 1)],
    "a call cut off": [Call("bash", raw='{"command": "ec'), Cut()],
}


@proves("end.stream", dialects=ALL)
@pytest.mark.parametrize("fault", STREAMS)
@pytest.mark.parametrize("dialect", ALL)
def test_a_stream_that_breaks_ends_the_prompt(start: Start, server: ModelServer, fault: str, dialect: str) -> None:
    agent = start(dialect=dialect, settings=SETTINGS)
    for _ in range(3):
        server.answers(*STREAMS[fault])
    assert one_end(agent, dialect, {"type": "prompt", "message": "go"})[1] in ("error", "done")
    while server.count_unused_answers():
        server.next_answer({}, {})
    works(agent, server, dialect)


@proves("end.storm", dialects=ALL)
@pytest.mark.parametrize("dialect", ALL)
def test_a_storm_of_429_ends_the_prompt_after_its_retries(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start(dialect=dialect, settings=SETTINGS)
    for _ in range(3):
        server.fails(429, "slow down", "rate_limit_error")
    assert one_end(agent, dialect, {"type": "prompt", "message": "go"})[1] == "error"
    works(agent, server, dialect)


HOOKS = {
    "input": "@ext.on(Input)\nasync def f(event, ctx):\n    raise RuntimeError('x')\n",
    "start": "@ext.on(BeforeAgentStart)\nasync def f(event, ctx):\n    raise RuntimeError('x')\n",
    "context": "@ext.on(ModelContext)\nasync def f(event, ctx):\n    raise RuntimeError('x')\n",
    "message": "@ext.on(MessageEnd)\nasync def f(event, ctx):\n    raise RuntimeError('x')\n",
    "settle": "@ext.on(AgentBeforeSettle)\nasync def f(event, ctx):\n    raise RuntimeError('x')\n",
    "cancelled": "@ext.on(ModelContext)\nasync def f(event, ctx):\n    raise asyncio.CancelledError\n",
    "hangs": "@ext.on(ModelContext, timeout=0.05)\nasync def f(event, ctx):\n    await asyncio.Event().wait()\n",
    "exits": "@ext.on(MessageEnd)\nasync def f(event, ctx):\n    raise SystemExit(3)\n",
}


@proves("end.extension", dialects=ALL)
@pytest.mark.parametrize("fault", HOOKS)
@pytest.mark.parametrize("dialect", ALL)
def test_a_handler_that_fails_does_not_keep_a_prompt_from_its_end(
    start: Start, server: ModelServer, folders: AgentFolders, fault: str, dialect: str
) -> None:
    agent = start(*extension(folders, HOOKS[fault]), dialect=dialect)
    works(agent, server, dialect)
    works(agent, server, dialect)


@proves("end.tool", dialects=ALL)
@pytest.mark.parametrize("command", ["kill -9 $$", "kill -9 $PPID", "exec 1>&- 2>&-; kill -9 0"])
@pytest.mark.parametrize("dialect", ALL)
def test_a_command_that_kills_what_runs_it_has_a_result(
    start: Start, server: ModelServer, command: str, dialect: str
) -> None:
    agent = start(dialect=dialect)
    server.answers(Call("bash", {"command": command}))
    server.answers("noted")
    records, reason = one_end(agent, dialect, {"type": "prompt", "message": "go"})
    assert reason == "done"
    assert sum(record["type"] == "tool_execution_end" for record in records) == 1
    works(agent, server, dialect)


@proves("end.dialog", dialects=("pi-latest", "omp"))
@pytest.mark.parametrize("dialect", ["pi-latest", "omp"])
def test_a_question_that_is_never_answered_ends_with_an_abort(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start(dialect=dialect)
    agent.ask("set_permissions", permissions={"ask": ["bash"]})
    server.answers(Call("bash", {"command": "echo hi"}))
    place = agent.mark()
    agent.send({"id": "p", "type": "prompt", "message": "go"})
    agent.wait_event("extension_ui_request", place)
    agent.ask("abort")
    agent.wait(lambda record: _is_last(record, dialect), place)
    works(agent, server, dialect)


@proves("end.file_lost", dialects=ALL)
@pytest.mark.parametrize("dialect", ALL)
def test_a_session_folder_that_is_deleted_in_a_run_changes_no_end(
    start: Start, server: ModelServer, folders: AgentFolders, dialect: str
) -> None:
    agent = start(dialect=dialect, keeps=True)
    gate = Gate()
    server.answers("half ", gate, Text("whole"))
    place = agent.mark()
    agent.send({"id": "p", "type": "prompt", "message": "go"})
    gate.wait_reached()
    shutil.rmtree(folders.agent / "sessions")
    gate.open()
    agent.wait(lambda record: _is_last(record, dialect), place)
    works(agent, server, dialect)


@proves("end.limits", dialects=("pi-latest", "omp"))
@pytest.mark.parametrize("dialect", ["pi-latest", "omp"])
@pytest.mark.parametrize("limit", ["descriptors", "file size"])
def test_a_prompt_ends_where_the_system_gives_no_more_descriptors_or_disk(
    start: Start, server: ModelServer, dialect: str, limit: str
) -> None:
    agent = start(dialect=dialect, keeps=True, settings=SETTINGS)
    works(agent, server, dialect)
    kind = resource.RLIMIT_NOFILE if limit == "descriptors" else resource.RLIMIT_FSIZE
    before = resource.prlimit(agent.pid, kind)
    resource.prlimit(agent.pid, kind, (3 if limit == "descriptors" else 100, before[1]))
    for _ in range(3):
        server.answers(Call("bash", {"command": "echo hi"}))
    one_end(agent, dialect, {"type": "prompt", "message": "go"})
    resource.prlimit(agent.pid, kind, before)
    while server.count_unused_answers():
        server.next_answer({}, {})
    works(agent, server, dialect)
