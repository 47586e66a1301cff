"""Questions to the host: each ends with its answer, its time-out, the end of its scope, or the host's."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from fakes.clock import virtually
from pigeon.agent.scope import Scope
from pigeon.session.host.dialogs import Dialogs
from pigeon.wire.commands import ExtensionUiResponse
from pigeon.wire.dialogs import CancelRequest, ConfirmRequest, EditorRequest, NotifyRequest
from pigeon.wire.events import Outbound


class Host:
    """Dialogs numbered from 1, and what the host was sent."""

    def __init__(self, announces_ends: bool = False) -> None:
        self.sent: list[Outbound] = []
        numbers = count(1)
        self.dialogs = Dialogs(self.sent.append, lambda: str(next(numbers)), announces_ends)

    def ask(self, **more: Any) -> asyncio.Task[ExtensionUiResponse | None]:
        work = self.dialogs.ask(lambda id: ConfirmRequest(id=id, title="t", message="m"), **more)
        return asyncio.ensure_future(work)

    def answer(self, id: Any, **more: Any) -> None:
        self.dialogs.answer(ExtensionUiResponse(id=id, **{"confirmed": True, **more}))


async def run_loop_briefly() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_each_answer_reaches_the_question_with_its_id() -> None:
    host = Host()
    first, second = host.ask(), host.ask()
    await run_loop_briefly()
    assert [request.id for request in host.sent] == ["1", "2"]  # type: ignore[union-attr]
    host.answer("2", value="b")
    host.answer("1", value="a")
    answers = await asyncio.gather(first, second)
    assert [answer and answer.value for answer in answers] == ["a", "b"]


@pytest.mark.parametrize("id", ["9", 1, None, ["1"]])
async def test_an_answer_to_nothing_is_ignored(id: Any) -> None:
    host = Host()
    asked = host.ask()
    await run_loop_briefly()
    host.answer(id)
    await run_loop_briefly()
    assert not asked.done()
    host.answer("1")
    host.answer("1", confirmed=False)
    answer = await asked
    assert answer is not None
    assert answer.confirmed is True, "the first answer counts"


async def test_a_cancelled_answer_is_none() -> None:
    host = Host()
    asked = host.ask()
    await run_loop_briefly()
    host.answer("1", cancelled=True)
    assert await asked is None


@pytest.mark.parametrize(("timeout", "answered"), [(2000, False), (None, True), (0, True)])
def test_a_question_waits_as_long_as_it_says(timeout: int | None, answered: bool) -> None:
    async def story() -> tuple[bool, float]:
        host, loop = Host(), asyncio.get_running_loop()
        asked = host.ask(timeout_ms=timeout)
        late = loop.call_later(60, host.answer, "1")
        came, at = await asked is not None, loop.time()
        late.cancel()
        return came, at

    came, at = virtually(story())
    assert came == answered
    assert round(at) == (60 if answered else 2)


async def test_the_end_of_a_scope_ends_its_question_and_no_other() -> None:
    host, scope = Host(), Scope()
    mine, other = host.ask(scope=scope), host.ask()
    await run_loop_briefly()
    scope.cancel()
    assert await mine is None
    assert len(host.sent) == 2, "a host closes such a dialog when it sees the end of the run"
    host.answer("2")
    assert await other is not None
    assert await host.ask(scope=scope) is None
    assert len(host.sent) == 2, "a question of a scope that has ended is never sent"


async def test_an_editor_is_closed_when_its_scope_ends_and_only_then() -> None:
    host, scope = Host(), Scope()
    asked = asyncio.ensure_future(host.dialogs.ask(lambda id: EditorRequest(id=id, title="t"), scope=scope))
    await run_loop_briefly()
    scope.cancel()
    assert await asked is None
    closing = host.sent[-1]
    assert isinstance(closing, CancelRequest)
    assert (closing.id, closing.target_id) == ("2", "1")
    late = asyncio.ensure_future(host.dialogs.ask(lambda id: EditorRequest(id=id, title="t"), timeout_ms=1))
    assert await late is None
    assert len(host.sent) == 3, "a time-out closes nothing"


async def test_a_host_that_is_gone_is_asked_nothing_more() -> None:
    host = Host()
    first, second = host.ask(), host.ask()
    await run_loop_briefly()
    host.answer("1")
    host.dialogs.close()
    assert await first is not None, "an answer that has come counts"
    assert await second is None
    assert await host.ask() is None
    assert len(host.sent) == 2


async def test_a_notice_has_an_id_of_its_own() -> None:
    host = Host()
    host.dialogs.send_notice(lambda id: NotifyRequest(id=id, message="m"))
    assert host.sent == [NotifyRequest(id="1", message="m")]


async def test_among_several_clients_an_answered_question_is_cancelled_for_the_others() -> None:
    host = Host(announces_ends=True)
    question = host.ask()
    await run_loop_briefly()
    host.answer("1")
    await question
    assert host.sent[1:] == [CancelRequest(id="2", target_id="1")]
