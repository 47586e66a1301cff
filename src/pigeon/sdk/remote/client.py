"""`Client`: a conversation with an agent behind a pipe, a socket or the network, be it Pigeon or another agent of the
family.

It opens with `hello`, which switches Pigeon to `pi-latest`. An agent that does not know that command is one of the
originals: its lines are read as they come (`sdk/records.py`), and the ends of its runs are found
(`sdk/remote/original_peer.py`). Answers are matched by the id of their command, or by its name where an agent leaves
the id out.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from pigeon.sdk.conversation import FEATURES, Conversation
from pigeon.sdk.errors import AnswerTimeout, ConnectionLost, ConversationClosed, ProcessDied
from pigeon.sdk.host_calls import AnyTool, OnDialog, OnPermission
from pigeon.sdk.records import UnknownEvent, convert_leniently, event_of
from pigeon.sdk.remote.original_peer import OriginalPeer
from pigeon.sdk.remote.sent_lines import LOST_CODE
from pigeon.sdk.remote.served_transport import PATIENCE_SECONDS, ServedTransport, find_served_place
from pigeon.sdk.remote.transports import (
    READ_KEY,
    ProgramChoices,
    SocketTransport,
    SubprocessTransport,
    Transport,
    key_line,
    transport_of,
)
from pigeon.transport.reader import Framing
from pigeon.wire import codec
from pigeon.wire.answers import Accepted, State, Welcome
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.commands import (
    NAMES,
    AbortAndPrompt,
    Bash,
    Clone,
    Command,
    Compact,
    ExportHtml,
    FollowUp,
    Fork,
    GetState,
    Hello,
    NavigateTree,
    NewSession,
    OpenSession,
    Prompt,
    SetHostTools,
    SetLimits,
    SetModel,
    SetPermissions,
    Steer,
    SwitchSession,
)
from pigeon.wire.errors import BadRecord, Refusal, StartupError
from pigeon.wire.events import Outbound
from pigeon.wire.steering import Limits

ANSWER_SECONDS = 30.0
START_SECONDS = 60.0
# Commands without a time limit.
_UNBOUNDED = (Bash, Compact, NavigateTree, ExportHtml)
_SAYS = (Prompt, Steer, FollowUp)
# After these another session may be the current one; a prompt may be a slash command.
_CHANGE_SESSION = (Prompt, AbortAndPrompt, NewSession, SwitchSession, OpenSession, Fork, Clone)
ANY_LENGTH = sys.maxsize


class StartChoices(Struct, frozen=True):
    """The options for starting an agent, or for configuring one that is already running."""

    model: str | None
    session: str | None
    limits: Limits | None
    permissions: str | Mapping[str, Any] | None
    unattended: bool
    has_key: bool

    def to_flags(self) -> list[str]:
        """The same as options of the command line; `model` and `session` are known to all agents of the family."""
        rules = (
            self.permissions if isinstance(self.permissions, str | None) else codec.encode(self.permissions).decode()
        )
        words = [("--model", self.model), ("--session", self.session), ("--permissions", rules)]
        for name, most in ({} if self.limits is None else asdict(self.limits)).items():
            words.append((f"--max-{name.replace('_', '-')}", None if most in (None, ABSENT) else str(most)))
        flags = [word for flag, value in words if value is not None for word in (flag, value)]
        flags += ["--unattended"] if self.unattended else []
        return [*flags, *READ_KEY] if self.has_key else flags

    def to_commands(self) -> list[Command]:
        """The same for a running agent; raises `ValueError` for options that it cannot take."""
        if self.unattended:
            raise ValueError("unattended= is for command=; an agent behind a socket is started with --unattended")
        told: list[Command] = []
        if self.session is not None:
            told.append(SwitchSession(session_path=self.session))
        if self.model is not None:
            provider, slash, model = self.model.partition("/")
            if not slash:
                raise ValueError("model= must be PROVIDER/ID for an agent behind a socket")
            told.append(SetModel(provider=provider, model_id=model))
        if isinstance(self.permissions, str):
            raise ValueError("permissions= must be a dictionary for an agent behind a socket")
        if self.permissions is not None:
            told.append(SetPermissions(permissions=dict(self.permissions)))
        if self.limits is not None:
            told.append(SetLimits(limits=codec.to_plain(self.limits)))
        return told

    def list_pigeon_only_choices(self) -> list[str]:
        """The arguments that no other agent of the family supports."""
        asked = {
            "limits": self.limits,
            "permissions": self.permissions,
            "unattended": self.unattended or None,
            "api_key": self.has_key or None,
        }
        return [f"{name}=" for name, value in asked.items() if value is not None]


class _Open:
    """A command without an answer yet."""

    __slots__ = ("answer", "answered", "command")

    def __init__(self, command: Command, answered: Callable[[Any], None] | None) -> None:
        self.command = command
        self.answered = answered
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def succeed(self, data: Any) -> None:
        if not self.answer.done():
            if self.answered is not None:
                self.answered(data)
            self.answer.set_result(data)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
            # The caller may have given up.
            self.answer.exception()


class _OpenCommands:
    """The commands that have no answer yet, by the ids under which they were sent."""

    def __init__(self) -> None:
        self._commands: dict[str, _Open] = {}
        self._count = 0

    def add(self, command: Command, answered: Callable[[Any], None] | None = None) -> tuple[bytes, str, _Open]:
        """Assign an id to a command; returns the line to send, the id, and an object to wait for the answer."""
        self._count += 1
        id = f"sdk-{self._count}"
        line = codec.encode(replace(command, id=id)) + b"\n"
        waiting = self._commands[id] = _Open(command, answered)
        return line, id, waiting

    def forget(self, id: str) -> None:
        """Stop waiting for the answer."""
        self._commands.pop(id, None)

    def pop_answered(self, response: dict[str, Json]) -> _Open | None:
        """The command that a response belongs to; some agents omit the id if they do not know the command."""
        id, name = response.get("id"), response.get("command")
        if isinstance(id, str):
            return self._commands.pop(id, None)
        found = next((one for one, open in self._commands.items() if NAMES[type(open.command)] == name), None)
        return None if found is None or id is not None else self._commands.pop(found)

    def fail_all(self, error: Exception) -> None:
        """Fail all open commands, which will get no answer."""
        commands, self._commands = self._commands, {}
        for one in commands.values():
            one.fail(error)


class Client(Conversation):
    """An agent behind a transport: Pigeon, pi or oh-my-pi in a process of its own, Pigeon behind a socket, or a
    conversation of `pigeon serve`.

    When the process dies, every call and iteration that waits raises `ProcessDied`; `restart` starts it again.

    A connection to `pigeon serve` that breaks is restored, and nothing is lost or comes twice: events continue after
    the last one, prompts are accepted once. A command that may or may not have been carried out raises
    `ConnectionLost`. Closing the client leaves the conversation, and whatever runs in it continues.

    The further options of `Agent` become flags of the command, or commands to the agent behind the socket. An agent
    other than Pigeon is not opened with options that it does not know (`StartupError`).

    Args:
        command: the program to start and its arguments, such as `["pigeon", "--mode", "rpc"]`
        url: instead of a command, where an agent listens, `unix:PATH`; or a conversation of `pigeon serve`,
            `ws://HOST:PORT/ID` (also `wss:`, `http:`, `https:`) or `unix:PATH?session=ID`; or a server alone, to
            start a new one in the folder `cwd`
        cwd: the folder in which the program is started; for a new conversation of a server, a folder there
        env: the environment variables of the program, instead of those of this process
        tools: functions that the model may call, with or without `@pigeon.tool`
        on_permission: is asked about each tool call that needs approval; without it, all of these are denied
        on_dialog: is asked the questions of extensions; without it, they are cancelled
        timeout: how many seconds an answer, or opening the client, may take (default: 30); runs, shell commands and
            compactions have no limit
        model: the model, as for `Agent`; for an agent behind a socket `PROVIDER/ID`
        session: the session to continue; for an agent behind a socket the path of its file
        limits: how much the conversation may use
        permissions: rules that tighten those of the user
        unattended: whether no person watches the runs; not for an agent behind a socket
        api_key: the key of the model's provider; Pigeon gets it on stdin, so that no list of processes shows it
        on_stderr: gets each line that the program writes to stderr, such as its warnings; it must not block
        connect: instead of a command or an address, makes the connection to the agent each time it is opened; is
            told whether to continue a session, so that what chose the first one is not repeated
        token: lets the client in to `pigeon serve` over the network
        reconnect: for how many seconds it tries to reconnect to `pigeon serve`; `None` for ever

    Example:
        import asyncio

        import pigeon


        async def main() -> None:
            async with pigeon.Client(command=["pigeon", "--mode", "rpc"], model="demo") as client:
                result = await client.run("list the files")
                print(result.text)


        asyncio.run(main())
    """

    def __init__(  # noqa: PLR0913 - the names are those of the options
        self,
        url: str | None = None,
        *,
        command: Sequence[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        tools: Sequence[AnyTool] = (),
        on_permission: OnPermission | None = None,
        on_dialog: OnDialog | None = None,
        timeout: float | None = ANSWER_SECONDS,
        model: str | None = None,
        session: str | os.PathLike[str] | None = None,
        limits: Limits | None = None,
        permissions: str | Mapping[str, Any] | None = None,
        unattended: bool = False,
        api_key: str | None = None,
        on_stderr: Callable[[str], None] | None = None,
        connect: Callable[[bool], Transport] | None = None,
        token: str | None = None,
        reconnect: float | None = PATIENCE_SECONDS,
    ) -> None:
        super().__init__(tools, on_permission, on_dialog)
        folder = None if cwd is None else os.fspath(cwd)
        resumed = None if session is None else os.fspath(session)
        served = None if url is None else find_served_place(url, folder, model, ("agents",))
        self._address = None if served is None else served.address
        if served is not None:
            folder = None
            model = None if served.new is not None else model
            if resumed is not None:
                raise ValueError("session= is not for a conversation of pigeon serve: its address says which it is")
        elif token is not None:
            raise ValueError("token= is for a conversation of pigeon serve over the network")
        self._choices = StartChoices(model, resumed, limits, permissions, unattended, api_key is not None)
        self._told = [] if url is None else self._choices.to_commands()
        program = ProgramChoices(folder, env, b"" if api_key is None else key_line(api_key), on_stderr)
        if connect is None:
            # Wrong arguments are reported now, not on opening.
            transport_of(command, url, program)
            if command is not None:
                command = [*command, *self._choices.to_flags()]

        def make_transport(going_on: bool) -> Transport:
            if served is not None:
                return ServedTransport(self._address or served.address, token, served.new, reconnect)
            return transport_of(command, url, program)

        self._make_transport = connect or make_transport
        self._timeout = timeout
        self._transport: Transport | None = None
        self._commands = _OpenCommands()
        self._peer: OriginalPeer | None = None
        self._welcome: Welcome | None = None
        self._death: ProcessDied | None = None
        self._dying: asyncio.Future[None] | None = None
        self._state: State | None = None
        self._restarting = asyncio.Lock()
        self._ending: asyncio.Future[None] | None = None

    @property
    def welcome(self) -> Welcome | None:
        """Pigeon's answer to `hello`: its version, dialect and features; `None` for other agents."""
        return self._welcome

    @property
    def pid(self) -> int | None:
        """The id of the agent's process; `None` behind a socket, or before it is opened."""
        return getattr(self._transport, "pid", None)

    @property
    def url(self) -> str | None:
        """The address of the conversation, once `pigeon serve` knows it; `None` without a server."""
        return None if self._address is None or self._address.session is None else self._address.text

    async def open(self) -> None:
        """Start or reach the agent; raises `StartupError` or `ProcessDied`."""
        await self._open(going_on=False)

    async def _open(self, going_on: bool) -> None:
        if self._transport is not None:
            raise ConversationClosed("The client is open already")
        transport = self._make_transport(going_on)
        seconds = START_SECONDS if self._timeout is None else self._timeout
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self._connect_and_agree(transport)
        except BaseException:
            if limit.expired() and isinstance(transport, SubprocessTransport | SocketTransport):
                # It has not said that it is ready, so nothing is lost.
                transport.kill()
            await (transport if self._transport is None else self).close()
            if limit.expired():
                raise AnswerTimeout("hello", seconds) from None
            raise

    async def _connect_and_agree(self, transport: Transport) -> None:
        self._death = None
        self._peer = self._welcome = self._state = self._unread = None
        # A conversation of a server may be busy for long before any of it is read.
        unread = self._subscribe() if isinstance(transport, SubprocessTransport) else None
        await transport.open(partial(self._on_data, Framing(ANY_LENGTH)), lambda: self._on_transport_lost(transport))
        self._transport = transport
        if isinstance(transport, ServedTransport):
            self._address = transport.address
        await self._send_hello()
        await self._send_choices()
        if tools := self._host_calls.definitions():
            await self._call(SetHostTools(tools=tools))
        self._unread = unread

    async def _send_hello(self) -> None:
        try:
            self._welcome = await self._call_within(None, Hello(dialect="pi-latest", features=FEATURES))
        except Refusal:
            self._peer = OriginalPeer(self._fresh_state, self._on_record)
            if unknown := self._choices.list_pigeon_only_choices():
                raise StartupError(f"This agent is not Pigeon and cannot follow {', '.join(unknown)}") from None

    async def _send_choices(self) -> None:
        for choice in self._told:
            try:
                await self._call(choice)
            except Refusal as refusal:
                raise StartupError(str(refusal)) from refusal

    async def close(self) -> None:
        """End the agent's process, or leave its socket: cleanly, and by force if it does not end."""
        transport, self._transport = self._transport, None
        if transport is not None:
            self._fail_open_commands(ConversationClosed())
            self._close_readers(None)
            self._ending = asyncio.ensure_future(self._close_transport(transport))
        if self._ending is not None:
            # It continues to its end even if the requesting task is cancelled, which may be a tool that ends here.
            await asyncio.shield(self._ending)

    async def _close_transport(self, transport: Transport) -> None:
        await transport.close()
        await self._runs.wait_for_abandoned_runs()

    async def restart(self) -> None:
        """Restart the agent, after its death or at any other time, and continue its session if that is on disk."""
        async with self._restarting:
            state = self._state
            session_file = None if state is None or isinstance(state.session_file, Absent) else state.session_file
            empty = state is None or state.message_count == 0
            await self.close()
            try:
                await self._open(going_on=session_file is not None and not empty)
                if session_file is not None and self._address is None:
                    await self._resume_session(session_file, empty)
            finally:
                # A start that failed can be tried again.
                self._state = state

    async def _resume_session(self, session_file: str, empty: bool) -> None:
        try:
            await self._call(SwitchSession(session_path=session_file))
        except Refusal:
            # As far as is known here, nothing was said in it, so its file was never written.
            if not empty:
                raise

    # Commands

    async def _call(self, command: Command, answered: Callable[[Any], None] | None = None) -> Any:
        # Nothing is kept for a reader that may never come.
        self._unread = None
        if self._peer is not None:
            _check_supported(command)
        return await self._call_within(None if isinstance(command, _UNBOUNDED) else self._timeout, command, answered)

    async def _call_within(
        self, seconds: float | None, command: Command, answered: Callable[[Any], None] | None = None
    ) -> Any:
        transport = self._transport
        if transport is None:
            raise ConversationClosed
        if self._death is not None:
            raise self._death
        line, id, waiting = self._commands.add(command, answered)
        try:
            transport.write(line)
            async with asyncio.timeout(seconds):
                return await waiting.answer
        except TimeoutError:
            raise AnswerTimeout(NAMES[type(command)], seconds or 0) from None
        finally:
            self._commands.forget(id)

    def _send_unanswered(self, command: Command) -> None:
        if self._transport is not None:
            self._transport.write(codec.encode(command) + b"\n")

    def _fresh_state(self) -> Awaitable[State]:
        return self._call(GetState())

    # Records of the agent

    def _on_data(self, framing: Framing, data: bytes) -> None:
        for frame in framing.feed(data):
            if isinstance(frame, bytes) and frame.strip():
                try:
                    self._on_line(frame)
                except Exception:  # a record may contain values that do not fit; the following lines must still be read
                    from logging import getLogger

                    getLogger("pigeon").exception("A line of the agent was left out: %.200r", frame)

    def _on_line(self, line: bytes) -> None:
        try:
            value = codec.decode(line)
        except BadRecord:
            value = None
        if not isinstance(value, dict):
            # Some agents print to stdout by mistake.
            self._on_record(UnknownEvent("", {"line": line.decode("utf-8", "replace")}), len(line))
        elif value.get("type") == "response":
            self._on_response(value)
        else:
            self._on_event(event_of(value), len(line))

    def _on_event(self, event: Outbound | UnknownEvent, size: int) -> None:
        if self._peer is None:
            self._on_record(event, size)
        elif self._peer.filter_event(event):
            self._on_record(event, size)
            self._peer.on_event(event)

    def _on_response(self, value: dict[str, Json]) -> None:
        waiting = self._commands.pop_answered(value)
        if waiting is None:
            late = value.get("command") == "prompt" and value.get("success") is False
            if late and self._peer is not None:
                self._peer.on_prompt_refused()
            return
        if value.get("success") is not True:
            text, code = value.get("error"), value.get("code")
            if code == LOST_CODE:
                waiting.fail(ConnectionLost(str(text)))
            else:
                waiting.fail(Refusal(str(text or "refused"), code if isinstance(code, str) else None))
            return
        data = _to_answer(waiting.command, value.get("data", ABSENT))
        if self._peer is not None and isinstance(waiting.command, Prompt):
            self._peer.on_prompt_accepted()
        if isinstance(data, State):
            self._state = data
        elif isinstance(waiting.command, _CHANGE_SESSION):
            self._request_state()
        waiting.succeed(data)

    def _request_state(self) -> None:
        """Request the path of the current session file for `restart`; the process may die at any time."""
        if self._transport is not None:
            line, _, _ = self._commands.add(GetState())
            self._transport.write(line)

    # The end

    def _on_transport_lost(self, transport: Transport) -> None:
        if transport is self._transport and self._dying is None:
            self._dying = asyncio.ensure_future(self._on_death(transport))

    async def _on_death(self, transport: Transport) -> None:
        death = await transport.explain_death()
        self._dying = None
        if transport is self._transport:
            self._death = death
            self._fail_open_commands(death)
            self._close_readers(death)

    def _fail_open_commands(self, error: Exception) -> None:
        if self._peer is not None:
            self._peer.close()
        self._commands.fail_all(error)


def _check_supported(command: Command) -> None:
    """Refuse options that a program relies on: other agents ignore unknown members."""
    for name, meant in (("limits", "limits"), ("client_message_id", "message ids")):
        if getattr(command, name, ABSENT) is not ABSENT:
            raise Refusal(f"This agent is not Pigeon and knows no {meant}")


def _to_answer(command: Command, data: Json | Absent) -> Any:
    """The data of a response as the answer of the command."""
    if isinstance(command, _SAYS):
        return _to_accepted(command, data)
    if command.answer is None:
        return None
    return convert_leniently({} if isinstance(data, Absent) else data, command.answer)


def _to_accepted(command: Command, data: Json | Absent) -> Accepted:
    """The disposition of a message; of the other agents only the newest report it in these words."""
    members = data if isinstance(data, dict) else {}
    if isinstance(members.get("disposition"), str):
        return cast("Accepted", convert_leniently(members, Accepted))
    if members.get("agentInvoked") is False:
        return Accepted(disposition="handled")
    return Accepted(disposition="started" if isinstance(command, Prompt) else "queued")
