"""What the session says of itself: state, messages, statistics, new sessions, commands."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.agent_folders import model
from fakes.contract_manifest import proves
from fakes.model_server import Call, Hang, ModelServer, said_in
from fakes.record_outline import answers, outline, text_of
from fakes.rpc_process import RpcProcess, Start

LATER: list[tuple[str, dict[str, Any]]] = [
    ("compact", {}),
    ("bash", {"command": "true"}),
    ("export_html", {}),
    ("switch_session", {"sessionPath": "x.jsonl"}),
    ("fork", {"entryId": "x"}),
    ("set_session_name", {"name": "x"}),
]


@proves(
    "get_state.model",
    "get_state.model_which",
    "get_state.thinkingLevel",
    "get_state.isStreaming",
    "get_state.isCompacting",
    "get_state.steeringMode",
    "get_state.followUpMode",
    "get_state.sessionId",
    "get_state.autoCompactionEnabled",
    "get_state.messageCount",
    "get_state.pendingMessageCount",
    "get_state.name_absent",
    "get_state.superset",
    "start.no_session",
    "start.provider_model",
    "command.get_state",
    "note/response.fields",
    "note/response.data",
    "note/ops.get_state",
)
def test_the_state_at_the_start(agent: RpcProcess) -> None:
    state = agent.ask("get_state")
    assert (state["model"]["provider"], state["model"]["id"]) == ("fake", "fake-1")
    assert set(state["model"]) >= {
        "id", "name", "api", "provider", "baseUrl", "reasoning", "input", "cost", "contextWindow", "maxTokens"
    }  # fmt: skip
    assert state["sessionId"]
    assert "sessionFile" not in state
    assert "sessionName" not in state
    fixed = {
        "isStreaming": False,
        "isCompacting": False,
        "steeringMode": "one-at-a-time",
        "followUpMode": "one-at-a-time",
        "interruptMode": "immediate",
        "autoCompactionEnabled": True,
        "messageCount": 0,
        "pendingMessageCount": 0,
        "queuedMessageCount": 0,
        "todoPhases": [],
    }
    assert {key: state[key] for key in fixed} == fixed
    assert "dummy-key" not in str(state)


@proves("get_state.count", "get_messages.response", "get_messages.empty", "get_messages.shape", "get_messages.tools",
        "command.get_messages", "note/ops.get_messages")  # fmt: skip
def test_messages_are_those_that_were_announced(agent: RpcProcess, server: ModelServer) -> None:
    assert agent.ask("get_messages") == {"messages": []}
    server.answers("Looking.", Call("bash", {"command": "echo hi"}))
    server.answers("Done.")
    agent.run("x")
    announced = [record["message"] for record in agent.since(0, "message_end")]
    messages = agent.ask("get_messages")["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "toolResult", "assistant"]
    assert messages == announced
    assert agent.ask("get_state")["messageCount"] == 4


@proves("get_last_assistant_text.text", "get_last_assistant_text.null", "command.get_last_assistant_text")
def test_the_last_answer_as_text(agent: RpcProcess, server: ModelServer) -> None:
    assert agent.ask("get_last_assistant_text") == {"text": None}
    server.answers(" The answer. ")
    agent.run("x")
    assert agent.ask("get_last_assistant_text") == {"text": "The answer."}


@proves("get_session_stats.sessionId", "get_session_stats.userMessages", "get_session_stats.assistantMessages",
        "get_session_stats.toolCalls", "get_session_stats.toolResults", "get_session_stats.totalMessages",
        "get_session_stats.tokens", "get_session_stats.cost", "get_session_stats.parts", "get_session_stats.counts",
        "get_session_stats.sums", "command.get_session_stats")  # fmt: skip
def test_statistics_add_up(agent: RpcProcess, server: ModelServer) -> None:
    usage = {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 10}
    server.answers(Call("bash", {"command": "echo hi"}), usage=usage)
    server.answers("Done.", usage=usage)
    records = agent.run("x")
    stats = agent.ask("get_session_stats")
    counted = ("userMessages", "assistantMessages", "toolCalls", "toolResults", "totalMessages")
    assert [stats[key] for key in counted] == [1, 2, 1, 1, 4]
    assert stats["tokens"] == {"input": 200, "output": 100, "cacheRead": 20, "cacheWrite": 0, "total": 320}
    assert stats["cost"] == pytest.approx(sum(answer["usage"]["cost"]["total"] for answer in answers(records)))
    assert stats["sessionId"] == agent.ask("get_state")["sessionId"]
    assert "sessionFile" not in stats


@proves("new_session.response", "new_session.fresh", "command.new_session")
def test_a_new_session_is_empty_and_has_another_id(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("one")
    agent.run("x")
    before = agent.ask("get_state")
    assert agent.ask("new_session") == {"cancelled": False}
    after = agent.ask("get_state")
    assert after["sessionId"] != before["sessionId"]
    assert after["messageCount"] == 0
    assert agent.ask("get_messages") == {"messages": []}
    later = server.answers("two")
    agent.run("y")
    assert said_in(later.request) == [("user", "y")]


@proves("new_session.keeps_choices")
def test_a_new_session_keeps_what_the_host_chose(agent: RpcProcess) -> None:
    agent.ask("set_model", provider="fake", modelId="fake-2")
    agent.ask("set_thinking_level", level="low")
    agent.ask("set_steering_mode", mode="all")
    agent.ask("set_interrupt_mode", mode="wait")
    agent.ask("new_session")
    state = agent.ask("get_state")
    assert (state["model"]["id"], state["thinkingLevel"]) == ("fake-2", "low")
    assert (state["steeringMode"], state["interruptMode"]) == ("all", "wait")


@proves("new_session.settles_first")
def test_a_new_session_ends_the_run_first(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("half", Hang())
    agent.ask("prompt", message="x")
    agent.wait_delta("f")
    agent.ask("follow_up", message="lost")
    start = agent.mark()
    agent.ask("new_session")
    words = [word for word in outline(agent.since(start)) if word != "queue_update"]
    assert words[-5:] == ["message_end:assistant", "turn_end", "agent_end", "agent_settled", "response:new_session"]
    state = agent.ask("get_state")
    assert (state["messageCount"], state["pendingMessageCount"], state["isStreaming"]) == (0, 0, False)


@proves("settings.untouched")
def test_what_a_host_sets_never_rewrites_the_settings_files(agent: RpcProcess) -> None:
    before = {path.name: path.read_bytes() for path in agent.folders.agent.iterdir() if path.is_file()}
    agent.ask("set_model", provider="fake", modelId="fake-2")
    agent.ask("set_thinking_level", level="high")
    agent.ask("set_steering_mode", mode="all")
    agent.ask("set_follow_up_mode", mode="all")
    agent.ask("set_interrupt_mode", mode="wait")
    agent.close()
    assert {path.name: path.read_bytes() for path in agent.folders.agent.iterdir() if path.is_file()} == before


@proves("get_commands.empty", "command.get_commands", "get_commands.prompt", "get_commands.shape", "get_commands.path",
        "get_commands.location_user", "prompt.template")  # fmt: skip
def test_a_prompt_template_is_listed_and_expanded(agent: RpcProcess, server: ModelServer, start: Start) -> None:
    assert agent.ask("get_commands")["commands"] == []
    agent.close()
    folder = agent.folders.agent / "prompts"
    folder.mkdir()
    file = folder / "review.md"
    file.write_text("---\ndescription: Look at it\n---\nReview $1 please.\n")
    second = start()
    (listed,) = second.ask("get_commands")["commands"]
    assert (listed["name"], listed["description"], listed["source"]) == ("review", "Look at it", "prompt")
    assert (listed["location"], listed["path"]) == ("user", str(file))
    asked = server.answers("ok")
    second.run("/review main.py")
    assert said_in(asked.request)[-1][1].strip() == "Review main.py please."


@proves("prompt.unknown_slash")
def test_an_unknown_slash_word_goes_to_the_model(agent: RpcProcess, server: ModelServer) -> None:
    asked = server.answers("ok")
    agent.run("/nothing here")
    assert said_in(asked.request)[-1] == ("user", "/nothing here")


@proves("prompt.empty")
def test_an_empty_prompt_is_accepted(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("yes?")
    records = agent.run("")
    assert text_of(answers(records)[0]) == "yes?"


@proves("later.honest")
def test_what_is_not_built_yet_is_refused_and_never_a_fake_success(agent: RpcProcess) -> None:
    for command, arguments in LATER:
        response = agent.request(command, **arguments)
        assert response["command"] == command
        if response["success"]:
            continue
        assert response["error"]
    agent.ask("get_state")


@proves("set_model.response", "set_model.data", "set_model.state", "set_model.used", "set_model.unknown",
        "set_model.unknown_keeps", "command.set_model", "start.provider_model_used")  # fmt: skip
def test_another_model_is_used_from_the_next_prompt_on(agent: RpcProcess, server: ModelServer) -> None:
    server.answers("one")
    agent.run("x")
    chosen = agent.ask("set_model", provider="fake", modelId="fake-2")
    assert (chosen["provider"], chosen["id"]) == ("fake", "fake-2")
    assert agent.ask("get_state")["model"] == chosen
    server.answers("two")
    records = agent.run("y")
    assert [request["model"] for request in server.requests] == ["fake-1", "fake-2"]
    assert answers(records)[0]["model"] == "fake-2"
    assert agent.refused("set_model", provider="fake", modelId="none") == "Model not found: fake/none"
    assert agent.ask("get_state")["model"] == chosen


@proves("cycle_model.response", "cycle_model.moves", "get_available_models.list", "command.cycle_model",
        "command.get_available_models", "get_available_models.full")  # fmt: skip
def test_models_are_listed_and_cycled_through(agent: RpcProcess) -> None:
    models = agent.ask("get_available_models")["models"]
    assert [one["id"] for one in models if one["provider"] == "fake"] == ["fake-1", "fake-2"]
    assert all("apiKey" not in one for one in models)
    assert "dummy-key" not in str(models)
    seen = []
    for _ in range(len(models)):
        data = agent.ask("cycle_model")
        assert set(data) == {"model", "thinkingLevel", "isScoped"}
        assert agent.ask("get_state")["model"] == data["model"]
        seen.append(data["model"]["id"])
    assert sorted(seen) == sorted(one["id"] for one in models)


@proves("cycle_model.single")
def test_a_single_model_cycles_to_null(start: Start) -> None:
    agent = start("--models", "fake/fake-1", models=[model("fake-1")])
    response = agent.request("cycle_model")
    assert response["success"] is True
    assert response["data"] is None


@proves("set_thinking_level.off", "set_thinking_level.minimal", "set_thinking_level.low", "set_thinking_level.medium",
        "set_thinking_level.high", "set_thinking_level.response", "set_thinking_level.xhigh", "thinking.event",
        "command.set_thinking_level")  # fmt: skip
def test_thinking_levels_are_set_and_clamped(agent: RpcProcess) -> None:
    for level in ("off", "minimal", "low", "medium", "high"):
        agent.ask("set_thinking_level", level="low" if level != "low" else "high")
        start = agent.mark()
        assert agent.ask("set_thinking_level", level=level) is None
        assert [record["level"] for record in agent.since(start, "thinking_level_changed")] in ([level], [])
        assert agent.ask("get_state")["thinkingLevel"] == level
    agent.ask("set_thinking_level", level="xhigh")
    assert agent.ask("get_state")["thinkingLevel"] == "high"


@proves("set_thinking_level.sent")
def test_the_level_reaches_the_provider_and_off_sends_none(agent: RpcProcess, server: ModelServer) -> None:
    agent.ask("set_thinking_level", level="off")
    off = server.answers("one")
    agent.run("x")
    agent.ask("set_thinking_level", level="high")
    high = server.answers("two")
    agent.run("y")
    assert off.request.get("thinking", {"type": "disabled"}) == {"type": "disabled"}
    assert high.request["thinking"]["type"] in ("enabled", "adaptive")


@proves("cycle_thinking_level.moves", "cycle_thinking_level.none", "thinking.levels", "command.cycle_thinking_level")
def test_thinking_levels_cycle_and_a_model_without_has_none(start: Start) -> None:
    agent = start(models=[model("fake-1"), model("plain", reasoning=False)])
    levels = agent.ask("get_available_thinking_levels")["levels"]
    assert levels == ["off", "minimal", "low", "medium", "high"]
    agent.ask("set_thinking_level", level="off")
    assert [agent.ask("cycle_thinking_level")["level"] for _ in levels] == [*levels[1:], "off"]
    agent.ask("set_model", provider="fake", modelId="plain")
    assert agent.request("cycle_thinking_level")["data"] is None
    assert agent.ask("get_available_thinking_levels") == {"levels": ["off"]}
    agent.ask("set_thinking_level", level="high")
    assert agent.ask("get_state")["thinkingLevel"] == "off"
