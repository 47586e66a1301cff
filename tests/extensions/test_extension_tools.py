"""Functions as tools: their schema, their arguments, their results and their failures."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from fakes.extension_port import Stage
from pigeon.agent.scope import Scope
from pigeon.extensions.public.context import ToolContext
from pigeon.extensions.public.tool_def import build_tool_def, split_docstring
from pigeon.wire.errors import Aborted, ToolFailed
from pigeon.wire.events import ToolOutcome


class Running:
    """A call of a tool, as the loop makes it."""

    def __init__(self) -> None:
        self.call_id = "c1"
        self.scope = Scope()
        self.updates: list[ToolOutcome] = []

    async def update(self, progress: ToolOutcome) -> None:
        self.updates.append(progress)


async def tool_of(stage: Stage, text: str) -> Any:
    await stage.load("t", "ext = Extension('t')\n" + text)
    stage.bind()
    assert stage.errors() == []
    return stage.runner.contributions.list_tools()[0]


@dataclass
class Point:
    x: int
    title: str = ""


def test_the_schema_comes_from_hints_and_docstring() -> None:
    async def draw(
        ctx: ToolContext,
        path: str,
        kind: Literal["line", "dot"],
        points: list[Point],
        width: float = 1.5,
        label: str | None = None,
        deep: Annotated[bool, "look below"] = False,
    ) -> str:
        """Draw something.

        In several lines.

        Args:
            path: where to,
                relative or not
            kind (str): what to draw
        Returns:
            nothing of interest
        """
        return ""

    made = build_tool_def(draw)
    assert made.spec.name == "draw"
    assert made.spec.description == "Draw something.\n\nIn several lines."
    assert made.spec.parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "where to, relative or not"},
            "kind": {"enum": ["dot", "line"], "description": "what to draw"},
            "points": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"x": {"type": "integer"}, "title": {"type": "string", "default": ""}},
                    "required": ["x"],
                },
            },
            "width": {"type": "number", "default": 1.5},
            "label": {"type": "string"},
            "deep": {"type": "boolean", "description": "look below", "default": False},
        },
        "required": ["path", "kind", "points"],
    }
    assert made.context_name == "ctx"


def test_arguments_on_one_line_of_the_docstring_are_understood() -> None:
    text, arguments = split_docstring("Count words. \n\nArgs: path: file to read; top: only the most frequent.")
    assert text == "Count words."
    assert arguments == {"path": "file to read", "top": "only the most frequent"}


def test_what_cannot_be_a_tool_is_refused_by_name() -> None:
    def bare(x) -> None:  # type: ignore[no-untyped-def]
        """A tool."""

    def many(*args: str) -> None:
        """A tool."""

    def silent(x: str) -> None: ...

    def odd(x: asyncio.Event) -> None:
        """A tool."""

    with pytest.raises(TypeError, match='"x" of the tool "bare" needs a type hint'):
        build_tool_def(bare)
    with pytest.raises(TypeError, match=r"\*args"):
        build_tool_def(many)
    with pytest.raises(ValueError, match="docstring"):
        build_tool_def(silent)
    with pytest.raises(TypeError, match='"x" of the tool "odd"'):
        build_tool_def(odd)
    with pytest.raises(ValueError, match="name of a tool"):
        build_tool_def(bare, name="no spaces")
    with pytest.raises(TypeError, match="JSON Schema"):
        build_tool_def(bare, schema={"type": "string"})


async def test_a_tool_gets_typed_arguments_and_shows_progress(stage: Stage) -> None:
    tool = await tool_of(
        stage,
        """
from dataclasses import dataclass

@dataclass
class Point:
    x: int
    y: int = 0

@ext.tool(reads_only=True, snippet="adds up", guidelines=["add often"])
async def add(points: list[Point], ctx: ToolContext, times: int = 1) -> ToolOutput:
    '''Add points up.'''
    await ctx.update("adding")
    return ToolOutput(str(sum(point.x for point in points) * times), details={"call": ctx.call_id})
""",
    )
    run = Running()
    outcome = await tool.execute({"points": [{"x": 1}, {"x": 2, "y": 3}], "times": 10}, run)
    assert (outcome.content[0].text, outcome.details) == ("30", {"call": "c1"})
    assert [progress.content[0].text for progress in run.updates] == ["adding"]
    assert (tool.reads_only, tool.snippet, tool.guidelines) == (True, "adds up", ("add often",))


async def test_a_tool_with_a_schema_of_its_own_gets_the_arguments_as_they_are(stage: Stage) -> None:
    tool = await tool_of(
        stage,
        """
@ext.tool(name="raw-one", description="As it comes.", schema={"type": "object", "properties": {}})
def raw(args, ctx):
    return repr(args)
""",
    )
    assert tool.spec.name == "raw-one"
    assert (await tool.execute({"a": [1]}, Running())).content[0].text == "{'a': [1]}"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("raise ValueError('no such thing')", "no such thing"),
        ("raise SystemExit(2)", "end the process"),
        ("return {'a': 1}", "must return text or ToolOutput, not dict"),
        ("return ToolOutput(5)", "TextContent|ToolOutcome"),
        ("return ToolOutput('x', details=object())", "JSON"),
    ],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_a_tool_that_fails_fails_with_a_text(stage: Stage, kind: str, body: str, text: str) -> None:
    tool = await tool_of(stage, f"@ext.tool\n{kind} bad() -> str:\n    'A tool.'\n    {body}\n")
    with pytest.raises(ToolFailed, match=text):
        await tool.execute({}, Running())


async def test_a_tool_that_returns_nothing_is_done(stage: Stage) -> None:
    tool = await tool_of(stage, "@ext.tool\ndef quiet() -> None:\n    'A tool.'\n")
    assert (await tool.execute({}, Running())).content[0].text == "Done."


async def test_an_abort_cancels_an_async_tool_and_tells_a_plain_one(stage: Stage) -> None:
    tool = await tool_of(
        stage,
        """
@ext.tool
async def wait(ctx: ToolContext) -> str:
    'A tool.'
    ctx.session.append_entry("async began")
    try:
        await asyncio.sleep(60)
    finally:
        ctx.session.append_entry("async ended")
    return ""

@ext.tool
def block(ctx: ToolContext) -> str:
    'A tool.'
    ctx.session.append_entry("plain began")
    while not ctx.cancelled:
        pass
    ctx.session.append_entry("plain ended")
    return ""
""",
    )
    for one in stage.runner.contributions.list_tools():
        run = Running()
        running = asyncio.ensure_future(run.scope.run(one.execute({}, run)))
        begun = len(stage.conversation.kept) + 1
        await stage.until(lambda count=begun: len(stage.conversation.kept) == count)
        run.scope.cancel()
        with pytest.raises(Aborted):
            await running
        await stage.until(lambda count=begun: len(stage.conversation.kept) == count + 1)
    assert tool.spec.name == "wait"


async def test_the_first_extension_that_takes_a_name_keeps_it(stage: Stage) -> None:
    text = "def setup(ext):\n    @ext.tool(description=ext.name)\n    def same() -> str:\n        return ext.name\n"
    await stage.load("one", text)
    await stage.load("two", text)
    stage.bind()
    tools = stage.runner.contributions.list_tools()
    assert [tool.spec.description for tool in tools] == ["one"]
    assert stage.errors() == [
        ("two.py", "load", 'the tool "same" is ignored: another extension has one with that name')
    ]


async def test_a_tool_registered_late_is_there_at_once(stage: Stage) -> None:
    await stage.load(
        "late",
        """
ext = Extension("late")

@ext.on(SessionStart)
async def begin(event, ctx):
    @ext.tool
    def later() -> str:
        'Later.'
        return "later"
""",
    )
    stage.bind()
    await stage.runner.hooks.on_session_started("startup")
    await stage.until(lambda: "later" in stage.tools.added)
    assert (await stage.tools.added["later"].execute({}, Running())).content[0].text == "later"
