"""Sessions of an editor: begun, listed, loaded, resumed, forked, closed and deleted, with their options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.editor_client import Editor, EditorStarter
from support.agent_folders import AgentFolders

READ = {"toolCalls": [{"name": "read", "arguments": {"path": "notes.txt"}}]}
EDIT = {
    "toolCalls": [{"name": "edit", "arguments": {"path": "notes.txt", "edits": [{"oldText": "one", "newText": "two"}]}}]
}


def texts(updates: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Kind and text of the chunks."""
    return [
        (one["sessionUpdate"], one["content"]["text"]) for one in updates if one["sessionUpdate"].endswith("_chunk")
    ]


def test_a_loaded_session_replays_what_was_said_before_the_answer(
    scripted: EditorStarter, folders: AgentFolders
) -> None:
    (folders.work / "notes.txt").write_text("one\n")
    editor = scripted({"thinking": "Let me see.", "text": "I will look.", **READ}, "It says one.", "Again.")
    session = editor.new()
    editor.prompt(session, "What do the notes say?")
    live = editor.updates(session)
    editor.call("session/close", sessionId=session)
    start = editor.mark()
    answer = editor.begin("session/load", sessionId=session, cwd=str(folders.work), mcpServers=[])
    loaded = editor.answer(answer)
    place = next(i for i, one in enumerate(editor.messages) if one.get("id") == answer)
    before = [one["params"]["update"] for one in editor.messages[start:place] if one.get("method") == "session/update"]
    assert texts(before) == [
        ("user_message_chunk", "What do the notes say?"),
        ("agent_thought_chunk", "Let me see."),
        ("agent_message_chunk", "I will look."),
        ("agent_message_chunk", "It says one."),
    ]
    calls = [one for one in before if one["sessionUpdate"].startswith("tool_call")]
    assert [(one["sessionUpdate"], one["status"]) for one in calls] == [
        ("tool_call", "pending"),
        ("tool_call_update", "completed"),
    ]
    assert calls[0]["locations"] == [{"path": str(folders.work / "notes.txt")}]
    assert "modes" in loaded
    assert "configOptions" in loaded

    def ids(updates: list[dict[str, Any]]) -> set[str]:
        return {one["messageId"] for one in updates if one["sessionUpdate"].startswith("agent_")}

    assert ids(before) == ids(live)
    start = editor.mark()
    assert editor.prompt(session, "And now?")["stopReason"] == "end_turn"
    assert editor.updates(session, "session_info_update", start) == []


def test_a_resumed_session_goes_on_without_a_replay(scripted: EditorStarter, folders: AgentFolders) -> None:
    editor = scripted(script={"default": {"text": "${user}"}})
    session = editor.new()
    editor.prompt(session, "one")
    editor.call("session/close", sessionId=session)
    start = editor.mark()
    editor.call("session/resume", sessionId=session, cwd=str(folders.work))
    editor.prompt(session, "two")
    assert editor.text_of_updates(session, start=start) == "two"
    assert editor.updates(session, "user_message_chunk") == []


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("way", ["load", "resume"])
def test_nothing_is_sent_without_cause_after_the_answer_to_opening_a_known_session(
    scripted: EditorStarter, folders: AgentFolders, way: str, is_open: bool
) -> None:
    phases = [{"name": "Work", "tasks": [{"content": "one"}, {"content": "two"}]}]
    plan = {"toolCalls": [{"name": "todo", "arguments": {"ops": [{"op": "replace", "phases": phases}]}}]}
    (folders.agent / "prompts").mkdir()
    (folders.agent / "prompts" / "review.md").write_text("Review it.")
    editor = scripted(script={"replies": [plan], "default": "Done."})
    session = editor.new()
    editor.prompt(session, "plan it")
    if not is_open:
        editor.call("session/close", sessionId=session)
    start = editor.mark()
    editor.call(f"session/{way}", sessionId=session, cwd=str(folders.work), mcpServers=[])
    end = editor.mark()
    # Making the conversation that lists them takes longer than anything that would be sent of this one.
    editor.call("session/list", cwd=str(folders.work))
    assert editor.updates(session, start=end) == []
    told = {one["sessionUpdate"]: one for one in editor.updates(session, start=start)}
    assert {"available_commands_update", "usage_update"} <= set(told)
    assert "review" in [one["name"] for one in told["available_commands_update"]["availableCommands"]]
    # A plan that the client of an open session knows is not sent again.
    assert ("plan" in told) is not is_open
    assert editor.prompt(session, "go on")["stopReason"] == "end_turn"


def test_sessions_are_listed_by_folder_with_their_titles(
    scripted: EditorStarter, folders: AgentFolders, tmp_path: Path
) -> None:
    editor = scripted(script={"default": "ok"})
    other = tmp_path / "other"
    other.mkdir()
    here, there = editor.new(), editor.new(other)
    editor.prompt(here, "the first question\nand more")
    editor.prompt(there, "elsewhere")
    listed = editor.call("session/list", cwd=str(folders.work))["sessions"]
    assert [(one["sessionId"], one["title"], one["cwd"]) for one in listed] == [
        (here, "the first question and more", str(folders.work))
    ]
    assert {one["sessionId"] for one in editor.call("session/list")["sessions"]} == {here, there}
    assert editor.call("session/list", cwd="/no/such/folder") == {"sessions": []}
    assert editor.call("session/set_title", sessionId=here, title="  New   name ") == {"title": "New name"}
    assert editor.wait_update(here, "session_info_update", title="New name")
    editor.call("session/close", sessionId=there)
    assert editor.call("session/status", sessionId=there) == {"status": "saved"}
    assert editor.call("session/status", sessionId=here) == {"status": "open"}
    editor.call("session/set_title", sessionId=there, title="Kept")
    titles = {one["sessionId"]: one["title"] for one in editor.call("session/list")["sessions"]}
    assert titles == {here: "New name", there: "Kept"}


def test_a_long_list_comes_in_pages(scripted: EditorStarter, folders: AgentFolders) -> None:
    editor = scripted(script={"default": "ok"})
    first = editor.new()
    editor.prompt(first, "hello")
    [file] = (folders.agent / "sessions").glob("*/*.jsonl")
    lines = file.read_text().splitlines()
    for number in range(60):
        header = {**json.loads(lines[0]), "id": f"copy-{number}"}
        (file.parent / f"2020-01-01T00-00-00-{number:03d}Z_copy-{number}.jsonl").write_text(
            "\n".join([json.dumps(header), *lines[1:]]) + "\n"
        )
    page = editor.call("session/list", cwd=str(folders.work))
    assert len(page["sessions"]) == 50
    rest = editor.call("session/list", cwd=str(folders.work), cursor=page["nextCursor"])
    assert len(rest["sessions"]) == 11
    assert "nextCursor" not in rest
    assert len({one["sessionId"] for one in [*page["sessions"], *rest["sessions"]]}) == 61


def test_a_fork_has_what_was_said_and_leaves_the_other_alone(scripted: EditorStarter, folders: AgentFolders) -> None:
    editor = scripted("First.", "In the fork.", "In the first.")
    session = editor.new()
    editor.prompt(session, "one")
    fork = editor.call("session/fork", sessionId=session, cwd=str(folders.work))["sessionId"]
    assert fork != session
    editor.prompt(fork, "two")
    editor.prompt(session, "three")
    editor.call("session/close", sessionId=fork)
    editor.call("session/load", sessionId=fork, cwd=str(folders.work), mcpServers=[])
    said = [one["content"]["text"] for one in editor.updates(fork, "user_message_chunk")]
    assert said == ["one", "two"]


def test_a_deleted_session_is_gone_and_in_the_trash(scripted: EditorStarter, folders: AgentFolders) -> None:
    editor = scripted(script={"default": "ok"})
    session = editor.new()
    editor.prompt(session, "one")
    assert editor.call("session/delete", sessionId=session) == {}
    assert editor.call("session/list")["sessions"] == []
    assert (
        editor.expect_error("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "x"}]).code == -32002
    )
    assert len(list((folders.agent / "trash").iterdir())) == 1
    assert editor.call("session/delete", sessionId=session) == {}


def test_what_is_asked_of_a_session_at_once_is_done_one_after_the_other(
    scripted: EditorStarter, folders: AgentFolders
) -> None:
    editor = scripted(script={"default": "ok"})
    session = editor.new()
    editor.prompt(session, "one")
    opened = {"sessionId": session, "cwd": str(folders.work), "mcpServers": []}
    ways = ["close", "load", "close", "set_title", "load", "resume", "delete"]
    asked = [
        {"jsonrpc": "2.0", "id": f"{number}", "method": f"session/{way}", "params": {**opened, "title": "T"}}
        for number, way in enumerate(ways)
    ]
    editor.write(b"".join(json.dumps(one).encode() + b"\n" for one in asked))
    for number in range(len(ways)):
        editor.answer(f"{number}")
    assert editor.call("session/list")["sessions"] == []


def test_a_session_that_another_process_writes_is_not_loaded(scripted: EditorStarter, folders: AgentFolders) -> None:
    editor = scripted(script={"default": "ok"})
    session = editor.new()
    editor.prompt(session, "one")
    other = scripted(script={"default": "ok"})
    failure = other.expect_error("session/load", sessionId=session, cwd=str(folders.work), mcpServers=[])
    assert failure.code == -32600
    assert "in use" in failure.message
    editor.call("session/close", sessionId=session)
    other.call("session/load", sessionId=session, cwd=str(folders.work), mcpServers=[])
    assert other.prompt(session, "two")["stopReason"] == "end_turn"


def test_a_session_of_another_folder_is_not_loaded_here(scripted: EditorStarter, tmp_path: Path) -> None:
    editor = scripted(script={"default": "ok"})
    session = editor.new()
    editor.prompt(session, "one")
    editor.call("session/close", sessionId=session)
    failure = editor.expect_error("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
    assert failure.code == -32602
    assert str(editor.folders.work) in failure.message


def test_loading_an_open_session_replays_it_again(scripted: EditorStarter, folders: AgentFolders) -> None:
    editor = scripted(script={"default": "ok"})
    session = editor.new()
    editor.prompt(session, "one")
    start = editor.mark()
    editor.call("session/load", sessionId=session, cwd=str(folders.work), mcpServers=[])
    assert editor.text_of_updates(session, "user_message_chunk", start) == "one"
    assert editor.prompt(session, "two")["stopReason"] == "end_turn"


def test_loading_a_session_in_the_middle_of_a_run_shows_its_call_as_running(
    scripted: EditorStarter, folders: AgentFolders
) -> None:
    editor = scripted({"toolCalls": [{"name": "bash", "arguments": {"command": "sleep 60"}}]}, "ok")
    session = editor.new()
    number = editor.begin_prompt(session, "go")
    editor.wait_update(session, "tool_call_update", status="in_progress")
    start = editor.mark()
    editor.call("session/load", sessionId=session, cwd=str(folders.work), mcpServers=[])
    assert [one.get("status") for one in editor.updates(session, "tool_call_update", start)] == ["in_progress"]
    editor.notify("session/cancel", sessionId=session)
    assert editor.answer(number)["stopReason"] == "cancelled"


@pytest.mark.parametrize("way", ["session/new", "session/load"])
def test_a_session_whose_opening_was_cancelled_is_not_left_open(
    scripted: EditorStarter, folders: AgentFolders, way: str
) -> None:
    editor = scripted(script={"default": "ok " * 500})
    session = editor.new()
    editor.prompt(session, "one")
    editor.call("session/close", sessionId=session)
    descriptors = editor.descriptors()
    for _ in range(3):
        params = {"cwd": str(folders.work), "mcpServers": [], "sessionId": session}
        asked = {"jsonrpc": "2.0", "id": "o", "method": way, "params": params}
        withdrawn = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": "o"}}
        start = editor.mark()
        editor.write(b"".join(json.dumps(one).encode() + b"\n" for one in (asked, withdrawn)))
        assert editor.wait(lambda one: one.get("id") == "o", start)["error"]["code"] == -32800
    assert editor.call("session/status", sessionId=session) == {"status": "saved"}
    assert editor.descriptors() <= descriptors


def test_options_are_told_set_and_refused(scripted: EditorStarter) -> None:
    editor = scripted(script={"default": "ok"})
    session = editor.new()
    [created] = [one["result"] for one in editor.messages if one.get("result", {}).get("sessionId") == session]
    options = {one["id"]: one for one in created["configOptions"]}
    assert [one["category"] for one in options.values()] == ["mode", "model", "thought_level"]
    assert created["modes"]["currentModeId"] == options["mode"]["currentValue"] == "yolo"
    changed = editor.call("session/set_config_option", sessionId=session, configId="thought_level", value="high")
    assert {one["id"]: one["currentValue"] for one in changed["configOptions"]}["thought_level"] == "high"
    assert editor.wait_update(session, "config_option_update")
    assert editor.updates(session, "current_mode_update") == [], "the mode is as it was"
    assert editor.call("session/set_mode", sessionId=session, modeId="always-ask") == {}
    assert editor.wait_update(session, "current_mode_update", currentModeId="always-ask")
    models = created["models"]
    offered = [one["value"] for one in options["model"]["options"]]
    assert models["currentModelId"] == options["model"]["currentValue"]
    assert [one["modelId"] for one in models["availableModels"]] == offered
    assert editor.call("session/set_model", sessionId=session, modelId=models["currentModelId"]) == {}
    assert editor.expect_error("session/set_model", sessionId=session, modelId="no/such").code == -32602
    for config, value in (("mode", "none"), ("model", "no/such"), ("none", "x"), ("mode", 7)):
        failure = editor.expect_error("session/set_config_option", sessionId=session, configId=config, value=value)
        assert failure.code == -32602
    assert editor.expect_error("session/set_mode", sessionId=session, modeId="none").code == -32602
    failure = editor.expect_error(
        "session/set_config_option", sessionId=session, configId="mode", type="boolean", value=True
    )
    assert failure.code == -32602


def test_modes_that_the_settings_forbid_are_not_offered(scripted: EditorStarter, folders: AgentFolders) -> None:
    folders.configure(settings={"tools": {"approvalMode": "write"}})
    editor = scripted(script={"default": "ok"})
    session = editor.new()
    assert editor.expect_error("session/set_mode", sessionId=session, modeId="yolo").code == -32602
    assert editor.call("session/set_mode", sessionId=session, modeId="always-ask") == {}
    assert editor.call("session/set_mode", sessionId=session, modeId="write") == {}


def test_without_a_key_a_session_is_refused_with_the_code_for_that(folders: AgentFolders) -> None:
    with Editor(folders) as editor:
        editor.initialize()
        failure = editor.expect_error("session/new", cwd=str(folders.work), mcpServers=[])
        assert failure.code == -32000
        assert "ANTHROPIC_API_KEY" in failure.message
        assert editor.expect_error("authenticate", methodId="api-key").code == -32000
        assert editor.call("auth/status") == {"state": "unauthenticated"}
        (folders.agent / "auth.json").write_text(json.dumps({"anthropic": {"type": "api_key", "key": "sk-test"}}))
        assert editor.call("authenticate", methodId="api-key") == {}
        session = editor.new()
        assert session
        assert editor.call("auth/status") == {"state": "authenticated"}
        assert editor.call("logout") == {}
        assert editor.call("auth/status") == {"state": "unauthenticated"}
        assert editor.expect_error("session/new", cwd=str(folders.work), mcpServers=[]).code == -32000
        assert editor.call("authenticate", methodId="api-key") == {}
        assert editor.new()


def test_words_for_the_system_prompt_and_further_folders_reach_the_model(
    scripted: EditorStarter, tmp_path: Path
) -> None:
    rules = [
        {"when": {"system": "Speak like a pirate."}, "reply": "Arr."},
        {"when": {"system": str(tmp_path)}, "reply": "I know."},
    ]
    editor = scripted(script={"rules": rules, "default": "Hm."})
    words = {"mode": "append", "content": [{"type": "text", "text": "Speak like a pirate."}]}
    pirate = editor.new(systemPrompt=words)
    editor.prompt(pirate, "hello")
    assert editor.text_of_updates(pirate) == "Arr."
    wide = editor.new(additionalDirectories=[str(tmp_path)])
    editor.prompt(wide, "hello")
    assert editor.text_of_updates(wide) == "I know."
    alone = editor.new(systemPrompt={**words, "mode": "override"})
    editor.prompt(alone, "hello")
    assert editor.text_of_updates(alone) == "Arr."


@pytest.mark.parametrize("version", [1, 2])
def test_two_hundred_sessions_leave_nothing_behind(scripted: EditorStarter, version: int) -> None:
    editor = scripted(script={"default": "ok"}, version=version)
    for _ in range(3):
        editor.call("session/close", sessionId=editor.new())
    descriptors, memory = editor.descriptors(), editor.resident()
    for _ in range(200):
        editor.call("session/close", sessionId=editor.new())
    assert editor.descriptors() <= descriptors
    assert editor.resident() - memory < 24 << 20
