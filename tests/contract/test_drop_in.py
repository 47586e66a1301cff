"""The program under the name of another agent of the family: it takes over that agent's folder as it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import ModelServer, said_in
from support.agent_folders import AgentFolders, providers
from support.agent_process import LAST_EVENTS, RpcProcess, command_line_named, folder_with
from support.contract import proves
from support.records import text_of

HOMES = {"pi": ".pi", "omp": ".omp", "xcsh": ".xcsh"}
# What users of pi have in their settings: keys that mean nothing here, and forms that only older files have.
SETTINGS: dict[str, Any] = {
    "lastChangelogVersion": "1.5.0",
    "theme": "dark",
    "quietStartup": "header",
    "defaultProvider": "fake",
    "defaultModel": "fake-2",
    "terminal": {"showImages": True},
    "codemode": {"mode": "on"},
    "cacheWarming": "idle",
    "skills": {"enableSkillCommands": True, "customDirectories": ["more-skills"]},
    "retry": {"enabled": True, "provider": {"maxRetries": 0}},
    "tuiMode": "fullscreen",
    "npmCommand": ["pnpm"],
}
UNSET = {"PI_CODING_AGENT_DIR": "", "PIGEON_CODING_AGENT_DIR": ""}


def skill(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: How to {name}.\n---\nDo it.\n")


def furnished(folders: AgentFolders, server: ModelServer, name: str) -> Path:
    """The folder of a user of another agent."""
    agent = folders.home / name / "agent"
    agent.mkdir(parents=True, exist_ok=True)
    (agent / "settings.json").write_text(json.dumps(SETTINGS))
    models = providers(server.url)
    del models["providers"]["fake"]["apiKey"]
    (agent / "models.json").write_text(json.dumps(models))
    (agent / "auth.json").write_text(json.dumps({"fake": {"type": "api_key", "key": "sk-from-the-folder"}}))
    (agent / "AGENTS.md").write_text("Always say please.")
    skill(agent / "skills", "sweep")
    skill(agent / "more-skills", "mop")
    (agent / "prompts").mkdir()
    (agent / "prompts" / "fix.md").write_text("Fix $1 now")
    return agent


def begin(folders: AgentFolders, name: str, *args: str) -> RpcProcess:
    agent = RpcProcess(folders, *args, env=UNSET, program=command_line_named(folders, name))
    agent.last_event = LAST_EVENTS.get(name, "agent_end")
    return agent


@proves("start.drop_in_quiet")
def test_what_means_nothing_here_is_not_reported_and_stays(folders: AgentFolders, server: ModelServer) -> None:
    agent = furnished(folders, server, HOMES["pi"])
    before = {path: path.read_bytes() for path in agent.rglob("*") if path.is_file()}
    with begin(folders, "pi") as host:
        host.ask("get_state")
    assert host.stderr == ""
    assert not [record for record in host.records if record["type"] == "extension_ui_request"]
    assert {path: path.read_bytes() for path in before} == before


@proves("start.drop_in")
@pytest.mark.parametrize("name", HOMES)
def test_called_like_another_agent_it_uses_the_folder_of_that_agent(
    folders: AgentFolders, server: ModelServer, name: str
) -> None:
    agent = furnished(folders, server, HOMES[name])
    before = {path: path.read_bytes() for path in agent.rglob("*") if path.is_file()}
    with begin(folders, name) as host:
        assert host.ask("get_state")["model"]["id"] == "fake-2"
        asked = server.answers("gladly")
        host.run("/fix it")
        assert [text for role, text in said_in(asked.request) if role == "user"] == ["Fix it now"]
        prompt = json.dumps(asked.request["system"])
        assert all(word in prompt for word in ("Always say please.", "sweep", "mop"))
        assert server.headers[-1]["x-api-key"] == "sk-from-the-folder"
        file = Path(host.ask("get_state")["sessionFile"])
    assert file.is_relative_to(agent / "sessions")
    assert host.stderr == ""
    assert not [record for record in host.records if record["type"] == "extension_ui_request"]
    with begin(folders, name, "--continue") as again:
        messages = again.ask("get_messages")["messages"]
    assert [text_of(message) for message in messages] == ["Fix it now", "gladly"]
    assert {path: path.read_bytes() for path in before} == before
    assert not (folders.home / ".pigeon").exists()


@proves("start.drop_in_chosen")
def test_a_folder_of_its_own_or_a_variable_comes_first(folders: AgentFolders, server: ModelServer) -> None:
    furnished(folders, server, ".pi")
    own = folders.home / ".pigeon" / "agent"
    own.mkdir(parents=True)
    (own / "models.json").write_text(json.dumps(providers(server.url)))
    with begin(folders, "pi", "--model", "fake/fake-1") as host:
        assert Path(host.ask("get_state")["sessionFile"]).is_relative_to(own)
    elsewhere = folders.home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "models.json").write_text(json.dumps(providers(server.url)))
    env = {"PI_CODING_AGENT_DIR": str(elsewhere)}
    with RpcProcess(folders, "--model", "fake/fake-1", env=env, program=command_line_named(folders, "omp")) as host:
        assert Path(host.ask("get_state")["sessionFile"]).is_relative_to(elsewhere)


@proves("start.drop_in_own")
def test_by_its_own_name_it_keeps_to_its_own_folder(folders: AgentFolders, server: ModelServer) -> None:
    furnished(folders, server, ".pi")
    with RpcProcess(folders, "--model", "demo", env=UNSET, by_exec=True) as host:
        file = Path(host.ask("get_state")["sessionFile"])
    assert file.is_relative_to(folders.home / ".pigeon" / "agent")


@proves("extension.typescript")
def test_extensions_of_another_agent_are_one_quiet_notice(folders: AgentFolders, server: ModelServer) -> None:
    agent = furnished(folders, server, ".pi")
    packages = ["npm:@foo/tools@1.2.3", {"source": "git:github.com/a/b", "extensions": []}]
    listed = ["+extensions/listed.ts", "-extensions/off.ts", "!**/old.ts", "npm:listed"]
    (agent / "settings.json").write_text(json.dumps({**SETTINGS, "packages": packages, "extensions": listed}))
    for name in ("gate.ts", "plain.js", "listed.ts", "types.d.ts"):
        (agent / "extensions").mkdir(exist_ok=True)
        (agent / "extensions" / name).write_text("export default function (pi) {}")
    (agent / "extensions" / "whole").mkdir()
    (agent / "extensions" / "whole" / "index.ts").write_text("export default () => {}")
    brought = folders.temp / "bridge.ts"
    brought.write_text("export default () => {}")
    packed = folders.temp / "packed"
    packed.mkdir()
    (packed / "package.json").write_text('{"pi": {"extensions": ["./a.ts"]}}')
    options = ("-e", str(brought), "-e", str(packed), "-e", "npm:on-the-fly")
    with begin(folders, "pi", *options) as host:
        host.ask("get_state")
        server.answers("fine")
        host.run("hello")
    (told,) = [record for record in host.records if record["type"] == "extension_ui_request"]
    assert (told["method"], told["notifyType"]) == ("notify", "info")
    wanted = [str(brought), str(packed / "package.json"), "npm:on-the-fly", str(agent / "extensions" / "gate.ts"),
              str(agent / "extensions" / "listed.ts"), str(agent / "extensions" / "plain.js"),
              str(agent / "extensions" / "whole" / "index.ts"), "npm:listed", "npm:@foo/tools@1.2.3",
              "git:github.com/a/b"]  # fmt: skip
    named = told["message"].removeprefix("Not loaded: ").partition(". Pigeon runs extensions in Python")[0]
    assert sorted(named.split(", ")) == sorted(wanted)
    assert not [record for record in host.records if record["type"] == "extension_error"]
    assert host.stderr == ""
    with begin(folders, "pi", "--no-extensions") as quiet:
        quiet.ask("get_state")
    assert not [record for record in quiet.records if record["type"] == "extension_ui_request"]


@proves("extension.typescript_builtin")
def test_built_in_extensions_of_another_agent_and_those_to_leave_out_are_no_errors(
    folders: AgentFolders, server: ModelServer
) -> None:
    agent = furnished(folders, server, ".pi")
    listed = ["-builtin:mcp", "!builtin:mcp", "!old", "-off/dir", "+builtin:llama", "builtin:mcp"]
    (agent / "settings.json").write_text(json.dumps({**SETTINGS, "extensions": listed}))
    with begin(folders, "pi", "-e", "builtin:codemode", "--no-mcp") as host:
        server.answers("fine")
        host.run("hello")
    (told,) = [record for record in host.records if record["type"] == "extension_ui_request"]
    assert told["message"].startswith("Not loaded: builtin:codemode, builtin:llama, builtin:mcp. Pigeon")
    assert not [record for record in host.records if record["type"] == "extension_error"]
    assert host.stderr == ""


@proves("start.drop_in_guide")
def test_the_steps_of_the_host_guide_lead_to_the_other_agents_folder(
    folders: AgentFolders, server: ModelServer
) -> None:
    furnished(folders, server, ".pi")
    page = (Path(__file__).parents[2] / "docs" / "hosts.md").read_text("utf-8").partition("## Swapping the binary")[2]
    steps = [line.strip() for line in page.partition("\n## ")[0].splitlines() if line.startswith("    ")]
    script = "\n".join(["set -e", *steps, 'exec pi --mode rpc --no-session "$@"'])
    path = f"{folder_with(folders, 'pigeon')}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", script],
        input='{"id":"1","type":"get_state"}\n',
        env={**folders.environment(), **UNSET, "PATH": path},
        cwd=folders.work,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    version, answer = done.stdout.splitlines()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert json.loads(answer)["data"]["model"]["id"] == "fake-2"
    assert done.stderr == ""
