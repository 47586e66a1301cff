"""Called as `omp` or `xcsh`: an existing set-up of that agent starts, and its way to list models works."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import ModelServer
from pigeon.cli.running import run
from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess, command_line_named

# As oh-my-pi 18 documents it; the models are those whose listing by 18.2.0 was recorded below.
MODELS = """
providers:
  fake:
    baseUrl: {url}
    apiKey: FAKE_KEY
    api: anthropic-messages
    models:
      - id: fake-1
        name: Fake One
        reasoning: true
        thinking: {{mode: effort, efforts: [low, high]}}
        input: [text, image]
        contextWindow: 100000
        maxTokens: 1000
        cost: {{input: 1, output: 2, cacheRead: 0, cacheWrite: 0}}
      - id: fake-2
  local:
    baseUrl: http://127.0.0.1:9/v1
    auth: none
    api: openai-completions
    models:
      - id: free
  keyless:
    baseUrl: http://127.0.0.1:9/v1
    apiKey: UNSET_VARIABLE
    api: openai-completions
    models:
      - id: hidden
"""
RECORDED = [
    {
        "provider": "fake", "id": "fake-1", "selector": "fake/fake-1", "name": "Fake One", "contextWindow": 100000,
        "maxTokens": 1000, "reasoning": True, "thinking": ["low", "high"], "input": ["text", "image"],
        "cost": {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0},
    },
    {
        "provider": "fake", "id": "fake-2", "selector": "fake/fake-2", "name": "fake-2", "contextWindow": 128000,
        "maxTokens": 16384, "reasoning": False, "thinking": None, "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    },
    {
        "provider": "local", "id": "free", "selector": "local/free", "name": "free", "contextWindow": 128000,
        "maxTokens": 16384, "reasoning": False, "thinking": None, "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    },
]  # fmt: skip
# No variable names the folder: it is that of the agent whose name the program has.
ENVIRONMENT = {"PI_CODING_AGENT_DIR": "", "FAKE_KEY": "sk-of-the-variable"}
Run = Callable[..., tuple[str, str]]


def agent_folder(folders: AgentFolders, name: str, url: str = "http://127.0.0.1:9") -> Path:
    """The folder of an agent of the family in the home, with models and settings."""
    folder = folders.home / f".{name}" / "agent"
    folder.mkdir(parents=True)
    (folder / "models.yml").write_text(MODELS.format(url=url))
    (folder / "config.yml").write_text("modelRoles:\n  default: fake/fake-1:low\nsteeringMode: all\n")
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    return AgentFolders(tmp_path)


@pytest.fixture
def call(folders: AgentFolders, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Calls the program under a name in this process, and gives what it printed on stdout and stderr."""
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in folders.environment(ENVIRONMENT).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folders.work)

    def call_program(*words: str, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        assert run(words[0], list(words[1:])) == code
        printed = capsys.readouterr()
        return printed.out, printed.err

    return call_program


@pytest.mark.parametrize("name", ["omp", "xcsh"])
def test_an_existing_setup_starts(name: str, folders: AgentFolders) -> None:
    with ModelServer() as server:
        folder = agent_folder(folders, name, server.url)
        server.answers("Hello.")
        with RpcProcess(folders, program=command_line_named(folders, name), env=ENVIRONMENT) as agent:
            state = agent.ask("get_state")
            assert (state["model"]["id"], state["thinkingLevel"], state["steeringMode"]) == ("fake-1", "low", "all")
            agent.ask("prompt", message="hello")
            agent.wait_event("agent_end")
            assert agent.stderr == ""
        assert server.headers[0]["x-api-key"] == "sk-of-the-variable"
        assert state["sessionFile"].startswith(str(folder / "sessions"))
        assert (folder / "config.yml").read_text().startswith("modelRoles:")


@pytest.mark.parametrize("words", [[], ["ls"], ["list"], ["refresh"], ["--kind", "all"], ["-e", "x.ts"]])
def test_models_are_listed_as_there(words: list[str], call: Run, folders: AgentFolders) -> None:
    agent_folder(folders, "omp")
    out, err = call("omp", "models", *words, "--json")
    (line,) = out.splitlines()
    listed = json.loads(line)["models"]
    assert {model.pop("kind") for model in listed} == {"chat"}
    assert (listed, err) == (RECORDED, "")


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["fake"], ["fake-1", "fake-2"]),
        (["list", "FAKE"], ["fake-1", "fake-2"]),
        (["find", "one"], ["fake-1"]),
        (["find", "e/fake-2"], ["fake-2"]),
        (["refresh", "local"], ["free"]),
        (["find", "nothing"], []),
        (["--kind", "image"], []),
    ],
)
def test_models_are_found(words: list[str], ids: list[str], call: Run, folders: AgentFolders) -> None:
    agent_folder(folders, "xcsh")
    out, _ = call("/usr/bin/xcsh", "models", *words, "--json")
    assert [model["id"] for model in json.loads(out)["models"]] == ids


def test_people_get_a_table_for_each_provider(call: Run, folders: AgentFolders) -> None:
    agent_folder(folders, "omp")
    out, _ = call("omp", "models")
    assert [line for line in out.splitlines() if line.endswith(")")] == ["fake (2)", "local (1)"]
    assert "low,high" in out
    assert 'No models matching "nothing"' in call("omp", "models", "nothing")[0]
    assert "PATTERN" in call("omp", "models", "find", code=1)[1]
    assert "find [PATTERN]" in call("omp", "help", "models")[0]
    assert "find [PATTERN]" in call("omp", "models", "--help")[0]
    # Under its own name it keeps its own form.
    assert "find [PATTERN]" not in call("pigeon", "models", "--help")[0]
    assert call("pigeon", "models", "--json", code=1)[0] == "[]\n"


def test_a_broken_file_is_named_with_its_line_and_the_rest_works(call: Run, folders: AgentFolders) -> None:
    folder = agent_folder(folders, "omp")
    (folder / "models.yml").write_text("providers:\n  fake:\n    baseUrl: [x\n  a: b: c\n")
    out, err = call("omp", "models", "--json")
    assert json.loads(out) == {"models": []}
    assert f"{folder / 'models.yml'}: not valid YAML in line 4: " in err
    assert f"{folder / 'config.yml'}" in call("omp", "doctor", "--offline", code=1)[0]
    (folder / "config.yml").write_text("a: b: c\n")
    out, _ = call("omp", "doctor", "--offline", code=1)
    assert f"{folder / 'config.yml'} is ignored: not valid YAML in line 1: " in out
    assert "pigeon config edit" not in out


def test_keys_in_the_database_are_used_and_those_in_auth_json_come_first(
    call: Run, folders: AgentFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = agent_folder(folders, "omp")
    database = sqlite3.connect(folder / "agent.db")
    database.execute("CREATE TABLE auth_credentials (id INTEGER PRIMARY KEY, provider, credential_type, data)")
    for provider in ("anthropic", "keyless"):
        row: Any = (provider, "api_key", '{"key": "sk-kept"}')
        database.execute("INSERT INTO auth_credentials (provider, credential_type, data) VALUES (?, ?, ?)", row)
    database.commit()
    database.close()
    providers = {model["provider"] for model in json.loads(call("omp", "models", "--json")[0])["models"]}
    assert providers == {"anthropic", "fake", "keyless", "local"}
    (folder / "auth.json").write_text('{"keyless": {"type": "api_key", "key": "$UNSET_VARIABLE"}}')
    assert json.loads(call("omp", "models", "keyless", "--json")[0])["models"] == []


def test_a_setting_changed_here_is_kept_beside_theirs(call: Run, folders: AgentFolders) -> None:
    folder = agent_folder(folders, "omp")
    before = (folder / "config.yml").read_text()
    assert call("omp", "config", "get", "defaultModel")[0] == "fake/fake-1:low\n"
    listed = call("omp", "config")[0].splitlines()
    assert next(line.split() for line in listed if "steeringMode" in line) == ["steeringMode", "all", "oh-my-pi"]
    call("omp", "config", "set", "defaultModel", "fake/fake-2")
    assert call("omp", "config", "get", "defaultModel")[0] == "fake/fake-2\n"
    assert json.loads(call("omp", "config", "--json")[0])["steeringMode"] == "all"
    assert (folder / "config.yml").read_text() == before
    with RpcProcess(folders, program=command_line_named(folders, "omp"), env=ENVIRONMENT) as agent:
        assert agent.ask("get_state")["model"]["id"] == "fake-2"
