"""Events that are asked: what a handler returns changes what happens, and nothing else does."""

from __future__ import annotations

import pytest

from fakes.extension_port import Stage
from fakes.tool_run import prepare_call
from pigeon.session.hooks import CompactionPreparation, ExtensionSummary, PromptInput
from pigeon.wire.content import TextContent, ToolCall
from pigeon.wire.errors import Refusal, ToolFailed
from pigeon.wire.events import ToolOutcome
from pigeon.wire.messages import UserMessage

CALL = ToolCall(id="c1", name="bash", arguments={"command": "rm -rf /"})


def outcome(text: str) -> ToolOutcome:
    return ToolOutcome(content=[TextContent(text=text)])


async def test_a_tool_call_can_be_blocked_with_a_reason(stage: Stage) -> None:
    await stage.load(
        "guard",
        """
ext = Extension("guard")

@ext.on(ToolCall, tools=["bash"])
async def gate(event, ctx):
    if "rm -rf" in event.args["command"]:
        return Block("not that", terminate=True)
""",
    )
    stage.bind()
    with pytest.raises(ToolFailed, match="not that") as blocked:
        await stage.runner.gate.before_call(await prepare_call(CALL.name, CALL.arguments))
    assert blocked.value.terminate is True  # type: ignore[attr-defined]
    other = ToolCall(id="c2", name="read", arguments={"path": "x"})
    await stage.runner.gate.before_call(await prepare_call(other.name, other.arguments))
    assert stage.errors() == []


async def test_a_guard_that_an_extension_makes_when_the_session_starts_checks_the_first_call(stage: Stage) -> None:
    await stage.load(
        "guard",
        """
ext = Extension("guard")

@ext.on(SessionStart)
async def begin(event, ctx):
    has_rules = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, has_rules.set)
    await has_rules.wait()

    @ext.on(ToolCall)
    async def gate(event, ctx):
        return Block("not that")
""",
    )
    stage.bind()
    await stage.runner.hooks.on_session_started("startup")
    with pytest.raises(ToolFailed, match="not that"):
        await stage.runner.gate.before_call(await prepare_call(CALL.name, CALL.arguments))


async def test_changed_arguments_are_checked_again(stage: Stage) -> None:
    text = {"type": "string"}
    await stage.load(
        "change",
        """
ext = Extension("change")

@ext.on("tool_call")
def change(event):
    event.args["command"] = 42 if event.args["command"] == "number" else ["no"]
""",
    )
    stage.bind()
    call = await prepare_call("bash", {"command": "number"}, command=text)
    await stage.runner.gate.before_call(call)
    assert call.arguments == {"command": "42"}
    with pytest.raises(ToolFailed, match="expected string, got"):
        await stage.runner.gate.before_call(await prepare_call("bash", {"command": "list"}, command=text))


async def test_a_handler_of_tool_call_that_raises_blocks_the_call(stage: Stage) -> None:
    await stage.load(
        "broken",
        """
ext = Extension("broken")

@ext.on(ToolCall)
async def gate(event, ctx):
    raise RuntimeError("out of order")
""",
    )
    stage.bind()
    with pytest.raises(ToolFailed, match="out of order"):
        await stage.runner.gate.before_call(await prepare_call(CALL.name, CALL.arguments))
    assert stage.errors() == [("broken.py", "tool_call", "out of order")]


async def test_results_are_overridden_in_turn(stage: Stage) -> None:
    await stage.load(
        "a",
        """
ext = Extension("a")

@ext.on(ToolResult)
async def first(event, ctx):
    return Override(content=event.content[0].text + " and more")
""",
    )
    await stage.load(
        "b",
        """
ext = Extension("b")

@ext.on(ToolResult)
async def second(event, ctx):
    return Override(details={"seen": event.content[0].text}, is_error=True)
""",
    )
    stage.bind()
    changed, failed = await stage.runner.gate.after_call(CALL, outcome("text"), False)
    assert (changed.content[0].text, changed.details, failed) == ("text and more", {"seen": "text and more"}, True)


async def test_a_result_that_is_no_result_is_reported_and_ignored(stage: Stage) -> None:
    await stage.load(
        "odd",
        """
ext = Extension("odd")

@ext.on(ToolResult)
async def odd(event, ctx):
    return Override(details=object())

@ext.on(ToolResult)
async def odder(event, ctx):
    return {"content": "a dict"}
""",
    )
    stage.bind()
    assert await stage.runner.gate.after_call(CALL, outcome("text"), False) == (outcome("text"), False)
    (_, event, first), (_, _, second) = stage.errors()
    assert event == "tool_result"
    assert "JSON" in first
    assert "returned dict; it may return Override" in second


async def test_input_is_transformed_by_each_and_swallowed_by_the_first_that_wants_it(stage: Stage) -> None:
    await stage.load(
        "words",
        """
ext = Extension("words")

@ext.on(Input)
async def shout(event, ctx):
    return Transform(event.text.upper())

@ext.on(Input)
async def swallow(event, ctx):
    if event.text.startswith("!"):
        return Handled()

@ext.on(Input)
def mark(event):
    return Transform(event.text + "?")
""",
    )
    stage.bind()
    said = await stage.runner.hooks.transform_input(PromptInput("hello", []))
    assert said is not None
    assert said.text == "HELLO?"
    assert await stage.runner.hooks.transform_input(PromptInput("!hidden", [])) is None


async def test_a_run_may_begin_with_notes_and_another_system_prompt(stage: Stage) -> None:
    await stage.load(
        "begin",
        """
ext = Extension("begin")

@ext.on(BeforeAgentStart)
async def one(event, ctx):
    return Begin(note=Note("remember the milk", custom_type="milk", display=False))

@ext.on(BeforeAgentStart)
async def two(event, ctx):
    return Begin(system_prompt=event.system_prompt + " Be kind.")
""",
    )
    stage.bind()
    opening = await stage.runner.hooks.collect_prompt_additions(
        UserMessage(content="hi", timestamp=1), lambda: "You are a pigeon."
    )
    assert [(m.custom_type, m.content, m.display) for m in opening.messages] == [("milk", "remember the milk", False)]
    assert opening.system_prompt == "You are a pigeon. Be kind."


async def test_the_context_of_a_request_changes_without_touching_the_record(stage: Stage) -> None:
    await stage.load(
        "forget",
        """
ext = Extension("forget")

@ext.on(ModelContext)
async def forget(event, ctx):
    event.messages[0].content = "changed"
    return Messages(event.messages[:1])
""",
    )
    stage.bind()
    recorded = [UserMessage(content="first", timestamp=1), UserMessage(content="second", timestamp=2)]
    seen = await stage.runner.hooks.transform_context(recorded)
    assert [message.content for message in seen] == ["changed"]
    assert [message.content for message in recorded] == ["first", "second"]


async def test_a_context_that_is_no_list_of_messages_is_left_out(stage: Stage) -> None:
    await stage.load(
        "odd",
        """
ext = Extension("odd")

@ext.on("context")
async def odd(event, ctx):
    event.messages.append({"role": "nobody"})
""",
    )
    stage.bind()
    recorded = [UserMessage(content="first", timestamp=1)]
    assert await stage.runner.hooks.transform_context(recorded) == recorded
    assert stage.errors()[0][1] == "context"


async def test_a_message_can_be_replaced_by_one_of_its_role_only(stage: Stage) -> None:
    await stage.load(
        "edit",
        """
from pigeon.wire.messages import CustomMessage
ext = Extension("edit")

@ext.on(MessageEnd)
async def edit(event, ctx):
    if event.message.content == "custom":
        return Replace(CustomMessage(custom_type="x", content="x", display=True, timestamp=1))
    event.message.content = "edited"
    return Replace(event.message)
""",
    )
    stage.bind()
    hooks = stage.runner.hooks
    assert (await hooks.transform_message(UserMessage(content="x", timestamp=1))).content == "edited"
    kept = UserMessage(content="custom", timestamp=1)
    assert await hooks.transform_message(kept) is kept
    assert "same role" in stage.errors()[0][2]


async def test_a_shell_command_of_the_host_is_answered_or_blocked(stage: Stage) -> None:
    await stage.load(
        "shell",
        """
ext = Extension("shell")

@ext.on(UserBash)
async def shell(event, ctx):
    if event.command == "whoami":
        return BashOutput("a pigeon\\n", 0)
    if event.command == "raise":
        raise ValueError("no")
    if event.command == "sudo":
        return Block("not as root")
""",
    )
    stage.bind()
    hooks = stage.runner.hooks
    result = await hooks.intercept_user_bash("whoami", False, "/")
    assert result is not None
    assert (result.output, result.exit_code, result.total_bytes) == ("a pigeon\n", 0, 9)
    assert await hooks.intercept_user_bash("ls", False, "/") is None
    with pytest.raises(Refusal, match="not as root"):
        await hooks.intercept_user_bash("sudo", False, "/")
    with pytest.raises(Refusal, match="no"):
        await hooks.intercept_user_bash("raise", False, "/")


async def test_changes_of_session_are_vetoed_by_the_first_who_says_no(stage: Stage) -> None:
    await stage.load(
        "veto",
        """
ext = Extension("veto")

@ext.on(SessionBeforeSwitch)
async def stay(event, ctx):
    return Cancel() if event.reason == "new" else None

@ext.on("session_before_branch")
def no_branch(event):
    return Cancel() if event.entry_id == "e1" else None
""",
    )
    stage.bind()
    hooks = stage.runner.hooks
    assert [await hooks.should_refuse_switch("new", None), await hooks.should_refuse_switch("resume", "/x")] == [
        True,
        False,
    ]
    assert [await hooks.should_refuse_fork("e1", "before"), await hooks.should_refuse_fork("e2", "at")] == [True, False]


async def test_a_veto_handler_that_fails_vetoes_nothing(stage: Stage) -> None:
    await stage.load(
        "broken",
        """
ext = Extension("broken")

@ext.on(SessionBeforeSwitch)
async def stay(event, ctx):
    raise KeyError("x")
""",
    )
    stage.bind()
    assert await stage.runner.hooks.should_refuse_switch("new", None) is False
    assert stage.errors() == [("broken.py", "session_before_switch", "KeyError: 'x'")]


async def test_a_compaction_is_cancelled_or_summarized_by_an_extension(stage: Stage) -> None:
    await stage.load(
        "compact",
        """
ext = Extension("compact")

@ext.on(SessionBeforeCompact)
async def compact(event, ctx):
    return Cancel() if event.instructions == "stop" else Summary(f"{len(event.messages)} messages", details={"a": 1})
""",
    )
    stage.bind()
    said = [UserMessage(content="x", timestamp=1)]
    prepared = CompactionPreparation("manual", "e1", 100, said, [])
    assert await stage.runner.hooks.decide_compaction(prepared) == ExtensionSummary("1 messages", None, None, {"a": 1})
    stopped = CompactionPreparation("manual", "e1", 100, said, [], "stop")
    assert await stage.runner.hooks.decide_compaction(stopped) is False


async def test_a_run_is_continued_only_so_often(stage: Stage) -> None:
    await stage.load(
        "more",
        """
ext = Extension("more")

@ext.on(AgentBeforeSettle)
async def more(event, ctx):
    return GoOn("and then?")
""",
    )
    stage.bind()
    hooks = stage.runner.hooks
    counts = [len(await hooks.collect_continuations("stop")) for _ in range(30)]
    assert sum(counts) == 25
    assert counts[25:] == [0] * 5
    assert "25 times" in stage.errors()[0][2]
    await hooks.transform_input(PromptInput("new prompt", []))
    assert len(await hooks.collect_continuations("stop")) == 1


async def test_requests_to_providers_can_be_changed(stage: Stage) -> None:
    await stage.load(
        "wire",
        """
ext = Extension("wire")

@ext.on(BeforeProviderRequest)
async def body(event, ctx):
    return Replace({**event.payload, "seed": 7})

@ext.on(BeforeProviderHeaders)
async def headers(event, ctx):
    event.headers["x-team"] = "birds"
    event.headers["user-agent"] = None
""",
    )
    stage.bind()
    hooks = stage.runner.hooks
    assert await hooks.transform_provider_request(b'{"model":"m"}') == b'{"model":"m","seed":7}'
    assert await hooks.transform_provider_headers({"user-agent": "x", "a": "b"}) == {"a": "b", "x-team": "birds"}


async def test_extensions_are_asked_in_order_of_rank_then_of_loading(stage: Stage) -> None:
    text = """
def setup(ext):
    @ext.on(Input)
    async def add(event, ctx):
        return Transform(event.text + ext.name)
"""
    await stage.load("u", text, "user")
    await stage.load("p", text, "project")
    await stage.load("t", text, "temporary")
    stage.bind()
    said = await stage.runner.hooks.transform_input(PromptInput("", []))
    assert said is not None
    assert said.text == "tpu"


async def test_a_function_that_is_taken_off_hears_nothing_more(stage: Stage) -> None:
    await stage.load(
        "once",
        """
ext = Extension("once")

@ext.on(Input)
async def once(event, ctx):
    ext.off(once)
    return Transform(event.text + "!")

@ext.on(Input)
async def always(event, ctx):
    return Transform(event.text + "?")
""",
    )
    stage.bind()
    said = [await stage.runner.hooks.transform_input(PromptInput("go on", [])) for _ in range(2)]
    assert [one and one.text for one in said] == ["go on!?", "go on?"]
