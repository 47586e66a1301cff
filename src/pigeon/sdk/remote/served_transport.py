"""A conversation of `pigeon serve` as a transport that outlives its connections.

When a connection is lost, the next one begins behind the last event that came, so no event is missed and none comes
twice. Of what was sent and not answered,

    reads, settings, aborts        are sent again: done twice, they do the same
    messages to the model          are sent again under the id that they got here, under which each is accepted once
    answers to questions           are sent again: the server takes the first, and none to a question that is closed
    a line that is too long        fails with the code `too_long`: the server closes the connection over it each time
    everything else                fails with the code `connection_lost`: it is not known whether it was done

`Client` and `pigeon attach` use it.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pigeon.sdk.errors import ProcessDied
from pigeon.sdk.remote.addresses import ServedAddress, parsed_address
from pigeon.sdk.remote.line_connections import LineConnection, NewConversation, NotReached, open_connection
from pigeon.system.ids import RANDOM_IDS
from pigeon.wire import codec
from pigeon.wire.answers import failed
from pigeon.wire.base import Json

PATIENCE_SECONDS = 60.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
LOST_CODE = "connection_lost"
LOST = "The connection was lost before {} was answered; it is not known whether it was done"
TOO_LONG_CODE = "too_long"
TOO_LONG = "{} is larger than the server accepts: {:.0f} MB"
MB = 1024 * 1024
# A server that is still sent a long line when it closes cannot say why; so often such a line is sent.
MOST_TRIES = 5
GAP = "The connection was lost for so long that the events of this run are gone; get_messages has what came of it"
# What does the same when it is done twice, by name or by the beginning of its name.
AGAIN = ("get_", "set_", "list_sessions", "find_text", "render_html", "hello", "abort")
MESSAGES = frozenset(("prompt", "steer", "follow_up", "abort_and_prompt"))
ANSWERS = frozenset(("extension_ui_response", "host_tool_result"))
QUESTIONS = frozenset(("extension_ui_request", "host_tool_call", "host_tool_cancel"))
_OUR_IDS = "pigeon-link-"
# What an id of ours adds to messages and answers; a client that gave none is not shown it.
_OUR_ID_MEMBERS = re.compile(rb',"clientMessageId":"pigeon-link-[0-9a-f]+"(?:,"accepted":\{[^{}]*\})?')


class _Line(Struct, rename="camel"):
    """What has to be known of a line, whichever way it goes."""

    type: str = ""
    id: Json = None
    command: Json = None
    error: Json = None
    seq: int = 0
    run_id: str = ""
    client_message_id: Json = None
    target_id: str = ""
    events: Json = None
    snapshot: msgspec.Raw = msgspec.Raw(b"{}")
    data: msgspec.Raw = msgspec.Raw(b"{}")


class _Accepted(Struct, rename="camel"):
    disposition: str = ""
    run_id: str = ""


class _Snapshot(Struct, rename="camel"):
    seq: int = 0
    run_id: str | None = None


class _Sent:
    """A command without an answer: its line, its name, whether it is on its way, and how often it was in vain."""

    __slots__ = ("in_vain", "line", "name", "on_its_way")

    def __init__(self, line: bytes, name: str) -> None:
        self.line = line
        self.name = name
        self.on_its_way = False
        self.in_vain = 0


_line_of = msgspec.json.Decoder(_Line).decode


class ServedTransport:
    """The way to one conversation. `patience` is how many seconds it tries to come back; none for ever."""

    def __init__(
        self,
        address: ServedAddress,
        token: str | None = None,
        new: NewConversation | None = None,
        patience: float | None = PATIENCE_SECONDS,
        room: Callable[[], Awaitable[None] | None] = lambda: None,
    ) -> None:
        """`room` gives something to await while what comes cannot be taken."""
        self.address = address
        self._token = token
        self._new = new
        self._patience = patience
        self._room = room
        self._receive: Callable[[bytes], None] = lambda data: None
        self._lost: Callable[[], None] = lambda: None
        self._running: asyncio.Task[None] | None = None
        # Why there is no connection any more.
        self.reason = ""
        self._last = 0
        self._outgoing: deque[_Sent] = deque()
        self._more = asyncio.Event()
        # By the id of the command, as JSON; in the order in which they were sent.
        self._unanswered: dict[bytes, _Sent] = {}
        self._answers: dict[str, _Sent] = {}
        self._runs: dict[str, None] = {}
        self._kinds: frozenset[str] | None = None
        self._held = HeldEvents()

    async def open(self, receive: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        """Connect; raises `NotReached`."""
        self._receive, self._lost = receive, lost
        connection = await open_connection(self.address, self._token, None, self._new)
        self.address = replace(self.address, session=connection.session)
        self._last = connection.start
        self._running = asyncio.ensure_future(self._run(connection))

    def write(self, data: bytes) -> None:
        """Send whole lines; what is sent while there is no connection waits for the next."""
        self._outgoing.extend(self._noted(line) for line in data.split(b"\n") if line)
        self._more.set()

    async def death(self) -> ProcessDied:
        """Why there is no connection any more."""
        return ProcessDied(f"The connection to {self.address.text} has ended: {self.reason}")

    async def close(self) -> None:
        """Leave the conversation, which goes on."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    # Connections

    async def _run(self, connection: LineConnection) -> None:
        try:
            while True:
                await self._use(connection)
                self._let_go_too_long(connection.too_long)
                self._let_go_unknown()
                connection = await self._next_connection()
        except Exception as error:  # not to be reached, or anything else: the client must not wait for ever
            self.reason = str(error)
            self._lost()

    async def _use(self, connection: LineConnection) -> None:
        """Exchange lines until it is lost; raises `NotReached` where the server has ended it for good."""
        sending = asyncio.ensure_future(self._send(connection))
        try:
            async for line in connection.lines():
                self._came(line)
                waiting = self._room()
                if waiting is not None:
                    await waiting
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await sending
            with suppress(OSError):
                await connection.close()

    async def _send(self, connection: LineConnection) -> None:
        while True:
            while self._outgoing:
                sent = self._outgoing.popleft()
                sent.on_its_way = True
                await connection.send(sent.line)
            self._more.clear()
            await self._more.wait()

    async def _next_connection(self) -> LineConnection:
        loop = asyncio.get_running_loop()
        until = None if self._patience is None else loop.time() + self._patience
        pause = FIRST_PAUSE
        while True:
            try:
                return await open_connection(self.address, self._token, self._last, None)
            except NotReached as error:
                if error.final or (until is not None and loop.time() + pause > until):
                    raise
            # Not all clients of a server that comes back at the same moment.
            await asyncio.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _let_go_too_long(self, told: bool) -> None:
        """Fail what would break every connection: the longest line, if the server has `told` so, or one that did."""
        under_way = [sent for sent in (*self._unanswered.values(), *self._answers.values()) if sent.on_its_way]
        longest = max(under_way, key=lambda sent: len(sent.line), default=None) if told else None
        for sent in under_way:
            sent.in_vain += 1
        wrong = [sent for sent in under_way if (len(sent.line) > MB and sent.in_vain >= MOST_TRIES) or sent is longest]
        for id, sent in list(self._unanswered.items()):
            if sent in wrong:
                text = TOO_LONG.format(sent.name, len(sent.line) / MB)
                answer = codec.encode(failed(sent.name, text, msgspec.json.decode(id), TOO_LONG_CODE))
                self._answered(answer, _line_of(answer))
        self._answers = {id: sent for id, sent in self._answers.items() if sent not in wrong}

    def _let_go_unknown(self) -> None:
        """Sort what was on its way when the connection was lost: what is sent again, and what fails."""
        again: list[_Sent] = []
        for id, sent in list(self._unanswered.items()):
            if not sent.on_its_way:
                continue
            if sent.name in MESSAGES:
                self._held.wait_for(id)
            elif not sent.name.startswith(AGAIN):
                del self._unanswered[id]
                answer = failed(sent.name, LOST.format(sent.name), msgspec.json.decode(id), LOST_CODE)
                self._hand_on(codec.encode(answer))
                continue
            again.append(sent)
        again += [sent for sent in self._answers.values() if sent.on_its_way]
        self._outgoing.extendleft(reversed(again))
        self._more.set()

    # What goes out

    def _noted(self, line: bytes) -> _Sent:
        """Keep what may have to be sent again, a message under an id by which it is known then."""
        try:
            head = _line_of(line)
        except msgspec.DecodeError:
            return _Sent(line, "")
        if head.type in MESSAGES and head.client_message_id is None:
            line = b'{"clientMessageId":"%s%s",' % (_OUR_IDS.encode(), RANDOM_IDS.request_id().encode()) + line[1:]
        sent = _Sent(line, head.type)
        if head.type in ANSWERS:
            self._answers[str(head.id)] = sent
        elif head.id is not None:
            self._unanswered[codec.encode(head.id)] = sent
        if head.type == "set_event_filter":
            self._kinds = frozenset(map(str, head.events)) if isinstance(head.events, list) else None
        return sent

    # What comes in

    def _came(self, line: bytes) -> None:
        """Pass on a line that is new; raises `NotReached` where it says that the conversation is gone."""
        line = _OUR_ID_MEMBERS.sub(b"", line)
        try:
            head = _line_of(line)
        except msgspec.DecodeError:
            self._hand_on(line)
            return
        if head.type == "response" and head.command == "attach":
            # It comes a second time when the conversation is gone.
            raise NotReached(str(head.error), True)
        if head.type == "response":
            self._answered(line, head)
        elif head.type == "gap":
            self._skipped(line, head)
        elif self._is_new(head):
            self._event(line, head)

    def _is_new(self, head: _Line) -> bool:
        """False for an event that came before; questions are repeated on purpose."""
        if head.seq <= self._last and head.seq and head.type not in QUESTIONS:
            return False
        self._last = max(self._last, head.seq)
        return True

    def _answered(self, line: bytes, head: _Line) -> None:
        id = codec.encode(head.id)
        sent = self._unanswered.pop(id, None)
        accepted = _converted(head.data, _Accepted) if sent is not None and sent.name in MESSAGES else _Accepted()
        if accepted.run_id and accepted.disposition == "started" and not self._held.has_end_of(accepted.run_id):
            self._runs[accepted.run_id] = None
        if self._held.waits_for(id):
            for held in self._held.answered(id, line, accepted.run_id):
                self._hand_on(held)
        else:
            self._hand_on(line)

    def _event(self, line: bytes, head: _Line) -> None:
        if head.type == "agent_start" and head.run_id:
            self._runs[head.run_id] = None
        elif head.type == "agent_settled":
            self._runs.pop(head.run_id, None)
            # Nothing that was asked before is open any more.
            self._answers.clear()
        elif head.type == "permission_resolved":
            self._answers.pop(str(head.id), None)
        elif head.target_id and self._answers.pop(head.target_id, None) is not None:
            # A question is closed for all clients when it is answered; the one that has answered has closed it itself.
            return
        if self._kinds is not None and head.type not in self._kinds and head.type not in QUESTIONS:
            return
        if not self._held.holds:
            self._hand_on(line)
        elif head.type in QUESTIONS:
            # What is held waits for an answer, which may wait for the answer to this.
            for held in self._held.let_go():
                self._hand_on(held)
            self._hand_on(line)
        else:
            self._held.put(line, head.run_id, head.type)

    def _skipped(self, line: bytes, head: _Line) -> None:
        """The log does not reach back so far: what has ended meanwhile ends here, too."""
        snapshot = _converted(head.snapshot, _Snapshot)
        self._last = snapshot.seq
        for held in self._held.let_go():
            self._hand_on(held)
        self._hand_on(line)
        ended = [run_id for run_id in self._runs if run_id != snapshot.run_id]
        for run_id in ended:
            del self._runs[run_id]
            end = {"type": "agent_settled", "aborted": False, "reason": "error", "errorMessage": GAP}
            self._hand_on(codec.encode({**end, "runId": run_id}))

    def _hand_on(self, line: bytes) -> None:
        self._receive(line + b"\n")


class HeldEvents:
    """Events that wait for the answer to a message which was sent again.

    The run of the message may have begun, and even ended, before its answer comes a second time. Clients expect the
    answer before the run, so what comes meanwhile is held, and the answer is put before the first event of its run.
    """

    def __init__(self) -> None:
        self._waiting: set[bytes] = set()
        self._lines: list[tuple[bytes, str, str]] = []

    @property
    def holds(self) -> bool:
        """True while an answer is waited for."""
        return bool(self._waiting)

    def wait_for(self, id: bytes) -> None:
        """Hold events until this command is answered."""
        self._waiting.add(id)

    def waits_for(self, id: bytes) -> bool:
        """Whether this is such a command."""
        return id in self._waiting

    def has_end_of(self, run_id: str) -> bool:
        """Whether the end of a run is among them."""
        return any(one[1:] == (run_id, "agent_settled") for one in self._lines)

    def put(self, line: bytes, run_id: str, kind: str) -> None:
        """Hold an event."""
        self._lines.append((line, run_id, kind))

    def answered(self, id: bytes, answer: bytes, run_id: str) -> list[bytes]:
        """Put an answer where it belongs; returns what need not wait any more."""
        self._waiting.discard(id)
        numbers = (number for number, one in enumerate(self._lines) if run_id and one[1] == run_id)
        self._lines.insert(next(numbers, len(self._lines)), (answer, "", ""))
        return [] if self._waiting else self.let_go()

    def let_go(self) -> list[bytes]:
        """Everything that is held; what comes from here on is not."""
        lines, self._lines = self._lines, []
        self._waiting.clear()
        return [line for line, _, _ in lines]


class ServedPlace(Struct, frozen=True):
    """A conversation, or a server with what is to be begun there."""

    address: ServedAddress
    new: NewConversation | None


def served_at(url: str, cwd: str | None, model: str | None) -> ServedPlace | None:
    """What an address means; none for an agent's own socket. Raises `ValueError`."""
    if not isinstance(url, str):
        raise TypeError(f"url= is an address, not {type(url).__name__}; the program to start is command=")
    address = parsed_address(url)
    if address.session is not None:
        if cwd is not None:
            raise ValueError("cwd= is for a new conversation, and this address is that of one that exists")
        return ServedPlace(address, None)
    if address.path and cwd is None:
        return None
    if cwd is None:
        raise ValueError("url must end with the id of a session; for a new one, give its folder as cwd=")
    if not os.path.isabs(cwd):
        raise ValueError("cwd= must be the whole path of a folder on the server")
    return ServedPlace(address, NewConversation(cwd, model))


def _converted(raw: msgspec.Raw, kind: type[_Accepted] | type[_Snapshot]) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return kind()
