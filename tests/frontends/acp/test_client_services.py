"""Files and terminals of the editor: unsaved text is read and changed there, commands run there, rules come first."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fakes.editor_client import Editor, EditorStarter, RpcFailure
from support.agent_folders import AgentFolders

FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"toolCalls": [{"name": name, "arguments": arguments}]}


class Buffers:
    """Texts that are open in the editor, by path."""

    def __init__(self, editor: Editor, texts: dict[str, str]) -> None:
        self.texts = texts
        editor.handlers["fs/read_text_file"] = self.read
        editor.handlers["fs/write_text_file"] = self.write

    def read(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["path"] not in self.texts:
            raise RpcFailure({"code": -32002, "message": "not open"})
        return {"content": self.texts[params["path"]]}

    def write(self, params: dict[str, Any]) -> None:
        self.texts[params["path"]] = params["content"]


class Terminals:
    """Terminals of the editor, in which nothing really runs; `ends` says with what, none for a command that goes on."""

    def __init__(self, editor: Editor, output: str, code: int | None) -> None:
        self.made: list[dict[str, Any]] = []
        self.deeds: list[str] = []
        self._output = output
        self._code = code
        self._killed = threading.Event()
        self.released = threading.Event()
        for name in ("create", "output", "wait_for_exit", "kill", "release"):
            editor.handlers[f"terminal/{name}"] = getattr(self, name)

    def create(self, params: dict[str, Any]) -> dict[str, Any]:
        self.made.append(params)
        return {"terminalId": f"term-{len(self.made)}"}

    def output(self, params: dict[str, Any]) -> dict[str, Any]:
        self.deeds.append("output")
        return {"output": self._output, "truncated": False}

    def wait_for_exit(self, params: dict[str, Any]) -> dict[str, Any]:
        if self._code is None:
            self._killed.wait(15)
        return {"exitCode": self._code, "signal": None if self._code is not None else "SIGKILL"}

    def kill(self, params: dict[str, Any]) -> dict[str, Any]:
        self.deeds.append("kill")
        self._killed.set()
        return {}

    def release(self, params: dict[str, Any]) -> dict[str, Any]:
        self.deeds.append("release")
        self.released.set()
        return {}


def test_unsaved_text_is_read_and_changed_in_the_editor(scripted: EditorStarter, folders: AgentFolders) -> None:
    file = folders.work / "open.txt"
    file.write_text("on disk\n")
    editor = scripted(
        call("read", path="open.txt"),
        call("edit", path="open.txt", edits=[{"oldText": "unsaved", "newText": "edited"}]),
        {"text": "${toolResult}"},
        **FILES,
    )
    buffers = Buffers(editor, {str(file): "unsaved\n"})
    session = editor.new()
    assert editor.prompt(session, "go")["stopReason"] == "end_turn"
    assert buffers.texts == {str(file): "edited\n"}
    assert file.read_text() == "on disk\n"
    read = [one for one in editor.updates(session, "tool_call_update") if one.get("status") == "completed"]
    assert read[0]["content"][0]["content"]["text"] == "```\nunsaved\n```"
    assert read[1]["content"] == [{"type": "diff", "path": str(file), "oldText": "unsaved\n", "newText": "edited\n"}]


def test_new_files_are_written_by_the_editor_and_their_folders_are_there(
    scripted: EditorStarter, folders: AgentFolders
) -> None:
    editor = scripted(call("write", path="deep/new.txt", content="hello"), "ok", **FILES)
    buffers = Buffers(editor, {})
    editor.prompt(editor.new(), "go")
    assert buffers.texts == {str(folders.work / "deep" / "new.txt"): "hello"}
    assert (folders.work / "deep").is_dir()


def test_a_file_that_the_editor_does_not_know_is_read_from_disk(scripted: EditorStarter, folders: AgentFolders) -> None:
    (folders.work / "known.txt").write_text("from disk")
    (folders.temp / "outside.txt").write_text("outside")
    editor = scripted(
        call("read", path="known.txt"), call("read", path=str(folders.temp / "outside.txt")), "ok", **FILES
    )
    Buffers(editor, {})
    session = editor.new()
    editor.prompt(session, "go")
    texts = [
        one["content"][0]["content"]["text"]
        for one in editor.updates(session, "tool_call_update")
        if one.get("status") == "completed"
    ]
    assert texts == ["```\nfrom disk\n```", "```\noutside\n```"]
    assert [one["params"]["path"] for one in editor.requests_of("fs/read_text_file")] == [
        str(folders.work / "known.txt")
    ]


def test_a_text_that_is_larger_than_a_line_may_be_fails_its_call_at_once_and_the_disk_is_not_read_instead(
    scripted: EditorStarter, folders: AgentFolders
) -> None:
    file = folders.work / "big.txt"
    file.write_text("on disk")
    editor = scripted(call("read", path="big.txt"), "ok", **FILES)
    Buffers(editor, {str(file): "x" * (33 << 20)})
    session = editor.new()
    assert editor.prompt(session, "go")["stopReason"] == "end_turn"
    (failed,) = [one for one in editor.updates(session, "tool_call_update") if one.get("status") == "failed"]
    assert "big.txt is too large to be read from the editor" in str(failed["content"])


def test_a_workspace_behind_a_link_is_asked_for_by_the_editors_own_name(
    scripted: EditorStarter, folders: AgentFolders
) -> None:
    link = folders.temp / "project"
    link.symlink_to(folders.work)
    (folders.work / "a.txt").write_text("disk")
    editor = scripted(call("read", path="a.txt"), "ok", **FILES)
    Buffers(editor, {str(link / "a.txt"): "buffer"})
    session = editor.new(link)
    editor.prompt(session, "go")
    assert [one["params"]["path"] for one in editor.requests_of("fs/read_text_file")] == [str(link / "a.txt")]


@pytest.mark.parametrize("way", ["error", "result"])
def test_an_editor_that_refuses_to_write_is_obeyed(scripted: EditorStarter, folders: AgentFolders, way: str) -> None:
    editor = scripted(call("write", path="a.txt", content="x"), {"text": "${toolResult}"}, **FILES)

    def refuse(params: dict[str, Any]) -> str:
        if way == "error":
            raise RpcFailure({"code": -32603, "message": "the buffer is read-only"})
        return "the buffer is read-only"

    editor.handlers["fs/write_text_file"] = refuse
    session = editor.new()
    editor.prompt(session, "go")
    assert "the buffer is read-only" in editor.text_of_updates(session)
    assert not (folders.work / "a.txt").exists()


def test_rules_deny_a_file_before_the_editor_is_asked(scripted: EditorStarter, folders: AgentFolders) -> None:
    (folders.work / ".env").write_text("SECRET=1")
    rules = '{"deny": ["read(.env)", "write(.env)"]}'
    editor = scripted(
        call("read", path=".env"),
        call("write", path=".env", content="x"),
        "ok",
        args=("--permissions", rules),
        **FILES,
    )
    Buffers(editor, {str(folders.work / ".env"): "SECRET=2"})
    editor.prompt(editor.new(), "go")
    assert editor.requests_of("fs/read_text_file") == []
    assert editor.requests_of("fs/write_text_file") == []


def test_only_what_is_offered_is_used(scripted: EditorStarter, folders: AgentFolders) -> None:
    (folders.work / "a.txt").write_text("disk")
    editor = scripted(
        call("read", path="a.txt"), call("bash", command="echo here"), {"text": "${toolResult}"}, version=2, **FILES
    )
    session = editor.new()
    editor.prompt(session, "go")
    editor.wait_update(session, "state_update", state="idle", stopReason="end_turn")
    assert editor.text_of_updates(session) == "here\n"
    assert editor.requests_of("fs/read_text_file") == editor.requests_of("terminal/create") == []


def test_commands_run_in_terminals_of_the_editor(scripted: EditorStarter, folders: AgentFolders) -> None:
    editor = scripted(call("bash", command="make test"), {"text": "${toolResult}"}, terminal=True)
    terminals = Terminals(editor, "all well\n", 0)
    session = editor.new()
    assert editor.prompt(session, "go")["stopReason"] == "end_turn"
    [made] = terminals.made
    assert (made["args"], made["cwd"]) == (["-c", "make test"], str(folders.work))
    assert made["command"].endswith("sh")
    assert terminals.released.wait(15)
    assert terminals.deeds == ["output", "release"]
    assert editor.text_of_updates(session) == "all well\n"
    assert editor.wait_update(session, "tool_call_update", content=[{"type": "terminal", "terminalId": "term-1"}])


def test_a_command_that_fails_in_a_terminal_is_an_error_with_its_code(scripted: EditorStarter) -> None:
    editor = scripted(call("bash", command="false"), {"text": "${toolResult}"}, terminal=True)
    Terminals(editor, "oh no\n", 3)
    session = editor.new()
    editor.prompt(session, "go")
    assert "oh no" in editor.text_of_updates(session)
    assert "Command exited with code 3" in editor.text_of_updates(session)
    assert editor.updates(session, "tool_call_update")[-1]["status"] == "failed"


@pytest.mark.parametrize("why", ["cancel", "timeout"])
def test_a_terminal_is_killed_and_released_when_its_command_must_stop(scripted: EditorStarter, why: str) -> None:
    timeout = {"timeout": 0.2} if why == "timeout" else {}
    editor = scripted(call("bash", command="serve", **timeout), {"text": "${toolResult}"}, terminal=True)
    terminals = Terminals(editor, "so far\n", None)
    session = editor.new()
    number = editor.begin_prompt(session, "go")
    editor.wait_update(session, "tool_call_update", content=[{"type": "terminal", "terminalId": "term-1"}])
    if why == "cancel":
        editor.notify("session/cancel", sessionId=session)
        assert editor.answer(number)["stopReason"] == "cancelled"
    else:
        assert editor.answer(number)["stopReason"] == "end_turn"
        assert "so far" in editor.text_of_updates(session)
        assert "timed out after 0.2 seconds" in editor.text_of_updates(session)
    assert terminals.released.wait(15)
    assert [deed for deed in terminals.deeds if deed != "output"] == ["kill", "release"]


def test_keys_of_the_environment_are_not_seen_in_terminals(folders: AgentFolders) -> None:
    editor = Editor(folders, "--model", "demo", env={"ANTHROPIC_API_KEY": "sk-ant-secret-value"})
    with editor:
        editor.initialize(terminal=True)
        terminals = Terminals(editor, "", 0)
        editor.prompt(editor.new(), "run `env`")
    [made] = terminals.made
    assert {"name": "ANTHROPIC_API_KEY", "value": ""} in made["env"]


def test_an_editor_that_cannot_make_a_terminal_fails_the_call(scripted: EditorStarter) -> None:
    editor = scripted(call("bash", command="echo hi"), {"text": "${toolResult}"}, terminal=True)
    session = editor.new()
    editor.prompt(session, "go")
    assert "The host could not run the command" in editor.text_of_updates(session)


def test_an_editor_that_dies_in_the_middle_leaves_nothing_running(scripted: EditorStarter) -> None:
    editor = scripted(call("bash", command="serve"), "ok", terminal=True)
    Terminals(editor, "", None)
    session = editor.new()
    editor.begin_prompt(session, "go")
    editor.wait_update(session, "tool_call_update", content=[{"type": "terminal", "terminalId": "term-1"}])


def test_commands_and_files_stay_behind_a_sandbox_whatever_the_editor_offers(
    scripted: EditorStarter, folders: AgentFolders
) -> None:
    """The editor opens a file by its path, which a command may have made lead elsewhere since it was checked."""
    file = folders.work / "open.txt"
    file.write_text("on disk\n")
    editor = scripted(
        call("edit", path="open.txt", edits=[{"oldText": "on disk", "newText": "edited"}]),
        call("bash", command="echo inside"),
        {"text": "${toolResult}"},
        args=("--sandbox", "workspace"),
        terminal=True,
        **FILES,
    )
    Terminals(editor, "outside\n", 0)
    Buffers(editor, {str(file): "unsaved\n"})
    session = editor.new()
    assert editor.prompt(session, "go")["stopReason"] == "end_turn"
    assert "outside" not in editor.text_of_updates(session)
    assert editor.requests_of("terminal/create") == []
    assert editor.requests_of("fs/read_text_file") == editor.requests_of("fs/write_text_file") == []
    assert file.read_text() == "edited\n"


def test_a_tool_server_that_cannot_be_had_holds_up_no_session(scripted: EditorStarter) -> None:
    editor = scripted("ok", "ok")
    servers = [
        {"name": "missing", "command": "/no/such/program", "args": [], "env": [{"name": "A", "value": "b"}]},
        {"type": "http", "name": "remote", "url": "http://127.0.0.1:9/mcp", "headers": []},
    ]
    session = editor.new(mcpServers=servers)
    assert editor.prompt(session, "hi")["stopReason"] == "end_turn"
