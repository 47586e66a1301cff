"""The ends of runs of other agents: told once, behind everything that belongs to the run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pigeon.sdk.records import convert_leniently, event_of
from pigeon.sdk.remote import original_peer
from pigeon.sdk.remote.original_peer import OriginalPeer
from pigeon.wire.answers import State
from pigeon.wire.events import AgentSettled

END = {"type": "agent_end", "messages": []}
RETRY = {"type": "auto_retry_start", "attempt": 1, "maxAttempts": 2, "delayMs": 1, "errorMessage": "x"}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(original_peer, "GRACE_SECONDS", 0)
    monkeypatch.setattr(original_peer, "ASK_SECONDS", 0)


class Talk:
    """A peer, and what the program hears of its events."""

    def __init__(self, *busy: dict[str, Any]) -> None:
        self.heard: list[Any] = []
        self.asked = 0
        self._busy = list(busy)
        self.peer = OriginalPeer(self._state, self.heard.append)

    async def _state(self) -> State:
        self.asked += 1
        return convert_leniently(self._busy.pop(0) if self._busy else {}, State)

    def send_events(self, *lines: dict[str, Any]) -> None:
        for line in lines:
            event = event_of(line)
            if self.peer.filter_event(event):
                self.heard.append(event)
                self.peer.on_event(event)

    async def wait_until_settled(self) -> list[AgentSettled]:
        for _ in range(50):
            await asyncio.sleep(0)
        return [event for event in self.heard if isinstance(event, AgentSettled)]


def answer_end(stop: str) -> dict[str, Any]:
    return {"type": "message_end", "message": {"role": "assistant", "content": [], "stopReason": stop}}


async def test_an_end_without_agent_settled_is_told_once_the_agent_is_idle() -> None:
    talk = Talk({"isStreaming": True}, {"isCompacting": True}, {"pendingMessageCount": 1})
    talk.peer.on_prompt_accepted()
    talk.send_events({"type": "agent_start"}, answer_end("stop"), END)
    assert await talk.wait_until_settled() == [AgentSettled(aborted=False, reason="done")]
    assert talk.asked == 4
    assert talk.heard[-1] == AgentSettled()


@pytest.mark.parametrize(("stop", "reason"), [("aborted", "aborted"), ("error", "error"), ("length", "done")])
async def test_the_end_says_how_the_last_answer_stopped(stop: str, reason: str) -> None:
    talk = Talk()
    talk.peer.on_prompt_accepted()
    talk.send_events({"type": "agent_start"}, answer_end(stop), END)
    (end,) = await talk.wait_until_settled()
    assert (end.reason, end.aborted) == (reason, reason == "aborted")


async def test_an_announced_retry_is_no_end() -> None:
    talk = Talk()
    talk.peer.on_prompt_accepted()
    talk.send_events({"type": "agent_start"}, answer_end("error"), END, RETRY)
    assert await talk.wait_until_settled() == []
    talk.send_events({"type": "agent_start"}, answer_end("stop"), END)
    assert [end.reason for end in await talk.wait_until_settled()] == ["done"]


async def test_an_agent_that_says_it_itself_is_never_asked_again() -> None:
    talk = Talk()
    for _ in range(2):
        talk.peer.on_prompt_accepted()
        talk.send_events({"type": "agent_start"}, answer_end("stop"), END, {"type": "agent_settled"})
    assert len(await talk.wait_until_settled()) == 2
    assert talk.asked == 0


async def test_an_end_that_was_told_already_is_not_told_again() -> None:
    talk = Talk()
    talk.peer.on_prompt_accepted()
    talk.send_events({"type": "agent_start"}, answer_end("stop"), END)
    assert len(await talk.wait_until_settled()) == 1
    talk.send_events({"type": "agent_settled"})
    assert len(await talk.wait_until_settled()) == 1


async def test_the_settled_session_of_oh_my_pi_is_an_end() -> None:
    talk = Talk()
    talk.peer.on_prompt_accepted()
    talk.send_events(
        {"type": "agent_start"}, answer_end("stop"), {"type": "session_settled"}, {"type": "session_settled"}
    )
    assert len(await talk.wait_until_settled()) == 1


async def test_a_prompt_that_is_refused_after_its_acceptance_has_ended() -> None:
    talk = Talk()
    talk.peer.on_prompt_accepted()
    talk.peer.on_prompt_refused()
    assert [end.reason for end in await talk.wait_until_settled()] == ["error"]
    talk.peer.on_prompt_accepted()
    talk.send_events({"type": "prompt_result", "agentInvoked": False, "status": "error", "sessionSettled": True})
    assert len(await talk.wait_until_settled()) == 2


async def test_an_agent_that_dies_is_not_asked_for_ever() -> None:
    talk = Talk(*[{"isStreaming": True}] * 1000)
    talk.peer.on_prompt_accepted()
    talk.send_events({"type": "agent_start"}, END)
    await asyncio.sleep(0)
    talk.peer.close()
    assert await talk.wait_until_settled() == []
