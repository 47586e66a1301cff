"""A prompt from its acknowledgement to the end of the run, with text, thinking and tools."""

from __future__ import annotations

import pytest

from fakes.model_server import Call, Cut, ModelServer, said_in
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers, finished_messages, text_of, tool_texts


@scenario
def two_prompts(stage: Stage) -> Seen:
    """One prompt after another."""
    agent = stage.start()
    stage.server.answers("one")
    agent.run("first")
    last = stage.server.answers("two")
    agent.run("second")
    return Seen(said=said_in(last.request), responses=agent.since(0, "response"))


@proves("note/resident")
def test_one_prompt_after_another_share_the_conversation(two_prompts: Seen) -> None:
    assert two_prompts.said == [("user", "first"), ("assistant", "one"), ("user", "second")]


@proves("note/in.lines")
def test_each_line_is_a_command(two_prompts: Seen) -> None:
    assert [(one["command"], one["success"]) for one in two_prompts.responses] == [("prompt", True)] * 2


@proves("type.assistant")
def test_messages_have_their_documented_fields(agent: RpcProcess, server: ModelServer) -> None:
    usage = {
        "input_tokens": 1000,
        "output_tokens": 500,
        "cache_read_input_tokens": 200,
        "cache_creation_input_tokens": 100,
    }
    server.answers("ok", usage=usage)
    records = agent.run("x")
    user, answer = finished_messages(records, "user")[0], answers(records)[0]
    assert list(user) == ["role", "content", "timestamp"]
    assert user["content"] == [{"type": "text", "text": "x"}]
    assert isinstance(user["timestamp"], int)
    assert (answer["api"], answer["provider"], answer["model"]) == ("anthropic-messages", "fake", "fake-1")
    assert answer["stopReason"] == "stop"
    counts = {key: answer["usage"][key] for key in ("input", "output", "cacheRead", "cacheWrite", "totalTokens")}
    assert counts == {"input": 1000, "output": 500, "cacheRead": 200, "cacheWrite": 100, "totalTokens": 1800}
    assert answer["usage"]["cost"]["total"] == pytest.approx(0.001 + 0.001 + 0.00002 + 0.000125)
    assert "errorMessage" not in answer


@proves("tool.ordered")
def test_calls_of_one_answer_change_things_in_call_order(agent: RpcProcess, server: ModelServer) -> None:
    server.answers(
        Call("bash", {"command": "echo 1 >> log; cat log"}, id="a"),
        Call("bash", {"command": "echo 2 >> log; cat log"}, id="b"),
        Call("write", {"path": "log", "content": "new\n"}, id="c"),
        Call("read", {"path": "log"}, id="d"),
    )
    server.answers("done")
    texts = tool_texts(agent.run("x"))
    assert texts[0].split() == ["1"]
    assert texts[1].split() == ["1", "2"]
    assert texts[3].split() == ["new"]


@proves("stop.cut_stream")
def test_a_stream_that_breaks_off_is_an_error_that_keeps_what_came(start: Start, server: ModelServer) -> None:
    agent = start(settings={"retry": {"enabled": False}})
    server.answers("half", Cut())
    failed = answers(agent.run("x"))[0]
    assert failed["stopReason"] == "error"
    assert text_of(failed) == "half"
    assert failed["errorMessage"]


@proves("prompt.two_at_once")
def test_of_two_prompts_in_one_write_the_second_is_refused(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("one")
    agent.send({"id": 1, "type": "prompt", "message": "a"}, {"id": 2, "type": "prompt", "message": "b"})
    assert agent.response(1)["success"] is True
    assert agent.response(2)["success"] is False
    agent.wait_end()
    assert [said_in(request)[-1] for request in server.requests] == [("user", "a")]


@proves("prompt.image_forms", dialects=("pi",))
def test_an_image_in_any_documented_form_reaches_the_model(agent: RpcProcess, server: ModelServer) -> None:
    data = "iVBORw0KGgo="
    forms: list[dict[str, object]] = [
        {"type": "image", "data": data, "mimeType": "image/png"},
        {"type": "image", "source": {"type": "base64", "mediaType": "image/png", "data": data}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        {"type": "image", "source": {"type": "url", "url": f"data:image/png;base64,{data}"}},
    ]
    for image in forms:
        asked = server.answers("nice")
        records = agent.run("look", images=[image])
        stored = {"type": "image", "data": data, "mimeType": "image/png"}
        assert finished_messages(records, "user")[0]["content"] == [{"type": "text", "text": "look"}, stored]
        sent = next(block for block in asked.request["messages"][-1]["content"] if block["type"] == "image")
        assert sent["source"] == {"type": "base64", "media_type": "image/png", "data": data}
