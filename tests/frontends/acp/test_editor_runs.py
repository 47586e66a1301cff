"""Runs as an editor sees them: updates, permission questions, dialogs, and cancellations that always end in one way."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from fakes.editor_client import Editor, EditorStarter
from support.agent_folders import AgentFolders
from support.processes import eventually

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
HANG = {"text": "Thinking about it", "hang": True}
NEVER_ENDS = {"toolCalls": [{"name": "bash", "arguments": {"command": "echo begun; sleep 60"}}]}
EXTENSION = """
from pigeon.extensions import CommandContext, Extension

ext = Extension("asking", needs=["ui"])


@ext.command("ask")
async def ask(args: str, ctx: CommandContext) -> None:
    "Ask everything"
    answers = [
        await ctx.ui.select("Which colour?", ["red", "green"]),
        await ctx.ui.confirm("Sure?", "Really do it?"),
        await ctx.ui.input("Your name?", "name"),
        await ctx.ui.editor("Edit this", "before"),
    ]
    with open(f"{ctx.cwd}/answers.txt", "w") as file:
        file.write(repr(answers))
    ctx.ui.notify("All asked", "info")
"""
SAYING = """
from pigeon.extensions import CommandContext, Extension

ext = Extension("saying", needs=["messages"])


@ext.command("say")
async def say(args: str, ctx: CommandContext) -> None:
    "Say something as the user"
    ctx.session.prompt("from an extension")


@ext.command("note")
async def note(args: str, ctx: CommandContext) -> None:
    "Add a note to the conversation"
    ctx.session.send("a note of an extension")
"""


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"toolCalls": [{"name": name, "arguments": arguments}]}


def choose(option: str) -> Any:
    return lambda params: {"outcome": {"outcome": "selected", "optionId": option}}


def calls_of(editor: Editor, session: str) -> list[tuple[str, str | None]]:
    """Kind of update and status of everything that was told of tool calls."""
    updates = [one for one in editor.updates(session) if one["sessionUpdate"].startswith("tool_call")]
    return [(one["sessionUpdate"], one.get("status")) for one in updates]


def test_a_run_is_told_in_order_and_answered_last(scripted: EditorStarter, folders: AgentFolders) -> None:
    (folders.work / "notes.txt").write_text("one\n")
    editor = scripted({"thinking": "Hm.", "text": "Let me look.", **call("read", path="notes.txt", offset=1)}, "One.")
    session = editor.new()
    number = editor.begin_prompt(session, "What is there?")
    assert editor.answer(number)["stopReason"] == "end_turn"
    kinds = [one["sessionUpdate"] for one in editor.updates(session)]
    assert kinds.index("agent_thought_chunk") < kinds.index("agent_message_chunk") < kinds.index("tool_call")
    assert calls_of(editor, session) == [
        ("tool_call", "pending"),
        ("tool_call_update", None),
        ("tool_call_update", "in_progress"),
        ("tool_call_update", "completed"),
    ]
    described = editor.updates(session, "tool_call_update")[0]
    assert (described["title"], described["kind"]) == ("Read notes.txt (from 1)", "read")
    assert described["locations"] == [{"path": str(folders.work / "notes.txt"), "line": 1}]
    assert editor.updates(session, "usage_update")[-1]["size"] == 200_000
    assert editor.messages[-1]["id"] == number


def test_changes_are_told_as_whole_texts_and_as_patches(scripted: EditorStarter, folders: AgentFolders) -> None:
    replies = (
        call("write", path="new.txt", content="fresh\n"),
        call("edit", path="new.txt", edits=[{"oldText": "fresh", "newText": "changed"}]),
        "Done.",
    )
    place = str(folders.work / "new.txt")
    editor = scripted(*replies)
    session = editor.new()
    editor.prompt(session, "go")
    diffs = [
        one["content"][0] for one in editor.updates(session, "tool_call_update") if one.get("status") == "completed"
    ]
    assert diffs == [
        {"type": "diff", "path": place, "oldText": None, "newText": "fresh\n"},
        {"type": "diff", "path": place, "oldText": "fresh\n", "newText": "changed\n"},
    ]
    (folders.work / "new.txt").unlink()
    second = scripted(*replies, version=2)
    session = second.new()
    second.prompt(session, "go")
    second.wait_update(session, "state_update", state="idle", stopReason="end_turn")
    diffs = [
        one["content"][0] for one in second.updates(session, "tool_call_update") if one.get("status") == "completed"
    ]
    assert [one["changes"][0]["operation"] for one in diffs] == ["add", "modify"]
    assert diffs[1]["patch"] == {
        "format": "git_patch",
        "text": f"diff --git {place} {place}\n--- {place}\n+++ {place}\n@@ -1,1 +1,1 @@\n-fresh\n+changed\n",
    }


def test_the_output_of_a_command_is_told_while_it_runs(scripted: EditorStarter, folders: AgentFolders) -> None:
    editor = scripted(NEVER_ENDS, "Done.")
    session = editor.new()
    number = editor.begin_prompt(session, "go")
    content = [{"type": "content", "content": {"type": "text", "text": "```\nbegun\n```"}}]
    editor.wait_update(session, "tool_call_update", content=content)
    editor.notify("session/cancel", sessionId=session)
    assert editor.answer(number)["stopReason"] == "cancelled"


def test_a_command_has_a_terminal_of_its_own_in_version_2(scripted: EditorStarter) -> None:
    editor = scripted(NEVER_ENDS, "Done.", version=2)
    session = editor.new()
    editor.prompt(session, "go")
    chunk = editor.wait_update(session, "terminal_output_chunk")
    assert base64.b64decode(chunk["data"]) == b"begun\n"
    terminal = editor.updates(session, "terminal_update")[0]
    assert terminal["command"] == "echo begun; sleep 60"
    assert editor.expect_error("terminal/cancel", sessionId=session, terminalId="none").code == -32602
    assert editor.call("terminal/cancel", sessionId=session, terminalId=terminal["terminalId"]) == {}
    editor.wait_update(session, "terminal_update", exitStatus={})
    editor.wait_update(session, "state_update", state="idle", stopReason="end_turn")
    call_id = terminal["terminalId"]
    assert editor.expect_error("tool_call/cancel", sessionId=session, toolCallId=call_id).code == -32602


def test_version_2_answers_when_a_prompt_is_taken_up_and_tells_states(scripted: EditorStarter) -> None:
    editor = scripted("Hello.", version=2)
    session = editor.new()
    number = editor.begin_prompt(session, "hi")
    message_id = editor.answer(number)["messageId"]
    editor.wait_update(session, "state_update", state="idle", stopReason="end_turn")
    said = editor.updates(session, "user_message")
    assert said == [
        {"sessionUpdate": "user_message", "messageId": message_id, "content": [{"type": "text", "text": "hi"}]}
    ]
    assert [one["state"] for one in editor.updates(session, "state_update")] == ["running", "idle"]
    editor.call("session/close", sessionId=session)
    start = editor.mark()
    resume = {"sessionId": session, "cwd": str(editor.folders.work)}
    assert editor.expect_error("session/resume", **resume, replayFrom={"type": "middle"}).code == -32602
    editor.call("session/resume", **resume, replayFrom={"type": "start"})
    assert [one["messageId"] for one in editor.updates(session, "user_message", start)] == [message_id]
    assert editor.text_of_updates(session, start=start) == "Hello."


def test_prompts_bring_links_texts_and_pictures(scripted: EditorStarter) -> None:
    editor = scripted(script={"default": {"text": "${user}"}})
    session = editor.new()
    blocks = [
        {"type": "text", "text": "Compare "},
        {"type": "resource_link", "name": "a.py", "uri": "file:///a.py"},
        {"type": "text", "text": " with "},
        {"type": "resource", "resource": {"uri": "file:///b.py", "text": "print(1)", "mimeType": "text/x-python"}},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///c.png", "blob": PIXEL, "mimeType": "image/png"}},
    ]
    assert editor.call("session/prompt", sessionId=session, prompt=blocks)["stopReason"] == "end_turn"
    assert editor.text_of_updates(session) == (
        "Compare [@a.py](file:///a.py) with [@b.py](file:///b.py)[@c.png](file:///c.png)"
        '\n\n<context ref="file:///b.py">\nprint(1)\n</context>'
    )
    [entry] = [
        json.loads(line)["message"]["content"]
        for file in (editor.folders.agent / "sessions").glob("*/*.jsonl")
        for line in file.read_text().splitlines()
        if '"role":"user"' in line
    ]
    assert [block["type"] for block in entry] == ["text", "image", "image"]


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([], "empty"),
        ([{"type": "video"}], "prompt[0].type"),
        ([{"type": "text"}], "prompt[0]"),
        ([{"type": "text", "text": "x"}, {"type": "audio", "data": "", "mimeType": "audio/wav"}], "audio"),
        ([{"type": "resource", "resource": {"uri": "x:"}}], "prompt[0].resource"),
        ([{"type": "image", "data": "", "mimeType": "image/png"}], "prompt[0].data"),
        ([{"type": "resource", "resource": {"uri": "x:", "blob": "%", "mimeType": "image/png"}}], "resource.blob"),
    ],
)
def test_blocks_that_cannot_be_sent_are_refused_by_their_place(
    scripted: EditorStarter, blocks: list[Any], words: str
) -> None:
    editor = scripted("ok")
    failure = editor.expect_error("session/prompt", sessionId=editor.new(), prompt=blocks)
    assert failure.code == -32602
    assert words in failure.message


def test_a_picture_that_is_none_is_refused_and_the_session_goes_on(scripted: EditorStarter) -> None:
    editor = scripted("ok")
    session = editor.new()
    block = {"type": "image", "data": "%%%", "mimeType": "image/png"}
    assert "base64" in editor.expect_error("session/prompt", sessionId=session, prompt=[block]).message
    assert editor.prompt(session, "hi")["stopReason"] == "end_turn"


@pytest.mark.parametrize(("option", "ran"), [("allow_once", True), ("reject_once", False), ("no_such", False)])
def test_a_question_about_permission_is_the_editors(
    scripted: EditorStarter, folders: AgentFolders, option: str, ran: bool
) -> None:
    editor = scripted(call("write", path="a.txt", content="x"), "Done.", args=("--approval-mode", "always-ask"))
    editor.handlers["session/request_permission"] = choose(option)
    session = editor.new()
    assert editor.prompt(session, "go")["stopReason"] == "end_turn"
    [asked] = editor.requests_of("session/request_permission")
    assert [one["kind"] for one in asked["params"]["options"]] == ["allow_once", "allow_always", "reject_once"]
    assert asked["params"]["toolCall"]["kind"] == "edit"
    assert "a.txt" in asked["params"]["toolCall"]["title"]
    assert (folders.work / "a.txt").exists() is ran
    assert editor.updates(session, "tool_call_update")[-1]["status"] == ("completed" if ran else "failed")


def test_an_answer_that_would_be_refused_is_not_offered(scripted: EditorStarter, folders: AgentFolders) -> None:
    outside = call("bash", command=f"touch {folders.home}/new", unsandboxed=True, reason="it is outside")
    editor = scripted(outside, "Done.", args=("--sandbox", "workspace"))
    editor.handlers["session/request_permission"] = choose("reject_once")
    assert editor.prompt(editor.new(), "go")["stopReason"] == "end_turn"
    [asked] = editor.requests_of("session/request_permission")
    assert [one["kind"] for one in asked["params"]["options"]] == ["allow_once", "reject_once"]


def test_what_is_allowed_always_is_not_asked_again(scripted: EditorStarter) -> None:
    echo = call("bash", command="echo hi")
    editor = scripted(echo, echo, "Done.", args=("--approval-mode", "write"))
    editor.handlers["session/request_permission"] = choose("allow_always")
    assert editor.prompt(editor.new(), "go")["stopReason"] == "end_turn"
    assert len(editor.requests_of("session/request_permission")) == 1


def test_a_client_that_cannot_be_asked_has_the_call_denied(scripted: EditorStarter, folders: AgentFolders) -> None:
    editor = scripted(call("bash", command="touch ran"), "Done.", args=("--approval-mode", "write"))
    assert editor.prompt(editor.new(), "go")["stopReason"] == "end_turn"
    assert not (folders.work / "ran").exists()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("when", ["at once", "streaming", "command", "question", "retry", "twice"])
def test_a_cancellation_always_ends_in_cancelled(scripted: EditorStarter, when: str, version: int) -> None:
    error = {"error": {"message": "overloaded", "status": 529, "retryable": True, "retryAfterMs": 60_000}}
    replies = {"command": NEVER_ENDS, "question": NEVER_ENDS, "retry": error}
    args = ("--approval-mode", "write") if when == "question" else ()
    notices = {"session": {"notices": {}}} if version == 1 else {}
    editor = scripted(script={"default": replies.get(when, HANG)}, args=args, version=version, **notices)
    asked, answered = threading.Event(), threading.Event()

    def wait(params: Any) -> Any:
        asked.set()
        answered.wait(15)
        return {"outcome": {"outcome": "cancelled"}}

    editor.handlers["session/request_permission"] = wait
    session = editor.new()
    number = editor.begin_prompt(session, "go")
    if when in ("streaming", "twice"):
        editor.wait_update(session, "agent_message_chunk")
    elif when == "command":
        editor.wait_update(session, "tool_call_update", status="in_progress")
    elif when == "question":
        assert asked.wait(15)
    elif when == "retry":
        editor.wait_update(session, "notice")
    editor.notify("session/cancel", sessionId=session)
    if when == "twice":
        editor.notify("session/cancel", sessionId=session)
    if when == "question":
        [asking] = editor.requests_of("session/request_permission")
        withdrawn = editor.wait(lambda one: one.get("method") == "$/cancel_request")
        assert withdrawn["params"] == {"requestId": asking["id"]}
    if version == 1:
        assert editor.answer(number)["stopReason"] == "cancelled"
    elif when != "at once":
        editor.wait_update(session, "state_update", state="idle", stopReason="cancelled")
    answered.set()
    other = editor.new()
    again = editor.begin_prompt(other, "go")
    editor.notify("session/cancel", sessionId=other)
    if version == 1:
        assert editor.answer(again)["stopReason"] == "cancelled"


def test_cancelling_the_request_cancels_the_prompt(scripted: EditorStarter) -> None:
    editor = scripted(script={"default": HANG})
    session = editor.new()
    number = editor.begin_prompt(session, "go")
    editor.wait_update(session, "agent_message_chunk")
    editor.notify("$/cancel_request", requestId=number)
    assert editor.answer(number)["stopReason"] == "cancelled"


def test_a_prompt_whose_request_is_cancelled_at_once_is_answered_and_closes(scripted: EditorStarter) -> None:
    editor = scripted(script={"default": HANG})
    session = editor.new()
    prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
    asked = {"jsonrpc": "2.0", "id": "p", "method": "session/prompt", "params": prompt}
    withdrawn = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": "p"}}
    editor.write(b"".join(json.dumps(one).encode() + b"\n" for one in (asked, withdrawn)))
    assert editor.answer("p")["stopReason"] == "cancelled"
    assert editor.call("session/close", sessionId=session) == {}


def test_the_tokens_of_a_run_are_told_once_with_its_end(scripted: EditorStarter) -> None:
    editor = scripted(call("bash", command="echo a"), "ok")
    usage = editor.prompt(editor.new(), "go")["usage"]
    assert usage["totalTokens"] == usage["inputTokens"] + usage["outputTokens"] > 0


def test_a_command_has_a_terminal_with_its_exit_code_in_version_2(scripted: EditorStarter) -> None:
    editor = scripted(call("bash", command="echo a; exit 3"), "ok", version=2)
    session = editor.new()
    editor.prompt(session, "go")
    editor.wait_update(session, "state_update", state="idle")
    [made, ended] = editor.updates(session, "terminal_update")
    assert made["capabilities"] == {"cancel": {}}
    assert (ended["exitStatus"], ended["capabilities"]) == ({"exitCode": 3}, None)
    [printed] = editor.updates(session, "terminal_output_chunk")
    assert base64.b64decode(printed["data"]) == b"a\n"


def test_a_run_that_an_extension_begins_is_told_with_its_message_and_states(
    scripted: EditorStarter, tmp_path: Path
) -> None:
    extension = tmp_path / "saying.py"
    extension.write_text(SAYING)
    editor = scripted("ok", args=("--extension", str(extension)), version=2)
    session = editor.new()
    editor.prompt(session, "/say")
    editor.wait_update(session, "agent_message_chunk")
    said = [one["content"][0]["text"] for one in editor.updates(session, "user_message")]
    assert said == ["/say", "from an extension"]
    states = ["running", "idle"] * 2
    assert eventually(lambda: [one["state"] for one in editor.updates(session, "state_update")] == states)


def test_a_message_that_an_extension_adds_is_shown(scripted: EditorStarter, tmp_path: Path) -> None:
    extension = tmp_path / "saying.py"
    extension.write_text(SAYING)
    editor = scripted("ok", args=("--extension", str(extension)))
    session = editor.new()
    editor.prompt(session, "/note")
    assert eventually(lambda: editor.text_of_updates(session) == "a note of an extension")


def test_a_command_in_the_middle_of_a_run_does_not_say_that_the_session_is_idle(
    scripted: EditorStarter, tmp_path: Path
) -> None:
    extension = tmp_path / "asking.py"
    extension.write_text(EXTENSION)
    editor = scripted(script={"default": HANG}, args=("--extension", str(extension)), version=2)
    session = editor.new()
    editor.prompt(session, "go")
    editor.wait_update(session, "agent_message_chunk")
    editor.prompt(session, "/ask")
    assert [one["state"] for one in editor.updates(session, "state_update")] == ["running"]
    editor.notify("session/cancel", sessionId=session)
    editor.wait_update(session, "state_update", state="idle", stopReason="cancelled")


def test_what_a_project_brings_waits_for_trust_and_the_editor_is_told(
    scripted: EditorStarter, folders: AgentFolders
) -> None:
    (folders.work / ".mcp.json").write_text(json.dumps({"mcpServers": {"own": {"command": "/no/such/program"}}}))
    editor = scripted("ok", session={"notices": {}})
    session = editor.new()
    told = editor.wait_update(session, "notice")
    assert told["severity"] == "warning"
    assert "not used: .mcp.json" in told["title"]
    assert "/trust" in told["title"]


def test_what_a_client_without_notices_should_know_is_on_stderr(scripted: EditorStarter) -> None:
    editor = scripted("ok")
    editor.new(mcpServers=[{"name": "missing", "command": "/no/such/program", "args": [], "env": []}])
    assert eventually(lambda: "Tool server missing" in editor.stderr)


def test_closing_a_session_answers_its_prompt_first(scripted: EditorStarter) -> None:
    editor = scripted(script={"default": HANG})
    session = editor.new()
    number = editor.begin_prompt(session, "go")
    editor.wait_update(session, "agent_message_chunk")
    assert editor.call("session/close", sessionId=session) == {}
    assert editor.answer(number)["stopReason"] == "cancelled"


def test_one_session_that_hangs_does_not_hold_another(scripted: EditorStarter) -> None:
    rules = [{"when": {"user": "hang"}, "reply": HANG}]
    editor = scripted(script={"rules": rules, "default": "ok"})
    held, free = editor.new(), editor.new()
    number = editor.begin_prompt(held, "hang")
    editor.wait_update(held, "agent_message_chunk")
    for _ in range(3):
        assert editor.prompt(free, "hello")["stopReason"] == "end_turn"
    editor.notify("session/cancel", sessionId=held)
    assert editor.answer(number)["stopReason"] == "cancelled"


def test_a_second_prompt_steers_the_run_and_both_end_with_it(scripted: EditorStarter) -> None:
    wait = call("bash", command="until test -e go; do :; done")
    rules = [{"when": {"anywhere": "also this"}, "reply": "Both done."}]
    editor = scripted(script={"rules": rules, "default": wait})
    session = editor.new()
    first = editor.begin_prompt(session, "do that")
    editor.wait_update(session, "tool_call_update", status="in_progress")
    second = editor.begin_prompt(session, "also this")
    assert "sessions" in editor.call("session/list")
    (editor.folders.work / "go").touch()
    assert editor.answer(first)["stopReason"] == "end_turn"
    assert editor.answer(second)["stopReason"] == "end_turn"
    assert editor.text_of_updates(session) == "Both done."


def test_a_run_that_fails_is_an_error_with_its_reason(scripted: EditorStarter) -> None:
    failing = {"error": {"message": "the model is on fire", "status": 400}}
    editor = scripted(script={"default": failing})
    failure = editor.expect_error("session/prompt", sessionId=editor.new(), prompt=[{"type": "text", "text": "hi"}])
    assert failure.code == -32603
    assert "on fire" in failure.message
    second = scripted(script={"default": failing}, version=2)
    session = second.new()
    second.prompt(session, "hi")
    idle = second.wait_update(session, "state_update", state="idle")
    assert idle["stopReason"] == "error"
    assert "on fire" in idle["error"]["message"]


def test_limits_and_cut_answers_have_their_stop_reasons(scripted: EditorStarter) -> None:
    editor = scripted({"text": "cut", "stop": "length"}, args=("--max-turns", "3"))
    session = editor.new()
    assert editor.prompt(session, "hi")["stopReason"] == "max_tokens"
    endless = scripted(script={"default": call("ls", path=".")}, args=("--max-turns", "2"))
    assert endless.prompt(endless.new(), "hi")["stopReason"] == "max_turn_requests"


def test_the_plan_is_told_whenever_it_changes(scripted: EditorStarter) -> None:
    phases = [{"name": "Work", "tasks": [{"content": "first"}, {"content": "second"}]}]
    plan = call("todo", ops=[{"op": "replace", "phases": phases}])
    editor = scripted(script={"replies": [plan, "Which one first?"], "default": "Not asked."})
    session = editor.new()
    editor.prompt(session, "plan it")
    # The person sees what is open: the model may stop to ask.
    assert editor.text_of_updates(session) == "Which one first?"
    told = editor.updates(session, "plan")
    assert told[-1]["entries"] == [
        {"content": "first", "priority": "medium", "status": "in_progress"},
        {"content": "second", "priority": "medium", "status": "pending"},
    ]
    kinds = [update["sessionUpdate"] for update in editor.updates(session)]
    assert kinds.index("plan") < kinds.index("agent_message_chunk"), "not only at the end of the run"


def test_the_plan_is_told_again_when_finished_tasks_are_cleared(scripted: EditorStarter, folders: AgentFolders) -> None:
    folders.configure(settings={"tasks": {"todoClearDelay": 0.3}})
    phases = [{"name": "Work", "tasks": [{"content": "first", "status": "completed"}, {"content": "second"}]}]
    plan = call("todo", ops=[{"op": "replace", "phases": phases}])
    editor = scripted(script={"replies": [plan], "default": "Done."})
    session = editor.new()
    editor.prompt(session, "plan it")
    left = [{"content": "second", "priority": "medium", "status": "in_progress"}]
    assert eventually(lambda: editor.updates(session, "plan")[-1]["entries"] == left), editor.updates(session, "plan")


def test_undo_and_redo_are_commands_that_no_model_sees(scripted: EditorStarter, folders: AgentFolders) -> None:
    call = {"toolCalls": [{"name": "write", "arguments": {"path": str(folders.work / "a.txt"), "content": "new"}}]}
    editor = scripted(script={"replies": [call, "Done.", "Never said."]})
    session = editor.new()
    file = folders.work / "a.txt"
    file.write_text("old")
    editor.prompt(session, "/undo")
    assert "nothing to undo" in editor.text_of_updates(session)
    editor.prompt(session, "change it")
    editor.prompt(session, "/undo")
    assert file.read_text() == "old"
    editor.prompt(session, "/redo")
    assert file.read_text() == "new"
    assert editor.text_of_updates(session).count("Restored: a.txt.") == 2
    assert "Never said." not in editor.text_of_updates(session)


def test_commands_are_told_and_a_prompt_may_begin_with_one(scripted: EditorStarter, folders: AgentFolders) -> None:
    (folders.agent / "prompts").mkdir()
    (folders.agent / "prompts" / "shout.md").write_text("---\ndescription: Say it loud\n---\nLOUD: $1")
    editor = scripted(script={"default": {"text": "${user}"}})
    session = editor.new()
    told = editor.wait_update(session, "available_commands_update")["availableCommands"]
    assert [one["name"] for one in told] == ["redo", "shout", "undo"]
    assert ("shout", "Say it loud") in [(one["name"], one["description"]) for one in told]
    editor.prompt(session, "/shout hello")
    assert editor.text_of_updates(session) == "LOUD: hello"


def test_a_question_of_a_command_leaves_the_session_idle_in_version_2(
    scripted: EditorStarter, folders: AgentFolders, tmp_path: Path
) -> None:
    extension = tmp_path / "asking.py"
    extension.write_text(EXTENSION)
    editor = scripted("ok", args=("--extension", str(extension)), version=2, elicitation={"form": {}})
    editor.handlers["elicitation/create"] = lambda params: {"action": "decline"}
    session = editor.new()
    editor.prompt(session, "/ask")
    editor.wait_update(session, "notice", title="All asked")
    assert [one["state"] for one in editor.updates(session, "state_update")][-1] == "idle"


@pytest.mark.parametrize("forms", [True, False])
def test_dialogs_of_extensions_are_forms_or_cancelled(
    scripted: EditorStarter, folders: AgentFolders, tmp_path: Path, forms: bool
) -> None:
    extension = tmp_path / "asking.py"
    extension.write_text(EXTENSION)
    given = iter(["green", True, "Ada", "after"])
    client = {"elicitation": {"form": {}}, "session": {"notices": {}}} if forms else {"elicitation": {}}
    editor = scripted("ok", args=("--extension", str(extension)), **client)
    editor.handlers["elicitation/create"] = lambda params: {"action": "accept", "content": {"answer": next(given)}}
    session = editor.new()
    assert editor.prompt(session, "/ask")["stopReason"] == "end_turn"
    expected = ["green", True, "Ada", "after"] if forms else [None, False, None, None]
    written = folders.work / "answers.txt"
    assert eventually(lambda: written.exists() and written.read_text() == repr(expected)), editor.stderr
    asked = [one["params"] for one in editor.requests_of("elicitation/create")]
    if forms:
        assert asked[0]["requestedSchema"]["properties"]["answer"]["enum"] == ["red", "green"]
        assert asked[3]["requestedSchema"]["properties"]["answer"]["default"] == "before"
        assert editor.wait_update(session, "notice", title="All asked")
    else:
        assert asked == []
