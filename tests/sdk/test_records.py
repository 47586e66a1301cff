"""Lines of any agent as records: nothing that another agent sends fails one."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.sdk.records import UnknownEvent, convert_leniently, event_of
from pigeon.wire import answers, codec, events
from pigeon.wire.base import ABSENT
from pigeon.wire.commands import ALL
from pigeon.wire.messages import AssistantMessage, UserMessage
from pigeon.wire.model import Model
from support.strategies import json_values

JSON = json_values(scalars=[inf, -inf])
KNOWN = sorted(str(kind.__struct_config__.tag) for kind in events.ALL)
MEMBERS = sorted({field for kind in events.ALL for field in kind.__struct_encode_fields__})
ANSWERS = [kind.answer for kind in ALL if isinstance(kind.answer, type)]


@given(st.sampled_from([*KNOWN, "extension_ui_request", "weather"]), st.dictionaries(st.sampled_from(MEMBERS), JSON))
def test_no_event_fails_whatever_its_members_are(name: str, members: dict[str, Any]) -> None:
    event = event_of({**members, "type": name})
    if name == "weather":
        assert isinstance(event, UnknownEvent)


@given(st.sampled_from(ANSWERS), JSON)
def test_no_answer_fails_whatever_it_is(kind: Any, value: Any) -> None:
    convert_leniently(value, kind)


def test_a_record_as_declared_is_read_as_declared() -> None:
    event = events.ToolExecutionStart(tool_call_id="1", tool_name="bash", args={"command": "ls"})
    assert event_of(codec.to_plain(event)) == event


def test_members_that_are_missing_have_the_neutral_value_of_their_type() -> None:
    state = convert_leniently(
        {"sessionId": "s", "isStreaming": True, "model": {"id": "m", "cost": {"input": 3}}}, answers.State
    )
    assert (state.session_id, state.is_streaming, state.interrupt_mode, state.todo_phases) == ("s", True, "", [])
    assert isinstance(state.model, Model)
    assert (state.model.id, state.model.cost.input, state.model.context_window) == ("m", 3, 0)
    assert state.session_file is ABSENT


def test_a_message_of_an_unknown_role_stays_as_it_came_among_the_others() -> None:
    said = {"role": "user", "content": "hi", "timestamp": 1}
    read = convert_leniently(
        {"messages": [said, {"role": "oracle"}, {"role": "assistant", "content": []}]}, answers.Messages
    )
    assert isinstance(read.messages[0], UserMessage)
    assert read.messages[1] == {"role": "oracle"}
    assert isinstance(read.messages[2], AssistantMessage)


def test_a_word_that_is_not_known_is_kept() -> None:
    event: Any = event_of({"type": "agent_settled", "aborted": False, "reason": "hail"})
    assert event.reason == "hail"


@pytest.mark.parametrize("named", [{}, {"id": "c1", "toolName": "bash"}])
def test_an_update_brings_its_stream_event_without_the_message_so_far(named: dict[str, str]) -> None:
    message = {"role": "assistant", "content": [{"type": "toolCall", "id": "c1", "name": "bash", "arguments": {}}]}
    inner = {"type": "toolcall_start", "contentIndex": 0, "partial": message, **named}
    event: Any = event_of({"type": "message_update", "message": message, "assistantMessageEvent": inner})
    assert event.message is ABSENT
    assert event.assistant_message_event == events.ToolcallStart(content_index=0, id="c1", tool_name="bash")
