"""State, messages, models, thinking and statistics as the forks ask for them."""

from __future__ import annotations

import pytest

from fakes.agent_folders import model
from fakes.contract_manifest import proves
from fakes.dialect_cases import in_each
from fakes.model_server import Call, ModelServer
from fakes.record_outline import answers
from fakes.rpc_process import RpcProcess, Start

MODEL = {"id", "name", "api", "provider", "baseUrl", "reasoning", "input", "cost", "contextWindow", "maxTokens"}
COUNTED = ("userMessages", "assistantMessages", "toolCalls", "toolResults", "totalMessages")


@proves(
    "get_state.thinkingLevel",
    "get_state.isStreaming",
    "get_state.isCompacting",
    "get_state.steeringMode",
    "get_state.followUpMode",
    "get_state.sessionId",
    "get_state.autoCompactionEnabled",
    "get_state.messageCount",
    "get_state.model",
    "get_state.model_which",
    "get_state.count",
    "get_state.name_absent",
    "get_messages.response",
    "get_messages.empty",
    "get_messages.roles",
    "get_messages.shape",
    "get_messages.tools",
    "get_last_assistant_text.text",
    "new_session.response",
    "new_session.fresh",
    "command.new_session",
    "command.get_messages",
    "command.get_last_assistant_text",
    "command.get_session_stats",
    dialects=("omp", "xcsh"),
)
@proves(
    "get_session_stats.sessionId",
    "get_session_stats.userMessages",
    "get_session_stats.assistantMessages",
    "get_session_stats.toolCalls",
    "get_session_stats.toolResults",
    "get_session_stats.totalMessages",
    "get_session_stats.tokens",
    "get_session_stats.cost",
    "get_session_stats.parts",
    "get_session_stats.counts",
    "get_session_stats.sums",
    "start.mode",
    "start.provider_model",
    "omp/type.user",
    "omp/type.assistant",
    "omp/type.tool_result",
    "omp/type.usage",
    dialects=("omp",),
)
@proves("xcsh/get_session_stats.response", dialects=("xcsh",))
@in_each("omp", "xcsh")
def test_state_messages_and_statistics_agree(spoken: RpcProcess, server: ModelServer) -> None:
    state = spoken.ask("get_state")
    assert (state["model"]["provider"], state["model"]["id"]) == ("fake", "fake-1")
    assert set(state["model"]) >= MODEL
    assert {state["isStreaming"], state["isCompacting"]} == {False}
    assert (state["steeringMode"], state["followUpMode"]) == ("one-at-a-time", "one-at-a-time")
    assert (state["messageCount"], state["autoCompactionEnabled"]) == (0, True)
    assert state["thinkingLevel"] in ("off", "minimal", "low", "medium", "high")
    assert "sessionName" not in state
    assert spoken.ask("get_messages") == {"messages": []}
    usage = {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 10}
    server.answers("Looking.", Call("bash", {"command": "echo hi"}, id="c1"), usage=usage)
    server.answers("Done.", usage=usage)
    records = spoken.run("x")
    messages = spoken.ask("get_messages")["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "toolResult", "assistant"]
    assert messages == [record["message"] for record in records if record["type"] == "message_end"]
    user, calling, result, _ = messages
    assert {"role", "content", "timestamp"} <= set(user)
    assert {"role", "content", "api", "provider", "model", "usage", "stopReason", "timestamp"} <= set(calling)
    assert {"input", "output", "cacheRead", "cacheWrite", "cost"} <= set(calling["usage"])
    assert set(calling["usage"]["cost"]) == {"input", "output", "cacheRead", "cacheWrite", "total"}
    assert (result["toolCallId"], result["toolName"], result["isError"]) == ("c1", "bash", False)
    assert {"content", "timestamp"} <= set(result)
    assert spoken.ask("get_state")["messageCount"] == 4
    assert spoken.ask("get_last_assistant_text") == {"text": "Done."}
    stats = spoken.ask("get_session_stats")
    assert [stats[key] for key in COUNTED] == [1, 2, 1, 1, 4]
    assert stats["tokens"] == {"input": 200, "output": 100, "cacheRead": 20, "cacheWrite": 0, "total": 320}
    assert stats["cost"] == pytest.approx(sum(answer["usage"]["cost"]["total"] for answer in answers(records)))
    assert stats["sessionId"] == state["sessionId"]
    assert spoken.ask("new_session") == {"cancelled": False}
    after = spoken.ask("get_state")
    assert after["sessionId"] != state["sessionId"]
    assert after["messageCount"] == 0


@proves(
    "set_model.response",
    "set_model.state",
    "set_model.used",
    "set_model.unknown",
    "set_model.unknown_keeps",
    "cycle_model.response",
    "cycle_model.moves",
    "cycle_model.single",
    "get_available_models.list",
    "command.set_model",
    "command.cycle_model",
    "command.get_available_models",
    dialects=("omp", "xcsh"),
)
@proves("omp/set_model.data", "omp/cycle_model.data", "get_available_models.full", dialects=("omp",))
@in_each("omp", "xcsh")
def test_models_are_listed_chosen_and_cycled(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start("--models", "fake/fake-1,fake/fake-2", dialect=dialect)
    models = [one for one in agent.ask("get_available_models")["models"] if one["provider"] == "fake"]
    assert [one["id"] for one in models] == ["fake-1", "fake-2"]
    assert all(set(one) >= MODEL for one in models)
    chosen = agent.ask("set_model", provider="fake", modelId="fake-2")
    assert chosen == models[1] == agent.ask("get_state")["model"]
    server.answers("two")
    agent.run("x")
    assert [request["model"] for request in server.requests] == ["fake-2"]
    assert agent.refused("set_model", provider="fake", modelId="none") == "Model not found: fake/none"
    assert agent.ask("get_state")["model"] == chosen
    cycled = agent.ask("cycle_model")
    assert set(cycled) == {"model", "thinkingLevel", "isScoped"}
    assert cycled["model"] == models[0] == agent.ask("get_state")["model"]
    single = start("--models", "fake/fake-1", dialect=dialect, models=[model("fake-1")])
    response = single.request("cycle_model")
    assert (response["success"], response["data"]) == (True, None)


@proves(
    "set_thinking_level.off",
    "set_thinking_level.minimal",
    "set_thinking_level.low",
    "set_thinking_level.medium",
    "set_thinking_level.high",
    "set_thinking_level.xhigh",
    "set_thinking_level.response",
    "set_thinking_level.sent",
    "cycle_thinking_level.moves",
    "cycle_thinking_level.none",
    "command.set_thinking_level",
    "command.cycle_thinking_level",
    dialects=("omp", "xcsh"),
)
@in_each("omp", "xcsh")
def test_thinking_levels_are_set_cycled_and_sent(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start(dialect=dialect, models=[model("fake-1"), model("plain", reasoning=False)])
    for level in ("minimal", "low", "medium", "high", "off"):
        response = agent.request("set_thinking_level", level=level)
        assert (response["success"], "data" in response) == (True, False)
        assert agent.ask("get_state")["thinkingLevel"] == level
    off = server.answers("one")
    agent.run("x")
    levels = ["minimal", "low", "medium", "high", "off", "minimal"]
    assert [agent.ask("cycle_thinking_level")["level"] for _ in levels] == levels
    agent.ask("set_thinking_level", level="xhigh")
    assert agent.ask("get_state")["thinkingLevel"] == "high"
    high = server.answers("two")
    agent.run("y")
    assert off.request.get("thinking", {"type": "disabled"}) == {"type": "disabled"}
    assert high.request["thinking"]["type"] in ("enabled", "adaptive")
    agent.ask("set_model", provider="fake", modelId="plain")
    assert agent.request("cycle_thinking_level")["data"] is None
