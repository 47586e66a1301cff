"""A malformed command gets the same answer over every connection: that of `--mode rpc` over stdio."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count, groupby, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from websockets.sync.client import connect

import pigeon
from pigeon.rpc.in_process import InProcessHost
from pigeon.wire import codec
from pigeon.wire.base import ABSENT
from pigeon.wire.commands import ALL, BY_NAME, NAMES, Command, Hello
from pigeon.wire.errors import PigeonError, Refusal
from pigeon.wire.events import SessionInfoChanged
from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess
from support.in_process_agent import InProcessAgent
from support.pigeon_serve import ServedConversations, shared_server

WAIT = 60.0
SAMPLES = ["x", 5, 1.5, True, [], {}, [[1]], [None], {"x": None}, "\ud800", 10**40, -1]
NO_OBJECTS = [b"", b"   ", b"null", b"true", b"5", b'"get_state"', b"[]", b'[{"type":"get_state"}]']
BAD_JSON = [
    b"{", b"}", b"{]", b'{"type":', b'{"type":"get_state"', b'{"type":"get_state"}}', b"{'type':'get_state'}",
    b'{"type":"get_state",}', b'{"id":"a" "type":"get_state"}', b"NaN", b'{"type":"get_state","x":NaN}',
    b'{"type":"get_state","x":1e999}', b'{"type":"\\ud800"}', b'{"id":"\\udfff","type":"\\ud800x"}', b"\xff\xfe",
    b'{"type":"\xff"}', b'{"id":"deep","type":"get_state","x":' + b"[" * 300 + b"]" * 300 + b"}",
    b'{"id":"deep","type":"host_tool_result","x":' + b"[" * 300 + b"]" * 300 + b"}",
]  # fmt: skip
BAD_TYPES: list[Any] = [
    None, 5, 1.5, True, [], {}, ["get_state"], {"type": "get_state"}, "", " ", "GET_STATE", "get_state ", "no_command",
    "tools_declared", "message_update", "response", "parse", "\u2028", 10**40,
]  # fmt: skip
# What is well-formed and refused for what it says, in words of the handler.
REFUSED: list[dict[str, Any]] = [
    *({"type": "set_event_filter", "events": value} for value in (5, True, "agent_end", [[1]], [""], [None], {}, [5])),
    {"type": "set_event_filter"},
    *({"type": "get_messages_page", "limit": value} for value in (0, -1, 257, 1.5, True, "x", [], {}, 10**40)),
    *({"type": "get_messages_page", "cursor": value} for value in (5, "x", [], {}, True, "e30")),
    *({"type": "set_subagent_subscription", "level": value} for value in (5, "x", [], {}, True)),
    *({"type": "get_subagent_messages", "subagentId": value} for value in (5, "x", [])),
    *({"type": "login", "providerId": value} for value in (5, "x", [], None)),
    *({"type": "negotiate_protocol", "protocolVersion": value} for value in (5, "x", [], None)),
    *({"type": "set_limits", "limits": value} for value in (5, "x", [], {"turns": "x"}, {"x": 1}, {"turns": -1})),
    *({"type": "set_host_uri_schemes", "schemes": value} for value in ([5], ["x"])),
    *({"type": "set_host_tools", "tools": value} for value in ([{}], [{"name": 5}], [{"name": "x"}])),
    {"type": "hello", "dialect": "x"},
    {"type": "hello", "features": "seq"},
    {"type": "list_sessions", "scope": "all", "sessionId": "no-such-session"},
    {"type": "list_sessions", "scope": "all", "sessionId": 5},
    {"type": "list_sessions", "scope": "all", "limit": 0},
    {"type": "list_sessions", "scope": "all", "cursor": 5},
    {"type": "set_fast_mode", "enabled": True},
    {"type": "steer", "message": "x", "images": [5]},
    {"type": "remove_queued", "queuedId": "no-such-message"},
    {"type": "fork", "entryId": "no-such-entry"},
    {"type": "queue_message"},
    {"type": "reset", "parentSession": 5},
    {"type": "set_queue_mode", "mode": 5},
]
# What is about the connection alone, and leaves it as it was when it is refused.
ABOUT_CONNECTION = ("set_event_filter", "hello")
CONNECTIONS = ["WebSocket", "Unix socket", "attach"]
CLIENTS = ["WebSocket", "Unix socket"]


class Link(NamedTuple):
    """A connection: a line to send, and the next record that comes."""

    send: Callable[[bytes], None]
    next_record: Callable[[], dict[str, Any]]

    def ask(self, line: bytes) -> dict[str, Any]:
        """The answer to a line."""
        self.send(line)
        while (record := self.next_record()).get("type") != "response":
            pass
        return record

    def types_of_naming(self) -> list[str]:
        """The types of what comes when the session gets a name."""
        for name in (b"one", b"two"):
            self.send(b'{"id":"%s","type":"set_session_name","name":"%s"}' % (name, name))
        records = iter(self.next_record, None)
        return [record["type"] for record in takewhile(lambda record: record.get("id") != "two", records)]

    def types_of_run(self) -> list[str]:
        """The types of what comes of a prompt."""
        self.send(b'{"id":"run","type":"prompt","message":"list the files"}')
        types = []
        while "agent_settled" not in types:
            types.append(self.next_record()["type"])
        return without_repetitions(types)


def malformed_lines() -> list[bytes]:
    """Every field of every command with every wrong type of JSON, and what is no command at all."""
    commands = [{"type": type} for type in BAD_TYPES] + [{}, {"x": 5}, *REFUSED]
    for command in ALL:
        fields = {field.encode_name: field for field in msgspec.structs.fields(command) if field.name != "id"}
        needed = {name: sample_of(field.type) for name, field in fields.items() if field.required}
        tried = [{name: value for name, value in needed.items() if name != left_out} for left_out in needed]
        tried += [{**needed, name: value} for name in fields for value in SAMPLES]
        if needed:
            tried.append({})
            tried += [{**needed, name: None} for name in needed]
        commands += [one for members in tried if is_refused(one := {"type": NAMES[command], **members})]
    ids: list[Any] = [5, 1.5, True, [], {"x": [1]}, "", "\ud800", 10**40, 0]
    commands += [{"id": id, "type": "no_command"} for id in ids]
    numbered = [{"id": f"m-{number}", **one} for number, one in enumerate(commands)]
    doubled = [b'{"id":"d","type":"prompt","type":"steer"}', b'{"id":"d","type":"bash","command":"x","command":5}']
    return [*NO_OBJECTS, *BAD_JSON, *doubled, *(json.dumps(one).encode() for one in numbered)]


def sample_of(kind: Any) -> Any:
    """A value that a field takes."""
    for value in ("x", 5, True, [], {}, {"content": []}, "off", "all", "wait", "write", "once"):
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            continue
        return value
    raise AssertionError(f"no sample for {kind}")


def is_refused(value: dict[str, Any]) -> bool:
    try:
        codec.command_of(codec.decode(json.dumps(value).encode()))
    except Refusal:
        return True
    return False


LINES = malformed_lines()


def without_repetitions(types: list[str]) -> list[str]:
    return [type for type, _ in groupby(types)]


@contextmanager
def by_process(process: RpcProcess) -> Iterator[Link]:
    numbers = count()
    with process:
        yield Link(process.send, lambda: process.wait(lambda record: True, next(numbers)))


@contextmanager
def by_web_socket(server: ServedConversations, id: str) -> Iterator[Link]:
    headers = {"Authorization": f"Bearer {server.token}"}
    with connect(f"{server.ws}/api/sessions/{id}/rpc", additional_headers=headers, max_size=None) as link:
        yield Link(
            lambda line: link.send(line.decode("utf-8", "replace")),
            lambda: codec.decode(str(link.recv(WAIT)).encode()),
        )


@contextmanager
def by_unix_socket(server: ServedConversations, id: str) -> Iterator[Link]:
    with socket.socket(socket.AF_UNIX) as plain:
        plain.settimeout(WAIT)
        plain.connect(str(server.socket))
        with plain.makefile("rwb") as stream:

            def send(line: bytes) -> None:
                stream.write(line + b"\n")
                stream.flush()

            link = Link(send, lambda: codec.decode(stream.readline()))
            assert link.ask(json.dumps({"type": "attach", "session": id}).encode())["success"]
            yield link


def connection_of(kind: str, server: ServedConversations) -> AbstractContextManager[Link]:
    id = server.new()
    if kind == "WebSocket":
        return by_web_socket(server, id)
    if kind == "Unix socket":
        return by_unix_socket(server, id)
    address = f"{server.ws}/{id}"
    return by_process(RpcProcess(server.folders, address, "--dialect", "pi-latest", mode=("attach",)))


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The answers over stdio."""
    folders = AgentFolders(tmp_path_factory.mktemp("stdio"))
    folders.configure({"providers": {}})
    with by_process(RpcProcess(folders, "--model", "demo", "--dialect", "pi-latest")) as link:
        return [link.ask(line) for line in LINES]


def test_there_are_several_hundred_malformed_lines_and_hardly_one_is_accepted(wanted: list[dict[str, Any]]) -> None:
    accepted = [line for line, answer in zip(LINES, wanted, strict=True) if answer["success"]]
    assert len(LINES) > 500
    assert [json.loads(line)["type"] for line in accepted] == ["list_sessions"]


@pytest.mark.parametrize("kind", CONNECTIONS)
def test_a_malformed_command_gets_the_answer_of_stdio(kind: str, wanted: list[dict[str, Any]]) -> None:
    with connection_of(kind, shared_server()) as link:
        different = [
            (line[:200], answer, like)
            for line, like in zip(LINES, wanted, strict=True)
            if (answer := link.ask(line)) != like
        ]
    assert not different, f"{len(different)} of {len(LINES)}, the first: {different[:3]}"


@pytest.mark.parametrize("kind", ["stdio", *CONNECTIONS])
def test_a_refused_command_about_the_connection_changes_no_events(kind: str, tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure({"providers": {}})
    link_of = (
        by_process(RpcProcess(folders, "--model", "demo", "--dialect", "pi-latest"))
        if kind == "stdio"
        else connection_of(kind, shared_server())
    )
    with link_of as link:
        link.types_of_run()  # the first run also declares the tools
        wanted, wanted_of_naming = link.types_of_run(), link.types_of_naming()
        refused = [line for line in LINES if type_in(line) in ABOUT_CONNECTION]
        assert len(refused) > 20
        for line in refused:
            assert not link.ask(line)["success"]
            assert link.types_of_naming() == wanted_of_naming, line
        assert "session_info_changed" in wanted_of_naming
        assert "message_update" in wanted
        assert link.types_of_run() == wanted


def client_of(kind: str, server: ServedConversations) -> pigeon.Client:
    id = server.new()
    if kind == "WebSocket":
        return pigeon.Client(url=f"{server.ws}/{id}", token=server.token)
    return pigeon.Client(url=f"unix:{server.socket}?session={id}")


async def types_of_run(agent: pigeon.Conversation) -> list[str]:
    return without_repetitions([type(event).__name__ async for event in agent.prompt("list the files")])


async def wait_until_named(agent: pigeon.Conversation, events: AsyncIterator[Any]) -> None:
    """Name the session, and wait for the event that says so."""
    await agent.set_session_name(name="one")
    async with asyncio.timeout(10):
        while not isinstance(await anext(events), SessionInfoChanged):
            pass


@pytest.mark.parametrize("kind", [*CLIENTS, "in the same process"])
async def test_a_program_gets_the_refusal_of_stdio_and_the_same_events_as_before(
    kind: str, wanted: list[dict[str, Any]], tmp_path: Path
) -> None:
    made = client_of(kind, shared_server()) if kind in CLIENTS else pigeon.Agent(model="demo", agent_dir=tmp_path)
    different, compared = [], 0
    async with made as agent:
        await types_of_run(agent)
        types = await types_of_run(agent)
        events = agent.events()
        for line, like in zip(LINES, wanted, strict=True):
            command = command_in(line)
            if command is None or like["success"] or (isinstance(command, Hello) and command.dialect is not ABSENT):
                continue
            compared += 1
            try:
                await agent.send(command)
                problem = None
            except PigeonError as error:
                problem = str(error)
            if problem != like["error"]:
                different.append((line[:200], problem, like))
            if type_in(line) in ABOUT_CONNECTION:
                await wait_until_named(agent, events)
        assert "TextDelta" in types
        assert await types_of_run(agent) == types
    assert compared > 300
    assert not different, f"{len(different)} of {compared}, the first: {different[:3]}"


async def test_a_malformed_command_gets_the_answer_of_stdio_in_the_same_process(
    wanted: list[dict[str, Any]], tmp_path: Path
) -> None:
    agent = InProcessAgent(tmp_path)
    agent.configure()
    built = await agent.start()
    host = InProcessHost(built.session, "0", lambda record: None, lambda data: data)
    different, compared = [], 0
    for line, like in zip(LINES, wanted, strict=True):
        command = command_in(line)
        if command is not None and not like["success"]:
            compared += 1
            problem = await refusal_of(host, command)
            if problem != like["error"]:
                different.append((line[:200], problem, like))
    await agent.stop()
    assert compared > 300
    assert not different, f"{len(different)} of {compared}, the first: {different[:3]}"


def type_in(line: bytes) -> Any:
    try:
        value = codec.decode(line)
    except PigeonError:
        return None
    return value.get("type") if isinstance(value, dict) else None


def command_in(line: bytes) -> Command | None:
    """The command of a line as a program would make it, unchecked; None if there is no way to."""
    try:
        value = codec.decode(line)
        kind = BY_NAME[value.pop("type")]
        names = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
        return kind(**{names[name]: given for name, given in value.items()})
    except (PigeonError, LookupError, TypeError, AttributeError):
        return None


async def refusal_of(host: InProcessHost, command: Command) -> str | None:
    errors: list[BaseException | None] = []
    try:
        host.submit(command, lambda data, error: errors.append(error))
    except PigeonError as error:
        return str(error)
    await host.wait_until_drained()
    (error,) = errors
    return None if error is None else str(error)
