"""JSON-RPC as an editor sees it: versions, errors with their codes, and input that is no message."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.editor_client import Editor, RpcFailure
from pigeon.frontends.acp.incoming import ClientCapabilities, ClientFiles, decode_leniently
from support.agent_folders import AgentFolders
from support.strategies import json_objects, json_values, words

METHODS = [
    "authenticate", "auth/status", "session/new", "session/load", "session/resume", "session/fork", "session/list",
    "session/close", "session/delete", "session/set_title", "session/status", "session/prompt",
    "session/set_config_option", "session/set_mode", "session/set_model",
]  # fmt: skip
MEMBERS = words(
    "sessionId", "cwd", "mcpServers", "prompt", "modeId", "configId", "value", "title", "methodId", "cursor", "type",
    "additionalDirectories", "systemPrompt", "replayFrom", "name", "command", "args", "env", "url", "headers", "text",
    "mode", "content", "data", "uri", "_meta",
)  # fmt: skip
TEXTS = words("none", "/", "/no/such", "text", "stdio", "http", "api-key", "append", "")


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    """One process for all cases: each must leave it as it was."""
    folders = AgentFolders(tmp_path_factory.mktemp("editor"))
    folders.configure()
    with Editor(folders, "--model", "demo") as editor:
        editor.initialize()
        yield editor


def lives(editor: Editor) -> bool:
    return "sessions" in editor.call("session/list")


def error_of(editor: Editor, line: bytes) -> dict[str, object]:
    """The answer to a line that has no id."""
    start = editor.mark()
    editor.write(line)
    found = editor.wait(lambda one: one.get("id", 0) is None, start)
    assert lives(editor)
    return dict(found["error"])


def test_version_1_is_answered_with_version_1_and_what_pigeon_offers(folders: AgentFolders) -> None:
    with Editor(folders, "--model", "demo") as editor:
        offered = editor.initialize()
    assert offered["protocolVersion"] == 1
    assert offered["agentInfo"]["name"] == "pigeon"
    assert offered["agentCapabilities"]["loadSession"] is True
    assert offered["agentCapabilities"]["promptCapabilities"] == {
        "image": True,
        "audio": False,
        "embeddedContext": True,
    }
    assert {"list", "delete", "resume", "close", "fork"} <= set(offered["agentCapabilities"]["sessionCapabilities"])
    assert [method["id"] for method in offered["authMethods"]] == ["api-key"]


@pytest.mark.parametrize(("asked", "spoken"), [(2, 2), (3, 2), (65535, 2)])
def test_later_versions_are_answered_with_the_draft_of_version_2(
    folders: AgentFolders, asked: int, spoken: int
) -> None:
    with Editor(folders, "--model", "demo") as editor:
        assert editor.initialize(asked)["protocolVersion"] == spoken


def test_the_number_of_the_version_may_be_a_text(folders: AgentFolders) -> None:
    with Editor(folders, "--model", "demo") as editor:
        assert editor.call("initialize", protocolVersion="1")["protocolVersion"] == 1
        assert editor.new()


@pytest.mark.parametrize("asked", ["", "one", "1.0", "-1", "123456", 1.5, True, None])
def test_what_is_no_version_is_refused_by_name(folders: AgentFolders, asked: object) -> None:
    with Editor(folders, "--model", "demo") as editor:
        failure = editor.expect_error("initialize", protocolVersion=asked)
        assert (failure.code, "protocolVersion" in failure.message) == (-32602, True)


def test_a_version_before_the_first_is_refused_with_those_that_are_spoken(folders: AgentFolders) -> None:
    with Editor(folders, "--model", "demo") as editor:
        failure = editor.expect_error("initialize", protocolVersion=0)
        assert (failure.code, failure.data) == (-32022, {"requested": 0, "supported": [1, 2]})
        assert editor.initialize()["protocolVersion"] == 1


def test_nothing_but_initialize_is_answered_before_it(folders: AgentFolders) -> None:
    with Editor(folders, "--model", "demo") as editor:
        failure = editor.expect_error("session/new", cwd="/", mcpServers=[])
        assert failure.code == -32600
        assert "initialize" in failure.message


def test_a_connection_is_initialized_once(folders: AgentFolders) -> None:
    with Editor(folders, "--model", "demo") as editor:
        editor.initialize()
        assert editor.expect_error("initialize", protocolVersion=2).code == -32600
        assert editor.expect_error("auth/login", methodId="api-key").code == -32601


@pytest.mark.parametrize(
    "capabilities",
    [
        None,
        [],
        "all",
        {"fs": None, "terminal": None, "session": 7, "elicitation": [], "auth": {"terminal": None}},
        {"fs": {"readTextFile": "yes", "writeTextFile": True}, "session": {"compaction": 1, "notices": []}},
    ],
)
def test_what_does_not_fit_in_the_capabilities_counts_as_not_offered(
    folders: AgentFolders, capabilities: object
) -> None:
    with Editor(folders, "--model", "demo") as editor:
        odd = {"clientCapabilities": capabilities, "clientInfo": 7, "_meta": {"a": 1}}
        assert editor.call("initialize", protocolVersion=1, **odd)["protocolVersion"] == 1


def test_capabilities_that_fit_are_taken_beside_those_that_do_not() -> None:
    given = {"fs": {"readTextFile": "yes", "writeTextFile": True}, "terminal": 1, "session": {"notices": []}}
    taken = decode_leniently(given, ClientCapabilities)
    assert taken.fs == ClientFiles(write_text_file=True)
    assert taken.session is not None
    assert taken.session.notices == {}
    assert taken.terminal is False


def test_a_terminal_setup_is_offered_to_clients_that_can_open_one(folders: AgentFolders) -> None:
    with Editor(folders, "--model", "demo") as editor:
        methods = editor.initialize(auth={"terminal": True})["authMethods"]
    assert [method.get("type", "agent") for method in methods] == ["agent", "terminal"]
    assert methods[1]["args"] == ["--setup"]


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (b"{]\n", -32700, "not JSON"),
        (b"\xff\xfe{}\n", -32700, "not UTF-8"),
        (b'"text"\n', -32600, "object"),
        (b"17\n", -32600, "object"),
        (b"[]\n", -32600, "batches"),
        (b'[{"jsonrpc":"2.0","id":1,"method":"session/list"}]\n', -32600, "batches"),
        (b'{"jsonrpc":"2.0"}\n', -32600, "method"),
        (b'{"jsonrpc":"2.0","method":7}\n', -32600, "method"),
        (b'{"jsonrpc":"2.0","id":true,"method":"session/list"}\n', -32600, "id"),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"session/list"}\n', -32600, "id"),
        (b"[" * 5000 + b"]" * 5000 + b"\n", -32600, "nested"),
    ],
)
def test_what_is_no_message_gets_an_error_and_the_process_lives(
    editor: Editor, line: bytes, code: int, words: str
) -> None:
    error = error_of(editor, line)
    assert error["code"] == code
    assert words in str(error["message"])


def test_a_line_that_is_too_long_gets_an_error_and_the_next_one_is_read(editor: Editor) -> None:
    error = error_of(editor, b'{"jsonrpc":"2.0","params":{"text":"' + b"x" * (33 << 20) + b'"}}\n')
    assert error["code"] == -32700
    assert "longer than" in str(error["message"])


def test_empty_lines_and_answers_to_nothing_are_passed_over(editor: Editor) -> None:
    editor.write(b'\n\r\n{"jsonrpc":"2.0","id":99,"result":{}}\n{"jsonrpc":"2.0","id":"x","error":{"code":1}}\n')
    assert lives(editor)


def test_notifications_are_never_answered_not_even_wrong_ones(editor: Editor) -> None:
    start = editor.mark()
    editor.notify("session/cancel", sessionId="none")
    editor.notify("session/cancel", sessionId=7)
    editor.notify("no/such", a=1)
    editor.notify("$/cancel_request", requestId="none")
    assert lives(editor)
    assert len(editor.messages) == start + 1


@pytest.mark.parametrize("method", ["session/cancel", "$/cancel_request"])
def test_a_notification_that_is_sent_as_a_request_is_told_so(editor: Editor, method: str) -> None:
    failure = editor.expect_error(method, sessionId="none")
    assert (failure.code, "notification" in failure.message) == (-32601, True)


def test_params_are_an_object_or_nothing(editor: Editor) -> None:
    for number, params in enumerate((None, [], {})):
        editor.send({"jsonrpc": "2.0", "id": f"empty-{number}", "method": "session/list", "params": params})
        assert "sessions" in editor.answer(f"empty-{number}")
    editor.send({"jsonrpc": "2.0", "id": "by place", "method": "session/list", "params": ["/"]})
    with pytest.raises(RpcFailure) as failure:
        editor.answer("by place")
    assert failure.value.code == -32602
    assert '"params"' in failure.value.message


def test_an_unknown_method_is_named_with_one_that_may_be_meant(editor: Editor) -> None:
    failure = editor.expect_error("session/lost")
    assert failure.code == -32601
    assert 'Did you mean "session/list"' in failure.message


def test_methods_of_the_other_version_are_unknown(editor: Editor) -> None:
    assert editor.expect_error("auth/login", methodId="api-key").code == -32601


@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("session/new", {}, '"cwd"'),
        ("session/new", {"cwd": 7, "mcpServers": []}, '"cwd"'),
        ("session/new", {"cwd": "relative", "mcpServers": []}, "absolute"),
        ("session/new", {"cwd": "/no/such/folder", "mcpServers": []}, "not a folder"),
        ("session/new", {"cwd": "/", "mcpServers": [{}]}, "name"),
        ("session/new", {"cwd": "/", "mcpServers": [{"name": "a"}]}, "mcpServers[0].command"),
        ("session/new", {"cwd": "/", "mcpServers": [{"name": "", "command": "x"}]}, "mcpServers[0].name"),
        ("session/new", {"cwd": "/", "mcpServers": [{"name": "a", "type": "http"}]}, "mcpServers[0].url"),
        ("session/new", {"cwd": "/", "mcpServers": [{"name": "a", "type": "acp"}]}, "mcpServers[0].type"),
        ("session/new", {"cwd": "/", "mcpServers": [{"name": "a", "command": "x"}] * 2}, "mcpServers[1].name"),
        ("session/new", {"cwd": "/", "mcpServers": [], "additionalDirectories": ["x"]}, "additionalDirectories[0]"),
        ("session/new", {"cwd": "/", "systemPrompt": {"mode": "odd", "content": []}}, "systemPrompt.mode"),
        ("session/prompt", {"sessionId": "x"}, '"prompt"'),
        ("session/list", {"cwd": "relative"}, "absolute"),
        ("session/set_mode", {"sessionId": "x"}, "modeId"),
        ("session/set_model", {"sessionId": "x"}, "modelId"),
        ("authenticate", {"methodId": "none"}, "api-key"),
        ("authenticate", {}, "methodId"),
    ],
)
def test_wrong_params_are_refused_with_the_member_that_is_wrong(
    editor: Editor, method: str, params: dict[str, object], words: str
) -> None:
    failure = editor.expect_error(method, **params)
    assert failure.code == -32602
    assert words in failure.message


@given(st.sampled_from(METHODS), json_objects(TEXTS, MEMBERS, 20) | json_values(TEXTS, MEMBERS))
def test_whatever_the_params_are_they_are_taken_or_refused_with_a_reason(
    editor: Editor, method: str, params: object
) -> None:
    start = editor.mark()
    editor.send({"jsonrpc": "2.0", "id": "any", "method": method, "params": params})
    answer = editor.wait(lambda one: one.get("id") == "any", start)
    if "error" in answer:
        assert answer["error"]["code"] in (-32600, -32601, -32602, -32000, -32002)
        assert answer["error"]["message"]


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("session/prompt", {"prompt": [{"type": "text", "text": "hi"}]}),
        ("session/load", {"cwd": "/", "mcpServers": []}),
        ("session/resume", {"cwd": "/"}),
        ("session/fork", {"cwd": "/"}),
        ("session/close", {}),
        ("session/set_mode", {"modeId": "yolo"}),
        ("session/set_model", {"modelId": "x"}),
        ("session/set_config_option", {"configId": "mode", "value": "yolo"}),
        ("session/status", {}),
        ("session/set_title", {"title": "x"}),
    ],
)
def test_an_unknown_session_is_named_in_the_error(editor: Editor, method: str, more: dict[str, object]) -> None:
    failure = editor.expect_error(method, sessionId="no-such-session", **more)
    assert (failure.code, failure.data) == (-32002, {"sessionId": "no-such-session"})


def test_the_beginning_of_an_id_is_not_the_id(editor: Editor) -> None:
    session = editor.new()
    assert editor.prompt(session, "say hello")["stopReason"] == "end_turn"
    editor.call("session/close", sessionId=session)
    assert editor.expect_error("session/load", sessionId=session[:8], cwd=str(editor.folders.work)).code == -32002


def test_an_id_in_use_is_refused(editor: Editor) -> None:
    session = editor.new()
    prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "run `sleep 60`"}]}
    editor.send({"jsonrpc": "2.0", "id": "same", "method": "session/prompt", "params": prompt})
    editor.send({"jsonrpc": "2.0", "id": "same", "method": "session/list", "params": {}})
    with pytest.raises(RpcFailure) as failure:
        editor.answer("same")
    assert failure.value.code == -32600
    editor.notify("session/cancel", sessionId=session)
    found = editor.wait(lambda one: one.get("id") == "same" and "result" in one)
    assert found["result"]["stopReason"] == "cancelled"


def test_the_process_ends_when_its_input_ends_in_the_middle_of_a_line(folders: AgentFolders) -> None:
    editor = Editor(folders, "--model", "demo")
    editor.initialize()
    editor.write(b'{"jsonrpc":"2.0","id":5,"meth')
    assert editor.close() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)])
def test_signals_end_the_process_with_their_codes(folders: AgentFolders, number: int, code: int) -> None:
    editor = Editor(folders, "--model", "demo")
    editor.initialize()
    editor.process.send_signal(number)
    assert editor.process.wait(30) == code
    assert editor.close() == code


def test_the_process_ends_when_its_input_ends_in_the_middle_of_a_run(folders: AgentFolders) -> None:
    editor = Editor(folders, "--model", "demo")
    editor.initialize()
    session = editor.new()
    editor.begin_prompt(session, "run `sleep 60`")
    editor.wait_update(session, "tool_call_update", status="in_progress")
    assert editor.close() == 0


def test_both_names_of_the_mode_serve_an_editor(folders: AgentFolders) -> None:
    with Editor(folders, "--model", "demo", command=("--mode", "acp")) as editor:
        assert editor.initialize()["protocolVersion"] == 1


def test_every_message_is_one_line_of_utf_8(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "ü\u2028.txt").write_text("é")
    session = editor.new(tmp_path)
    assert editor.prompt(session, "list the files")["stopReason"] == "end_turn"
    json.dumps(editor.messages)
