"""Extensions in the real program: commands, vetoes, messages, tools, and how they end it."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from fakes.model_server import Call, Gate, ModelServer, Text, said_in
from support.agent_folders import ODD, AgentFolders, extension
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import finished_messages, outline, text_of, tool_texts

Record = dict[str, Any]
ALL = ("pi", "omp", "xcsh")
MAIN = """
@ext.command("hello", help="say hello")
async def hello(args, ctx):
    ctx.ui.notify(f"hello {args}")

@ext.command("bad")
async def bad(args, ctx):
    raise RuntimeError("broken on purpose")

@ext.command("quit")
async def leave(args, ctx):
    ctx.shutdown()

@ext.on(TurnStart)
async def turn(event, ctx):
    if ctx.session.name == "noisy":
        raise ValueError("no turns please")
"""
VETO = """
@ext.on(SessionBeforeSwitch)
async def stay(event, ctx):
    return Cancel()

@ext.on("session_before_branch")
async def no_branch(event, ctx):
    return Cancel()
"""


@pytest.fixture
def host(start: Start, folders: AgentFolders, dialect: str) -> RpcProcess:
    """The program in each dialect, with an extension."""
    return start(*extension(folders, MAIN), dialect=dialect)


@scenario
def command(stage: Stage) -> Seen:
    """A command of an extension, listed and called."""
    host = stage.start(*extension(stage.folders, MAIN))
    listed = {one["name"]: one for one in host.ask("get_commands")["commands"]}["hello"]
    host.ask("prompt", message="/hello big  world")
    said = host.wait_event("extension_ui_request")["message"]
    path = str(stage.folders.temp / "test_extension.py")
    return Seen(listed=listed, path=path, said=said, messages=host.ask("get_messages"), words=outline(host.records))


@proves("get_commands.extension")
def test_a_command_of_an_extension_is_listed_with_its_source(command: Seen) -> None:
    assert (command.listed["source"], command.listed["description"]) == ("extension", "say hello")
    assert command.listed["sourceInfo"]["scope"] == "temporary"


@proves("get_commands.extension_path")
def test_a_command_of_an_extension_is_listed_with_the_path_of_its_file(command: Seen) -> None:
    assert command.listed["path"] == command.listed["sourceInfo"]["path"] == command.path


@proves("prompt.ext_no_model")
def test_a_command_of_an_extension_runs_without_the_model(command: Seen) -> None:
    assert command.said == "hello big  world"
    assert command.messages == {"messages": []}
    assert "agent_start" not in command.words


@proves("prompt.ext_streaming")
def test_a_command_runs_at_once_while_an_answer_streams(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    host = start(*extension(folders, MAIN))
    gate = Gate()
    server.answers(Text("half "), gate, Text("whole"))
    begun = host.mark()
    host.ask("prompt", message="x")
    gate.wait_reached()
    host.ask("prompt", message="/hello now")
    assert host.wait_event("extension_ui_request")["message"] == "hello now"
    for queue in ("steer", "follow_up"):
        assert "cannot be queued" in host.expect_error(queue, message="/hello later")
    gate.open()
    host.wait_end(begun)


@scenario
def raising(stage: Stage) -> Seen:
    """An extension that raises in a command, and in a handler during a run."""
    host = stage.start(*extension(stage.folders, MAIN))
    host.ask("prompt", message="/bad")
    in_command = host.wait_event("extension_error")
    host.ask("set_session_name", name="noisy")
    stage.server.answers("fine all the same")
    start = host.mark()
    host.ask("prompt", message="x")
    host.wait_event("agent_end", start)
    path = str(stage.folders.temp / "test_extension.py")
    return Seen(path=path, in_command=in_command, in_run=host.wait_event("extension_error", start),
                text=host.ask("get_last_assistant_text"))  # fmt: skip


@proves("event.extension_error", same=("note/ui.extension_error",))
def test_an_extension_that_raises_is_reported_with_path_event_and_error(raising: Seen) -> None:
    told = {"type": "extension_error", "extensionPath": "command:bad", "event": "command"}
    assert raising.in_command == {**told, "error": "broken on purpose"}
    error = raising.in_run
    assert (error["extensionPath"], error["event"], error["error"]) == (raising.path, "turn_start", "no turns please")


@proves("event.extension_error_lives")
def test_after_an_extension_raised_the_run_goes_on(raising: Seen) -> None:
    assert raising.text == {"text": "fine all the same"}


@proves("xcsh/exit.extension")
def test_an_extension_can_end_the_process(host: RpcProcess) -> None:
    host.ask("prompt", message="/quit")
    assert host.wait_exit() == 0


@scenario
def vetoed(stage: Stage) -> Seen:
    """An extension that cancels a new session and a switch."""
    host = stage.start(*extension(stage.folders, VETO))
    stage.server.answers("ok")
    host.ask("prompt", message="x")
    host.wait_event("agent_end")
    states = [host.ask("get_state")]
    new = host.ask("new_session")
    states.append(host.ask("get_state"))
    other = stage.path / "other.jsonl"
    head = {"type": "session", "version": 3, "id": "o", "timestamp": "2026-01-01T00:00:00.000Z",
            "cwd": str(stage.folders.work)}  # fmt: skip
    other.write_text(json.dumps(head) + "\n")
    switched = host.ask("switch_session", sessionPath=str(other))
    states.append(host.ask("get_state"))
    return Seen(new=new, switched=switched, states=[(one["sessionId"], one["messageCount"]) for one in states])


@proves("new_session.cancel")
def test_a_new_session_can_be_cancelled(vetoed: Seen) -> None:
    assert vetoed.new == {"cancelled": True}
    assert vetoed.states[0] == vetoed.states[1]


@proves("switch_session.cancel")
def test_a_switch_of_sessions_can_be_cancelled(vetoed: Seen) -> None:
    assert vetoed.switched == {"cancelled": True}
    assert vetoed.states[1] == vetoed.states[2]


@scenario
def no_branch(stage: Stage) -> Seen:
    """An extension that cancels a branch."""
    host = stage.start(*extension(stage.folders, VETO))
    stage.server.answers("ok")
    host.ask("prompt", message="go back here")
    host.wait_event("agent_end")
    entry = host.ask("get_branch_messages")["messages"][0]["entryId"]
    return Seen(answer=host.ask("branch", entryId=entry))


@proves("omp/branch.cancel")
def test_a_branch_can_be_cancelled(no_branch: Seen) -> None:
    assert no_branch.answer["cancelled"] is True


@proves("omp/branch.cancel_text")
def test_a_branch_that_is_cancelled_gives_the_text_all_the_same(no_branch: Seen) -> None:
    assert no_branch.answer == {"text": "go back here", "cancelled": True}


@proves("extension.messages")
def test_messages_of_extensions_are_told_kept_and_sent_to_the_model(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    host = start(*extension(folders, """
@ext.command("note")
async def note(args, ctx):
    ctx.session.send(Note("the sky is green", custom_type="fact", display=False, details={"sure": True}))

@ext.command("go")
async def go(args, ctx):
    ctx.session.send("start now", trigger_turn=True)
    await asyncio.sleep(0)
    await ctx.wait_for_idle()
    ctx.session.prompt("as the user")
"""))  # fmt: skip
    host.ask("prompt", message="/note")
    host.wait_event("message_end")
    assert outline(host.since(0, "message_start") + host.since(0, "message_end")) == [
        "message_start:custom",
        "message_end:custom",
    ]
    said = host.ask("get_messages")["messages"][0]
    assert (said["customType"], said["content"], said["display"]) == ("fact", "the sky is green", False)
    first, second = server.answers("one"), server.answers("two")
    host.send({"id": "go", "type": "prompt", "message": "/go"})
    host.wait_count("agent_settled", 2)
    assert [text for _, text in said_in(first.request)] == ["the sky is green", "start now"]
    assert said_in(second.request)[-1] == ("user", "as the user")


@proves("extension.input")
def test_what_is_said_can_be_changed_swallowed_and_added_to(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    host = start(*extension(folders, """
@ext.on(Input)
async def change(event, ctx):
    return Handled() if event.text == "secret" else Transform(event.text.replace("cat", "bird"))

@ext.on(BeforeAgentStart)
async def begin(event, ctx):
    return Begin(note=Note("feathers matter"), system_prompt=event.system_prompt + "\\nCoo often.")

@ext.on(ModelContext)
async def context(event, ctx):
    event.messages[0].content[0].text += " (please)"
"""))  # fmt: skip
    host.ask("prompt", message="secret")
    assert host.ask("get_state")["isStreaming"] is False
    gate = Gate()
    server.answers("wait", gate, "for it")
    host.ask("prompt", message="first")
    gate.wait_reached()
    assert host.ask("prompt", message="secret") == {"disposition": "handled"}, "while a run is active, too"
    assert host.expect_error("prompt", message="cat").startswith("Agent is already processing")
    gate.open()
    host.wait_end()
    host.ask("new_session")
    asked = server.answers("ok")
    host.run("tell me about a cat")
    assert [text for _, text in said_in(asked.request)] == ["tell me about a bird (please)", "feathers matter"]
    assert "Coo often." in json.dumps(asked.request["system"])
    kept = host.ask("get_messages")["messages"]
    assert [message["role"] for message in kept] == ["user", "custom", "assistant"]
    assert text_of(kept[0]) == "tell me about a bird"


@proves("extension.tools")
def test_tools_of_extensions_are_offered_run_and_guarded(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    host = start(*extension(folders, """
@ext.tool
async def coo(times: int, ctx: ToolContext) -> ToolOutput:
    '''Say coo.

    Args:
        times: how often
    '''
    await ctx.update("soon")
    return ToolOutput("coo " * times, details={"times": times})

@ext.on(ToolCall, tools=["coo"])
async def gate(event, ctx):
    if event.args["times"] > 3:
        return Block("too loud")
    event.args["times"] = "2"

@ext.on(ToolResult, tools=["coo"])
async def after(event, ctx):
    return Override(content=event.content[0].text + "!")
"""))  # fmt: skip
    asked = server.answers(Call("coo", {"times": 1}), Call("coo", {"times": 9}), Call("coo", {"times": "x"}))
    server.answers("done")
    records = host.run("x")
    offered = {tool["name"]: tool for tool in asked.request["tools"]}
    assert offered["coo"]["input_schema"]["properties"] == {"times": {"type": "integer", "description": "how often"}}
    first, second, third = tool_texts(records)
    assert (first, second) == ("coo coo !", "too loud")
    assert "expected integer, got string" in third
    results = finished_messages(records, "toolResult")
    assert [message["isError"] for message in results] == [False, True, True]
    assert results[0]["details"] == {"times": 2}
    updates = [record for record in records if record["type"] == "tool_execution_update"]
    assert updates[0]["partialResult"]["content"][0]["text"] == "soon"


@proves("extension.bash")
def test_shell_commands_of_the_host_can_be_answered_and_blocked(start: Start, folders: AgentFolders) -> None:
    host = start(*extension(folders, """
@ext.on(UserBash)
async def shell(event, ctx):
    if "sudo" in event.command:
        return Block("not as root")
    if event.command == "whoami":
        return BashOutput("a pigeon", 0)
"""))  # fmt: skip
    assert host.ask("bash", command="whoami")["output"] == "a pigeon"
    assert "not as root" in host.expect_error("bash", command="sudo ls")
    assert host.ask("bash", command="echo hi")["output"] == "hi\n"
    commands = [message["command"] for message in host.ask("get_messages")["messages"]]
    assert commands == ["whoami", "echo hi"]


@proves("extension.flags")
def test_flags_of_extensions_come_from_the_command_line(start: Start, folders: AgentFolders) -> None:
    text = """
loud = ext.flag("loud")
word = ext.flag("word", default="coo")

@ext.command("say")
async def say(args, ctx):
    ctx.ui.notify(f"{word.value} {bool(loud)}")
"""
    host = start(*extension(folders, text), "--loud", "--word=squawk")
    host.ask("prompt", message="/say")
    assert host.wait_event("extension_ui_request")["message"] == "squawk True"
    assert "unknown option" not in host.stderr


@proves("extension.folder")
def test_extensions_of_the_user_are_found_in_their_folder(start: Start, folders: AgentFolders) -> None:
    folder = folders.agent / "extensions"
    folder.mkdir()
    text = "from pigeon.extensions import *\next = Extension('f')\n\n@ext.command('{0}')\ndef c(args): pass\n"
    (folder / "one.py").write_text(text.format("one"))
    (folder / "two").mkdir()
    (folder / "two" / "__init__.py").write_text(text.format("two"))
    host = start()
    assert [command["name"] for command in host.ask("get_commands")["commands"]] == ["one", "two"]
    host.close()
    host = start("--no-extensions")
    assert host.ask("get_commands")["commands"] == []


@proves("extension.missing")
def test_an_extension_that_is_not_there_ends_the_start(start: Start) -> None:
    host = start("--extension", "/nowhere/x.py")
    assert host.wait_exit() == 1
    assert 'Failed to load extension "/nowhere/x.py"' in host.stderr


@proves("extension.named")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def broken(:", "invalid syntax"),
        ("raise ValueError('no key')", "no key"),
        ("import sys\nsys.exit(0)", "tried to end the process"),
        ("import nothing_of_that_name", "nothing_of_that_name"),
        ("x = 1", "neither an Extension"),
        (None, "no extension in this folder"),
    ],
)
def test_an_extension_that_is_named_and_does_not_load_ends_the_start(
    start: Start, folders: AgentFolders, text: str | None, why: str
) -> None:
    path = folders.temp / "gate.py"
    path.mkdir() if text is None else path.write_text(text)
    host = start("--extension", str(path))
    assert host.wait_exit() == 1
    assert f'Failed to load extension "{path}"' in host.stderr
    assert why in host.stderr
    assert host.records == []


@proves("extension.named_no_file")
@pytest.mark.parametrize("kind", [kind for kind in ODD if kind != "folder"])
def test_an_extension_that_is_no_file_ends_the_start_at_once(start: Start, folders: AgentFolders, kind: str) -> None:
    path = folders.temp / "gate.py"
    ODD[kind](path)
    host = start("--extension", str(path))
    assert host.wait_exit() == 1
    assert f'Failed to load extension "{path}"' in host.stderr


@proves("extension.found_broken")
def test_an_extension_that_is_found_and_does_not_load_is_reported_and_left_out(
    start: Start, folders: AgentFolders
) -> None:
    (folders.agent / "extensions").mkdir()
    (folders.agent / "extensions" / "broken.py").write_text("raise ValueError('no key')")
    os.mkfifo(folders.agent / "extensions" / "pipe.py")
    host = start()
    host.ask("get_state")
    first, second = host.wait_count("extension_error", 2)
    assert (first["event"], "no key" in first["error"]) == ("load", True)
    assert (second["event"], "named pipe" in second["error"]) == ("load", True)


@proves("extension.no_folder")
@pytest.mark.parametrize("kind", [kind for kind in ODD if kind != "folder"])
def test_a_folder_of_extensions_that_is_none_is_reported(start: Start, folders: AgentFolders, kind: str) -> None:
    path = folders.agent / "extensions"
    ODD[kind](path)
    error = start().wait_event("extension_error")
    assert (error["event"], error["extensionPath"].startswith(str(path))) == ("load", True)


@proves("extension.life")
def test_an_extension_hears_of_the_life_of_its_sessions(start: Start, folders: AgentFolders) -> None:
    log = folders.temp / "log"
    host = start(*extension(folders, f"""
@ext.on(SessionStart)
async def begin(event, ctx):
    open({str(log)!r}, "a").write(f"start {{event.reason}}\\n")

@ext.on(SessionShutdown)
async def end(event, ctx):
    open({str(log)!r}, "a").write(f"end {{event.reason}}\\n")
"""))  # fmt: skip
    assert host.ask("new_session") == {"cancelled": False}
    host.close()
    assert log.read_text().splitlines() == ["start startup", "end new", "start new", "end quit"]
