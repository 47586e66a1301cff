"""Lines in, lines out: framing, ids, and every kind of bad input."""

from __future__ import annotations

import json
from typing import Any

from support.agent_process import RpcProcess
from support.contract import proves

GET_STATE = b'{"id":"s","type":"get_state"}'


@proves("response.order")
def test_a_command_is_answered_on_one_line(agent: RpcProcess) -> None:
    response = agent.request("get_state")
    assert list(response) == ["id", "type", "command", "success", "data"]
    assert (response["type"], response["command"], response["success"]) == ("response", "get_state", True)


@proves("id.any_type")
def test_an_id_of_any_type_comes_back_as_it_was(agent: RpcProcess) -> None:
    names: list[Any] = [7, 1.5, "", True, {"a": [1, None]}, [], 10**30, "\u2028", "😀"]
    agent.send({"type": "get_state"}, *({"id": name, "type": "get_state"} for name in names))
    first, *others = agent.wait_count("response", len(names) + 1)
    assert "id" not in first
    assert [record["id"] for record in others] == names


@proves("id.null")
def test_a_null_id_counts_as_absent(agent: RpcProcess) -> None:
    agent.send({"id": None, "type": "get_state"})
    assert "id" not in agent.wait_event("response")


@proves("error.alive")
def test_a_failure_carries_id_command_and_a_text(agent: RpcProcess) -> None:
    response = agent.request("set_model", provider="no", modelId="where")
    assert response == {
        "id": response["id"],
        "type": "response",
        "command": "set_model",
        "success": False,
        "error": "Model not found: no/where",
    }
    agent.ask("get_state")


@proves("error.unknown_command")
def test_an_unknown_command_is_a_failure_under_its_name_and_id(agent: RpcProcess) -> None:
    response = agent.request("nope")
    assert (response["command"], response["error"]) == ("nope", "Unknown command: nope")


@proves("frame.null")
def test_a_value_that_is_no_command_is_answered_and_survived(agent: RpcProcess) -> None:
    for line in ["null", "5", '"text"', "true", "[]", "{}", '{"type":5}', '{"type":null}', "[null]"]:
        start = agent.mark()
        agent.send(line, GET_STATE)
        failure, state = agent.wait_count("response", 2, start)
        assert failure["success"] is False, line
        assert isinstance(failure["command"], str)
        assert failure["error"]
        assert state["success"]


@proves("frame.crlf")
def test_crlf_lines_are_understood(agent: RpcProcess) -> None:
    agent.write(b'{"id":1,"type":"get_state"}\r\n{"id":2,"type":"get_state"}\r\n')
    assert agent.response(2)["success"]


@proves("frame.tail")
def test_a_last_line_without_its_end_is_answered(agent: RpcProcess) -> None:
    agent.write(GET_STATE)
    agent.close()
    assert [record["id"] for record in agent.records] == ["s"]


@proves("frame.lf_only")
def test_only_lf_ends_a_line(agent: RpcProcess) -> None:
    for char in ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"]:
        start = agent.mark()
        name = json.dumps(f"a{char}b", ensure_ascii=ord(char) < 0x20)
        agent.write(f'{{"id":{name},"type":"get_state"}}\n'.encode())
        assert agent.wait_event("response", start)["id"] == f"a{char}b"


@proves("frame.separators")
def test_line_separators_leave_escaped(agent: RpcProcess) -> None:
    agent.send({"id": "x\u2028y\u2029z", "type": "get_state"})
    assert agent.wait_event("response")["id"] == "x\u2028y\u2029z"
    assert b"x\\u2028y\\u2029z" in agent.raw_with(b'"get_state"')


@proves("frame.invalid_utf8")
def test_invalid_utf8_becomes_replacement_characters(agent: RpcProcess) -> None:
    agent.write(b'{"id":"a\xff\xc3b\xe2\x82","type":"get_state"}\n')
    found = agent.wait_event("response")["id"]
    assert found.startswith("a\ufffd")
    assert "b\ufffd" in found


@proves("frame.split")
def test_a_line_may_arrive_in_any_pieces(agent: RpcProcess) -> None:
    line = '{"id":"zwölf 😀","type":"get_state"}\n'.encode()
    for at in range(len(line)):
        agent.write(line[at : at + 1])
    assert agent.wait_event("response")["id"] == "zwölf 😀"


@proves("frame.surrogates")
def test_a_lone_surrogate_is_survived_and_echoed(agent: RpcProcess) -> None:
    agent.send('{"id":"\\ud800","type":"get_state"}', GET_STATE)
    assert agent.wait_event("response")["id"] == "\ud800"
    assert agent.response("s")["success"]


@proves("frame.duplicates")
def test_the_last_of_duplicate_keys_wins_and_unknown_keys_are_ignored(agent: RpcProcess) -> None:
    agent.send('{"id":1,"id":2,"type":"nope","type":"get_state","colour":"red"}')
    assert agent.wait_event("response")["id"] == 2


FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("prompt", {}, "message"),
    ("prompt", {"message": 5}, "message"),
    ("prompt", {"message": "x", "images": 5}, "images"),
    ("prompt", {"message": "x", "streamingBehavior": "later"}, "streamingBehavior"),
    ("steer", {"message": ["x"]}, "message"),
    ("follow_up", {}, "message"),
    ("abort_and_prompt", {}, "message"),
    ("set_model", {}, "provider"),
    ("set_model", {"provider": "fake"}, "modelId"),
    ("set_thinking_level", {"level": "much"}, "level"),
    ("set_thinking_level", {}, "level"),
    ("set_steering_mode", {"mode": "some"}, "mode"),
    ("set_follow_up_mode", {"mode": 1}, "mode"),
    ("set_interrupt_mode", {"mode": "never"}, "mode"),
    ("set_auto_retry", {"enabled": "yes"}, "enabled"),
    ("set_auto_compaction", {}, "enabled"),
    ("bash", {}, "command"),
]


@proves("error.field")
def test_a_wrong_argument_is_refused_by_the_name_of_its_field(agent: RpcProcess) -> None:
    for command, arguments, field in FIELDS:
        assert f'"{field}"' in agent.expect_error(command, **arguments), command
    state = agent.ask("get_state")
    assert (state["isStreaming"], state["messageCount"], state["pendingMessageCount"]) == (False, 0, 0)


@proves("error.allowed")
def test_a_wrong_word_is_refused_with_the_words_that_are_taken(agent: RpcProcess) -> None:
    modes = '"mode": invalid enum value \'some\' (allowed: "all", "one-at-a-time")'
    assert modes in agent.expect_error("set_steering_mode", mode="some")
    assert modes in agent.expect_error("set_follow_up_mode", mode="some")
    assert '(allowed: "immediate", "wait")' in agent.expect_error("set_interrupt_mode", mode=1)
    assert '"minimal", "off", "xhigh")' in agent.expect_error("set_thinking_level")
    assert '(allowed: "image")' in agent.expect_error("prompt", message="x", images=[{"type": "picture"}])
    assert "allowed" not in agent.expect_error("bash")


@proves("response.once", same=("prompt.ack_once",))
def test_each_of_many_commands_is_answered_exactly_once(agent: RpcProcess) -> None:
    agent.send(*({"id": number, "type": "get_state" if number % 3 else "nope"} for number in range(500)))
    found = agent.wait_count("response", 500)
    assert sorted(record["id"] for record in found) == list(range(500))
    agent.ask("get_state")
    assert len(agent.since(0, "response")) == 501


@proves("order.session")
def test_commands_that_change_the_session_take_effect_in_order(agent: RpcProcess) -> None:
    levels = ["low", "high", "off", "medium"] * 5
    lines: list[dict[str, Any]] = []
    for number, level in enumerate(levels):
        lines += [{"type": "set_thinking_level", "level": level}, {"id": number, "type": "get_state"}]
    agent.send(*lines)
    states = [agent.response(number)["data"]["thinkingLevel"] for number in range(len(levels))]
    assert states == levels
