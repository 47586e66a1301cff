from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from pigeon.rpc.handlers.all import HANDLERS
from pigeon.rpc.lanes import MOST_IN_FLIGHT, TOO_MANY, CommandRunner
from pigeon.rpc.server import Server
from pigeon.transport.reader import Framing, TooLong
from pigeon.wire.answers import Response
from pigeon.wire.base import ABSENT
from pigeon.wire.commands import NAMES, GetState, HostServiceResult, HostToolResult
from pigeon.wire.errors import UNEXPECTED, Refusal


class Answers:
    """Keeps every answer, as an outbox that always has room."""

    is_overfull = False

    def __init__(self) -> None:
        self.given: list[Response] = []

    def send_answer(self, response: Response) -> None:
        self.given.append(response)

    refuse_prompt = send_answer
    refuse_unknown = send_answer


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
    server = Server(CommandRunner({"session": SimpleNamespace(shell=shell)}, HANDLERS), outbox)
    assert (
        server.handle_frames([b'{"id":%d,"type":"bash","command":"x"}' % at for at in range(MOST_IN_FLIGHT + 1)])
        is None
    )
    assert [(answer.id, answer.error) for answer in answers.given] == [(MOST_IN_FLIGHT, TOO_MANY)]
    assert server.handle_frames([b'{"id":"stop","type":"abort_bash"}']) is None
    assert (answers.given[-1].id, answers.given[-1].success) == ("stop", True)
    await server.wait_until_drained()
    assert len(answers.given) == MOST_IN_FLIGHT + 2


def answers_to(*lines: bytes, **handled: Any) -> list[Response]:
    """The answers to these lines; `get_state` and so on are handled by what is given under their name."""
    answers = Answers()
    outbox: Any = answers
    handlers = {**HANDLERS, **{kind: handled[name] for kind, name in NAMES.items() if name in handled}}
    Server(CommandRunner({"session": None, "connection": None}, handlers), outbox).handle_frames(list(lines))
    return answers.given


def fail(*_: object) -> None:
    raise KeyError("a defect")


def refuses(*_: object) -> None:
    raise Refusal("not now")


async def test_a_defect_of_a_handler_is_the_answer_to_its_command() -> None:
    first, second = answers_to(b'{"id":1,"type":"get_state"}', b'{"id":2,"type":"get_messages"}',
                           get_state=fail, get_messages=refuses)  # fmt: skip
    assert (first.id, first.command, first.error) == (1, "get_state", UNEXPECTED)
    assert (second.id, second.command, second.error) == (2, "get_messages", "not now")


async def test_a_defect_behind_the_lanes_is_still_an_answer() -> None:
    (answer,) = answers_to(b'{"id":1,"type":"get_state"}', get_state=None)
    assert (answer.success, answer.error) == (False, UNEXPECTED)


async def test_an_answer_that_cannot_be_written_is_a_failure_of_that_command() -> None:
    class Choosy(Answers):
        def send_answer(self, response: Response) -> None:
            if response.success:
                raise ValueError("cannot be encoded")
            super().send_answer(response)

        refuse_prompt = refuse_unknown = send_answer

    answers = Choosy()
    outbox: Any = answers
    handlers: Any = {**HANDLERS, GetState: lambda *_: "data"}
    runner = CommandRunner({"session": None, "connection": None}, handlers)
    Server(runner, outbox).handle_frames([b'{"id":1,"type":"get_state"}'])
    assert [(one.id, one.error) for one in answers.given] == [(1, UNEXPECTED)]


@pytest.mark.parametrize(
    ("line", "command", "id"),
    [
        (b"[]", "parse", ABSENT),
        (b"nonsense", "parse", ABSENT),
        (b'{"id":5}', "parse", 5),
        (b'{"id":5,"type":7}', "parse", 5),
        (b'{"id":5,"type":"nothing"}', "nothing", 5),
        (b'{"id":5,"type":"bash"}', "bash", 5),
        (b'{"id":null,"type":"bash"}', "bash", ABSENT),
    ],
)
async def test_a_line_that_is_no_command_is_answered_under_the_best_name_there_is(
    line: bytes, command: str, id: Any
) -> None:
    (answer,) = answers_to(line)
    assert (answer.success, answer.command, answer.id) == (False, command, id)


async def test_a_line_that_is_too_long_is_told_with_the_limit() -> None:
    answers = Answers()
    outbox: Any = answers
    Server(CommandRunner({}, HANDLERS), outbox).handle_frames([TooLong(99)])
    assert [one.error for one in answers.given] == [
        "Failed to parse command: the line is longer than 99 bytes and was skipped"
    ]


GIANT = "x" * 100


@pytest.mark.parametrize("shown", [1, 30, 1000], ids=["bytes", "pieces", "whole"])
@pytest.mark.parametrize(
    ("line", "failed"),
    [
        ({"type": "host_service_result", "id": "a", "content": GIANT}, "host_service_result"),
        ({"type": "host_service_result", "content": GIANT, "id": "a"}, "host_service_result"),
        ({"content": GIANT, "type": "host_service_result", "id": "a"}, "host_service_result"),
        ({"type": "host_tool_result", "result": {"content": [{"type": "text", "text": GIANT}]}, "id": "a"},
         "host_tool_result"),
        ({"type": "host_service_result", "content": GIANT}, None),
        ({"type": "get_state", "more": GIANT, "id": "a"}, None),
    ],
)  # fmt: skip
async def test_a_call_whose_result_is_too_long_fails_at_once(
    line: dict[str, Any], failed: str | None, shown: int
) -> None:
    answers, ended = Answers(), []
    outbox: Any = answers
    handlers: Any = {
        **HANDLERS,
        HostServiceResult: lambda command, _: ended.append(("host_service_result", command.id, command.error)),
        HostToolResult: lambda command, _: ended.append(
            ("host_tool_result", command.id, command.result.content[0]["text"])
        ),
    }
    server = Server(CommandRunner({"session": None, "connection": None}, handlers), outbox)
    framing, stream = Framing(64, tells_ends=True), json.dumps(line).encode() + b"\n"
    for at in range(0, len(stream), shown):
        server.handle_frames(framing.feed(stream[at : at + shown]))
    assert [one.command for one in answers.given] == ["parse"]
    why = "The host's result cannot be used: it is longer than 64 bytes"
    assert ended == ([] if failed is None else [(failed, "a", why)])


async def test_no_more_is_taken_than_the_host_reads() -> None:
    class Full(Answers):
        def __init__(self) -> None:
            super().__init__()
            self.room = asyncio.Event()

        @property
        def is_overfull(self) -> bool:  # type: ignore[override]
            return len(self.given) % 2 == 1 and not self.room.is_set()

        async def wait_for_room(self) -> None:
            await self.room.wait()

    answers = Full()
    outbox: Any = answers
    runner = CommandRunner({"session": None, "connection": None}, {**HANDLERS, GetState: lambda *_: None})
    server = Server(runner, outbox)
    began = asyncio.ensure_future(server.wait_for_first_input())
    await asyncio.sleep(0)
    assert not began.done()
    waiting = server.handle_frames([b'{"id":%d,"type":"get_state"}' % at for at in range(3)])
    assert (len(answers.given), waiting is None) == (1, False)
    assert waiting is not None
    await began
    answers.room.set()
    await waiting
    assert [one.id for one in answers.given] == [0, 1, 2]
