"""`output=` of a run: types and schemas in, values of these types out, over four APIs."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec
import pytest

import pigeon
from fakes.http_server import HttpServer, Reply, sse
from pigeon.sdk.output import OutputType
from support.agent_folders import AgentFolders, model
from support.sdk_agents import Conversations, call


@dataclasses.dataclass
class Finding:
    file: str
    line: int
    fixed: bool = False


class Report(msgspec.Struct):
    title: str
    findings: list[Finding]
    day: date | None = None


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(TypedDict):
    width: int
    height: float


class Even:
    """What a model of pydantic has, without pydantic."""

    def __init__(self, n: int) -> None:
        if n % 2:
            raise ValueError(f"{n} is odd")
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Even) and other.n == self.n

    def __hash__(self) -> int:
        return self.n

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    @classmethod
    def model_validate(cls, value: Any) -> Even:
        return cls(value["n"])


# A type, what a model sends first and is wrong, what it sends then, and the value of it.
CASES: dict[str, tuple[Any, Any, Any, Any]] = {
    "dataclass": (Finding, {"file": 1, "line": 2}, {"file": "a", "line": 2}, Finding("a", 2)),
    "struct": (
        Report,
        {"title": "x"},
        {"title": "x", "findings": [{"file": "a", "line": 1, "fixed": True}], "day": "2024-02-29"},
        Report("x", [Finding("a", 1, True)], date(2024, 2, 29)),
    ),
    "typed dict": (Size, {"width": 1}, {"width": 1, "height": 2.5}, {"width": 1, "height": 2.5}),
    "list": (list[str], {"value": "a"}, {"value": ["a", "b"]}, ["a", "b"]),
    "union": (int | list[int], {"value": "1"}, {"value": [1]}, [1]),
    "literal": (Literal["yes", "no"], {"value": "maybe"}, {"value": "no"}, "no"),
    "enum": (Colour, {"value": "green"}, {"value": "red"}, Colour.RED),
    "map": (dict[str, int], {"value": {"a": "b"}}, {"value": {"a": 1}}, {"a": 1}),
    "schema": ({"type": "integer", "minimum": 3}, {"value": 2}, {"value": 3}, 3),
    "model": (Even, {}, {"n": 4}, Even(4)),
}


def anthropic(arguments: str) -> list[bytes]:
    block = {"type": "tool_use", "id": "t", "name": "final_answer", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": arguments}
    return sse(
        {"type": "message_start", "message": {"id": "a", "model": "m", "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
        named=True,
    )


def chat(arguments: str) -> list[bytes]:
    calls = [{"index": 0, "id": "t", "function": {"name": "final_answer", "arguments": arguments}}]
    return sse(
        {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": calls}}]},
        {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        "[DONE]",
    )


def responses(arguments: str) -> list[bytes]:
    item = {"type": "function_call", "id": "f", "call_id": "t", "name": "final_answer", "arguments": arguments}
    return sse(
        {"type": "response.created", "response": {"id": "r", "model": "m", "status": "in_progress"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "r", "model": "m", "status": "completed", "output": [item]}},
        named=True,
    )


def google(arguments: str) -> list[bytes]:
    part = {"functionCall": {"name": "final_answer", "args": json.loads(arguments), "id": "t"}}
    return sse(
        {"candidates": [{"content": {"parts": [part]}}], "responseId": "g"},
        {"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 3}},
    )


APIS: dict[str, Any] = {
    "anthropic-messages": anthropic,
    "openai-completions": chat,
    "openai-responses": responses,
    "google-generative-ai": google,
}


@pytest.mark.parametrize("api", APIS)
async def test_every_type_comes_back_valid_over_every_api(api: str, tmp_path: Path) -> None:
    said = [json.dumps(arguments) for _, wrong, right, _ in CASES.values() for arguments in (wrong, right)]
    async with HttpServer([Reply(APIS[api](arguments)) for arguments in said]) as server:
        folders = AgentFolders(tmp_path)
        provider = {"baseUrl": server.url, "api": api, "apiKey": "k", "models": [model("m", reasoning=False)]}
        folders.configure({"providers": {"fake": provider}})
        agent = pigeon.Agent(
            model="fake/m", cwd=str(folders.work), agent_dir=str(folders.agent), env=folders.environment()
        )
        async with agent:
            for kind, _, _, value in CASES.values():
                result = await agent.run("go", output=kind)
                assert (result.ended, result.error, result.output) == ("done", None, value)
        assert len(server.requests) == len(said)
        assert "final_answer" in json.dumps(server.requests[0].body)


async def test_a_value_that_only_the_type_refuses_is_not_given(conversations: Conversations) -> None:
    conversations.script(call("final_answer", n=3))
    async with conversations.start() as agent:
        result = await agent.run("go", output=Even)
        assert (result.ended, result.output) == ("error", None)
        assert "3 is odd" in (result.error or "")


async def test_a_run_without_an_output_says_why(conversations: Conversations) -> None:
    conversations.script("no", "no", "no")
    async with conversations.start() as agent:
        result = await agent.run("go", output=Finding)
        assert (result.ended, result.output) == ("error", None)
        assert "no final answer that fits" in (result.error or "")


async def test_events_of_a_prompt_end_with_the_output_as_json(conversations: Conversations) -> None:
    conversations.script(call("final_answer", file="a", line=1))
    async with conversations.start() as agent:
        *_, last = [event async for event in agent.prompt("go", output=Finding)]
        assert isinstance(last, pigeon.AgentSettled)
        assert last.output == {"file": "a", "line": 1}


def test_a_function_is_no_type_for_pydantic_either() -> None:
    pytest.importorskip("pydantic")
    with pytest.raises(TypeError, match="must be a type"):
        OutputType(lambda one: one)


@pytest.mark.parametrize(
    "wrong", ["text", 7, [str], object(), Path.exists], ids=["text", "number", "list", "object", "function"]
)
def test_what_is_no_type_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(TypeError, match="output"):
        OutputType(wrong)


def test_pydantic_is_asked_only_where_the_program_has_imported_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strange:
        pass

    class TypeAdapter:
        def __init__(self, kind: Any) -> None:
            pass

        def json_schema(self) -> dict[str, Any]:
            return {"type": "integer"}

        def validate_python(self, value: Any) -> Any:
            return ("validated", value)

    monkeypatch.delitem(sys.modules, "pydantic", raising=False)
    with pytest.raises(TypeError, match="Strange"):
        OutputType(list[Strange])
    assert "pydantic" not in sys.modules
    monkeypatch.setitem(sys.modules, "pydantic", type("pydantic", (), {"TypeAdapter": TypeAdapter}))  # type: ignore[arg-type]
    wanted = OutputType(list[Strange])
    assert (wanted.schema, wanted.convert_output(1)) == ({"type": "integer"}, ("validated", 1))
