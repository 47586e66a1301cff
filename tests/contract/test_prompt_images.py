"""Images that a model would refuse, and what becomes of them: a conversation must survive each."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from PIL import Image

from fakes.model_server import Answer, Call, Gate, ModelServer
from support.agent_process import RpcProcess, Start
from support.contract import in_each, proves
from support.records import finished_messages, outline, text_of

FAKE = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}


def image(size: tuple[int, int], form: str = "PNG", mime: str = "image/png") -> dict[str, Any]:
    out = io.BytesIO()
    Image.new("RGB", size, "red").save(out, form)
    return {"type": "image", "data": base64.b64encode(out.getvalue()).decode(), "mimeType": mime}


def size_of(data: str) -> tuple[int, int]:
    with Image.open(io.BytesIO(base64.b64decode(data))) as opened:
        return opened.size


def sent_in(answer: Answer) -> list[dict[str, Any]]:
    """The images that the last message of a request has, as the API gets them."""
    content = answer.wait_arrived()["messages"][-1]["content"]
    return [block["source"] for block in content if block["type"] == "image"]


@proves("prompt.images_fit")
def test_a_large_image_is_scaled_and_the_model_is_told(agent: RpcProcess, server: ModelServer) -> None:
    asked = server.answers("nice")
    message = finished_messages(agent.run("look", images=[image((4000, 1000)), image((8, 8))]), "user")[0]
    assert text_of(message).startswith("look\n\n[Image: original 4000x1000, displayed at 2000x500.")
    assert [size_of(block["data"]) for block in message["content"][1:]] == [(2000, 500), (8, 8)]
    assert [size_of(source["data"]) for source in sent_in(asked)] == [(2000, 500), (8, 8)]
    assert message["content"][2] == image((8, 8))


@proves("prompt.images_waited")
@pytest.mark.parametrize("command", ["steer", "follow_up"])
def test_a_large_image_that_waited_is_scaled_too(agent: RpcProcess, server: ModelServer, command: str) -> None:
    gate = Gate()
    server.answers("first", gate)
    asked = server.answers("second")
    agent.ask("prompt", message="go")
    gate.wait_reached()
    agent.ask(command, message="see", images=[image((2100, 300))])
    queued = agent.wait_event("queue_update")
    assert queued["steering"] + queued["followUp"] == ["see"]
    gate.open()
    agent.wait_end()
    assert [size_of(source["data"])[0] for source in sent_in(asked)] == [2000]


@proves("prompt.images_converted")
def test_a_foreign_format_is_converted_and_a_wrong_type_is_put_right(agent: RpcProcess, server: ModelServer) -> None:
    asked = server.answers("nice")
    message = finished_messages(
        agent.run("look", images=[image((9, 7), "BMP", "image/bmp"), image((8, 8), "JPEG", "image/jpg")]), "user"
    )[0]
    assert text_of(message) == "look\n\n[Image converted from image/bmp to image/png.]"
    assert [source["media_type"] for source in sent_in(asked)] == ["image/png", "image/jpeg"]


@proves("prompt.images_size_kept")
def test_images_keep_their_size_if_the_user_says_so(start: Start, server: ModelServer) -> None:
    agent = start(settings={"images": {"autoResize": False}})
    asked = server.answers("nice")
    large = image((2100, 300))
    agent.run("look", images=[large])
    assert [source["data"] for source in sent_in(asked)] == [large["data"]]


@proves("prompt.images_kept", dialects=("pi", "omp", "xcsh"))
@in_each("pi", "omp", "xcsh")
def test_data_that_is_no_image_reaches_the_model_as_it_came(spoken: RpcProcess, server: ModelServer) -> None:
    asked = server.answers("nice")
    message = finished_messages(spoken.run("look", images=[FAKE]), "user")[0]
    assert message["content"] == [{"type": "text", "text": "look"}, FAKE]
    assert [source["data"] for source in sent_in(asked)] == [FAKE["data"]]


@proves("prompt.images_omitted", dialects=("pi-latest",))
@in_each("pi-latest")
def test_data_that_is_no_image_is_left_out_with_a_note(spoken: RpcProcess, server: ModelServer) -> None:
    server.answers("nice")
    message = finished_messages(spoken.run("look", images=[FAKE, image((8, 8))]), "user")[0]
    assert text_of(message).startswith("look\n\n[Image omitted: ")
    assert message["content"][1:] == [image((8, 8))]


@proves("prompt.images_omitted_dialect", dialects=("pi-latest",))
def test_a_host_that_changes_the_dialect_changes_this_too(agent: RpcProcess, server: ModelServer) -> None:
    agent.ask("hello", dialect="pi-latest")
    server.answers("nice")
    message = finished_messages(agent.run("look", images=[FAKE]), "user")[0]
    assert [block["type"] for block in message["content"]] == ["text"]


@proves("prompt.images_empty")
@pytest.mark.parametrize("data", ["", "\n"])
def test_an_image_without_data_is_refused_by_its_field(agent: RpcProcess, server: ModelServer, data: str) -> None:
    given = {"type": "image", "data": data, "mimeType": "image/png"}
    for command in ("prompt", "steer", "follow_up", "abort_and_prompt"):
        assert '"images[1].data" is empty' in agent.expect_error(command, message="x", images=[image((8, 8)), given])
    attachment = {"type": "image", "fileName": "a.png", "mimeType": "image/png", "content": data}
    assert '"attachments[0].content" is empty' in agent.expect_error("prompt", message="x", attachments=[attachment])
    assert server.requests == []


@proves("prompt.images_lines")
def test_lines_in_the_base64_are_joined(agent: RpcProcess, server: ModelServer) -> None:
    asked = server.answers("nice")
    plain = image((8, 8))
    data = plain["data"]
    for_urls = data.replace("+", "-").replace("/", "_")
    agent.run("look", images=[{**plain, "data": f"{for_urls[:76]}\n{for_urls[76:]}\n"}])
    assert [source["data"] for source in sent_in(asked)] == [data]


@proves("prompt.images_answered")
def test_a_prompt_with_a_large_image_is_answered_before_anything_happens(
    agent: RpcProcess, server: ModelServer
) -> None:
    server.answers("nice")
    agent.send(
        {"id": 1, "type": "prompt", "message": "look", "images": [image((2100, 2100))]},
        {"id": 2, "type": "prompt", "message": "again"},
        {"id": 3, "type": "get_state"},
    )
    assert agent.response(3)["data"]["isStreaming"] is True
    assert agent.response(2)["success"] is False
    agent.wait_end()
    words = outline(agent.records)
    assert words.index("response:prompt") < words.index("agent_start") < words.index("message_start:user")


@proves("tools.made_up_names")
def test_a_made_up_tool_name_does_not_spoil_the_conversation(start: Start, server: ModelServer) -> None:
    agent = start("--session-id", "mine", keeps=True)
    names = ["functions.bash", "", "two words", "x" * 200]
    server.answers(*[Call(name) for name in names])
    asked = server.answers("sorry")
    records = agent.run("go")
    calls = [block["name"] for block in asked.request["messages"][1]["content"] if block["type"] == "tool_use"]
    assert calls == ["functions_bash", "unknown", "two_words", "x" * 64]
    assert [r["toolName"] for r in records if r["type"] == "tool_execution_end"] == names
    assert [message["toolName"] for message in finished_messages(records, "toolResult")] == names
    answer = agent.ask("get_messages")["messages"][1]
    assert [block["name"] for block in answer["content"]] == names


@proves("prompt.empty_request")
def test_an_empty_prompt_is_a_request_with_a_message(agent: RpcProcess, server: ModelServer) -> None:
    first, second = server.answers("hm?"), server.answers("hm?")
    assert finished_messages(agent.run(""), "user")[0]["content"] == [{"type": "text", "text": ""}]
    agent.run(" ")
    assert [message["role"] for message in first.request["messages"]] == ["user"]
    assert [message["role"] for message in second.request["messages"]] == ["user", "assistant", "user"]


@proves("tool_result.images_fit")
def test_a_large_image_of_a_host_tool_is_scaled_and_odd_bytes_are_kept(agent: RpcProcess, server: ModelServer) -> None:
    tool = {"name": "camera", "label": "Camera", "description": "Takes a picture", "parameters": {"type": "object"}}
    agent.ask("set_host_tools", tools=[tool])
    server.answers(Call("camera", {}, id="toolu_1"))
    asked = server.answers("nice")
    agent.ask("prompt", message="smile")
    (frame,) = agent.wait_count("host_tool_call", 1)
    result = {"content": [{"type": "text", "text": "click"}, image((4000, 1000)), FAKE]}
    agent.send({"type": "host_tool_result", "id": frame["id"], "result": result})
    agent.wait_end()
    (returned,) = asked.wait_arrived()["messages"][-1]["content"]
    words, large, odd = returned["content"]
    assert words["text"].startswith("click\n\n[Image: original 4000x1000, displayed at 2000x500.")
    assert size_of(large["source"]["data"]) == (2000, 500)
    assert odd["source"]["data"] == FAKE["data"]
