from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from pigeon.rpc.handlers.all import HANDLERS
from pigeon.rpc.server import MOST_IN_FLIGHT, TOO_MANY, Server
from pigeon.wire.answers import Response


class Answers:
    """Keeps every answer, as an outbox that always has room."""

    overfull = False

    def __init__(self) -> None:
        self.given: list[Response] = []

    def answer(self, response: Response) -> None:
        self.given.append(response)

    refuse_prompt = answer
    unknown = answer


class Shell:
    """Commands that run until they are aborted."""

    def __init__(self) -> None:
        self._stop = asyncio.Event()

    async def run(self, command: str, excluded: bool, id: object) -> None:
        await self._stop.wait()

    def abort(self) -> None:
        self._stop.set()


async def test_too_many_running_commands_are_refused_and_control_commands_still_work() -> None:
    answers, shell = Answers(), Shell()
    outbox: Any = answers
    server = Server({"session": SimpleNamespace(shell=shell)}, HANDLERS, outbox)
    assert server.take([b'{"id":%d,"type":"bash","command":"x"}' % at for at in range(MOST_IN_FLIGHT + 1)]) is None
    assert [(answer.id, answer.error) for answer in answers.given] == [(MOST_IN_FLIGHT, TOO_MANY)]
    assert server.take([b'{"id":"stop","type":"abort_bash"}']) is None
    assert (answers.given[-1].id, answers.given[-1].success) == ("stop", True)
    await server.drained()
    assert len(answers.given) == MOST_IN_FLIGHT + 2
