"""Names of providers and models: earlier names, names with a slash, ids that several providers have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.model_server import ModelServer
from support.agent_folders import AgentFolders, model, providers
from support.agent_process import RpcProcess, Start
from support.contract import proves

AZURE = {"AZURE_OPENAI_API_KEY": "key-of-azure-123", "AZURE_OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
EARLIER = "azure-openai-responses"


def begin(folders: AgentFolders, *args: str, env: dict[str, str] | None = None) -> RpcProcess:
    return RpcProcess(folders, *args, env=env)


def model_of(agent: RpcProcess) -> tuple[str, str]:
    state = agent.ask("get_state")["model"]
    return state["provider"], state["id"]


@proves("models.earlier_name")
@pytest.mark.parametrize("name", ["azure", EARLIER, "Azure-OpenAI-Responses"])
@pytest.mark.parametrize("form", ["--provider {} --model gpt-5.2", "--model {}/gpt-5.2", "--models {}/gpt-5.2"])
def test_a_provider_is_found_under_both_of_its_names(folders: AgentFolders, name: str, form: str) -> None:
    folders.configure()
    with begin(folders, "--no-session", *form.format(name).split(), env=AZURE) as agent:
        assert model_of(agent) == ("azure", "gpt-5.2")
        assert agent.ask("set_model", provider=name.lower(), modelId="gpt-5.4")["id"] == "gpt-5.4"


@proves("models.earlier_name_files")
@pytest.mark.parametrize("name", ["azure", EARLIER])
def test_settings_keys_and_models_files_may_have_either_name(folders: AgentFolders, name: str) -> None:
    folders.configure(
        {"providers": {name: {"baseUrl": "http://127.0.0.1:9/own", "models": [{"id": "own-1"}]}}},
        {"defaultProvider": name, "defaultModel": "own-1", "modelThinkingLevels": {f"{name}/gpt-5.2": "high"}},
    )
    (folders.agent / "auth.json").write_text(json.dumps({name: {"type": "api_key", "key": "stored-key-123"}}))
    with begin(folders, "--no-session") as agent:
        assert model_of(agent) == ("azure", "own-1")
        listed = agent.ask("get_available_models")["models"]
        assert {one["baseUrl"] for one in listed if one["provider"] == "azure"} == {"http://127.0.0.1:9/own"}
    folders.configure(
        settings={"enabledModels": [f"{name}/gpt-5.2"], "modelThinkingLevels": {f"{name}/gpt-5.2": "high"}}
    )
    with begin(folders, "--no-session") as agent:
        assert model_of(agent) == ("azure", "gpt-5.2")
        assert agent.ask("get_state")["thinkingLevel"] == "high"


@proves("models.earlier_name_session")
def test_a_session_that_names_the_provider_as_before_goes_on_with_it(folders: AgentFolders) -> None:
    folders.configure()
    file = folders.work / "old.jsonl"
    header = {"type": "session", "version": 3, "id": "s1", "timestamp": "", "cwd": str(folders.work)}
    change = {"type": "model_change", "id": "e1", "parentId": None, "timestamp": "", "provider": EARLIER}
    file.write_text(f"{json.dumps(header)}\n{json.dumps({**change, 'modelId': 'gpt-5.2'})}\n")
    with begin(folders, "--session", str(file), env=AZURE) as agent:
        assert model_of(agent) == ("azure", "gpt-5.2")


@proves("models.provider_prefix")
@pytest.mark.parametrize(
    ("args", "chosen"),
    [
        ("--provider fake --model fake/fake-1", ("fake", "fake-1")),
        ("--provider fake --model FAKE/unlisted", ("fake", "unlisted")),
        ("--provider fake --model unlisted", ("fake", "unlisted")),
        ("--provider fake", ("fake", "fake-1")),
        ("--model a/b/fake-1", ("a/b", "fake-1")),
        ("--model a/b/unlisted", ("a/b", "unlisted")),
        ("--provider a/b --model a/b/fake-1", ("a/b", "fake-1")),
        ("--provider a --model a/x", ("a", "a/x")),
        ("--provider a --model a/a/x", ("a", "a/x")),
        ("--models a/b/fake-1", ("a/b", "fake-1")),
    ],
)
def test_a_prefix_is_the_provider_with_the_longest_name_and_never_doubled(
    folders: AgentFolders, server: ModelServer, args: str, chosen: tuple[str, str]
) -> None:
    configured = providers(server.url)
    [entry] = configured["providers"].values()
    of_a = {**entry, "models": [model("b/fake-1"), model("a/x")]}
    folders.configure({"providers": {**configured["providers"], "a": of_a, "a/b": entry}})
    with begin(folders, "--no-session", *args.split()) as agent:
        assert model_of(agent) == chosen


@proves("models.several_providers")
def test_an_id_of_several_providers_is_all_of_them_in_a_list_and_ambiguous_alone(
    folders: AgentFolders, server: ModelServer
) -> None:
    configured = providers(server.url)
    [entry] = configured["providers"].values()
    folders.configure({"providers": {"one": entry, "two": entry}})
    with begin(folders, "--no-session", "--models", "fake-1,, ") as agent:
        assert [agent.ask("cycle_model")["model"]["provider"] for _ in range(3)] == ["two", "one", "two"]
    warning = 'Pattern "fake-1" matches several providers: one, two. Use provider/id to choose one.'
    assert warning in agent.stderr
    refused = begin(folders, "--no-session", "--model", "fake-1")
    assert refused.wait_exit() == 1
    assert refused.stderr == (
        'Error: Model "fake-1" is ambiguous across providers: one/fake-1, two/fake-1. More than one matching '
        "provider is authenticated. Use --provider or provider/model.\n"
    )


@proves("models.sampling_by_level")
def test_sampling_parameters_may_depend_on_the_thinking_level(start: Start, server: ModelServer) -> None:
    sampling: dict[str, Any] = {
        "samplingParams": {"top_p": 0.9, "top_k": 5},
        "samplingParamsByThinkingLevel": {"off": {"top_k": 7}, "low": {"top_k": 9}},
    }
    agent = start(models=[model("fake-1", api="openai-completions", **sampling)])
    assert agent.ask("get_state")["model"]["samplingParamsByThinkingLevel"] == sampling["samplingParamsByThinkingLevel"]
    agent.ask("set_thinking_level", level="off")
    answer = server.fails(400, "enough")
    agent.run("hello")
    request = answer.wait_arrived()
    assert (request["top_p"], request["top_k"]) == (0.9, 7)


@proves("models.sampling_refused")
def test_sampling_parameters_stay_away_from_apis_that_refuse_them_beside_thinking(
    start: Start, server: ModelServer
) -> None:
    agent = start(models=[model("fake-1", samplingParams={"temperature": 0.2, "max_tokens": 1})])
    answer = server.answers("ok")
    agent.run("hello")
    request = answer.wait_arrived()
    assert request["thinking"]["type"] == "enabled"
    assert "temperature" not in request
    assert request["max_tokens"] > 1


@proves("settings.disabled_timeouts")
def test_settings_of_the_newest_version_are_taken_without_a_word(start: Start, server: ModelServer) -> None:
    agent = start(
        settings={
            "$schema": "https://example.invalid/settings.json", "httpIdleTimeoutMs": "disabled",
            "websocketConnectTimeoutMs": "disabled", "quietStartup": "header", "codemode": {"mode": "only"},
        }
    )  # fmt: skip
    server.answers("ok")
    agent.run("hello")
    agent.close()
    assert agent.stderr == ""
