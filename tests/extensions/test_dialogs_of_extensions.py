"""`ctx.ui`: what is asked and told, and what comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fakes.clock import LoopClock
from fakes.extension_port import Stage
from fakes.tool_run import prepare_call
from pigeon.session.hooks import PromptInput
from pigeon.wire import codec
from pigeon.wire.content import ToolCall
from pigeon.wire.errors import CallDenied, ToolFailed


async def run(stage: Stage, body: str, answer: dict[str, Any] | None = None) -> Any:
    """Run a body in a command and give what it kept as `result`."""
    lines = "\n".join("    " + line for line in body.splitlines())
    text = f"ext = Extension('e')\n\n@ext.command('go')\nasync def go(args, ctx):\n{lines}\n"
    await stage.load("e", text + "    ctx.session.append_entry('result', result)\n")
    stage.bind()
    stage.answer = lambda request: answer
    assert await stage.runner.hooks.try_run_command("/go") is True
    return stage.conversation.kept[0]["data"] if stage.conversation.kept else None


ASKED = {
    "select": "await ctx.ui.select('Pick', ['a', 'b'])",
    "confirm": "await ctx.ui.confirm('Sure?', 'really')",
    "input": "await ctx.ui.input('Name', 'your name')",
    "editor": "await ctx.ui.editor('Edit', 'text')",
}


@pytest.mark.parametrize(
    ("method", "answer", "result"),
    [
        ("select", {"value": "b"}, "b"),
        ("select", {"value": "not an option"}, "not an option"),
        ("select", {"value": 3}, None),
        ("select", {"cancelled": True}, None),
        ("select", {"cancelled": False, "value": "a"}, "a"),
        ("select", {"confirmed": True}, None),
        ("confirm", {"confirmed": True}, True),
        ("confirm", {"confirmed": False}, False),
        ("confirm", {"confirmed": "yes"}, True),
        ("confirm", {"confirmed": "nope"}, False),
        ("confirm", {"value": "true"}, False),
        ("confirm", {"cancelled": True, "confirmed": True}, False),
        ("input", {"value": ""}, ""),
        ("input", {"value": "Ann"}, "Ann"),
        ("input", {"cancelled": True}, None),
        ("editor", {"value": "x\ny"}, "x\ny"),
        ("editor", {"cancelled": True}, None),
        ("editor", {}, None),
    ],
)
async def test_an_answer_becomes_a_value(stage: Stage, method: str, answer: dict[str, Any], result: Any) -> None:
    assert await run(stage, f"result = {ASKED[method]}", answer) == result
    assert stage.errors() == []


async def test_questions_carry_their_fields(stage: Stage) -> None:
    answer = {"cancelled": True}
    await run(stage, "result = 0\n" + "\n".join(ASKED.values()) + "\nawait ctx.ui.confirm('T', timeout=1.5)", answer)
    sent = [
        {k: v for k, v in codec.to_plain(request).items() if k not in ("id", "type")}
        for request in stage.dialog_requests()
    ]
    assert sent == [
        {"method": "select", "title": "Pick", "options": ["a", "b"]},
        {"method": "confirm", "title": "Sure?", "message": "really"},
        {"method": "input", "title": "Name", "placeholder": "your name"},
        {"method": "editor", "title": "Edit", "prefill": "text"},
        {"method": "confirm", "title": "T", "message": "", "timeout": 1500},
    ]
    assert len({request.id for request in stage.dialog_requests()}) == 5


async def test_notices_are_sent_without_waiting(stage: Stage) -> None:
    await run(
        stage,
        """result = 0
ctx.ui.notify('hi')
ctx.ui.notify('oh', 'error')
ctx.ui.set_status('k', 'busy')
ctx.ui.set_status('k')
ctx.ui.set_widget('w', ['a', 'b'], 'belowEditor')
ctx.ui.set_widget('w')
ctx.ui.set_title('T')
ctx.ui.set_editor_text('text')
ctx.ui.paste_to_editor('pasted')""",
    )
    sent = [
        {k: v for k, v in codec.to_plain(request).items() if k not in ("id", "type")}
        for request in stage.dialog_requests()
    ]
    assert sent == [
        {"method": "notify", "message": "hi", "notifyType": "info"},
        {"method": "notify", "message": "oh", "notifyType": "error"},
        {"method": "setStatus", "statusKey": "k", "statusText": "busy"},
        {"method": "setStatus", "statusKey": "k"},
        {"method": "setWidget", "widgetKey": "w", "widgetLines": ["a", "b"], "widgetPlacement": "belowEditor"},
        {"method": "setWidget", "widgetKey": "w"},
        {"method": "setTitle", "title": "T"},
        {"method": "set_editor_text", "text": "text"},
        {"method": "set_editor_text", "text": "pasted"},
    ]


async def test_what_only_a_terminal_can_show_gives_the_documented_answers_and_sends_nothing(stage: Stage) -> None:
    result = await run(
        stage,
        """
ui = ctx.ui
ui.set_working_message('x')
ui.set_working_indicator(frames=['-'])
ui.set_hidden_thinking_label('x')
ui.set_footer(print)
ui.set_header(print)
ui.set_editor_component(print)
ui.set_autocomplete(print)
ui.set_tools_expanded(True)
ui.set_widget('w', print)
theme = ui.set_theme('dark')
result = [await ui.custom(print), ui.tools_expanded(), ui.editor_text(), ui.themes(), ui.theme('dark'),
          theme.success, theme.error, ctx.has_ui, ctx.mode]""",
    )
    wanted = [None, False, "", [], None, False, "Theme switching not supported in RPC mode", True, "rpc"]
    assert result == wanted
    assert stage.dialog_requests() == []


async def test_a_question_with_a_time_out_resolves_to_its_default(stage: Stage) -> None:
    body = "result = [await ctx.ui.confirm('x', timeout=0.01), await ctx.ui.select('x', ['a'], timeout=0.01)]"
    assert await run(stage, body) == [False, None]


async def test_several_questions_are_open_at_once_and_answered_in_any_order(stage: Stage) -> None:
    body = "result = await asyncio.gather(ctx.ui.input('1'), ctx.ui.input('2'), ctx.ui.confirm('3'))"
    running = asyncio.ensure_future(run(stage, body))
    await stage.until(lambda: len(stage.dialog_requests()) == 3)
    from pigeon.wire.commands import ExtensionUiResponse as Response

    first, second, third = stage.dialog_requests()
    stage.dialogs.answer(Response(id="nobody", value="x"))
    stage.dialogs.answer(Response(id=third.id, confirmed=True))
    stage.dialogs.answer(Response(id=second.id, value="two"))
    stage.dialogs.answer(Response(id=second.id, value="again"))
    stage.dialogs.answer(Response(id=first.id, value="one"))
    assert await running == ["one", "two", True]


async def test_the_time_a_person_takes_does_not_count(stage: Stage) -> None:
    await stage.load(
        "ask",
        """
ext = Extension("ask")

@ext.on(ToolCall, timeout=20)
async def gate(event, ctx):
    if not await ctx.ui.confirm("Run?", event.args["command"]):
        return Block("no")
""",
    )
    stage.bind()
    clock = LoopClock()
    call = ToolCall(id="c", name="bash", arguments={"command": "ls"})
    running = asyncio.ensure_future(stage.runner.gate.before_call(await prepare_call(call.name, call.arguments)))
    await stage.until(lambda: bool(stage.dialog_requests()))
    await clock.advance(40)
    assert not running.done()
    from pigeon.wire.commands import ExtensionUiResponse as Response

    stage.dialogs.answer(Response(id=stage.dialog_requests()[0].id, confirmed=True))
    await running
    assert stage.errors() == []


async def test_after_the_answer_the_time_of_a_handler_goes_on(stage: Stage) -> None:
    await stage.load(
        "ask",
        """
ext = Extension("ask")

@ext.on(ToolCall, timeout=20)
async def gate(event, ctx):
    await ctx.ui.confirm("Run?", "x")
    await asyncio.Event().wait()
""",
    )
    stage.bind()
    clock = LoopClock()
    call = ToolCall(id="c", name="bash", arguments={"command": "ls"})
    running = asyncio.ensure_future(stage.runner.gate.before_call(await prepare_call(call.name, call.arguments)))
    await stage.until(lambda: bool(stage.dialog_requests()))
    await clock.advance(40)
    from pigeon.wire.commands import ExtensionUiResponse as Response

    stage.dialogs.answer(Response(id=stage.dialog_requests()[0].id, confirmed=True))
    # The handler is given as much of its time as it had left.
    for _ in range(50):
        await clock.advance(1)
    with pytest.raises(CallDenied):
        await asyncio.wait_for(running, 10)
    assert stage.errors() != []


async def test_an_abort_ends_the_waiting_for_a_dialog(stage: Stage) -> None:
    await stage.load(
        "ask",
        """
ext = Extension("ask")

@ext.on(ToolCall)
async def gate(event, ctx):
    await ctx.ui.editor("Change it", event.args["command"])
""",
    )
    stage.bind()
    call = ToolCall(id="c", name="bash", arguments={"command": "ls"})
    running = asyncio.ensure_future(stage.runner.gate.before_call(await prepare_call(call.name, call.arguments)))
    await stage.until(lambda: bool(stage.dialog_requests()))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await stage.until(lambda: len(stage.dialog_requests()) == 2)
    editor, cancel = stage.dialog_requests()
    assert (type(cancel).__name__, cancel.target_id) == ("CancelRequest", editor.id)


async def test_a_closed_session_gives_every_question_up(stage: Stage) -> None:
    running = asyncio.ensure_future(run(stage, "result = [await ctx.ui.confirm('x'), await ctx.ui.input('y')]"))
    await stage.until(lambda: bool(stage.dialog_requests()))
    stage.dialogs.close()
    assert await running == [False, None]
    assert len(stage.dialog_requests()) == 1


@pytest.mark.parametrize(
    "call",
    [
        "ctx.ui.notify(42)",
        "ctx.ui.notify(object())",
        "ctx.ui.notify('x', 'loud')",
        "ctx.ui.set_widget('w', [1, 2])",
        "await ctx.ui.select('t', [1])",
        "await ctx.ui.confirm(None)",
    ],
)
async def test_what_cannot_be_shown_is_an_error_of_the_extension_and_never_sent(stage: Stage, call: str) -> None:
    await run(stage, f"result = 1\n{call}")
    assert stage.dialog_requests() == []
    assert len(stage.errors()) == 1


async def test_a_handler_that_waits_for_a_person_does_not_keep_later_events_back(stage: Stage) -> None:
    await stage.load(
        "ask",
        """
ext = Extension("ask")

@ext.on(SessionStart)
async def begin(event, ctx):
    await ctx.ui.confirm("Hello?")

@ext.on(AgentStart)
async def heard(event, ctx):
    ctx.session.append_entry("heard")
""",
    )
    stage.bind()
    from pigeon.wire.events import AgentStart

    await stage.runner.hooks.on_session_started("startup")
    stage.runner.forward(AgentStart())
    await stage.until(lambda: bool(stage.conversation.kept))
    assert len(stage.dialog_requests()) == 1


async def test_plain_functions_can_ask_too(stage: Stage) -> None:
    await stage.load(
        "plain",
        """
ext = Extension("plain")

@ext.on(Input)
def ask(event, ctx):
    return Transform(ctx.wait(ctx.ui.input("Say it")))
""",
    )
    stage.bind()
    stage.answer = lambda request: {"value": "said"}
    said = await stage.runner.hooks.transform_input(PromptInput("x", []))
    assert said is not None
    assert said.text == "said"


async def test_a_blocked_call_says_why_when_the_host_may_not_be_asked(stage: Stage) -> None:
    await stage.load(
        "quiet",
        """
ext = Extension("quiet", needs=["entries"])

@ext.on(ToolCall)
async def gate(event, ctx):
    await ctx.ui.confirm("Run?")
""",
    )
    stage.bind()
    call = ToolCall(id="c", name="bash", arguments={"command": "ls"})
    with pytest.raises(ToolFailed, match='did not declare that it needs "ui"'):
        await stage.runner.gate.before_call(await prepare_call(call.name, call.arguments))
