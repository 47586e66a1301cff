"""A model or its server cannot stop or fill the process: what has no end is ended, and the session goes on."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest

from fakes.model_server import Call, Flood, Hang, ModelServer, Part, event_bytes
from support.agent_process import RpcProcess, Start
from support.contract import proves

MB = 1024 * 1024
PATIENCE = 60.0


def growing(**delta: Any) -> Flood:
    return Flood(event_bytes("content_block_delta", index=0, delta=delta))


def opening(index: int = 0, **block: Any) -> bytes:
    return event_bytes("content_block_start", index=index, content_block=block)


EMPTY = opening(type="text", text="") + event_bytes("content_block_stop", index=0)
WORDS = "word " * 200_000
CALL = {"type": "tool_use", "id": "t", "name": "bash", "input": {}}
ENDLESS: dict[str, tuple[list[Part], str]] = {
    "text": ([Flood(opening(type="text", text=""), 1), growing(type="text_delta", text=WORDS)], "4000000 characters"),
    "thinking": (
        [Flood(opening(type="thinking", thinking=""), 1), growing(type="thinking_delta", thinking=WORDS)],
        "4000000 characters",
    ),
    "signatures": (
        [Flood(opening(type="thinking", thinking=""), 1), growing(type="signature_delta", signature=WORDS)],
        "data beside its text",
    ),
    "arguments": (
        [Flood(opening(**CALL), 1), growing(type="input_json_delta", partial_json=WORDS)],
        "4000000 characters",
    ),
    "blocks": (
        [Flood((opening(type="text", text="") + event_bytes("content_block_stop", index=0)) * 50)],
        "1000 blocks",
    ),
    "names": ([Flood(opening(type="tool_use", id="t", name="n" * MB, input={}), 1)], "name or id of a tool call"),
    "one line": ([Flood(b"x" * 60_000)], "an event is longer than"),
    "comments": ([Flood(b": " + b"x" * 60_000 + b"\n\n")], "without any content"),
    "event names": ([Flood(b"event: " + b"x" * 60_000 + b"\n\n")], "without any content"),
    "deep events": ([Flood(b'data: {"type":"ping","x":' + b"[" * 50_000 + b"\n\n", 1)], "nested more than 200 levels"),
    "many values": ([Flood(b'data: {"error":[' + b"[]," * 200_000 + b"[]]}\n\n", 1)], "more than 100000 values"),
}


@proves("flood.answers")
@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_without_end_is_ended_and_the_session_goes_on(start: Start, server: ModelServer, kind: str) -> None:
    parts, reason = ENDLESS[kind]
    agent = start(keeps=True)
    server.answers("Hello.")
    agent.run("hi")
    before = agent.resident()
    server.answers(*parts)
    begun = agent.mark()
    agent.ask("prompt", message="go on")
    agent.ask("get_state")  # answered whatever comes in
    agent.wait_end(begun, deadline=PATIENCE)
    message = agent.since(begun, "agent_end")[-1]["messages"][-1]
    assert message["stopReason"] == "error"
    assert reason in message["errorMessage"]
    assert agent.resident() - before <= 64 * MB
    server.answers("Still here.")
    assert agent.run("and now?")[-1]["type"] == "agent_settled"
    assert agent.ask("get_last_assistant_text")["text"] == "Still here."


@proves("flood.arguments")
@pytest.mark.parametrize("unit", ["[", '{"a":'])
def test_arguments_nested_too_deeply_are_not_run(start: Start, server: ModelServer, unit: str) -> None:
    agent = start()
    server.answers(Call("bash", raw='{"command":"true","x":' + unit * 20_000, piece=500))
    server.answers("I see.")
    results = [record for record in agent.run("go") if record["type"] == "tool_execution_end"]
    assert results[0]["isError"]
    assert "nested more than 200 levels deep" in results[0]["result"]["content"][0]["text"]


@proves("flood.abort")
def test_abort_ends_an_answer_that_comes_faster_than_it_is_shown(start: Start, server: ModelServer) -> None:
    agent = start()
    answer = server.answers(
        Flood(opening(type="text", text=""), 1),
        Flood(event_bytes("content_block_delta", index=0, delta={"type": "text_delta", "text": "x"}) * 100),
    )
    agent.ask("prompt", message="go")
    agent.wait_event("message_update")
    agent.ask("abort")
    agent.wait_end()
    answer.wait_dropped()
    assert agent.since(0, "agent_end")[-1]["messages"][-1]["stopReason"] == "aborted"


@proves("flood.queue")
def test_the_queue_takes_so_many_messages_and_refuses_the_next(start: Start, server: ModelServer) -> None:
    agent = start()
    server.answers(Hang())
    agent.ask("prompt", message="go")
    for number in range(1000):
        agent.send({"id": f"s{number}", "type": "steer", "message": "more"})
    assert "The queue is full: 1000 messages" in agent.expect_error("steer", message="one too many")
    assert agent.response("s999")["success"]
    agent.ask("abort")
    agent.wait_end()


@proves("flood.host_result")
def test_a_host_result_nested_too_deeply_ends_its_call_in_an_error(start: Start, server: ModelServer) -> None:
    agent = start()
    agent.ask("set_host_tools", tools=[{"name": "look", "description": "d", "parameters": {"type": "object"}}])
    server.answers(Call("look"))
    server.answers("I see.")
    agent.ask("prompt", message="go")
    call = agent.wait_event("host_tool_call")
    deep = "[" * 500 + "]" * 500
    agent.send(f'{{"type":"host_tool_result","id":"{call["id"]}","result":{{"content":[],"details":{deep}}}}}')
    agent.wait_end()
    ended = agent.since(0, "tool_execution_end")[0]
    assert ended["isError"]
    assert "nested more than 200 levels" in ended["result"]["content"][0]["text"]


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bomb(side: int) -> str:
    """A PNG of one colour: a few kilobytes that decode to the square of its side."""
    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(b"\0" * (1 + side // 8)) for _ in range(side)) + packer.flush()
    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


@proves("flood.images")
def test_images_that_decode_to_gigabytes_are_left_out(start: Start, server: ModelServer) -> None:
    agent: RpcProcess = start()
    server.answers("Hello.")
    agent.run("hi")
    before = agent.resident()
    server.answers("I see.")
    image = {"type": "image", "data": bomb(16_000), "mimeType": "image/png"}
    agent.run("look", images=[image] * 4)
    assert agent.resident() - before <= 64 * MB
    said = server.requests[-1]["messages"][-1]["content"]
    assert [block["type"] for block in said] == ["text"]
    assert said[0]["text"].count("[Image omitted: 16000x16000 pixels are too many.]") == 4
