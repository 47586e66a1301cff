"""The link between a task and its host: turns at a provider, what is spent, the result, and a stop."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from typing import Any

import pytest

from pigeon.agent.inference import Failure
from pigeon.frontends.batch.engine import LocalLimits
from pigeon.frontends.batch.records import TaskResult
from pigeon.frontends.batch.shared_limits import SharedLimits
from pigeon.frontends.batch.task_link import FatalTask, HostEnd, TaskLink


class Recorded(SharedLimits):
    """Limits that tell what they are asked; each request waits once for a moment."""

    def __init__(self, max_cost: float | None = None) -> None:
        super().__init__({}, max_cost)
        self.asked: list[tuple[Any, ...]] = []

    def reserve_turn(self, provider: str, tokens: int) -> float:
        self.asked.append((provider, tokens))
        return 1e-6

    def record_request_end(self, provider: str, more_tokens: int, is_refused: bool, seconds: float | None) -> None:
        self.asked.append((provider, more_tokens, is_refused, seconds))


async def make_link(limits: SharedLimits) -> tuple[TaskLink, HostEnd, asyncio.Future[TaskResult | None], list[str]]:
    ours, theirs = socket.socketpair()
    exhausted: list[str] = []

    async def note() -> None:
        exhausted.append("all is spent")

    host = HostEnd("t", ours, LocalLimits(limits), note)
    serving = asyncio.ensure_future(host.serve_until_task_ends())
    return await TaskLink.from_socket(theirs), host, serving, exhausted


async def test_requests_ask_for_their_turn_and_refusals_are_told() -> None:
    limits = Recorded()
    link, _, serving, _ = await make_link(limits)
    await link.wait_for_turn("acme", 100)
    link.on_request_end("acme", 100, 150, Failure(message="429", status=429, retryable=True, retry_after_ms=2000))
    link.on_request_end("acme", 100, 90, Failure(message="500", status=500))
    link.on_request_end("acme", 100, 100, Failure(message="no money", status=429))
    result = TaskResult(id="t", status="done", text="é" * 100_000)
    await link.report_task_end(result)
    assert await serving == result
    assert limits.asked == [
        ("acme", 100),
        ("acme", 50, True, 2.0),
        ("acme", -10, False, None),
        ("acme", 0, False, None),
    ]


async def test_a_task_that_spends_the_last_money_ends_the_batch_and_can_be_stopped() -> None:
    limits = Recorded(max_cost=1.0)
    link, host, serving, exhausted = await make_link(limits)
    link.report_cost(0.5)
    link.report_cost(0.6)
    await link.wait_for_turn("acme", 1)
    assert exhausted == ["all is spent"]
    host.stop("enough")
    assert await link.stopped == "enough"
    await link.report_task_end(None)
    assert await serving is None


async def test_a_disk_that_is_full_is_told_as_what_it_is() -> None:
    link, _, serving, _ = await make_link(Recorded())
    await link.report_task_end(None, "No space left on device")
    with pytest.raises(FatalTask, match="No space"):
        await serving


@pytest.mark.parametrize(
    "line", [b"no JSON", b"[]", b"{}", b'{"type":"TurnWait","seconds":1}', b'{"type":"MoneySpent","dollars":"much"}']
)
async def test_a_line_that_is_no_record_of_a_task_is_one_clear_error(line: bytes) -> None:
    ours, theirs = socket.socketpair()

    async def never() -> None:
        raise AssertionError

    with theirs:
        theirs.sendall(line + b"\n")
        with pytest.raises(FatalTask, match="The process of a task has sent a record that cannot be read: "):
            await HostEnd("t", ours, LocalLimits(Recorded()), never).serve_until_task_ends()


@pytest.mark.parametrize("line", [b"no JSON", b"{}", b'{"type":"TurnWait"}'])
def test_a_task_that_cannot_read_what_its_host_sends_says_so_and_ends(line: bytes) -> None:
    program = (
        "import asyncio, socket\n"
        "from pigeon.frontends.batch.task_link import TaskLink\n"
        "async def main():\n"
        "    link = await TaskLink.from_socket(socket.socket(fileno=0))\n"
        "    await link.stopped\n"
        "asyncio.run(main())\n"
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(line + b"\n")
        ran = subprocess.run([sys.executable, "-c", program], stdin=theirs, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith("The task's host has sent a record that cannot be read: ")


async def test_only_refusals_that_waiting_can_end_are_sent_again() -> None:
    link, _, serving, _ = await make_link(Recorded())
    refusal = Failure(message="slow down", status=429, retryable=True, retry_after_ms=2000)
    assert link.should_resend(refusal, 1)
    assert not link.should_resend(refusal, 31), "at some time it is enough"
    assert not link.should_resend(Failure(message="quota", status=429), 1)
    assert not link.should_resend(Failure(message="broken", status=500, retryable=True), 1)
    assert not link.should_resend(Failure(message="tomorrow", status=429, retryable=True, retry_after_ms=86_400_000), 1)
    await link.report_task_end(None)
    assert await serving is None


async def test_a_task_that_dies_with_a_request_to_stop_unread_has_no_result() -> None:
    ours, theirs = socket.socketpair()

    async def fail() -> None:
        raise AssertionError("nothing was spent")

    host = HostEnd("t", ours, LocalLimits(Recorded()), fail)
    serving = asyncio.ensure_future(host.serve_until_task_ends())
    await asyncio.sleep(0)
    host.stop("enough")
    theirs.setblocking(True)
    assert await asyncio.to_thread(theirs.recv, 1, socket.MSG_PEEK)
    theirs.close()  # which resets the connection, since there is something unread
    assert await asyncio.wait_for(serving, 30) is None
