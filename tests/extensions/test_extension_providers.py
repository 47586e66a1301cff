"""Providers that extensions bring: entries for the registry, and generators that answer."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.extension_port import Stage, a_model
from pigeon.agent.inference import BlockGrew, BlockOpened, Finished, ModelRequest

REQUEST = ModelRequest(model=a_model("parrot", "echo"), system_prompt="", messages=[], tools=[])


async def answer_of_provider(stage: Stage, body: str) -> tuple[list[Any], Finished]:
    lines = "\n".join("    " + line for line in body.splitlines())
    text = f"ext = Extension('e')\n\n@ext.provider('echo', models=['parrot'])\nasync def answer(request):\n{lines}\n"
    await stage.load("e", text)
    stage.bind()
    assert stage.errors() == []
    (contributed,) = stage.runner.contributions.list_providers()
    assert contributed.provider is not None
    deltas = [delta async for delta in contributed.provider.stream(REQUEST)]
    assert isinstance(deltas[-1], Finished)
    assert [isinstance(delta, Finished) for delta in deltas].count(True) == 1
    return deltas, deltas[-1]


async def test_a_service_that_pigeon_speaks_to_needs_no_code(stage: Stage) -> None:
    await stage.load(
        "proxy",
        """
ext = Extension("proxy")
ext.provider("proxy", api="openai-completions", base_url="http://127.0.0.1:1/v1", api_key="$KEY",
             headers={"x-a": "b"}, models=[{"id": "big", "contextWindow": 9}])

@ext.provider("second", api="openai-completions", base_url="http://127.0.0.1:1/v1", api_key="k")
def models():
    return ["small"]
""",
    )
    stage.bind()
    first, second = stage.runner.contributions.list_providers()
    assert (first.name, first.provider) == ("proxy", None)
    assert first.entry == {
        "baseUrl": "http://127.0.0.1:1/v1",
        "api": "openai-completions",
        "apiKey": "$KEY",
        "headers": {"x-a": "b"},
        "models": [{"id": "big", "contextWindow": 9}],
    }
    assert second.entry["models"] == [{"id": "small"}]


async def test_a_generator_answers_with_text_thoughts_and_calls(stage: Stage) -> None:
    deltas, end = await answer_of_provider(
        stage,
        """
from pigeon.extensions import Call, Think
yield Think("hm")
yield "Hello "
yield "there"
yield Call("read", {"path": "x"})
""",
    )
    opened = [(delta.index, delta.kind, delta.name) for delta in deltas if isinstance(delta, BlockOpened)]
    assert opened == [(0, "thinking", ""), (1, "text", ""), (2, "toolCall", "read")]
    grown = [(delta.index, delta.text) for delta in deltas if isinstance(delta, BlockGrew)]
    assert grown == [(0, "hm"), (1, "Hello "), (1, "there"), (2, '{"path":"x"}')]
    assert end == Finished(stop="toolUse")


async def test_an_answer_without_calls_stops(stage: Stage) -> None:
    assert (await answer_of_provider(stage, "yield request.model.id"))[1] == Finished(stop="stop")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("yield 'a'\nraise ValueError('gone')", "gone"),
        ("yield 'a'\nsys.exit(1)", "end the process"),
        ("yield 42", "yielded int"),
    ],
)
async def test_a_generator_that_fails_ends_the_answer_with_an_error(stage: Stage, body: str, told: str) -> None:
    _, end = await answer_of_provider(stage, body)
    assert end.stop == "error"
    assert end.failure is not None
    assert told in end.failure.message


async def test_an_answer_that_is_not_wanted_any_more_is_stopped(stage: Stage) -> None:
    await stage.load(
        "e",
        """
ext = Extension("e")

@ext.provider("echo", models=["parrot"])
async def answer(request):
    try:
        while True:
            yield "again "
    finally:
        ext.context.session.append_entry("stopped")
""",
    )
    stage.bind()
    streamer = stage.runner.contributions.list_providers()[0].provider
    assert streamer is not None
    stream = streamer.stream(REQUEST)
    async for _ in stream:
        break
    await stream.aclose()  # type: ignore[attr-defined]
    await stage.until(lambda: bool(stage.conversation.kept))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ext.provider('p', api='x', models=[])(lambda: [])", "has no models"),
        ("ext.provider('p', models=['a'])(lambda: ['a'])", "needs api and base_url"),
        ("ext.provider('p', api='x', base_url='y', models=[{}])", "has no id"),
    ],
)
async def test_a_provider_that_lacks_something_is_not_loaded(stage: Stage, text: str, told: str) -> None:
    await stage.load("p", f"ext = Extension('p')\n{text}\n")
    stage.bind()
    assert told in stage.errors()[0][2]
    assert stage.runner.contributions.list_providers() == []


async def test_providers_come_and_go_while_the_session_lives(stage: Stage) -> None:
    await stage.load(
        "late",
        """
ext = Extension("late")

@ext.command("add")
def add(args):
    ext.provider("late", api="x", base_url="http://127.0.0.1:1", models=["m"])

@ext.command("remove")
def remove(args):
    ext.remove_provider("late")
""",
    )
    stage.bind()
    await stage.runner.hooks.try_run_command("/add")
    assert stage.models.providers["late"][0]["models"] == [{"id": "m"}]
    await stage.runner.hooks.try_run_command("/remove")
    assert stage.models.providers == {}
