"""The program that a user writes first: events, a result with a value of a type, limits, in all three ways."""

from __future__ import annotations

import ast
import asyncio
import inspect
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pigeon
from support.records import plain_record
from support.sdk_agents import KINDS, Conversations, call

TEN_LINES = '''
import pigeon

@pigeon.tool
async def population(city: str) -> int:
    """How many people live in a city."""

async with pigeon.Agent(model="demo", cwd=".", tools=[population], limits=pigeon.Limits(turns=30, cost=1.0)) as agent:
    async for event in agent.prompt("list the files"):
        if isinstance(event, pigeon.TextDelta):
            print(event.delta, end="")
    result = await agent.run("Which of them are tests?", output=list[str])
    print(result.output, result.usage.cost.total, result.ended)        # ended: done | limit | aborted | error | denied
answer = pigeon.run_sync("What is in README?", model="demo").text      # for scripts and notebooks
'''
FILES = {"README": "Two lines.\nThat is all.\n", "main.py": "", "test_main.py": "", "test_more.py": ""}


async def test_a_limit_of_one_prompt_ends_its_run(conversations: Conversations) -> None:
    conversations.script(*[call("bash", command=f"echo {at}") for at in range(9)], "Done.")
    async with conversations.start() as agent:
        result = await agent.run("go on", limits=pigeon.Limits(turns=2))
        assert result.ended == "limit"
        assert str(result.error).startswith("Limit reached: ")
        with pytest.raises(pigeon.Refusal, match="limit"):
            await agent.run("more", limits=pigeon.Limits(turns=-1))


async def test_the_ten_lines_run_as_they_are_in_all_ways_with_the_same_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: dict[str, list[Any]] = {}
    printed: dict[str, str] = {}
    for index, kind in enumerate(KINDS):
        root = tmp_path / str(index)
        made = Conversations(kind, root)
        for name, text in FILES.items():
            (made.work / name).write_text(text)
        monkeypatch.chdir(made.work)
        for variable, value in made.folders.environment().items():
            monkeypatch.setenv(variable, value)
        events: list[Any] = []
        found = await _run_as_program(TEN_LINES, made, events)
        made.stop()
        heard[kind], printed[kind] = [plain_record(event, root) for event in events], capsys.readouterr().out
        assert found["result"].output == ["test_main.py", "test_more.py"]
        assert found["answer"].startswith("README has 2 lines")
    assert any(name == "ToolExecutionEnd" for name, _ in heard["agent"])
    assert printed["agent"].endswith("['test_main.py', 'test_more.py'] 0 done\n")
    for kind in KINDS[1:]:
        assert printed[kind] == printed["agent"]
        assert heard[kind] == heard["agent"]


async def _run_as_program(text: str, made: Conversations, events: list[Any]) -> dict[str, Any]:
    """Run a program as it stands; its agent is a conversation of the kind, and what it hears is noted."""

    @asynccontextmanager
    async def agent(cwd: str, **options: Any) -> Any:
        async with made.start(**options) as conversation:
            listening = asyncio.ensure_future(_note(conversation, events))
            yield conversation
        await listening

    async def _note(conversation: pigeon.Conversation, events: list[Any]) -> None:
        async for event in conversation.events():
            events.append(event)

    names = {name: getattr(pigeon, name) for name in ("tool", "Limits", "TextDelta", "run_sync")}
    program = compile(text.replace("import pigeon\n", ""), "ten lines", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    scope: dict[str, Any] = {"pigeon": SimpleNamespace(**names, Agent=agent)}
    done = eval(program, scope)
    if inspect.isawaitable(done):
        await done
    return scope
