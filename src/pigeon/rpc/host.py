"""One host, from the first line to the exit code: on stdin and stdout, or wherever its channel leads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import ClassVar, Protocol

from pigeon.dialects.base import Dialect
from pigeon.rpc.handlers.all import HANDLERS
from pigeon.rpc.lanes import CommandRunner
from pigeon.rpc.outbox import Outbox
from pigeon.rpc.router import CommandHandler
from pigeon.rpc.server import Server
from pigeon.rpc.session_connection import SessionConnection
from pigeon.rpc.shutdown import Shutdown
from pigeon.session.session import Session
from pigeon.transport import exit_codes
from pigeon.transport.reader import DEFAULT_CAP, Frame, Framing, Reader
from pigeon.transport.writer import LineSink, Writer
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.commands import Command, Subject
from pigeon.wire.events import Outbound

STOP_SECONDS = 0.6
FLUSH_SECONDS = 2.0
LONG_ANSWER_SECONDS = 5.0
# A host that says nothing for so long has nothing to say before an interrupted run goes on.
LISTENING_SECONDS = 1.0
FLUSH_AFTER_SIGNAL = 0.2


class HostChannel(Protocol):
    """The connection to a host: where lines come from, and where answers and events go."""

    def open(self, leave: Callable[[int], None]) -> None:
        """Prepare for lines; `leave` ends the process with an exit code when the host has gone."""
        ...

    @property
    def answers(self) -> LineSink: ...

    @property
    def events(self) -> LineSink: ...

    @property
    def last_event_number(self) -> int:
        """The number of events that an earlier process has sent."""
        ...

    def start(self, take: Callable[[list[Frame]], Awaitable[None] | None], ended: Callable[[], None]) -> None:
        """Pass input on to `take`; `ended` is called when there will be no more."""
        ...

    def close(self, seconds: float) -> None:
        """Send what is waiting, for at most this long, and nothing more."""
        ...


class PipeChannel:
    """A host on two descriptors: stdin and stdout, or both ends of a socket.

    `show` is called with `in` or `out` and every line.
    """

    last_event_number = 0

    def __init__(
        self,
        descriptors: tuple[int, int],
        record_cap: int = DEFAULT_CAP,
        show: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self._descriptors = descriptors
        self._record_cap = record_cap
        self._show = show

    def open(self, leave: Callable[[int], None]) -> None:
        show = None if self._show is None else partial(self._show, "out")
        self.answers = self.events = Writer(self._descriptors[1], lambda: leave(exit_codes.FAILED), show)

    def start(self, take: Callable[[list[Frame]], Awaitable[None] | None], ended: Callable[[], None]) -> None:
        if self._show is not None:
            take = partial(self._trace_and_handle_frames, self._show, take)
        Reader(self._descriptors[0], Framing(self._record_cap, tells_ends=True), take, ended).start()

    def close(self, seconds: float) -> None:
        self.answers.close(seconds)

    def _trace_and_handle_frames(
        self,
        show: Callable[[str, bytes], None],
        take: Callable[[list[Frame]], Awaitable[None] | None],
        frames: list[Frame],
    ) -> Awaitable[None] | None:
        for frame in frames:
            show("in", frame if isinstance(frame, bytes) else b"a line that is too long")
        return take(frames)


class Host:
    """Serves one session to one host, which may send the commands that have a handler."""

    handlers: ClassVar[Mapping[type[Command], CommandHandler]] = HANDLERS
    # A host that shares its process leaves signals to another object, which calls `request_exit`.
    watches_signals: ClassVar[bool] = True

    def __init__(
        self,
        session: Session,
        dialect: Dialect,
        channel: HostChannel,
        drains: Callable[[], bool],
        warm: Callable[[], Awaitable[None]],
        record_cap: int = DEFAULT_CAP,
        mask: Callable[[bytes], bytes] = lambda line: line,
        shows_dialogs: bool = True,
    ) -> None:
        """`shows_dialogs` is False for a host without a person: questions then get no answer at once."""
        self._session = session
        self._drains = drains
        self._shutdown = Shutdown(self._on_end_requested)
        self._channel = channel
        channel.open(self._shutdown.request_exit)
        self._connection = SessionConnection(session, dialect, mask, channel.last_event_number, record_cap)
        self._outbox = Outbox(
            channel.answers, self._connection, channel.events, merges=not session.dependencies.settings.reproducible
        )
        subjects: Mapping[Subject, object] = {"session": session, "connection": self._connection}
        self._commands = CommandRunner(subjects, self.handlers, session.bus.call_when_saved)
        self._server = Server(self._commands, self._outbox, lambda: self._connection.dialect)
        self._ending: asyncio.Future[None] | None = None
        self._warm = warm
        if not shows_dialogs:
            session.dependencies.dialogs.close()
            self._outbox.suppress_dialogs()
        session.bus.add_announcer(self._outbox.send_event, self._outbox.wait_if_full)
        if session.dependencies.settings.several_clients:
            # Each client of the conversation gets only what it requested.
            self._connection.use_all_features()

    @property
    def is_busy(self) -> bool:
        """True while the end of this process would cut something off."""
        session = self._session
        return (
            session.activity.is_busy
            or not session.engine.is_settled
            or self._commands.in_flight > 0
            or session.dependencies.dialogs.has_open_dialog
            or session.prompting.is_waiting
            or bool(len(session.queue))
        )

    async def run_command(self, command: Json) -> None:
        """Run a command that an earlier process has already accepted; nothing is announced. Raises `PigeonError`."""
        with self._outbox.suppressing_events_and_dialogs():
            await self._commands.run_command(codec.command_of(command))

    def announce_event(self, event: Outbound) -> None:
        """Announce an event that does not come from this session."""
        self._outbox.send_event(event)

    def request_exit(self, code: int) -> None:
        """End as after a signal; asked twice, it ends at once."""
        self._shutdown.request_exit(code)

    async def serve(
        self,
        started: Callable[[Callable[[], None]], Awaitable[None]],
        leaving: Callable[[], Awaitable[None]],
        stop: Callable[[], Awaitable[None]],
    ) -> int:
        """Serve until there is a reason to end; returns the exit code."""
        if self.watches_signals:
            self._shutdown.watch_signals()
        self._outbox.greet()
        self._channel.start(self._server.handle_frames, self._on_input_end)
        warming = asyncio.ensure_future(self._warm_up())
        await started(self._end_when_quiet)
        continuing = asyncio.ensure_future(self._continue_interrupted_run())
        code = await self._shutdown.wait_for_request()
        warming.cancel()
        continuing.cancel()
        if code == exit_codes.OK:
            code = await self._shutdown.wait_for_work(asyncio.ensure_future(self._wait_for_long_answers()))
        if code == exit_codes.OK and self._drains():
            code = await self._shutdown.wait_for_work(asyncio.ensure_future(self._wait_until_done()))
        await self._shutdown.wait_for_cleanup(
            asyncio.ensure_future(self._close_session_and_stop(leaving, stop)), STOP_SECONDS
        )
        self._channel.close(FLUSH_SECONDS if code == exit_codes.OK else FLUSH_AFTER_SIGNAL)
        return code

    async def _wait_for_long_answers(self) -> None:
        """Wait until answers to earlier commands are sent, unless the host does not read them."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._server.wait_for_long_answers(), LONG_ANSWER_SECONDS)

    async def _wait_until_done(self) -> None:
        await self._server.wait_until_drained()
        await self._session.prompting.wait_for_commands()
        await self._session.activity.wait_until_idle()
        await self._session.engine.wait_until_prompts_reported()

    async def _close_session_and_stop(
        self, leaving: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]]
    ) -> None:
        await leaving()
        await self._session.close()
        await stop()
        await self._server.wait_until_drained()

    def _end_when_quiet(self) -> None:
        """End once all work in progress has been answered."""
        self._ending = asyncio.ensure_future(self._wait_and_end())

    async def _wait_and_end(self) -> None:
        await self._wait_until_done()
        self._shutdown.request_exit(exit_codes.OK)

    async def _warm_up(self) -> None:
        """Deferred until the first commands were answered, because a host waits for those."""
        await self._server.wait_for_first_input()
        await self._warm()

    async def _continue_interrupted_run(self) -> None:
        """After the first input, which may choose the form of events; a host may also only listen."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._server.wait_for_first_input(), LISTENING_SECONDS)
        self._session.engine.continue_interrupted_run()

    def _on_end_requested(self, code: int) -> None:
        """Stopping the work also suppresses its end events, since a host could answer them into a closing pipe; so
        nothing may begin afterwards."""
        if code != exit_codes.OK:
            self._outbox.suppress_events()
        elif self._drains():
            return
        else:
            self._outbox.suppress_run_ends()
        self._session.activity.close()

    def _on_input_end(self) -> None:
        self._session.on_host_disconnected()
        self._shutdown.request_exit(exit_codes.OK)
