"""`pigeon attach`: to its host it is `--mode rpc`, whatever dialect that speaks."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import pigeon
from pigeon.sdk.conversation import FEATURES
from support.agent_folders import AgentFolders
from support.agent_process import LAST_EVENTS, RpcProcess, light_command_line
from support.pigeon_serve import ServedConversations, shared_server
from support.processes import Fifo
from support.records import without_changes

# With a time limit of its own: without one a served conversation, where a person answers, has none.
ASKS = {"ask": ["write"], "timeoutMs": 60_000}
SCRIPT = [
    {
        "thinking": "Let me see.",
        "text": "Looking.",
        "toolCalls": [{"name": "bash", "arguments": {"command": "echo a"}}],
    },
    {"toolCalls": [{"name": "write", "arguments": {"path": "note.txt", "content": "one\n"}}]},
    {"text": "All done.", "usage": {"input": 10, "output": 3}},
    {"error": {"message": "it broke"}},
]


@pytest.fixture
def server() -> ServedConversations:
    return shared_server()


def attach_agent(server: ServedConversations, *words: str, **options: Any) -> RpcProcess:
    return RpcProcess(server.folders, *words, mode=("attach",), **options)


def settled_by(dialect: str) -> str:
    return LAST_EVENTS.get(dialect, "agent_end")


def talk(process: RpcProcess, dialect: str) -> list[Any]:
    """One conversation with all that a dialect may show differently; what the host sees of it."""
    last = settled_by(dialect)
    process.last_event = last
    answers = dialect != "companion"

    def send_command(kind: str, **fields: Any) -> None:
        if answers:
            process.request(kind, **fields)
        else:
            process.send({"type": kind, **fields})

    send_command("set_permissions", permissions=ASKS)
    if answers:
        process.request("get_state")
        process.send(b"{ no json")
        process.wait(lambda record: record.get("command") == "parse")
        process.send({"type": "no_such_command", "id": "x"})
        process.wait(lambda record: "no_such_command" in str(record))
    process.send({"type": "prompt", "id": "p1", "message": "go"})
    if answers:
        question = process.wait(lambda record: record.get("method") == "select")
        process.send({"type": "extension_ui_response", "id": question["id"], "value": "Allow once"})
    process.wait_event(last)
    start = process.mark()
    process.send({"type": "prompt", "id": "p2", "message": "again"})
    process.wait_event(last, start)
    if answers:
        process.request("prompt", message="", streamingBehavior="sideways")
        process.request("get_last_assistant_text")
        process.request("get_messages")
    return [_comparable_record(record) for record in process.records]


def _comparable_record(record: dict[str, Any]) -> Any:
    plain = without_changes(record, Path("/nowhere"))
    # Deltas are cut differently by time; what they add up to is in the messages.
    if record["type"] == "message_update":
        return "message_update", record["assistantMessageEvent"]["type"], "message" in record
    if record.get("command") == "get_state":
        return sorted(set(plain["data"]) - {"systemPrompt", "dumpTools", "contextUsage"})
    return plain


def merge_updates(records: list[Any]) -> list[Any]:
    """Updates of one kind that follow each other count once."""
    return [one for number, one in enumerate(records) if number == 0 or one != records[number - 1]]


@pytest.mark.parametrize("dialect", ["pi", "pi-latest", "omp", "xcsh", "companion"])
def test_a_host_sees_what_mode_rpc_would_show_it(server: ServedConversations, tmp_path: Path, dialect: str) -> None:
    script = tmp_path / "script.json"
    replies = SCRIPT if dialect != "companion" else [SCRIPT[0], *SCRIPT[2:]]
    script.write_text(json.dumps({"replies": replies}))
    settings = {"retry": {"enabled": False}}
    own = AgentFolders(tmp_path)
    own.configure({"providers": {}}, settings)
    server.folders.configure({"providers": {}}, settings)
    model = f"scripted/{script}"
    with RpcProcess(own, "--model", model, "--dialect", dialect) as process:
        wanted = talk(process, dialect)
    (own.work / "note.txt").unlink(missing_ok=True)
    # Where the dialect shows agents, `--mode rpc` has the tools for them without being asked.
    id = server.new(model, own.work, agents=dialect in ("omp", "xcsh"))
    with attach_agent(server, f"{server.ws}/{id}", "--dialect", dialect) as process:
        seen = talk(process, dialect)
    # Of one process it is the first line that is answered; what is announced at a start may come before or behind it.
    starts = ("available_commands_update", "ready")
    assert [one for one in seen if _kind(one) in starts] == [one for one in wanted if _kind(one) in starts]
    rest = [[one for one in records if _kind(one) not in starts] for records in (seen, wanted)]
    assert merge_updates(rest[0]) == merge_updates(rest[1])


def _kind(record: Any) -> str:
    return str(record.get("type")) if isinstance(record, dict) else ""


async def test_the_client_of_the_library_drives_it_as_a_subprocess(server: ServedConversations, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(
        json.dumps({"replies": [{"toolCalls": [{"name": "double", "arguments": {"number": 4}}]}, "Eight."]})
    )

    @pigeon.tool
    def double(number: int) -> int:
        """Twice a number."""
        return 2 * number

    command = [*light_command_line(), "attach", f"unix:{server.socket}?session={server.new(f'scripted/{script}')}"]
    async with pigeon.Client(command=command, env=server.folders.environment(), tools=[double]) as client:
        assert client.welcome is not None
        assert set(client.welcome.features) == set(FEATURES)
        result = await client.run("What is twice four?")
        assert (result.text, result.ended) == ("Eight.", "done")
        assert result.run_id


def test_a_new_conversation_is_begun_in_a_folder(server: ServedConversations, tmp_path: Path) -> None:
    with attach_agent(server, server.url, "--new", str(tmp_path), "--model", "demo", "--mode", "rpc") as process:
        id = process.ask("get_state")["sessionId"]
        process.run("run echo hello > here.txt")
    assert (tmp_path / "here.txt").read_text() == "hello\n"
    with attach_agent(server, f"unix:{server.socket}?session={id}") as process:
        assert process.ask("get_state")["messageCount"] > 0


def test_its_host_does_not_notice_that_the_supervisor_was_killed(server: ServedConversations, tmp_path: Path) -> None:
    go = Fifo(tmp_path)
    script = tmp_path / "script.json"
    call = {"toolCalls": [{"name": "bash", "arguments": {"command": go.waits}}]}
    script.write_text(json.dumps({"replies": [call, "Over.", "Really."]}))
    with attach_agent(server, f"{server.ws}/{server.new(f'scripted/{script}', tmp_path)}") as process:
        process.send({"type": "prompt", "id": 1, "message": "go"})
        process.wait_event("tool_execution_start")
        server.kill()
        process.send({"type": "get_state", "id": "meanwhile"}, {"type": "steer", "id": "soon", "message": "stop"})
        server.start()
        assert process.response("meanwhile")["data"]["isStreaming"] is True
        assert process.response("soon")["success"] is True
        go.release()
        process.wait_event("agent_settled")
        kinds = [record["type"] for record in process.records]
        assert [kinds.count(kind) for kind in ("agent_start", "tool_execution_end", "agent_settled")] == [1, 1, 1]
        said = [record["message"] for record in process.records if record["type"] == "message_end"]
        assert [one["content"] for one in said if one["role"] == "user"][1:] == [[{"type": "text", "text": "stop"}]]
        assert "pigeon-link" not in str(process.records)


@pytest.mark.parametrize("dialect", ["pi", "omp"])
def test_a_run_whose_agent_was_killed_ends_for_its_host(
    server: ServedConversations, tmp_path: Path, dialect: str
) -> None:
    id = server.new("demo", tmp_path)
    with attach_agent(server, f"{server.ws}/{id}", "--dialect", dialect) as process:
        process.send({"type": "prompt", "id": 1, "message": "run sleep 60"})
        process.wait_event("tool_execution_start")
        os.kill(server.worker_of(id), signal.SIGKILL)
        process.wait_event("agent_end")
        process.wait_event(LAST_EVENTS[dialect])
        kinds = [record["type"] for record in process.records]
        assert kinds.count("agent_end") == 1
        assert "agent_restarted" not in kinds
        if dialect == "omp":
            result = process.wait_event("prompt_result")
            assert (result["id"], result["status"]) == (1, "error")
        process.last_event = LAST_EVENTS[dialect]
        assert process.run("list the files")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "needs URL"),
        (("ftp://x",), 2, "ws://"),
        (("http://127.0.0.1:1",), 2, "--new DIR"),
        (("ws://127.0.0.1:1/id?token=abc",), 2, "--token-file or PIGEON_TOKEN"),
        (("ws://127.0.0.1:1/id", "--model", "demo"), 2, "--model is for a new"),
        (("ws://127.0.0.1:1/id", "--reconnect", "0.5"), 2, "--reconnect must be a whole number of seconds"),
        (("ws://127.0.0.1:1/id", "--mode", "json"), 2, "--mode rpc"),
        (("ws://127.0.0.1:1/id", "--dialect", "latin"), 2, "latin"),
        (("ws://127.0.0.1:1/id", "--token-file", "/no/such"), 1, "/no/such"),
        (("unix:/no/such?session=id",), 1, "No such file"),
        (("ws://127.0.0.1:1/id",), 1, "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_is_said_with_its_exit_code(
    server: ServedConversations, words: tuple[str, ...], code: int, said: str
) -> None:
    process = attach_agent(server, *words)
    assert process.wait_exit() == code
    assert said in process.stderr


def test_a_wrong_token_and_an_unknown_session_are_said(server: ServedConversations) -> None:
    wrong = attach_agent(server, f"{server.ws}/{server.new()}", env={"PIGEON_TOKEN": "not-the-token-of-it"})
    assert wrong.wait_exit() == 1
    assert "token" in wrong.stderr
    assert "not-the-token-of-it" not in wrong.stderr
    unknown = attach_agent(server, f"{server.ws}/no-such")
    assert unknown.wait_exit() == 1
    assert "no-such" in unknown.stderr


@pytest.mark.parametrize(
    "text",
    ["the-token\n", "# mine\n\nadmin the-token\n", "read other\nadmin the-token\n", "read the-token phone\n"],
)
def test_a_token_is_found_in_a_file_with_or_without_scope_and_name(tmp_path: Path, text: str) -> None:
    from pigeon.frontends.stdio.attach import find_token
    from pigeon.sdk.remote.addresses import parse_address
    from pigeon.system.environment import Environment

    file = tmp_path / "token"
    file.write_text(text)
    here = Environment(variables={}, home=str(tmp_path), cwd=str(tmp_path))
    assert find_token(parse_address("wss://example.org/id"), str(file), here) == "the-token"


def test_the_token_of_this_machine_is_sent_to_no_other(server: ServedConversations, tmp_path: Path) -> None:
    from pigeon.frontends.stdio.attach import find_token
    from pigeon.sdk.remote.addresses import parse_address
    from pigeon.system.environment import Environment

    variables = {"PI_CODING_AGENT_DIR": str(server.folders.agent)}
    here = Environment(variables=variables, home=str(tmp_path), cwd=str(tmp_path))
    assert find_token(parse_address("ws://127.0.0.1:7463/id"), None, here) == server.token
    assert find_token(parse_address("ws://[::1]:7463/id"), None, here) == server.token
    assert find_token(parse_address("wss://example.org/id"), None, here) is None
    assert find_token(parse_address("wss://localhost.example.org/id"), None, here) is None


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -2), (signal.SIGHUP, 129)])
def test_signals_end_it_with_their_codes_and_the_conversation_goes_on(
    server: ServedConversations, number: int, code: int
) -> None:
    id = server.new()
    process = attach_agent(server, f"{server.ws}/{id}")
    process.request("get_state")
    process.signal(number)
    assert process.wait_exit() == code
    assert server.call("GET", f"/api/sessions/{id}")["state"] == "awake"


def test_what_was_asked_before_the_end_of_the_input_is_answered(server: ServedConversations) -> None:
    process = attach_agent(server, f"{server.ws}/{server.new()}")
    process.send({"type": "get_state", "id": 1}, {"type": "get_messages", "id": 2})
    process.close_stdin()
    assert process.wait_exit() == 0
    assert [record["id"] for record in process.records] == [1, 2]


def test_a_host_that_goes_ends_it(server: ServedConversations) -> None:
    process = attach_agent(server, f"{server.ws}/{server.new()}", reads=False)
    process.close_stdout()
    process.send({"type": "get_messages"}, {"type": "get_messages"})
    assert process.wait_exit() == 1
