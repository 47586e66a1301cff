"""What cannot be used makes the program stricter, never looser, and the host is told so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import ODD, AgentFolders, providers
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.records import finished_messages
from support.sessions import HEADER

STRICTER = "every tool call that is not denied needs approval"
BROKEN = {
    "no JSON": "{",
    "empty": "",
    "only a comment": "// nothing",
    "a list": "[]",
    "bad text": "\udcff",
    "too deep": "[" * 100_000,
    "two values": "{} {}",
    "null permissions": '{"permissions": null}',
    "a list of permissions": '{"permissions": ["deny"]}',
    "misspelt": '{"permisions": {"deny": ["read"]}}',
    "upper case": '{"Permissions": {"deny": ["read"]}}',
    "another letter": '{"p\u0435rmissions": {"deny": ["read"]}}',
    "too far in": '{"pigeon": {"permissions": {"deny": ["read"]}}}',
    "too far out": '{"deny": ["read"]}',
    "twice": '{"permissions": {"deny": ["bash"]}, "permissions": {}}',
    "twice inside": '{"permissions": {"deny": ["bash"], /* x */ "deny": [], "allow": ["bash"]}}',
    "twice and hidden": '{"permissions": {"deny": ["bash"]}, "permi\\u0073sions": {}}',
    "in the tools": '{"tools": {"permissions": {"deny": ["bash"]}}}',
    "a mode misspelt": '{"tools": {"aprovalMode": "always-ask"}}',
    "a mode too far out": '{"approvalMode": "always-ask"}',
    "a mode that is none": '{"tools": {"approvalMode": "alway-ask"}}',
    "tools that are none": '{"tools": "always-ask"}',
    "another list": '{"permissions": {"denied": ["read"], "allow": ["bash"]}}',
    "no rule": '{"permissions": {"deny": ["read everything"], "allow": ["bash"]}}',
}


def agent_folder(folders: AgentFolders, server: ModelServer) -> tuple[Path, dict[str, str]]:
    """A folder for the agent without settings, and the variables that name it."""
    folder = folders.home / "another"
    folder.mkdir()
    (folder / "models.json").write_text(json.dumps(providers(server.url)))
    return folder, {"PIGEON_CODING_AGENT_DIR": str(folder)}


def is_asked(host: RpcProcess, server: ModelServer) -> bool:
    """Whether a harmless command is asked about; the answer is no."""
    server.answers(Call("bash", {"command": "echo harmless"}))
    server.answers("done")
    begun = host.mark()
    host.ask("prompt", message="x")
    found = host.wait(lambda r: r.get("method") == "select" or r["type"] == "tool_execution_end", begun)
    if found["type"] == "tool_execution_end":
        host.wait_end(begun)
        return False
    host.send({"type": "extension_ui_response", "id": found["id"], "value": "Deny"})
    host.wait_end(begun)
    assert [message["isError"] for message in finished_messages(host.since(begun), "toolResult")] == [True]
    return True


def told(host: RpcProcess, path: Path) -> None:
    """The host hears of it on both ways, with the name of the file."""
    notice = host.wait_event("extension_ui_request", method="notify")
    for text in (notice["message"], host.stderr):
        assert STRICTER in text
        assert str(path) in text


@proves("permission.unusable_no_file")
@pytest.mark.parametrize("kind", ODD)
def test_settings_that_are_no_file_make_everything_a_question(
    start: Start, folders: AgentFolders, server: ModelServer, kind: str
) -> None:
    folder, env = agent_folder(folders, server)
    ODD[kind](folder / "settings.json")
    host = start(env=env)
    told(host, folder / "settings.json")
    assert is_asked(host, server)


@proves("permission.unusable")
@pytest.mark.parametrize("text", BROKEN.values(), ids=list(BROKEN))
def test_settings_that_cannot_be_understood_make_everything_a_question(
    start: Start, folders: AgentFolders, server: ModelServer, text: str
) -> None:
    folder, env = agent_folder(folders, server)
    (folder / "settings.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    host = start(env=env)
    assert STRICTER in host.wait_event("extension_ui_request", method="notify")["message"]
    assert STRICTER in host.stderr
    assert is_asked(host, server)


@proves("permission.unusable_project")
@pytest.mark.parametrize("text", ["{", '{"permissions": null}', '{"permision": {"deny": ["read"]}}'])
def test_settings_of_a_trusted_project_are_held_to_the_same(
    start: Start, folders: AgentFolders, server: ModelServer, text: str
) -> None:
    (folders.work / ".pi").mkdir()
    (folders.work / ".pi" / "settings.json").write_text(text)
    assert not is_asked(start(settings={"permissions": {"allow": ["bash"]}}), server)
    host = start("--approve", settings={"permissions": {"allow": ["bash"]}})
    told(host, folders.work / ".pi" / "settings.json")
    assert is_asked(host, server)


@proves("permission.no_settings")
def test_no_settings_are_no_reason_to_ask(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    _, env = agent_folder(folders, server)
    host = start(env=env)
    assert not is_asked(host, server)
    assert host.stderr == ""
    assert not [record for record in host.records if record["type"] == "extension_ui_request"]


@proves("settings.comments")
def test_comments_and_trailing_commas_are_fine_in_every_file(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    folder, env = agent_folder(folders, server)
    models = (folder / "models.json").read_text()
    (folder / "models.json").write_text("// mine\n" + models[:-1] + ",}")
    (folder / "settings.json").write_text('{"permissions": /* all */ {"deny": ["bash(echo *)",],},}')
    (folder / "auth.json").write_text('{"fake": {"type": "api_key", "key": "k",},} // end')
    (folder / "trust.json").write_text(f"{{{json.dumps(str(folders.work))}: true, /* yes */}}")
    (folders.work / ".pi" / "prompts").mkdir(parents=True)
    (folders.work / ".pi" / "prompts" / "mine.md").write_text("text")
    host = start(env=env)
    assert "mine" in [command["name"] for command in host.ask("get_commands")["commands"]]
    server.answers(Call("bash", {"command": "echo x"}))
    server.answers("done")
    assert [message["isError"] for message in finished_messages(host.run("go"), "toolResult")] == [True]
    assert host.stderr == ""


@proves("settings.unknown_keys")
def test_unknown_keys_are_reported_with_the_nearest_and_those_of_the_family_are_not(start: Start) -> None:
    settings: dict[str, Any] = {
        "defualtModel": "x",
        "retry": {"maxRetrys": 1, "maxDelayMs": 3, "provider": {"timeoutMS": 1}},
        "somethingElse": 1,
        "theme": "dark",
        "terminal": {"showImages": True},
        "ask": {"timeout": 1},
        "ttsr": {"enabled": True},
        "$schema": "x",
    }
    host = start(settings=settings)
    host.ask("get_state")
    said = [line.split("json: ")[-1] for line in host.stderr.splitlines()]
    assert said == [
        "unknown key 'retry.provider.timeoutMS' is ignored; did you mean \"retry.provider.timeoutMs\"?",
        "unknown key 'retry.maxRetrys' is ignored; did you mean \"retry.maxRetries\"?",
        "unknown key 'defualtModel' is ignored; did you mean \"defaultModel\"?",
        "unknown key 'somethingElse' is ignored",
    ]


@proves("permission.tool_names")
def test_a_built_in_tool_is_meant_in_any_case_and_an_unknown_one_is_reported(start: Start, server: ModelServer) -> None:
    host = start(settings={"permissions": {"deny": ["Bash(echo *)", "bahs(rm *)"], "allow": ["READ"]}})
    server.answers(Call("bash", {"command": "echo x"}))
    server.answers("done")
    assert [message["isError"] for message in finished_messages(host.run("go"), "toolResult")] == [True]
    assert host.stderr.splitlines() == [
        'Warning: permissions: there is no tool "bahs" now (rule "bahs(rm *)", did you mean "bash"?)'
    ]


@proves("settings.unknown_shown")
def test_what_is_wrong_in_a_file_cannot_write_on_the_screen(start: Start, folders: AgentFolders) -> None:
    rule = "ba\x1b]0;owned\x07sh"
    host = start(settings={"clear\x1b[2J": 1, "permissions": {"deny": [rule], "ask": ["nothing(\x1b[31m\u202e)"]}})
    host.ask("get_state")
    assert not set(host.stderr) & set("\x1b\x07\u202e")
    session = folders.temp / "s.jsonl"
    session.write_text(json.dumps({**HEADER, "cwd": "/nowhere\x1b[2J"}) + "\n")
    failed = start("--session", str(session), keeps=True)
    assert failed.wait_exit() == 1
    assert "/nowhere\ufffd[2J" in failed.stderr
