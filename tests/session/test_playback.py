"""Playback: the events of a stored session, published again as the live run published them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fakes.agent_loop import AnyTool, calls, fails, says
from pigeon.session.history.reading import LoadedSession, load_session
from pigeon.session.playback import PlayedClock, SessionPlayer, last_branch_of
from pigeon.system.clock import PlaybackPace
from pigeon.wire.events import (
    AgentEnd,
    AgentSettled,
    AgentStart,
    AutoRetryEnd,
    AutoRetryStart,
    MessageEnd,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from support.session_setup import SessionSetup

TOLD = (AgentStart, TurnStart, MessageEnd, ToolExecutionStart, ToolExecutionEnd, TurnEnd, AgentEnd, AgentSettled)


def comparable_events(setup: SessionSetup) -> list[Any]:
    """The kinds of the events that say what happened, and each message as it was recorded."""
    events = [event for event in setup.heard.events if isinstance(event, TOLD)]
    return [event.message if isinstance(event, MessageEnd) else event.__struct_config__.tag for event in events]


async def store_session(folder: Path) -> tuple[LoadedSession, SessionSetup]:
    live = SessionSetup(
        calls(("look", {"path": "x"})), says("There it is."), says("More."), tools=(AnyTool("look"),), folder=folder
    )
    await live.prompt("Where is it?")
    await live.prompt("And what else?")
    file = live.session.journal.file
    await live.close()
    loaded = load_session(str(file))
    assert loaded is not None
    return loaded, live


async def test_a_played_session_publishes_what_the_live_one_did(tmp_path: Path) -> None:
    loaded, live = await store_session(tmp_path)
    played = SessionSetup()
    await SessionPlayer(played.session, PlayedClock(), PlaybackPace(0, 0)).play(last_branch_of(loaded))
    assert comparable_events(played) == comparable_events(live)
    assert played.provider.requests == []
    texts = [getattr(event.assistant_message_event, "delta", "") for event in played.heard.of(MessageUpdate)]
    assert "There it is." in "".join(texts)


async def test_a_failure_that_was_tried_again_is_played_as_such(tmp_path: Path) -> None:
    live = SessionSetup(
        fails("busy", retryable=True), fails("busy", retryable=True), says("Well."), says("More."), folder=tmp_path
    )
    await live.prompt("Hello?")
    await live.prompt("And?")
    file = live.session.journal.file
    await live.close()
    loaded = load_session(str(file))
    assert loaded is not None
    played = SessionSetup()
    await SessionPlayer(played.session, PlayedClock(), PlaybackPace(0, 0)).play(last_branch_of(loaded))

    def told(setup: SessionSetup) -> list[Any]:
        return [
            (event.attempt if isinstance(event, AutoRetryStart | AutoRetryEnd) else event.will_retry, type(event))
            for event in setup.heard.events
            if isinstance(event, AgentEnd | AutoRetryStart | AutoRetryEnd)
        ]

    assert told(played) == told(live)
    assert comparable_events(played) == comparable_events(live)


def load_with_other_times(file: Path, time: str) -> LoadedSession:
    head, *lines = file.read_text().splitlines()
    changed = [json.dumps({**json.loads(line), "timestamp": time}) for line in lines]
    file.write_text("\n".join([head, *changed]) + "\n")
    loaded = load_session(str(file))
    assert loaded is not None
    return loaded


async def test_entries_whose_time_cannot_be_read_are_played_all_the_same(tmp_path: Path) -> None:
    _, live = await store_session(tmp_path)
    played = SessionSetup()
    damaged = load_with_other_times(Path(str(live.session.journal.file)), "some day")
    await SessionPlayer(played.session, PlayedClock(), PlaybackPace(0, 0)).play(last_branch_of(damaged))
    assert comparable_events(played) == comparable_events(live)


async def test_an_abort_ends_the_run_that_is_played_and_nothing_follows(tmp_path: Path) -> None:
    loaded, _ = await store_session(tmp_path)
    played = SessionSetup()
    played.session.bus.add_announcer(
        lambda event: played.session.activity.cancel() if isinstance(event, ToolExecutionStart) else None
    )
    await SessionPlayer(played.session, PlayedClock(), PlaybackPace(0, 0)).play(last_branch_of(loaded))
    assert [event.reason for event in played.heard.of(AgentSettled)] == ["aborted"]


def test_the_clock_of_a_playback_has_the_ids_and_times_of_the_entries(tmp_path: Path) -> None:
    clock = PlayedClock()
    recorded = load_session(str(Path(__file__).parent / "recorded" / "pigeon.jsonl"))
    assert recorded is not None
    ids = []
    for line in recorded.lines:
        clock.move_to(line)
        ids.append(clock.entry_id(set()))
        assert clock.now() > 0
    assert ids == [line.id for line in recorded.lines]
