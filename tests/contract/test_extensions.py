"""Extensions in the real program: commands, vetoes, messages, tools, and how they end it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fakes.agent_folders import AgentFolders
from fakes.contract_manifest import proves
from fakes.extension_files import extension
from fakes.model_server import Call, Gate, ModelServer, Text, said_in
from fakes.odd_files import ODD
from fakes.record_outline import ended, outline, text_of, tool_texts
from fakes.rpc_process import RpcProcess, Start

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


@pytest.fixture(params=ALL)
def host(start: Start, folders: AgentFolders, request: pytest.FixtureRequest) -> RpcProcess:
    """The program in each dialect, with an extension."""
    return start(*extension(folders, MAIN), dialect=request.param)


@proves("prompt.ext_no_model", "get_commands.extension", "get_commands.extension_path")
def test_a_command_of_an_extension_is_listed_and_runs_without_the_model(start: Start, folders: AgentFolders) -> None:
    host = start(*extension(folders, MAIN))
    commands = {command["name"]: command for command in host.ask("get_commands")["commands"]}
    path = str(folders.temp / "test_extension.py")
    listed = commands["hello"]
    assert (listed["source"], listed["description"], listed["path"]) == ("extension", "say hello", path)
    assert listed["sourceInfo"]["path"] == path
    assert listed["sourceInfo"]["scope"] == "temporary"
    host.ask("prompt", message="/hello big  world")
    assert host.wait_event("extension_ui_request")["message"] == "hello big  world"
    assert host.ask("get_messages") == {"messages": []}
    assert not [record for record in host.records if record["type"] == "agent_start"]


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
        assert "cannot be queued" in host.refused(queue, message="/hello later")
    gate.open()
    host.wait_end(begun)


@proves("event.extension_error", "event.extension_error_lives", dialects=ALL)
@proves("note/ui.extension_error", dialects=ALL)
def test_an_extension_that_raises_is_reported_and_the_run_goes_on(
    host: RpcProcess, folders: AgentFolders, server: ModelServer
) -> None:
    host.ask("prompt", message="/bad")
    told = {"type": "extension_error", "extensionPath": "command:bad", "event": "command"}
    assert host.wait_event("extension_error") == {**told, "error": "broken on purpose"}
    host.ask("set_session_name", name="noisy")
    server.answers("fine all the same")
    start = host.mark()
    host.ask("prompt", message="x")
    host.wait_event("agent_end", start)
    error = host.wait_event("extension_error", start)
    path = str(folders.temp / "test_extension.py")
    assert (error["extensionPath"], error["event"], error["error"]) == (path, "turn_start", "no turns please")
    assert host.ask("get_last_assistant_text") == {"text": "fine all the same"}


@proves("xcsh/exit.extension", dialects=ALL)
def test_an_extension_can_end_the_process(host: RpcProcess) -> None:
    host.ask("prompt", message="/quit")
    assert host.wait_exit() == 0


@proves("new_session.cancel", "switch_session.cancel", dialects=ALL)
@pytest.mark.parametrize("dialect", ALL)
def test_a_change_of_session_can_be_cancelled(
    start: Start, folders: AgentFolders, server: ModelServer, tmp_path: Path, dialect: str
) -> None:
    host = start(*extension(folders, VETO), dialect=dialect)
    server.answers("ok")
    host.ask("prompt", message="x")
    host.wait_event("agent_end")
    before = host.ask("get_state")
    assert host.ask("new_session") == {"cancelled": True}
    other = tmp_path / "other.jsonl"
    head = {
        "type": "session",
        "version": 3,
        "id": "o",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "cwd": str(folders.work),
    }
    other.write_text(json.dumps(head) + "\n")
    assert host.ask("switch_session", sessionPath=str(other)) == {"cancelled": True}
    after = host.ask("get_state")
    assert (after["sessionId"], after["messageCount"]) == (before["sessionId"], before["messageCount"])


@proves("omp/branch.cancel", "omp/branch.cancel_text", dialects=("omp",))
def test_a_branch_can_be_cancelled_and_gives_the_text_all_the_same(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    host = start(*extension(folders, VETO), dialect="omp")
    server.answers("ok")
    host.ask("prompt", message="go back here")
    host.wait_event("agent_end")
    entry = host.ask("get_branch_messages")["messages"][0]["entryId"]
    assert host.ask("branch", entryId=entry) == {"text": "go back here", "cancelled": True}


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
    assert host.refused("prompt", message="cat").startswith("Agent is already processing")
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
    results = ended(records, "toolResult")
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
    assert "not as root" in host.refused("bash", command="sudo ls")
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


@proves("extension.named")
@pytest.mark.parametrize("kind", [kind for kind in ODD if kind != "folder"])
def test_an_extension_that_is_no_file_ends_the_start_at_once(start: Start, folders: AgentFolders, kind: str) -> None:
    path = folders.temp / "gate.py"
    ODD[kind](path)
    host = start("--extension", str(path))
    assert host.wait_exit() == 1
    assert f'Failed to load extension "{path}"' in host.stderr


@proves("extension.named")
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


@proves("extension.named")
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
