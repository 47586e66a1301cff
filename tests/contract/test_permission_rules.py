"""Permission rules in the real program: what is asked of the host, and that every doubt is a no."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import AgentFolders, extension
from support.agent_process import RpcProcess, Start
from support.contract import calls, proves, question, reply, results
from support.contract_scenes import Seen, Stage, scenario
from support.records import tool_texts

Record = dict[str, Any]
ASK = {"permissions": {"ask": ["bash(echo *)"], "deny": ["bash(rm *)", "write(.env)"]}}
OPTIONS = ["Allow once", "Allow for this session", "Deny"]


@proves("permission.off")
def test_without_rules_nobody_is_asked(agent: RpcProcess, server: ModelServer) -> None:
    start = calls(agent, server, Call("bash", {"command": "echo hi"}))
    assert results(agent, start) == [(False, "hi\n")]
    assert not agent.since(start, "extension_ui_request")


@scenario
def allowed(stage: Stage) -> Seen:
    """A tool that the host is asked about, and its yes."""
    host = stage.start(settings=ASK)
    begun = calls(host, stage.server, Call("bash", {"command": "echo hi"}))
    request = question(host, begun)
    reply(host, request, value="Allow once")
    return Seen(request=request, results=results(host, begun))


@proves("permission.ask")
def test_the_host_is_asked_before_the_tool_runs(allowed: Seen) -> None:
    assert allowed.request["options"] == OPTIONS
    assert allowed.request["title"] == "Allow bash: echo hi"
    assert allowed.request["timeout"] == 120_000


@proves("permission.allow")
def test_a_yes_of_the_host_runs_the_tool(allowed: Seen) -> None:
    assert allowed.results == [(False, "hi\n")]


@proves("permission.final_answer")
def test_rules_hold_in_a_run_that_ends_with_a_value_and_not_for_the_value(start: Start, server: ModelServer) -> None:
    host = start(settings={"permissions": {"deny": ["bash"], "ask": ["*"]}})
    server.answers(Call("bash", {"command": "echo hi > made"}))
    server.answers(Call("final_answer", {"n": 1}))
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    records = host.run("count", outputSchema=schema)
    assert records[-1]["output"] == {"n": 1}
    assert results(host, 0)[0][0] is True
    assert not (host.folders.work / "made").exists()
    assert not [record for record in records if record["type"] == "extension_ui_request"]


@proves("permission.session")
def test_a_yes_for_the_session_is_not_asked_again(start: Start, server: ModelServer) -> None:
    host = start(settings=ASK)
    begun = calls(host, server, Call("bash", {"command": "echo hi"}), Call("bash", {"command": "echo hi"}))
    request = question(host, begun)
    reply(host, request, value="Allow for this session")
    assert results(host, begun) == [(False, "hi\n"), (False, "hi\n")]
    assert len(host.since(begun, "extension_ui_request")) == 1


@proves("permission.closed")
@pytest.mark.parametrize(
    "answer",
    [
        {"value": "Deny"}, {"value": "allow once"}, {"value": 1}, {"value": ["Allow once"]}, {"value": ""}, {},
        {"confirmed": True}, {"cancelled": True, "value": "Allow once"}, {"timedOut": True},
    ],
)  # fmt: skip
def test_anything_but_a_clear_yes_is_an_error_result(start: Start, server: ModelServer, answer: Record) -> None:
    host = start(settings=ASK)
    begun = calls(host, server, Call("bash", {"command": "echo hi"}))
    request = question(host, begun)
    host.send({"type": "extension_ui_response", "id": "another", "value": "Allow once"})
    reply(host, request, **answer)
    ((failed, text),) = results(host, begun)
    assert failed is True
    assert text.startswith("Permission denied for bash: echo hi")


@proves("permission.timeout")
def test_no_answer_in_time_is_a_no(start: Start, server: ModelServer) -> None:
    host = start(settings={"permissions": {"ask": ["bash"], "timeoutMs": 200}})
    begun = calls(host, server, Call("bash", {"command": "echo hi"}))
    request = question(host, begun)
    ((failed, text),) = results(host, begun)
    assert (failed, "there was no answer" in text) == (True, True)
    reply(host, request, value="Allow once")
    host.ask("get_state")


@proves("permission.attended")
def test_with_a_person_a_question_has_the_time_limit_of_the_settings_or_none(start: Start, server: ModelServer) -> None:
    host = start("--attended", settings=ASK)
    assert "timeoutMs" not in host.ask("get_permissions")
    begun = calls(host, server, Call("bash", {"command": "echo hi"}))
    request = question(host, begun)
    assert "timeout" not in request
    reply(host, request, value="Allow once")
    assert results(host, begun) == [(False, "hi\n")]
    host.ask("set_permissions", permissions={"timeoutMs": 5000})
    assert host.ask("get_permissions")["timeoutMs"] == 5000


@proves("permission.deny")
def test_a_denied_call_is_an_error_result_and_asks_nobody(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    host = start(settings=ASK)
    made = [Call("bash", {"command": "ls; rm x"}), Call("write", {"path": "./deep/.env", "content": "x"})]
    begun = calls(host, server, *made)
    shell, file = results(host, begun)
    assert shell[0] is True
    assert 'the rule "bash(rm *)"' in shell[1]
    assert 'the rule "write(.env)"' in file[1]
    assert not (folders.work / "deep").exists()
    assert not host.since(begun, "extension_ui_request")


@proves("permission.deny_spelled")
@pytest.mark.parametrize(
    "asked", ["Anna's notes.txt", "@Anna\u2019s\u00a0notes.txt", "@file://WORK/Anna%27s%20notes.txt"]
)
def test_a_denied_file_stays_closed_however_its_name_is_spelled(
    start: Start, folders: AgentFolders, server: ModelServer, asked: str
) -> None:
    (folders.work / "Anna\u2019s notes.txt").write_text("secret")
    host = start(settings={"permissions": {"deny": ["read(Anna\u2019s notes.txt)"]}})
    begun = calls(host, server, Call("read", {"path": asked.replace("WORK", str(folders.work))}))
    ((failed, text),) = results(host, begun)
    assert failed is True
    assert 'the rule "read(Anna\u2019s notes.txt)"' in text


@proves("permission.shell")
@pytest.mark.parametrize(
    "command",
    ["A=1 r\\m x", "if :; then env -i /bin/'rm' x; fi", "bash -c 'eval \"r\"m x'", "echo $(echo `rm x`)", "{rm,-f,x}"],
)
def test_a_denied_command_does_not_run_however_it_is_spelled(
    start: Start, folders: AgentFolders, server: ModelServer, command: str
) -> None:
    (folders.work / "x").touch()
    host = start(settings=ASK)
    begun = calls(host, server, Call("bash", {"command": command}))
    ((failed, text),) = results(host, begun)
    assert (failed, 'the rule "bash(rm *)"' in text) == (True, True)
    assert (folders.work / "x").exists()


@proves("permission.shell_redirection")
def test_a_redirection_of_an_allowed_command_is_asked_about(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    host = start(settings={"permissions": {"allow": ["bash(echo *)"], "default": "ask"}})
    made = [Call("bash", {"command": "echo 'a; b' 2>&1"}), Call("bash", {"command": "echo a > x"})]
    begun = calls(host, server, *made)
    request = question(host, begun)
    assert request["title"] == "Allow bash: echo a > x"
    reply(host, request, value="Deny")
    assert [failed for failed, _ in results(host, begun)] == [False, True]
    assert not (folders.work / "x").exists()


@proves("permission.shell_long")
def test_a_long_command_and_an_evil_pattern_do_not_stop_the_process(start: Start, server: ModelServer) -> None:
    host = start(settings={"permissions": {"deny": ["bash(*rm*-rf*/*)"], "ask": ["bash(*echo*)"]}})
    begun = calls(host, server, Call("bash", {"command": "echo " + "rm -r " * 6_000}))
    request = question(host, begun)
    host.ask("get_state")
    reply(host, request, value="Deny")
    assert [failed for failed, _ in results(host, begun)] == [True]


@proves("permission.subject")
def test_an_argument_that_a_tool_does_not_know_deceives_nobody(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    (folders.work / "secret").mkdir()
    (folders.work / "secret" / "key").write_text("hidden")
    host = start(settings={"permissions": {"deny": ["read(secret/**)"], "ask": ["read(plain)"]}})
    decoys = {"command": "x", "file": "y"}
    made = [Call("read", {"path": "secret/key", **decoys}), Call("read", {"path": "plain", **decoys})]
    begun = calls(host, server, *made)
    request = question(host, begun)
    assert request["title"] == "Allow read: plain"
    reply(host, request, value="Deny")
    assert [failed for failed, _ in results(host, begun)] == [True, True]


@proves("permission.subject_swapped")
def test_a_folder_that_is_swapped_for_a_link_while_the_host_thinks_changes_nothing(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    for name in ("open", "secret"):
        (folders.work / name).mkdir()
        (folders.work / name / "key").write_text(name)
    host = start(settings={"permissions": {"deny": ["read(secret/**)"], "ask": ["read", "write"]}})
    made = [Call("read", {"path": "open/key"}), Call("write", {"path": "open/key", "content": "new"})]
    begun = calls(host, server, *made)
    first = question(host, begun)
    (folders.work / "open").rename(folders.work / "moved")
    (folders.work / "open").symlink_to("secret")
    reply(host, first, value="Allow once")
    second = host.wait(lambda record: record.get("method") == "select" and record["id"] != first["id"], begun)
    assert second["title"] == f"Allow write: {folders.work / 'secret' / 'key'}"
    reply(host, second, value="Deny")
    assert results(host, begun)[0] == (False, "open")
    assert (folders.work / "secret" / "key").read_text() == "secret"


@proves("permission.subject_search")
def test_searching_from_above_does_not_show_what_may_not_be_read(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    (folders.work / "secret").mkdir()
    (folders.work / "secret" / "key").write_text("needle one")
    (folders.work / "plain.txt").write_text("needle two")
    host = start("--tools", "grep,find,ls", settings={"permissions": {"deny": ["read(secret/**)", "read(*.pem)"]}})
    (folders.work / "a.pem").write_text("needle three")
    made = [Call("grep", {"pattern": "needle"}), Call("find", {"pattern": "*"}), Call("ls", {})]
    begun = calls(host, server, *made)
    texts = [text for _, text in results(host, begun)]
    assert texts == ["plain.txt:1: needle two", "plain.txt", "plain.txt"]


@proves("permission.abort")
def test_an_abort_ends_a_run_that_waits_for_permission(start: Start, server: ModelServer) -> None:
    host = start(settings=ASK)
    begun = calls(host, server, Call("bash", {"command": "echo hi"}))
    question(host, begun)
    host.ask("abort")
    host.wait_end(begun)
    assert "hi\n" not in tool_texts(host.since(begun))


@proves("permission.eof")
def test_the_end_of_input_ends_a_process_that_waits_for_permission(start: Start, server: ModelServer) -> None:
    host = start(settings=ASK)
    question(host, calls(host, server, Call("bash", {"command": "echo hi > file"})))
    host.close()
    assert not (host.folders.work / "file").exists()


@proves("permission.extension")
def test_an_extension_cannot_change_a_call_behind_the_rules(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    text = "@ext.on(ToolCall)\nasync def change(event, ctx):\n    event.args['command'] = 'rm -rf x'\n"
    host = start(*extension(folders, text), settings=ASK)
    ((failed, told),) = results(host, calls(host, server, Call("bash", {"command": "ls"})))
    assert (failed, "rm -rf x" in told) == (True, True)


@proves("permission.malformed")
def test_rules_that_cannot_be_understood_make_everything_a_question(start: Start, server: ModelServer) -> None:
    host = start(settings={"permissions": {"deny": "bash"}})
    begun = calls(host, server, Call("ls", {"path": "."}), Call("read", {"path": "x"}))
    question(host, begun)
    host.ask("abort")
    assert "permissions.deny must be a list" in host.stderr + json.dumps(host.records)


@proves("permission.project")
def test_a_trusted_project_can_forbid_but_not_allow(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    folder = folders.work / ".pi"
    folder.mkdir()
    rules = {"permissions": {"allow": ["bash"], "default": "allow", "deny": ["read"]}}
    (folder / "settings.json").write_text(json.dumps(rules))
    host = start("--approve", settings={"permissions": {"deny": ["bash(echo *)"]}})
    begun = calls(host, server, Call("bash", {"command": "echo hi"}), Call("read", {"path": "x"}))
    shell, file = results(host, begun)
    assert (shell[0], file[0]) == (True, True)
    assert 'the rule "read"' in file[1]
