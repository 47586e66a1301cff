"""One host on stdin and stdout, from the first line to the exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from pigeon.dialects.base import Dialect
from pigeon.rpc.handlers.all import HANDLERS
from pigeon.rpc.host_connection import HostConnection
from pigeon.rpc.outbox import Outbox
from pigeon.rpc.server import Server
from pigeon.rpc.shutdown import Shutdown
from pigeon.session.session import Session
from pigeon.transport import exit_codes
from pigeon.transport.reader import DEFAULT_CAP, Frame, Framing, Reader
from pigeon.transport.writer import Writer

STOP_SECONDS = 0.6
FLUSH_SECONDS = 2.0
LONG_ANSWER_SECONDS = 5.0
FLUSH_AFTER_SIGNAL = 0.2


class Host:
    """Serves one session to one host."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a host is made of comes from as many places
        self,
        session: Session,
        dialect: Dialect,
        descriptors: tuple[int, int],
        drains: Callable[[], bool],
        warm: Callable[[], Awaitable[None]],
        record_cap: int = DEFAULT_CAP,
        mask: Callable[[bytes], bytes] = lambda line: line,
        shows_dialogs: bool = True,
        show: Callable[[str, bytes], None] | None = None,
    ) -> None:
        """`shows_dialogs` is false for a host without a person: nothing is asked, so what would ask gets no answer.

        `show` is called with every line that comes in or goes out, and `in` or `out`.
        """
        self._session = session
        self._drains = drains
        self._shutdown = Shutdown(self._end_asked)
        show_out = None if show is None else partial(show, "out")
        self._writer = Writer(descriptors[1], lambda: self._shutdown.request(exit_codes.FAILED), show_out)
        self._outbox = Outbox(self._writer, dialect, mask)
        connection = HostConnection(session, self._outbox.form, record_cap)
        self._server = Server({"session": session, "connection": connection}, HANDLERS, self._outbox)
        take = self._server.take if show is None else partial(self._take_shown, show)
        self._reader = Reader(descriptors[0], Framing(record_cap), take, self._input_ended)
        self._ending: asyncio.Future[None] | None = None
        self._warm = warm
        if not shows_dialogs:
            session.dialogs.close()
            self._outbox.leave_out_dialogs()
        session.bus.announce(self._outbox.event, self._outbox.room)

    async def serve(
        self,
        started: Callable[[Callable[[], None]], Awaitable[None]],
        leaving: Callable[[], Awaitable[None]],
        stop: Callable[[], Awaitable[None]],
    ) -> int:
        """Run until there is a reason to end; returns the exit code."""
        self._shutdown.watch_signals()
        self._outbox.greet()
        self._reader.start()
        warming = asyncio.ensure_future(self._warm_up())
        await started(self._end_when_quiet)
        code = await self._shutdown.reason()
        warming.cancel()
        if code == exit_codes.OK:
            code = await self._shutdown.finish(asyncio.ensure_future(self._long_answers()))
        if code == exit_codes.OK and self._drains():
            code = await self._shutdown.finish(asyncio.ensure_future(self._all_done()))
        await self._shutdown.within(asyncio.ensure_future(self._stop(leaving, stop)), STOP_SECONDS)
        self._writer.close(FLUSH_SECONDS if code == exit_codes.OK else FLUSH_AFTER_SIGNAL)
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

    def _take_shown(self, show: Callable[[str, bytes], None], frames: list[Frame]) -> Awaitable[None] | None:
        for frame in frames:
            show("in", frame if isinstance(frame, bytes) else b"a line that is too long")
        return self._server.take(frames)

    def _input_ended(self) -> None:
        self._session.disconnect()
        self._shutdown.request(exit_codes.OK)
