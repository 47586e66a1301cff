from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.clock import virtually
from pigeon.agent.inference import (
    BlockClosed,
    BlockGrew,
    BlockOpened,
    Delta,
    Finished,
    Metered,
    ModelMessage,
    ModelRequest,
    ToolSpec,
)
from pigeon.providers.scripted.model import ScriptedModel, make_scripted_model
from pigeon.providers.scripted.playback import PieceCutter
from pigeon.wire.content import TextContent
from pigeon.wire.messages import ToolResultMessage, UserMessage


def request(path: Path, *messages: ModelMessage, system: str = "be brief", tools: tuple[str, ...] = ()) -> ModelRequest:
    said = list(messages) or [user("hello")]
    specs = [ToolSpec(name=name, description="", parameters={"type": "object"}) for name in tools]
    return ModelRequest(model=make_scripted_model(str(path), str), system_prompt=system, messages=said, tools=specs)


def user(text: str) -> UserMessage:
    return UserMessage(content=text, timestamp=1)


def result(text: str) -> ToolResultMessage:
    return ToolResultMessage(
        tool_call_id="c", tool_name="bash", content=[TextContent(text=text)], is_error=False, timestamp=1
    )


def script(folder: Path, content: Any) -> Path:
    path = folder / "script.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


async def answer(model: ScriptedModel, asked: ModelRequest) -> list[Delta]:
    return [delta async for delta in model.stream(asked)]


def text_in(deltas: list[Delta], index: int = 0) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, BlockGrew) and delta.index == index)


def end_of(deltas: list[Delta]) -> Finished:
    assert isinstance(deltas[-1], Finished)
    assert sum(isinstance(delta, Finished) for delta in deltas) == 1
    return deltas[-1]


async def test_a_path_begins_where_the_agent_says(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "replies.json").write_text(json.dumps({"default": f"I am {name}", "name": name}))

        def inside(path: str, folder: Path = folder) -> str:
            return str(folder / path)

        model = make_scripted_model("replies.json", inside)
        assert (model.id, model.name) == ("replies.json", name)
        asked = ModelRequest(model=model, system_prompt="", messages=[user("hello")], tools=[])
        assert text_in(await answer(ScriptedModel(inside), asked)) == f"I am {name}"


async def test_replies_are_used_in_order_one_per_request(tmp_path: Path) -> None:
    path, model = script(tmp_path, ["one", "two"]), ScriptedModel(str)
    assert [text_in(await answer(model, request(path))) for _ in range(2)] == ["one", "two"]


async def test_two_scripts_keep_their_own_place(tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text('["a1", "a2"]')
    second.write_text('["b1"]')
    model = ScriptedModel(str)
    said = [text_in(await answer(model, request(path))) for path in (first, second, first)]
    assert said == ["a1", "b1", "a2"]


async def test_a_reply_streams_like_a_model(tmp_path: Path) -> None:
    reply = {"thinking": "hm", "text": "abcdef", "toolCalls": [{"name": "bash", "arguments": {"command": "ls"}}]}
    path = script(tmp_path, {"chunk": 4, "replies": [reply]})
    deltas = await answer(ScriptedModel(str), request(path))
    kinds = [type(delta).__name__ for delta in deltas]
    assert kinds[:2] == ["Named", "Metered"]
    assert kinds[-2:] == ["Metered", "Finished"]
    opened = [delta for delta in deltas if isinstance(delta, BlockOpened)]
    assert [(delta.index, delta.kind) for delta in opened] == [(0, "thinking"), (1, "text"), (2, "toolCall")]
    assert (opened[2].name, opened[2].call_id) == ("bash", "call_1_2")
    assert [delta.text for delta in deltas if isinstance(delta, BlockGrew) and delta.index == 1] == ["abcd", "ef"]
    assert json.loads(text_in(deltas, 2)) == {"command": "ls"}
    assert [delta.index for delta in deltas if isinstance(delta, BlockClosed)] == [0, 1, 2]
    assert end_of(deltas).stop == "toolUse"


async def test_blocks_keep_their_order_ids_and_raw_arguments(tmp_path: Path) -> None:
    blocks = [
        {"type": "toolCall", "name": "read", "id": "x1", "raw": '{"path": "a'},
        {"type": "text", "text": "ab", "repeat": 3},
        {"type": "thinking", "thinking": "t", "signature": "sig", "redacted": True},
    ]
    deltas = await answer(ScriptedModel(str), request(script(tmp_path, [{"blocks": blocks, "stop": "length"}])))
    assert text_in(deltas, 0) == '{"path": "a'
    assert text_in(deltas, 1) == "ababab"
    closed = [delta for delta in deltas if isinstance(delta, BlockClosed)]
    assert (closed[2].signature, closed[2].redacted) == ("sig", True)
    assert next(delta for delta in deltas if isinstance(delta, BlockOpened)).call_id == "x1"
    assert end_of(deltas).stop == "length"


async def test_usage_is_what_the_script_says_and_else_an_estimate(tmp_path: Path) -> None:
    path = script(tmp_path, [{"text": "12345678", "usage": {"input": 7, "cacheRead": 3, "reasoning": 1}}])
    deltas = await answer(ScriptedModel(str), request(path))
    first, last = [delta.usage for delta in deltas if isinstance(delta, Metered)]
    assert (first.input, first.output) == (7, 0)
    assert (last.input, last.output, last.cache_read, last.reasoning, last.total_tokens) == (7, 2, 3, 1, 12)


async def test_an_error_comes_after_what_was_streamed(tmp_path: Path) -> None:
    error = {"message": "busy", "status": 529, "retryable": True, "code": "overloaded", "retryAfterMs": 5}
    deltas = await answer(ScriptedModel(str), request(script(tmp_path, [{"text": "half", "error": error}])))
    assert text_in(deltas) == "half"
    failure = end_of(deltas).failure
    assert failure is not None
    assert (failure.message, failure.status, failure.retryable, failure.overflow) == ("busy", 529, True, False)
    assert (failure.code, failure.retry_after_ms) == ("overloaded", 5)


async def test_a_reply_that_is_only_an_error_streams_nothing_else(tmp_path: Path) -> None:
    path = script(tmp_path, [{"error": {"message": "too long", "overflow": True}}])
    deltas = await answer(ScriptedModel(str), request(path))
    assert len(deltas) == 1
    failure = end_of(deltas).failure
    assert failure is not None
    assert failure.overflow


async def test_a_rule_goes_before_the_list_and_does_not_use_it_up(tmp_path: Path) -> None:
    rules = [
        {"when": {"user": "WEATHER"}, "reply": "sunny", "times": 1},
        {"when": {"toolResult": "no such", "tool": "bash"}, "reply": "missing"},
        {"when": {"system": "pirate"}, "reply": "arr"},
        {"when": {"anywhere": "secret"}, "reply": "sh"},
    ]
    path, model = script(tmp_path, {"rules": rules, "replies": ["list"], "default": "rest"}), ScriptedModel(str)

    async def answer_text(asked: ModelRequest) -> str:
        return text_in(await answer(model, asked))

    assert await answer_text(request(path, user("the weather?"))) == "sunny"
    assert await answer_text(request(path, user("x"), result("No such file"), tools=("bash",))) == "missing"
    assert await answer_text(request(path, system="Talk like a pirate")) == "arr"
    assert await answer_text(request(path, user("a secret"), user("b"))) == "sh"
    assert await answer_text(request(path, user("the weather?"))) == "list"
    assert await answer_text(request(path, user("x"), result("No such file"))) == "rest"


async def test_a_used_up_script_says_so(tmp_path: Path) -> None:
    path, model = script(tmp_path, ["one"]), ScriptedModel(str)
    await answer(model, request(path))
    failure = end_of(await answer(model, request(path))).failure
    assert failure is not None
    assert str(path) in failure.message
    assert "default" in failure.message
    assert not failure.retryable


async def test_placeholders_stand_for_the_conversation(tmp_path: Path) -> None:
    path = script(tmp_path, {"default": {"text": "${user}/${toolResult}", "thinking": "${user}"}})
    deltas = await answer(ScriptedModel(str), request(path, user("u"), result("r")))
    assert (text_in(deltas, 0), text_in(deltas, 1)) == ("u", "u/r")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "not valid"),
        ('"text"', "not valid"),
        ({"replies": [{"txt": "x"}]}, "txt"),
        ({"replies": [{"text": 5}]}, "replies[0].text"),
        ({"rules": [{"when": {}, "reply": "x", "times": 0}]}, "times"),
        ({"default": {"blocks": [{"type": "song"}]}}, "song"),
        ({"default": {"blocks": [], "text": "x"}}, "default"),
        ({"default": {"text": "x", "chunk": [5, 2]}}, "default.chunk"),
        ({"chunk": 0}, "chunk"),
    ],
)
async def test_a_malformed_script_is_a_failure_that_names_file_and_field(
    tmp_path: Path, content: Any, named: str
) -> None:
    path = script(tmp_path, content)
    failure = end_of(await answer(ScriptedModel(str), request(path))).failure
    assert failure is not None
    assert str(path) in failure.message
    assert named in failure.message


async def test_a_missing_script_is_a_failure_and_is_looked_for_again(tmp_path: Path) -> None:
    model, path = ScriptedModel(str), tmp_path / "later.json"
    failure = end_of(await answer(model, request(path))).failure
    assert failure is not None
    assert "later.json" in failure.message
    path.write_text('["here"]')
    assert text_in(await answer(model, request(path))) == "here"


async def test_a_hanging_reply_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    path = script(tmp_path, [{"text": "x", "hang": True}])
    seen: list[Delta] = []
    grew = asyncio.Event()

    async def consume() -> None:
        async for delta in ScriptedModel(str).stream(request(path)):
            seen.append(delta)
            if isinstance(delta, BlockClosed):
                grew.set()

    task = asyncio.create_task(consume())
    await grew.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert text_in(seen) == "x"


async def test_others_get_a_turn_between_two_pieces(tmp_path: Path) -> None:
    path = script(tmp_path, [{"text": "x" * 1000, "chunk": 1}])
    turns = 0
    done = False

    async def other() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await answer(ScriptedModel(str), request(path))
    done = True
    await task
    assert turns >= 1000


@given(st.text(), st.integers(1, 9), st.integers(0, 9), st.integers())
def test_pieces_join_to_the_text_and_are_always_the_same(text: str, low: int, more: int, seed: int) -> None:
    pieces = list(PieceCutter([low, low + more], seed).cut(text))
    assert "".join(pieces) == text
    assert all(low <= len(piece) <= low + more for piece in pieces[:-1])
    assert pieces == list(PieceCutter([low, low + more], seed).cut(text))


def test_the_model_record_tells_what_the_script_says_of_itself(tmp_path: Path) -> None:
    path = script(tmp_path, {"name": "Mine", "reasoning": False, "contextWindow": 1000})
    model = make_scripted_model(str(path), str)
    assert (model.provider, model.api, model.id) == ("scripted", "scripted", str(path))
    assert (model.name, model.reasoning, model.context_window) == ("Mine", False, 1000)
    assert make_scripted_model("nowhere.json", str).reasoning


async def test_the_example_in_the_documentation_is_a_valid_script(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "scripted-models.md"
    example = page.read_text("utf-8").split("## Example", 1)[1]
    path, model = script(tmp_path, example), ScriptedModel(str)
    asked = request(path, user("u"), result("a.txt"))
    ends = [end_of(await answer(model, asked)) for _ in range(5)]
    assert [end.stop for end in ends] == ["toolUse", "stop", "error", "stop", "stop"]


def test_pauses_last_as_long_as_the_script_says(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": "abcd"}, {"type": "delay", "ms": 500}]
    path = script(tmp_path, [{"blocks": blocks, "delayMs": 2000, "chunk": 1, "chunkDelayMs": 30}])

    async def seconds() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await answer(ScriptedModel(str), request(path))
        return loop.time() - began

    assert virtually(seconds()) == pytest.approx(2.0 + 4 * 0.03 + 0.5)
