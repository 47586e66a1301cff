"""Permission rules of the host, in the real program: an option, commands, an approval mode."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess, Start
from support.contract import calls, proves, question, reply, results

Record = dict[str, Any]
ECHO = Call("bash", {"command": "echo hi"})
YES = "Allow once"


@proves("permission.host_option")
@pytest.mark.parametrize("form", ["json", "file", "comments"])
def test_rules_of_the_host_are_an_option(start: Start, folders: AgentFolders, server: ModelServer, form: str) -> None:
    rules = '{"deny": ["bash(echo *)"]}'
    if form != "json":
        (folders.work / "rules.json").write_text(rules if form == "file" else f"// ours\n{rules[:-2]},]}}")
    host = start("--permissions", rules if form == "json" else "rules.json")
    assert "denied by the rule" in results(host, calls(host, server, ECHO))[0][1]


@proves("permission.host_option_bad")
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("nowhere.json", "nowhere.json cannot be read"),
        ("", "cannot be read"),
        (".", "cannot be read"),
        ("pipe", "cannot be read"),
        ("empty.json", "empty.json cannot be used: the file is empty"),
        ("broken.json", "broken.json cannot be used: not valid JSON"),
        ('{"deny": ["bash"', "not valid JSON"),
        ("[]", "permissions must be an object"),
        ('{"deny": "bash"}', "permissions.deny must be a list"),
        ('{"permisions": {}}', "permissions.permisions is unknown"),
    ],
)
def test_rules_of_the_host_that_cannot_be_used_end_the_start(
    start: Start, folders: AgentFolders, given: str, named: str
) -> None:
    (folders.work / "empty.json").write_text("")
    (folders.work / "broken.json").write_text('{"deny": [')
    os.mkfifo(folders.work / "pipe")
    host = start("--permissions", given)
    assert host.wait_exit() == 1
    assert host.stderr.startswith("Error: --permissions: ")
    assert named in host.stderr


@proves("permission.host_tightens")
def test_a_host_allows_nothing_that_the_user_denies_or_wants_asked(start: Start, server: ModelServer) -> None:
    user = {"permissions": {"deny": ["bash(rm *)"], "ask": ["bash(echo *)"], "default": "ask"}}
    host = start("--permissions", '{"allow": ["*"], "default": "allow"}', settings=user)
    loose = {"allow": ["bash", "bash(rm *)", "*"], "default": "allow"}
    for _ in range(2):
        begun = calls(host, server, Call("bash", {"command": "rm -f x"}), ECHO, Call("read", {"path": "."}))
        for number in (1, 2):
            request = host.wait_count("extension_ui_request", number, begun)[-1]
            reply(host, request, value="Deny")
        assert [failed for failed, _ in results(host, begun)] == [True, True, True]
        host.ask("set_permissions", permissions=loose)


@proves("permission.set")
def test_rules_can_be_set_where_there_were_none_and_taken_back(start: Start, server: ModelServer) -> None:
    host = start()
    assert results(host, calls(host, server, ECHO)) == [(False, "hi\n")]
    answer = host.ask("set_permissions", permissions={"ask": ["bash"], "timeoutMs": 5000})
    assert answer["host"]["ask"] == ["bash"]
    begun = calls(host, server, ECHO)
    request = question(host, begun)
    assert request["timeout"] == 5000
    reply(host, request, value=YES)
    assert results(host, begun) == [(False, "hi\n")]
    host.ask("set_permissions", permissions={})
    begun = calls(host, server, ECHO)
    assert results(host, begun) == [(False, "hi\n")]
    assert not host.since(begun, "extension_ui_request")


@proves("permission.set_in_run")
@pytest.mark.parametrize(("rule", "runs"), [("bash(echo again)", True), ("bash", False)])
def test_rules_that_are_set_in_a_run_hold_for_its_next_call_and_for_one_that_is_asked_about(
    start: Start, server: ModelServer, rule: str, runs: bool
) -> None:
    host = start("--permissions", '{"ask": ["bash"]}')
    begun = calls(host, server, ECHO, Call("bash", {"command": "echo again"}))
    request = question(host, begun)
    host.ask("set_permissions", permissions={"deny": [rule]})
    reply(host, request, value=YES)
    first, second = results(host, begun)
    assert first == (False, "hi\n") if runs else f'denied by the rule "{rule}"' in first[1]
    assert second[0] is True
    assert f'the rule "{rule}"' in second[1]


@proves("permission.set_bad")
@pytest.mark.parametrize(
    ("rules", "named"),
    [
        (None, "permissions"), ([], "permissions"), ("deny", "permissions"), ({"deny": "bash"}, "permissions.deny"),
        ({"ask": ["bash("]}, "permissions.ask"), ({"default": "perhaps"}, "permissions.default"),
        ({"deny": [], "extra": 1}, "permissions.extra"),
    ],
)  # fmt: skip
def test_rules_that_cannot_be_understood_change_nothing(
    start: Start, server: ModelServer, rules: Any, named: str
) -> None:
    host = start("--permissions", '{"deny": ["bash"]}')
    before = host.ask("get_permissions")
    assert named in host.expect_error("set_permissions", permissions=rules)
    assert host.ask("get_permissions") == before
    assert results(host, calls(host, server, ECHO))[0][0] is True


@proves("permission.set_mode")
def test_the_approval_mode_can_be_changed_and_the_rules_stay(start: Start, server: ModelServer) -> None:
    host = start("--permissions", '{"deny": ["bash(echo no)"]}')
    assert results(host, calls(host, server, ECHO)) == [(False, "hi\n")]
    answer = host.ask("set_approval_mode", mode="write")
    assert (answer["approvalMode"], answer["host"]["deny"]) == ("write", ["bash(echo no)"])
    begun = calls(host, server, ECHO)
    reply(host, question(host, begun), value=YES)
    assert results(host, begun) == [(False, "hi\n")]
    assert host.ask("set_permissions", permissions={})["host"]["approvalMode"] == "write"
    assert host.ask("set_approval_mode", mode="yolo")["approvalMode"] == "yolo"
    assert results(host, calls(host, server, ECHO)) == [(False, "hi\n")]
    assert "mode" in host.expect_error("set_approval_mode", mode="never")


@proves("permission.mode_not_loosened")
def test_the_mode_of_the_settings_cannot_be_loosened(start: Start) -> None:
    host = start(settings={"tools": {"approvalMode": "always-ask"}})
    assert host.ask("set_approval_mode", mode="yolo")["approvalMode"] == "always-ask"


@proves("permission.get")
def test_the_rules_in_force_are_told_by_source(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    (folders.work / ".pigeon").mkdir()
    project = {"permissions": {"deny": ["write(.env)"], "allow": ["bash"], "default": "allow"}}
    (folders.work / ".pigeon" / "settings.json").write_text(json.dumps(project))
    user = {"permissions": {"ask": ["bash"], "allow": ["read"], "timeoutMs": 7000}, "tools": {"approvalMode": "write"}}
    host = start("--approve", "--approval-mode", "always-ask", settings=user)
    host.ask("set_permissions", permissions={"deny": ["bash(rm *)"], "default": "ask"})
    begun = calls(host, server, ECHO)
    reply(host, question(host, begun), value="Allow for this session")
    results(host, begun)
    nothing: Record = {"deny": [], "ask": [], "allow": [], "default": "allow", "approvalMode": "yolo"}
    assert host.ask("get_permissions") == {
        "default": "ask",
        "approvalMode": "always-ask",
        "timeoutMs": 7000,
        "user": {**nothing, "ask": ["bash"], "allow": ["read"], "approvalMode": "write"},
        "project": {**nothing, "deny": ["write(.env)"]},
        "host": {**nothing, "deny": ["bash(rm *)"], "default": "ask", "approvalMode": "always-ask"},
        "allowed": [{"toolName": "bash", "subject": "echo hi", "cwd": str(folders.work)}],
    }


@proves("permission.get_none")
def test_where_there_are_no_rules_they_are_told_to_be_empty(agent: RpcProcess) -> None:
    told = agent.ask("get_permissions")
    assert (told["default"], told["approvalMode"], told["allowed"]) == ("allow", "yolo", [])


@proves("permission.approval_mode")
@pytest.mark.parametrize("by", ["option", "setting"])
@pytest.mark.parametrize(("mode", "asked"), [("always-ask", ["write", "bash"]), ("write", ["bash"]), ("yolo", [])])
def test_an_approval_mode_asks_before_tools(
    start: Start, folders: AgentFolders, server: ModelServer, mode: str, asked: list[str], by: str
) -> None:
    (folders.work / "a").write_text("text")
    host = start("--approval-mode", mode) if by == "option" else start(settings={"tools": {"approvalMode": mode}})
    made = [Call("read", {"path": "a"}), Call("write", {"path": "b", "content": ""}), ECHO]
    begun = calls(host, server, *made)
    for number, tool in enumerate(asked, 1):
        request = host.wait_count("extension_ui_request", number, begun)[-1]
        assert request["title"].startswith(f"Allow {tool}: ")
        reply(host, request, value=YES)
    assert [failed for failed, _ in results(host, begun)] == [False, False, False]
    assert len(host.since(begun, "extension_ui_request")) == len(asked)


@proves("permission.approval_mode_unknown")
def test_an_approval_mode_that_nobody_knows_is_a_usage_error(start: Start) -> None:
    host = start("--approval-mode", "sometimes")
    assert host.wait_exit() == 2
    assert 'Invalid approval mode "sometimes". Valid values: plan, always-ask, write, yolo' in host.stderr


@proves("permission.approval_mode_setting")
def test_a_mode_in_the_settings_that_nobody_knows_is_told_and_asks(start: Start, server: ModelServer) -> None:
    host = start(settings={"tools": {"approvalMode": "sometimes"}})
    begun = calls(host, server, ECHO)
    reply(host, question(host, begun), value="Deny")
    assert results(host, begun)[0][0] is True
    assert "the approval mode must be one of" in host.stderr


@proves("permission.session_bound")
@pytest.mark.parametrize("way", ["new_session", "clone", "switch_session"])
def test_what_was_allowed_for_a_session_is_asked_again_in_another(
    start: Start, server: ModelServer, tmp_path: Path, way: str
) -> None:
    host = start("--permissions", '{"ask": ["bash"]}', keeps=True)
    begun = calls(host, server, ECHO)
    reply(host, question(host, begun), value="Allow for this session")
    results(host, begun)
    first = host.ask("get_state")["sessionFile"]
    host.ask("new_session" if way == "switch_session" else way)
    begun = calls(host, server, ECHO)
    reply(host, question(host, begun), value="Deny")
    assert results(host, begun)[0][0] is True
    assert host.ask("get_permissions")["allowed"] == []
    if way == "switch_session":
        host.ask("switch_session", sessionPath=first)
        begun = calls(host, server, ECHO)
        assert results(host, begun) == [(False, "hi\n")]
        assert not host.since(begun, "extension_ui_request")
