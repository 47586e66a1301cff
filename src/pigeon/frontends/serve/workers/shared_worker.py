"""A process with the workers of several conversations: `pigeon serve --shared N`.

The supervisor starts it with its first conversation, and sends it further ones over a link (`JoinRequest`). Each has an
agent, a log and a connection of its own, and comes and goes alone (`worker.py`). They share the interpreter, the event
loop, the variables, the redactor and the helper for commands, so they are as cheap as sessions of `pigeon acp`, and a
crash ends all of them. The process ends when the supervisor has hung up and the last conversation has ended, and at a
signal.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from socket import socket

from msgspec.structs import replace

from pigeon.frontends.serve.worker_request import JoinRequest, WorkerRequest, decode_request
from pigeon.frontends.serve.workers.worker import OTHER_SECONDS, Seat, lock_and_serve
from pigeon.rpc.host import Host
from pigeon.secrets.addresses import mask_addresses
from pigeon.secrets.redactor import Redactor
from pigeon.system.clock import SteadyLoop
from pigeon.system.environment import Environment
from pigeon.system.process.messages import receive
from pigeon.transport import exit_codes
from pigeon.wire.errors import PigeonError, to_printable

STDERR = 2


class SharedHost(Host):
    """One of several in its process."""

    watches_signals = False


class SharedSeat(Seat):
    """The place of a conversation in a shared process; `stderr` is the file for what the operator should know."""

    is_shared = True
    host_type = SharedHost

    def __init__(self, process: SharedProcess, stderr: int) -> None:
        self._process = process
        self._stderr = stderr
        self.host: Host | None = None

    def print_line(self, text: str) -> None:
        line = self._process.redactor.mask_text(mask_addresses(text))
        with suppress(OSError):
            # A full disk must not end the conversations.
            os.write(self._stderr, line.encode("utf-8", "replace") + b"\n")

    def on_host_ready(self, host: Host) -> None:
        self.host = host
        if self._process.is_first_host(host):
            # What others create later is garbage one day, so this is done once.
            super().on_host_ready(host)


class SharedProcess:
    """The conversations of this process."""

    def __init__(self, environment: Environment, redactor: Redactor, link: socket) -> None:
        """The `environment` is that of the process."""
        self._environment = environment
        self.redactor = redactor
        self._link: socket | None = link
        self._loop = asyncio.get_running_loop()
        self._served: dict[str, asyncio.Task[None]] = {}
        self._seats: set[SharedSeat] = set()
        self._asked: list[int] = []
        self._has_served = False
        self._ended: asyncio.Future[int] = self._loop.create_future()
        link.setblocking(False)

    async def serve(self, request: WorkerRequest, listener: socket, stderr: int) -> int:
        """Serve this conversation and those that join it; returns the exit code."""
        for number, code in exit_codes.BY_SIGNAL.items():
            self._loop.add_signal_handler(number, self._end_all, code)
        assert self._link is not None
        self._loop.add_reader(self._link.fileno(), self._on_link_readable)
        self._start(request, listener, stderr)
        return await self._ended

    def is_first_host(self, host: Host) -> bool:
        """Note that a conversation is about to be served; one that was starting when a signal came ends at once."""
        for code in self._asked:
            host.request_exit(code)
        self._has_served, is_first = True, not self._has_served
        return is_first

    def _start(self, request: WorkerRequest, listener: socket, stderr: int) -> None:
        seat = SharedSeat(self, stderr)
        self._seats.add(seat)
        before = self._served.get(request.log_folder)
        task = asyncio.ensure_future(self._serve_one(request, listener, seat, before))
        self._served[request.log_folder] = task
        task.add_done_callback(lambda _: self._on_ended(request.log_folder, task, seat, stderr))

    async def _serve_one(
        self, request: WorkerRequest, listener: socket, seat: SharedSeat, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            # Its supervisor has heard of its end a moment before: a process can lock a log twice without noticing.
            await asyncio.wait({before}, timeout=OTHER_SECONDS)
        try:
            await lock_and_serve(request, self._make_environment(request), self.redactor, listener, seat)
        except (PigeonError, OSError) as error:
            if seat.host is not None:
                raise
            # The supervisor reads it when it finds the socket closed.
            seat.print_line(f"Error: {to_printable(str(error))}")
            listener.close()

    def _make_environment(self, request: WorkerRequest) -> Environment:
        """The surroundings of one conversation; those of the process belong to none of them."""
        return replace(self._environment, variables=dict(request.variables), cwd=request.folder)

    def _on_ended(self, folder: str, task: asyncio.Task[None], seat: SharedSeat, stderr: int) -> None:
        os.close(stderr)
        self._seats.discard(seat)
        if self._served.get(folder) is task:
            del self._served[folder]
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._ended.done():
            # More may be broken than this one: the supervisor starts all of them again.
            self._ended.set_exception(error)
        self._end_if_unused()

    def _on_link_readable(self) -> None:
        assert self._link is not None
        try:
            record, descriptors = receive(self._link)
        except BlockingIOError:
            return
        except OSError as error:
            # No room for the descriptors: their copies are closed, which the supervisor notices.
            SharedSeat(self, STDERR).print_line(f"A conversation could not join: {error}")
            return
        if record is None:
            self._loop.remove_reader(self._link.fileno())
            self._link.close()
            self._link = None
            self._end_if_unused()
        elif isinstance(record, JoinRequest):
            listener, stderr = descriptors
            self._start(decode_request(record.request), socket(fileno=listener), stderr)

    def _end_all(self, code: int) -> None:
        self._asked.append(code)
        for seat in list(self._seats):
            if seat.host is not None:
                seat.host.request_exit(code)
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if not self._seats and (self._link is None or self._asked) and not self._ended.done():
            self._ended.set_result(self._asked[0] if self._asked else exit_codes.OK)


async def _serve_all(
    request: WorkerRequest, environment: Environment, redactor: Redactor, link: socket, listener: socket, stderr: int
) -> int:
    return await SharedProcess(environment, redactor, link).serve(request, listener, stderr)


def run_shared_worker(
    request: WorkerRequest, environment: Environment, redactor: Redactor, link: socket, listener: socket, stderr: int
) -> int:
    """Serve a conversation, and those that the supervisor sends later; returns the exit code."""
    return SteadyLoop().run_until_complete(_serve_all(request, environment, redactor, link, listener, stderr))
