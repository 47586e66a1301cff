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
from pigeon.wire.commands import Command
from pigeon.wire.events import Outbound

STOP_SECONDS = 0.6
FLUSH_SECONDS = 2.0
LONG_ANSWER_SECONDS = 5.0
FLUSH_AFTER_SIGNAL = 0.2


class HostChannel(Protocol):
    """The way to a host."""

    def open(self, leave: Callable[[int], None]) -> None:
        """Be ready for lines; `leave` ends the process with an exit code, for a host that has gone."""
        ...

    @property
    def answers(self) -> LineSink:
        """Where answers go."""
        ...

    @property
    def events(self) -> LineSink:
        """Where events go."""
        ...

    @property
    def numbered(self) -> int:
        """How many events an earlier process has sent."""
        ...

    def start(self, take: Callable[[list[Frame]], Awaitable[None] | None], ended: Callable[[], None]) -> None:
        """Hand on what comes in; `ended` is called when nothing more will come."""
        ...

    def close(self, seconds: float) -> None:
        """Send what waits, for at most this long, and nothing more."""
        ...


class PipeChannel:
    """A host on two descriptors: stdin and stdout, or both ends of a socket.

    `show` is called with every line that comes in or goes out, and `in` or `out`.
    """

    numbered = 0

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
        """Nothing is read yet."""
        show = None if self._show is None else partial(self._show, "out")
        self.answers = self.events = Writer(self._descriptors[1], lambda: leave(exit_codes.FAILED), show)

    def start(self, take: Callable[[list[Frame]], Awaitable[None] | None], ended: Callable[[], None]) -> None:
        """Read."""
        if self._show is not None:
            take = partial(self._take_shown, self._show, take)
        Reader(self._descriptors[0], Framing(self._record_cap, tells_ends=True), take, ended).start()

    def close(self, seconds: float) -> None:
        """Write what waits."""
        self.answers.close(seconds)

    def _take_shown(
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
        """`shows_dialogs` is false for a host without a person: nothing is asked, so what would ask gets no answer."""
        self._session = session
        self._drains = drains
        self._shutdown = Shutdown(self._end_asked)
        self._channel = channel
        channel.open(self._shutdown.request)
        self._connection = SessionConnection(session, dialect, mask, channel.numbered, record_cap)
        self._outbox = Outbox(
            channel.answers, self._connection, channel.events, merges=not session.dependencies.settings.reproducible
        )
        self._commands = CommandRunner({"session": session, "connection": self._connection}, self.handlers)
        self._server = Server(self._commands, self._outbox)
        self._ending: asyncio.Future[None] | None = None
        self._warm = warm
        if not shows_dialogs:
            session.dependencies.dialogs.close()
            self._outbox.leave_out_dialogs()
        session.bus.announce(self._outbox.event, self._outbox.room)

    def speak_fully(self) -> None:
        """Number events and use every feature from the first line on, as a host would ask for with `hello`."""
        self._connection.use_all_features()
        self._session.dependencies.dialogs.tell_ends()
        self._session.host_tools.tell_ends()

    @property
    def busy(self) -> bool:
        """True while anything is under way, or waits, that the end of this process would cut off."""
        session = self._session
        return (
            session.activity.busy
            or not session.engine.settled
            or self._commands.in_flight > 0
            or session.dependencies.dialogs.waiting
            or session.prompting.waiting
            or bool(len(session.queue))
        )

    async def carry_out(self, command: Json) -> None:
        """Have a command done that an earlier process was told; nothing is announced. Raises `PigeonError`."""
        with self._outbox.silent():
            await self._commands.carry_out(codec.command_of(command))

    def tell(self, event: Outbound) -> None:
        """Announce what is not of this session's doing."""
        self._outbox.event(event)

    async def serve(
        self,
        started: Callable[[Callable[[], None]], Awaitable[None]],
        leaving: Callable[[], Awaitable[None]],
        stop: Callable[[], Awaitable[None]],
    ) -> int:
        """Run until there is a reason to end; returns the exit code."""
        self._shutdown.watch_signals()
        self._outbox.greet()
        self._channel.start(self._server.take, self._input_ended)
        warming = asyncio.ensure_future(self._warm_up())
        await started(self._end_when_quiet)
        code = await self._shutdown.reason()
        warming.cancel()
        if code == exit_codes.OK:
            code = await self._shutdown.finish(asyncio.ensure_future(self._long_answers()))
        if code == exit_codes.OK and self._drains():
            code = await self._shutdown.finish(asyncio.ensure_future(self._all_done()))
        await self._shutdown.within(asyncio.ensure_future(self._stop(leaving, stop)), STOP_SECONDS)
        self._channel.close(FLUSH_SECONDS if code == exit_codes.OK else FLUSH_AFTER_SIGNAL)
        return code

    async def _long_answers(self) -> None:
        """What was asked before the input ended is answered, unless the host does not read that either."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._server.long_answers_sent(), LONG_ANSWER_SECONDS)

    async def _all_done(self) -> None:
        await self._server.drained()
        await self._session.prompting.commands_done()
        await self._session.activity.until_idle()
        await self._session.engine.told_all()

    async def _stop(self, leaving: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]]) -> None:
        await leaving()
        await self._session.close()
        await stop()
        await self._server.drained()

    def _end_when_quiet(self) -> None:
        """End once what is under way has been answered."""
        self._ending = asyncio.ensure_future(self._quiet_end())

    async def _quiet_end(self) -> None:
        await self._all_done()
        self._shutdown.request(exit_codes.OK)

    async def _warm_up(self) -> None:
        """Not before the first commands were answered: a host waits for those."""
        await self._server.until_begun()
        await self._warm()

    def _end_asked(self, code: int) -> None:
        """What stops the work under way also keeps its end from the host, which could answer into a closing pipe; so
        nothing may begin behind it."""
        if code != exit_codes.OK:
            self._outbox.mute()
        elif self._drains():
            return
        else:
            self._outbox.leave_out_ends()
        self._session.activity.close()

    def _input_ended(self) -> None:
        self._session.disconnect()
        self._shutdown.request(exit_codes.OK)
