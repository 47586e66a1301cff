"""Events that extensions hear of, commands, topics, and what they can do to a session."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from fakes.extension_port import Stage, a_model
from pigeon.extensions.runtime import dispatcher
from pigeon.session.hooks import PromptInput
from pigeon.wire import events as w
from pigeon.wire.answers import Compacted
from pigeon.wire.content import TextContent
from pigeon.wire.messages import AssistantMessage, UserMessage
from pigeon.wire.model import zero_usage

USER = UserMessage(content="hi", timestamp=1)
ANSWER = AssistantMessage(
    content=[TextContent(text="coo")], api="x", provider="p", model="m", usage=zero_usage(), stop_reason="stop",
    timestamp=1,
)  # fmt: skip
OUTCOME = w.ToolOutcome(content=[TextContent(text="ok")])
HEAR_ALL = """
from pigeon.extensions.public.events import ALL
ext = Extension("all")
heard = []

async def listen(event, ctx):
    heard.append([event.name, repr(event)])
    ctx.session.append_entry("heard", event.name)

for kind in ALL:
    if kind.told or kind.name in ("message_end",):
        ext.on(kind)(listen)
"""


async def test_everything_that_happens_is_heard_in_order(stage: Stage) -> None:
    await stage.load("all", HEAR_ALL)
    stage.bind()
    await stage.runner.hooks.on_session_started("startup")
    done = Compacted(summary="s", first_kept_entry_id="e", tokens_before=9)
    happened: list[Any] = [
        w.AgentStart(), w.TurnStart(), w.MessageStart(message=USER), w.MessageEnd(message=USER),
        w.MessageUpdate(usage=zero_usage(), assistant_message_event=w.TextDelta(content_index=0, delta="c")),
        w.ToolCallStarted(tool_call_id="1", tool_name="read", args={}, kind="read", title="Read a"),
        w.ToolExecutionUpdate(tool_call_id="1", tool_name="read", args={}, partial_result=OUTCOME),
        w.ToolExecutionEnd(tool_call_id="1", tool_name="read", result=OUTCOME, is_error=False),
        w.TurnEnd(message=ANSWER, tool_results=[]), w.AgentEnd(messages=[USER, ANSWER]), w.AgentSettled(),
        w.SessionInfoChanged(name="n"), w.ThinkingLevelChanged(level="high", thinking_level="high"),
        w.CompactionStart(reason="manual"),
        w.CompactionEnd(reason="manual", result=done, aborted=False, will_retry=False),
        w.CompactionEnd(reason="threshold", aborted=True, will_retry=False), w.QueueUpdate(steering=[], follow_up=[]),
    ]  # fmt: skip
    for event in happened:
        stage.runner.forward(event)
    stage.runner.hooks.on_model_selected(a_model(), None, "set")
    stage.runner.hooks.on_provider_response(200, {"a": "b"})
    await stage.until(lambda: len(stage.conversation.kept) == 18)
    assert [entry["data"] for entry in stage.conversation.kept] == [
        "session_start", "agent_start", "turn_start", "message_start", "message_end", "message_update",
        "tool_execution_start", "tool_execution_update", "tool_execution_end", "turn_end", "agent_end",
        "agent_settled", "session_info_changed", "thinking_level_select", "session_compact", "session_compact_failed",
        "model_select", "after_provider_response",
    ]  # fmt: skip


async def test_a_message_that_handlers_were_asked_about_is_not_told_again(stage: Stage) -> None:
    await stage.load("all", HEAR_ALL)
    stage.bind()
    message = await stage.runner.hooks.transform_message(USER)
    stage.runner.forward(w.MessageEnd(message=message))
    stage.runner.forward(w.AgentSettled())
    await stage.until(lambda: len(stage.conversation.kept) == 2)
    assert [entry["data"] for entry in stage.conversation.kept] == ["message_end", "agent_settled"]


async def test_an_extension_has_heard_of_what_happened_before_it_is_asked(stage: Stage) -> None:
    await stage.load(
        "order",
        """
ext = Extension("order")
turns = []

@ext.on(TurnStart)
async def turn(event, ctx):
    for _ in range(20):
        await asyncio.sleep(0)
    turns.append(event.index)

@ext.on(Input)
async def asked(event, ctx):
    return Transform(repr(turns))
""",
    )
    stage.bind()
    for _ in range(3):
        stage.runner.forward(w.TurnStart())
    said = await stage.runner.hooks.transform_input(PromptInput("", []))
    assert said is not None
    assert said.text == "[0, 1, 2]"


SLOW_TURNS = """
ext = Extension("order")
begun = []
never = asyncio.Event()

@ext.on(TurnStart)
async def first(event, ctx):
    begun.append(f"{event.index}")
    if event.index == 0:
        await never.wait()

@ext.on(TurnStart)
async def second(event, ctx):
    begun.append(f"{event.index} again")

@ext.on(Input)
async def asked(event, ctx):
    begun.append("asked")
    return Transform(", ".join(begun))

@ext.command("called")
async def called(args, ctx):
    begun.append("called")
    ctx.session.append_entry("begun", list(begun))

@ext.on(SessionShutdown)
async def end(event, ctx):
    begun.append("end")
    ctx.session.append_entry("begun", list(begun))
"""
IN_ORDER = ["0", "0 again", "1", "1 again", "2", "2 again"]


async def test_handlers_begin_in_order_however_slow_the_machine_is(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "CATCH_UP_SECONDS", 0)
    await stage.load("order", SLOW_TURNS)
    stage.bind()
    for _ in range(3):
        stage.runner.forward(w.TurnStart())
    said = await stage.runner.hooks.transform_input(PromptInput("", []))
    assert said is not None
    assert said.text.split(", ") == [*IN_ORDER, "asked"]
    await stage.runner.hooks.on_session_ending("quit")
    assert stage.conversation.kept[0]["data"] == [*IN_ORDER, "asked", "end"]


async def test_a_command_begins_after_what_happened_before_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "CATCH_UP_SECONDS", 0)
    await stage.load("order", SLOW_TURNS)
    stage.bind()
    for _ in range(3):
        stage.runner.forward(w.TurnStart())
    await stage.runner.hooks.try_run_command("/called")
    assert stage.conversation.kept[0]["data"] == [*IN_ORDER, "called"]


async def test_a_delta_that_comes_after_a_question_is_not_put_together_with_one_before(
    stage: Stage, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "free")
    await stage.load(
        "deltas",
        """
ext = Extension("deltas")
seen = []

@ext.on(MessageUpdate)
async def update(event, ctx):
    seen.append(event.delta)
    if event.delta == "a":
        await asyncio.to_thread(lambda: os.close(os.open(os.path.dirname(__file__) + "/free", os.O_RDONLY)))

@ext.on(Input)
async def asked(event, ctx):
    seen.append("asked")

@ext.on(AgentEnd)
async def done(event, ctx):
    ctx.session.append_entry("seen", seen)
""",
    )
    stage.bind()

    def delta(text: str) -> w.MessageUpdate:
        return w.MessageUpdate(usage=None, assistant_message_event=w.TextDelta(content_index=0, delta=text))  # type: ignore[arg-type]

    stage.runner.forward(delta("a"))
    await asyncio.sleep(0)
    stage.runner.forward(delta("b"))
    asking = asyncio.ensure_future(stage.runner.hooks.transform_input(PromptInput("", [])))
    await asyncio.sleep(0)
    stage.runner.forward(delta("c"))
    stage.runner.forward(delta("d"))
    stage.runner.forward(w.AgentEnd(messages=[]))
    await asyncio.to_thread((tmp_path / "free").write_text, "")
    await asking
    await stage.until(lambda: bool(stage.conversation.kept))
    assert stage.conversation.kept[0]["data"] == ["a", "b", "asked", "cd"]


async def test_what_an_observer_changes_stays_its_own(stage: Stage) -> None:
    await stage.load(
        "vandal",
        """
ext = Extension("vandal")

@ext.on(MessageStart)
async def spoil(event, ctx):
    event.message.content = "spoiled"
    ctx.session.append_entry("done")
""",
    )
    stage.bind()
    message = UserMessage(content="kept", timestamp=1)
    stage.runner.forward(w.MessageStart(message=message))
    await stage.until(lambda: bool(stage.conversation.kept))
    assert message.content == "kept"


async def test_models_that_an_extension_sees_are_copies(stage: Stage) -> None:
    await stage.load(
        "vandal",
        """
ext = Extension("vandal")

@ext.on(ModelSelect)
async def spoil(event, ctx):
    for model in (event.model, ctx.models.current, *ctx.models.available()):
        model.id = "spoiled"
    ctx.session.append_entry("current", ctx.models.current.id)
""",
    )
    stage.bind()
    model = a_model()
    stage.runner.hooks.on_model_selected(model, None, "set")
    await stage.until(lambda: bool(stage.conversation.kept))
    assert (model.id, stage.conversation.kept[0]["data"]) == ("m-1", "m-1")


async def test_commands_are_listed_with_where_they_come_from_and_run_with_their_arguments(stage: Stage) -> None:
    await stage.load(
        "c",
        """
ext = Extension("c")

@ext.command("greet", help="say hello")
async def greet(args, ctx):
    ctx.session.append_entry("args", args)

@ext.command("bare")
def bare():
    '''Do nothing.

    At length.'''
""",
    )
    stage.bind()
    hooks = stage.runner.hooks
    greet, bare = hooks.list_commands()
    assert (greet.name, greet.description, greet.source) == ("greet", "say hello", "extension")
    assert str(greet.path).endswith("/c.py")
    assert greet.source_info.path == greet.path  # type: ignore[union-attr]
    assert (greet.source_info.source, greet.source_info.scope) == ("auto", "user")  # type: ignore[union-attr]
    assert bare.description == "Do nothing."
    for text in ("/greet", "/greet  two words ", "/bare x"):
        assert hooks.has_command(text)
        assert await hooks.try_run_command(text) is True
    assert [entry["data"] for entry in stage.conversation.kept] == ["", " two words "]
    for text in ("greet", "/greeting", "/", "/greet\nx", "hello /greet"):
        assert not hooks.has_command(text)
        assert await hooks.try_run_command(text) is False


async def test_commands_of_one_name_get_numbers(stage: Stage) -> None:
    text = "def setup(ext):\n    @ext.command('same')\n    async def same(args, ctx):\n"
    text += "        ctx.session.append_entry('ran', ext.name)\n"
    await stage.load("one", text)
    await stage.load("two", text)
    stage.bind()
    assert [command.name for command in stage.runner.hooks.list_commands()] == ["same:1", "same:2"]
    await stage.runner.hooks.try_run_command("/same:2")
    assert stage.conversation.kept[0]["data"] == "two"


async def test_a_command_that_raises_is_told_of_under_its_name(stage: Stage) -> None:
    await stage.load("c", "ext = Extension('c')\n\n@ext.command('bad')\nasync def bad(args, ctx):\n    1 / 0\n")
    stage.bind()
    assert await stage.runner.hooks.try_run_command("/bad") is True
    assert stage.errors() == [("command:bad", "command", "division by zero")]


async def test_extensions_tell_each_other_things(stage: Stage) -> None:
    await stage.load(
        "ear",
        """
ext = Extension("ear")

@ext.topic("news")
async def hear(data):
    ext.context.session.append_entry("heard", data)

@ext.topic("news")
def fails(data):
    raise ValueError("deaf")
""",
    )
    await stage.load(
        "mouth",
        """
ext = Extension("mouth")

@ext.command("tell")
async def tell(args, ctx):
    ext.emit("news", {"text": args})
    ext.emit("nobody listens")
""",
    )
    stage.bind()
    await stage.runner.hooks.try_run_command("/tell it")
    await stage.until(lambda: bool(stage.conversation.kept) and bool(stage.errors()))
    assert stage.conversation.kept[0]["data"] == {"text": "it"}
    assert stage.errors() == [("ear.py", "topic:news", "deaf")]


async def test_a_session_can_be_read_and_acted_on(stage: Stage) -> None:
    await stage.load(
        "act",
        """
ext = Extension("act")

@ext.command("act")
async def act(args, ctx):
    ctx.session.send("a note", trigger_turn=True)
    ctx.session.send(Note("later", custom_type="x", details={"a": 1}), deliver_as="nextTurn")
    ctx.session.prompt("do it", deliver_as="followUp")
    first = ctx.session.append_entry("kept", {"n": 1})
    ctx.session.rename("a name")
    ctx.session.label(first, "here")
    ctx.tools.activate(["read"])
    assert ctx.models.use("fake", "m-2") is True
    assert ctx.models.use("fake", "none") is False
    ctx.models.think("high")
    ran = await ctx.exec("git", ["status", 1], timeout=5)
    await ctx.compact("short")
    await ctx.wait_for_idle()
    await ctx.new_session(); await ctx.switch_session("/s"); await ctx.fork("e1")
    ctx.abort(); ctx.shutdown()
    state = ctx.state("count")
    state.set((state.get(0)) + 1)
    state.set(1)
    ctx.session.append_entry("facts", [
        ctx.session.id, ctx.session.file, ctx.session.name, ctx.cwd, ctx.is_idle(), ctx.has_pending_messages(),
        ctx.system_prompt(), ctx.context_usage().tokens, ctx.tools.active(), list(ctx.tools.all()),
        ctx.models.current.id, ctx.models.thinking, [m.id for m in ctx.models.available()], ran.stdout,
        len(ctx.session.entries()), len(ctx.session.branch()), len(ctx.session.messages()), state.get(),
        ctx.session.leaf_id is not None, ctx.project_trusted, len(ctx.commands()),
    ])
""",
    )
    stage.bind()
    stage.runner.use_folder("/", trusted=True, harmless=False)
    assert await stage.runner.hooks.try_run_command("/act") is True
    assert stage.errors() == []
    (note, now, how), (later, _, when) = stage.conversation.sent
    assert (note.content, note.custom_type, now, how) == ("a note", "note", True, "steer")
    assert (later.custom_type, later.details, when) == ("x", {"a": 1}, "nextTurn")
    assert stage.conversation.prompted == [("do it", "followUp")]
    assert stage.conversation.labels == {"e0": "here"}
    assert stage.control.ran == [["git", "status", "1"]]
    did = ["compact short", "waited", "new", "switch /s", "fork e1", "abort", "shutdown"]
    assert stage.control.did == did
    assert stage.conversation.kept[-1]["data"] == [
        "s-1", "/tmp/s.jsonl", "a name", "/work", True, False, "You are a pigeon.", 10, ["read"], ["read"],
        "m-2", "high", ["m-1", "m-2"], "out", 2, 2, 0, 1, True, True, 0,
    ]  # fmt: skip


async def test_what_was_not_declared_is_refused(stage: Stage) -> None:
    await stage.load(
        "small",
        """
ext = Extension("small", needs=["entries"])

@ext.command("try")
async def attempt(args, ctx):
    ctx.session.append_entry("allowed")
    for deed in (lambda: ctx.session.prompt("x"), lambda: ctx.ui.notify("x"), lambda: ctx.tools.activate([]),
                 lambda: ctx.models.think("low"), lambda: ctx.session.rename("x"), ctx.abort):
        try:
            deed()
        except PermissionError as error:
            ctx.session.append_entry("refused", str(error))
    try:
        await ctx.exec("ls")
    except PermissionError as error:
        ctx.session.append_entry("refused", str(error))
""",
    )
    stage.bind()
    await stage.runner.hooks.try_run_command("/try")
    kinds = [entry["customType"] for entry in stage.conversation.kept]
    assert kinds == ["allowed"] + ["refused"] * 7
    assert stage.dialog_requests() == []


async def test_the_end_is_told_and_waited_for_a_moment(stage: Stage) -> None:
    await stage.load(
        "end",
        """
ext = Extension("end")

@ext.on(SessionShutdown)
async def end(event, ctx):
    ctx.session.append_entry("end", [event.reason, event.target_file])
    if event.reason == "quit":
        await asyncio.sleep(60)
""",
    )
    stage.bind()
    await stage.runner.hooks.on_session_ending("resume", "/next.jsonl")
    await stage.runner.close()
    assert [entry["data"] for entry in stage.conversation.kept] == [["resume", "/next.jsonl"], ["quit", None]]


async def test_background_work_runs_beside_and_ends_with_the_session(stage: Stage) -> None:
    await stage.load(
        "back",
        """
ext = Extension("back")

async def forever():
    ext.context.session.append_entry("began")
    await asyncio.sleep(60)

async def fails():
    raise ValueError("in the background")

@ext.on(SessionStart)
async def begin(event, ctx):
    ext.spawn(forever())
    ext.spawn(fails())
""",
    )
    stage.bind()
    await stage.runner.hooks.on_session_started("startup")
    await stage.until(lambda: bool(stage.conversation.kept) and bool(stage.errors()))
    assert stage.errors() == [("back.py", "background", "in the background")]


async def test_what_fails_with_every_delta_is_not_told_with_every_delta(stage: Stage) -> None:
    await stage.load(
        "bad",
        """
ext = Extension("bad")

@ext.on(TurnStart)
async def bad(event, ctx):
    raise ValueError("again")

@ext.on(AgentEnd)
async def done(event, ctx):
    ctx.session.append_entry("done")
""",
    )
    stage.bind()
    for _ in range(150):
        stage.runner.forward(w.TurnStart())
    stage.runner.forward(w.AgentEnd(messages=[]))
    await stage.until(lambda: bool(stage.conversation.kept))
    assert [error for _, _, error in stage.errors()] == ["again"] * 10 + ["again (occurrence 100)"]
