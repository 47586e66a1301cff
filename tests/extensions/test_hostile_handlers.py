"""Extensions that raise, print, loop, block and exit: the others go on, and it is reported."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from fakes.clock import LoopClock
from fakes.extension_port import Stage
from fakes.tool_run import prepare_call
from pigeon.extensions.runtime import extension_thread
from pigeon.session.hooks import PromptInput
from pigeon.wire import events as w
from pigeon.wire.content import ToolCall
from pigeon.wire.errors import ToolFailed

PULSES = 2 * int(extension_thread.ANSWERS_PULSE_WITHIN / extension_thread.PULSE_SECONDS)
CALL = ToolCall(id="c1", name="bash", arguments={"command": "ls"})
GOOD = """
ext = Extension("good")

@ext.on(Input)
async def mark(event, ctx):
    return Transform(event.text + "!")
"""


async def said_after(stage: Stage) -> str:
    said = await stage.runner.hooks.transform_input(PromptInput("go on", []))
    assert said is not None
    return said.text


async def said_again(stage: Stage, expected: str) -> None:
    """Wait until the extension takes part again; before, it is passed over."""
    async with asyncio.timeout(10):
        answer = await said_after(stage)
        while answer != expected:
            await asyncio.sleep(0)
            answer = await said_after(stage)


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        ("raise ValueError('boom')", "boom"),
        ("raise ValueError", "ValueError"),
        ("raise Exception('x' * 100_000)", "x" * 4000),
        ("sys.exit(3)", "it tried to end the process (exit code 3)"),
        ("os._exit(4)", "it tried to end the process (exit code 4)"),
        ("os.abort()", "it tried to end the process (exit code os.abort)"),
        ("raise KeyboardInterrupt", "it raised KeyboardInterrupt"),
        ("raise BaseException('base')", "base"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("raise StopIteration", "StopIteration"),
        ("raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})", "Odd"),
        ("f = lambda: f()\n    f()", "maximum recursion depth exceeded"),
        ("asyncio.current_task().cancel()\n    await asyncio.sleep(60)", "its work was cancelled"),
        ("raise asyncio.CancelledError", "its work was cancelled"),
        ("return 42", "a handler returned int"),
    ],
    ids=lambda value: value[:30].replace("\n", " "),
)
@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_a_handler_that_fails_is_told_of_and_the_next_one_runs(
    stage: Stage, kind: str, deed: str, told: str
) -> None:
    if kind == "def" and "asyncio" in deed:
        pytest.skip("needs an event loop")
    await stage.load("bad", f"ext = Extension('bad')\n\n@ext.on(Input)\n{kind} bad(event, ctx):\n    {deed}\n")
    await stage.load("good", GOOD)
    stage.bind()
    assert await said_after(stage) == "go on!"
    (path, event, error) = stage.errors()[0]
    assert (path, event) == ("bad.py", "input")
    assert told in error


@pytest.mark.parametrize(
    "deed",
    [
        "while True: pass",
        "time.sleep(60)",
        "await asyncio.sleep(1000)",
        "await ctx.exec('x'); await asyncio.Event().wait()",
    ],
)
async def test_a_handler_that_does_not_return_is_stopped_and_the_others_go_on(stage: Stage, deed: str) -> None:
    body = f"    ctx.session.append_entry('begun')\n    {deed}\n"
    bad = f"ext = Extension('bad')\n\n@ext.on(Input, timeout=0.1)\nasync def bad(event, ctx):\n{body}"
    await stage.load("bad", bad)
    await stage.load("good", GOOD)
    stage.bind()
    said = asyncio.ensure_future(said_after(stage))
    await stage.until(lambda: bool(stage.conversation.kept))
    assert not said.done(), "the session's loop goes on meanwhile"
    assert await said == "go on!"
    assert stage.errors() == [("bad.py", "input", "it took longer than 0.1 seconds and was stopped")]


async def test_a_loop_without_end_is_interrupted_and_the_extension_lives_on(stage: Stage) -> None:
    await stage.load(
        "bad",
        """
ext = Extension("bad")

@ext.on(Input, timeout=0.1)
async def bad(event, ctx):
    if event.text == "loop":
        while True:
            try:
                pass
            except Exception:
                pass
    return Transform("alive")
""",
    )
    stage.bind()
    assert (await stage.runner.hooks.transform_input(PromptInput("loop", []))).text == "loop"  # type: ignore[union-attr]
    await said_again(stage, "alive")


async def test_an_extension_that_is_held_up_is_left_alone_until_it_comes_back(stage: Stage, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "freed")
    await stage.load(
        "bad",
        """
ext = Extension("bad")

@ext.on(Input, timeout=0.05)
async def bad(event, ctx):
    if event.text == "hold":
        os.close(os.open(os.path.dirname(__file__) + "/freed", os.O_RDONLY))
    return Transform("back")

@ext.on(ToolCall, timeout=0.05)
async def gate(event, ctx):
    pass
""",
    )
    stage.bind()
    await stage.runner.hooks.transform_input(PromptInput("hold", []))
    with pytest.raises(ToolFailed, match="blocked by its own code"):
        await stage.runner.gate.before_call(await prepare_call(CALL.name, CALL.arguments))
    await asyncio.to_thread((tmp_path / "freed").write_text, "")
    await said_again(stage, "back")


async def test_a_plain_function_may_block_without_holding_its_extension_up(stage: Stage) -> None:
    await stage.load(
        "slow",
        """
import threading
ext = Extension("slow")
entered, leave = threading.Event(), threading.Event()

@ext.on(SessionStart)
def slow(event):
    entered.set()
    leave.wait(30)

@ext.on(SessionBeforeSwitch)
async def quick(event, ctx):
    entered.wait(10)
    leave.set()
    return Cancel()
""",
    )
    stage.bind()
    await stage.runner.hooks.on_session_started("startup")
    assert await stage.runner.hooks.should_refuse_switch("new", None) is True


async def test_an_extension_that_listens_to_deltas_slowly_delays_nothing(stage: Stage, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "freed")
    await stage.load(
        "slow",
        """
ext = Extension("slow")
seen = []

@ext.on(MessageUpdate)
async def slow(event, ctx):
    if not seen:
        os.close(os.open(os.path.dirname(__file__) + "/freed", os.O_RDONLY))
    seen.append(event.delta)

@ext.on(AgentEnd)
async def done(event, ctx):
    ctx.session.append_entry("seen", ["".join(seen), len(seen)])
""",
    )
    stage.bind()
    for index in range(5000):
        update = w.TextDelta(content_index=0, delta=f"{index},")
        stage.runner.forward(w.MessageUpdate(usage=None, assistant_message_event=update))  # type: ignore[arg-type]
    stage.runner.forward(w.AgentEnd(messages=[]))
    await asyncio.to_thread((tmp_path / "freed").write_text, "")
    await stage.until(lambda: bool(stage.conversation.kept))
    text, updates = stage.conversation.kept[0]["data"]
    assert text == "".join(f"{index}," for index in range(5000)), "put together, nothing is lost that fits"
    assert updates < 100


async def test_events_for_an_extension_that_never_returns_do_not_pile_up(stage: Stage, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "freed")
    await stage.load(
        "deaf",
        """
ext = Extension("deaf")

@ext.on(TurnStart)
async def deaf(event, ctx):
    if event.index == 0:
        os.close(os.open(os.path.dirname(__file__) + "/freed", os.O_RDONLY))
""",
    )
    stage.bind()
    for _ in range(5000):
        stage.runner.forward(w.TurnStart())
    await asyncio.to_thread((tmp_path / "freed").write_text, "")
    await stage.until(lambda: bool(stage.errors()))
    (_, event, error) = stage.errors()[0]
    assert event == "queue"
    assert "events were not delivered" in error


@pytest.mark.parametrize(
    "deed",
    [
        "asyncio.get_running_loop().call_soon(lambda: 1 / 0)",
        "asyncio.get_running_loop().stop()",
        "asyncio.get_running_loop().call_soon(sys.exit)",
        "asyncio.create_task(quits())",
        "ext.spawn(quits())",
        "import threading; thread = threading.Thread(target=os._exit); thread.start(); thread.join()",
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_stray_work_of_an_extension_ends_itself_only(stage: Stage, deed: str) -> None:
    await stage.load(
        "bad",
        f"""
ext = Extension("bad")

async def quits():
    sys.exit(1)

@ext.on(Input)
async def bad(event, ctx):
    {deed}
    for _ in range(5):
        await asyncio.sleep(0)
    return Transform("still here")
""",
    )
    stage.bind()
    assert await said_after(stage) == "still here"


async def test_what_an_extension_keeps_doing_after_a_session_ends_is_refused(stage: Stage, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "closed")
    await stage.load(
        "late",
        """
import threading
ext = Extension("late")
folder = os.path.dirname(__file__)

def late(ctx):
    os.close(os.open(folder + "/closed", os.O_RDONLY))
    try:
        ctx.session.append_entry("y")
    except RuntimeError as error:
        with open(folder + "/refused", "w") as file:
            file.write(str(error))

@ext.on(SessionStart)
async def keep(event, ctx):
    threading.Thread(target=late, args=(ctx,)).start()
    ctx.session.append_entry("x")
""",
    )
    stage.bind()
    await stage.runner.hooks.on_session_started("startup")
    await stage.until(lambda: bool(stage.conversation.kept))
    await stage.runner.close()
    await asyncio.to_thread((tmp_path / "closed").write_text, "")
    refused = tmp_path / "refused"
    await stage.until(lambda: refused.exists() and "closed" in refused.read_text())
    assert len(stage.conversation.kept) == 1


async def test_threads_end_with_the_runner(stage: Stage) -> None:
    await stage.load("good", GOOD)
    stage.bind()
    await stage.runner.close()
    await stage.until(lambda: not [one for one in threading.enumerate() if one.name == "extension good.py"])


async def test_an_extension_that_holds_its_thread_up_in_a_call_without_limit_is_found_out(
    stage: Stage, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "freed")
    await stage.load(
        "loop",
        """
ext = Extension("loop")

@ext.command("loop")
async def loop(args, ctx):
    ctx.session.append_entry("looping")
    while True: pass

@ext.command("wait")
async def wait(args, ctx):
    os.close(await asyncio.to_thread(os.open, os.path.dirname(__file__) + "/freed", os.O_RDONLY))
    ctx.session.append_entry("waited")

@ext.on(Input)
async def answers(event, ctx):
    return Transform("here")
""",
    )
    stage.bind()
    clock = LoopClock()
    waiting = asyncio.ensure_future(stage.runner.hooks.try_run_command("/wait"))
    for _ in range(PULSES):
        assert await said_after(stage) == "here"
        await clock.advance(extension_thread.PULSE_SECONDS)
    assert not waiting.done(), "it answers, so it may take its time"
    await asyncio.to_thread((tmp_path / "freed").write_text, "")
    assert await waiting is True
    assert stage.conversation.kept[0]["customType"] == "waited"
    looping = asyncio.ensure_future(stage.runner.hooks.try_run_command("/loop"))
    await stage.until(lambda: len(stage.conversation.kept) == 2)
    for _ in range(PULSES):
        await clock.advance(extension_thread.PULSE_SECONDS)
    assert await looping is True
    assert stage.errors() == [("command:loop", "command", "it blocked its thread and was stopped")]
