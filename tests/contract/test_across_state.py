"""State, messages, models, thinking and statistics, in every dialect that has commands."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.model_server import Call, said_in
from support.agent_folders import model
from support.contract import proves, proves_each
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers

MODEL = {"id", "name", "api", "provider", "baseUrl", "reasoning", "input", "cost", "contextWindow", "maxTokens"}
LEVELS = ["minimal", "low", "medium", "high", "off"]
USAGE = {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 10}


@scenario
def talk(stage: Stage) -> Seen:
    """A run with a tool, what the session says of itself before and after it, and a new session."""
    agent = stage.start()
    state, no_messages, no_text = (
        agent.ask("get_state"),
        agent.ask("get_messages"),
        agent.ask("get_last_assistant_text"),
    )
    stage.server.answers("Looking.", Call("bash", {"command": "echo hi"}, id="c1"), usage=USAGE)
    stage.server.answers(" Done. ", usage=USAGE)
    records = agent.run("x")
    messages = agent.ask("get_messages")
    count = agent.ask("get_state")["messageCount"]
    text = agent.ask("get_last_assistant_text")
    stats = agent.request("get_session_stats")
    left = agent.ask("new_session")
    after, messages_after = agent.ask("get_state"), agent.ask("get_messages")
    later = stage.server.answers("two")
    agent.run("y")
    return Seen(
        state=state, no_messages=no_messages, no_text=no_text, records=records, messages=messages["messages"],
        count=count, text=text, stats_response=stats, stats=stats["data"], left=left, after=after,
        messages_after=messages_after, said_later=said_in(later.request),
    )  # fmt: skip


@proves_each("field,value", {
    "get_state.isStreaming": ("isStreaming", False),
    "get_state.isCompacting": ("isCompacting", False),
    "get_state.steeringMode": ("steeringMode", "one-at-a-time"),
    "get_state.followUpMode": ("followUpMode", "one-at-a-time"),
    "get_state.autoCompactionEnabled": ("autoCompactionEnabled", True),
    "get_state.messageCount": ("messageCount", 0),
    "get_state.pendingMessageCount": ("pendingMessageCount", 0),
})  # fmt: skip
def test_the_state_at_the_start_has_this_field(talk: Seen, field: str, value: Any) -> None:
    assert talk.state[field] == value


@proves("get_state.thinkingLevel")
def test_the_state_has_a_thinking_level(talk: Seen) -> None:
    assert talk.state["thinkingLevel"] in ("off", "minimal", "low", "medium", "high")


@proves("get_state.sessionId")
def test_the_state_has_the_id_of_the_session(talk: Seen) -> None:
    assert talk.state["sessionId"]


@proves("get_state.model")
def test_the_state_has_the_full_model_without_its_key(talk: Seen) -> None:
    assert set(talk.state["model"]) >= MODEL
    assert "dummy-key" not in str(talk.state)


@proves("get_state.model_which", same=("start.provider_model",))
def test_the_model_is_the_one_that_was_asked_for(talk: Seen) -> None:
    assert (talk.state["model"]["provider"], talk.state["model"]["id"]) == ("fake", "fake-1")


@proves("get_state.name_absent")
def test_the_name_of_a_session_is_left_out_while_there_is_none(talk: Seen) -> None:
    assert "sessionName" not in talk.state


@proves("get_state.count")
def test_the_state_counts_the_messages(talk: Seen) -> None:
    assert talk.count == 4


@proves("start.mode")
def test_the_mode_rpc_answers_commands(talk: Seen) -> None:
    assert talk.stats_response["success"] is True


@proves("get_messages.empty")
def test_there_are_no_messages_at_first(talk: Seen) -> None:
    assert talk.no_messages == {"messages": []}


@proves("get_messages.response", same=("note/ops.get_messages",))
def test_messages_are_those_that_were_announced(talk: Seen) -> None:
    assert talk.messages == [record["message"] for record in talk.records if record["type"] == "message_end"]


@proves("get_messages.roles")
def test_messages_are_listed_in_the_order_of_the_conversation(talk: Seen) -> None:
    assert [message["role"] for message in talk.messages] == ["user", "assistant", "toolResult", "assistant"]


@proves("get_messages.tools")
def test_the_result_of_a_tool_follows_its_call(talk: Seen) -> None:
    _, calling, result, _ = talk.messages
    assert [block["id"] for block in calling["content"] if block["type"] == "toolCall"] == [result["toolCallId"]]


@proves("get_messages.shape")
def test_every_message_has_role_content_and_timestamp(talk: Seen) -> None:
    assert all({"role", "content", "timestamp"} <= set(message) for message in talk.messages)


@proves("omp/type.user")
def test_a_user_message_has_its_fields(talk: Seen) -> None:
    assert {"role", "content", "timestamp"} <= set(talk.messages[0])


@proves("omp/type.assistant")
def test_an_assistant_message_has_its_fields(talk: Seen) -> None:
    fields = {"role", "content", "api", "provider", "model", "usage", "stopReason", "timestamp"}
    assert fields <= set(talk.messages[1])


@proves("omp/type.tool_result")
def test_a_tool_result_message_has_its_fields(talk: Seen) -> None:
    result = talk.messages[2]
    assert (result["toolCallId"], result["toolName"], result["isError"]) == ("c1", "bash", False)
    assert {"content", "timestamp"} <= set(result)


@proves("omp/type.usage")
def test_usage_counts_tokens_and_their_cost(talk: Seen) -> None:
    usage = talk.messages[1]["usage"]
    assert {"input", "output", "cacheRead", "cacheWrite", "cost"} <= set(usage)
    assert set(usage["cost"]) == {"input", "output", "cacheRead", "cacheWrite", "total"}


@proves("get_last_assistant_text.null", same=("omp/get_last_assistant_text.null",))
def test_without_an_answer_its_text_is_null(talk: Seen) -> None:
    assert talk.no_text == {"text": None}


@proves("get_last_assistant_text.text")
def test_the_last_answer_is_given_as_text(talk: Seen) -> None:
    assert talk.text == {"text": "Done."}


@proves_each("field,value", {
    "get_session_stats.userMessages": ("userMessages", 1),
    "get_session_stats.assistantMessages": ("assistantMessages", 2),
    "get_session_stats.toolCalls": ("toolCalls", 1),
    "get_session_stats.toolResults": ("toolResults", 1),
    "get_session_stats.totalMessages": ("totalMessages", 4),
})  # fmt: skip
def test_statistics_have_this_count(talk: Seen, field: str, value: int) -> None:
    assert talk.stats[field] == value


@proves("get_session_stats.counts")
def test_the_counts_agree_with_the_messages(talk: Seen) -> None:
    roles = [message["role"] for message in talk.messages]
    fields = ("userMessages", "assistantMessages", "toolResults", "totalMessages")
    found = [roles.count("user"), roles.count("assistant"), roles.count("toolResult"), len(roles)]
    assert [talk.stats[field] for field in fields] == found


@proves("get_session_stats.sessionId")
def test_statistics_have_the_id_of_the_session(talk: Seen) -> None:
    assert talk.stats["sessionId"] == talk.state["sessionId"]


@proves("get_session_stats.tokens")
def test_statistics_have_the_tokens(talk: Seen) -> None:
    assert talk.stats["tokens"] == {"input": 200, "output": 100, "cacheRead": 20, "cacheWrite": 0, "total": 320}


@proves("get_session_stats.parts")
def test_the_total_of_tokens_is_the_sum_of_their_parts(talk: Seen) -> None:
    tokens = dict(talk.stats["tokens"])
    assert tokens.pop("total") == sum(tokens.values())
    assert set(tokens) == {"input", "output", "cacheRead", "cacheWrite"}


@proves("get_session_stats.cost")
def test_statistics_have_the_cost(talk: Seen) -> None:
    assert talk.stats["cost"] > 0


@proves("get_session_stats.sums")
def test_tokens_and_cost_are_the_sums_over_the_answers(talk: Seen) -> None:
    usages = [answer["usage"] for answer in answers(talk.records)]
    assert talk.stats["cost"] == pytest.approx(sum(usage["cost"]["total"] for usage in usages))
    assert talk.stats["tokens"]["output"] == sum(usage["output"] for usage in usages)


@proves("xcsh/get_session_stats.response")
def test_statistics_are_answered(talk: Seen) -> None:
    assert (talk.stats_response["command"], talk.stats_response["success"]) == ("get_session_stats", True)


@proves("new_session.response")
def test_a_new_session_is_answered_with_cancelled_false(talk: Seen) -> None:
    assert talk.left == {"cancelled": False}


@proves("new_session.fresh")
def test_a_new_session_is_empty_and_has_another_id(talk: Seen) -> None:
    assert talk.after["sessionId"] != talk.state["sessionId"]
    assert talk.after["messageCount"] == 0
    assert talk.messages_after == {"messages": []}
    assert talk.said_later == [("user", "y")]


@scenario
def choice(stage: Stage) -> Seen:
    """Models are listed, chosen, asked, refused and cycled through."""
    scope = () if stage.dialect == "pi" else ("--models", "fake/fake-1,fake/fake-2")
    agent = stage.start(*scope)
    everything = agent.ask("get_available_models")["models"]
    stage.server.answers("one")
    agent.run("x")
    chosen = agent.ask("set_model", provider="fake", modelId="fake-2")
    state = agent.ask("get_state")
    stage.server.answers("two")
    records = agent.run("y")
    error = agent.expect_error("set_model", provider="fake", modelId="none")
    kept = agent.ask("get_state")
    cycled = [(agent.ask("cycle_model"), agent.ask("get_state")["model"]) for _ in range(2)]
    single = stage.start("--models", "fake/fake-1", models=[model("fake-1")])
    return Seen(
        everything=everything, models=[one for one in everything if one["provider"] == "fake"], chosen=chosen,
        state=state, records=records, asked=[request["model"] for request in stage.server.requests], error=error,
        kept=kept, cycled=cycled, single=single.request("cycle_model"),
    )  # fmt: skip


@proves("get_available_models.list")
def test_every_configured_model_is_listed(choice: Seen) -> None:
    assert [one["id"] for one in choice.models] == ["fake-1", "fake-2"]


@proves("get_available_models.full")
def test_the_listed_models_are_full_models_without_keys(choice: Seen) -> None:
    assert all(set(one) >= MODEL for one in choice.models)
    assert all("apiKey" not in one for one in choice.everything)
    assert "dummy-key" not in str(choice.everything)


@proves("set_model.response")
def test_another_model_can_be_chosen(choice: Seen) -> None:
    assert (choice.chosen["provider"], choice.chosen["id"]) == ("fake", "fake-2")


@proves("set_model.data", same=("omp/set_model.data",))
def test_the_choice_of_a_model_is_answered_with_the_full_model(choice: Seen) -> None:
    assert choice.chosen == choice.models[1]


@proves("set_model.state")
def test_the_state_has_the_new_model(choice: Seen) -> None:
    assert choice.state["model"] == choice.chosen


@proves("start.provider_model_used")
def test_the_model_of_the_start_is_the_one_that_is_asked(choice: Seen) -> None:
    assert choice.asked[0] == "fake-1"


@proves("set_model.used")
def test_the_next_prompt_goes_to_the_new_model(choice: Seen) -> None:
    assert choice.asked == ["fake-1", "fake-2"]
    assert answers(choice.records)[0]["model"] == "fake-2"


@proves("set_model.unknown")
def test_an_unknown_model_is_refused_by_its_name(choice: Seen) -> None:
    assert choice.error == "Model not found: fake/none"


@proves("set_model.unknown_keeps")
def test_after_a_refused_choice_the_old_model_stays(choice: Seen) -> None:
    assert choice.kept["model"] == choice.chosen


@proves("cycle_model.response")
def test_cycling_is_answered_with_a_model(choice: Seen) -> None:
    assert [answer["model"]["id"] for answer, _ in choice.cycled] == ["fake-1", "fake-2"]


@proves("omp/cycle_model.data")
def test_cycling_gives_model_thinking_level_and_scope(choice: Seen) -> None:
    assert [set(answer) for answer, _ in choice.cycled] == [{"model", "thinkingLevel", "isScoped"}] * 2


@proves("cycle_model.moves")
def test_cycling_switches_to_the_next_model(choice: Seen) -> None:
    assert [state for _, state in choice.cycled] == choice.models
    assert all(answer["model"] == state for answer, state in choice.cycled)


@proves("cycle_model.single")
def test_a_single_model_cycles_to_null(choice: Seen) -> None:
    assert (choice.single["success"], choice.single["data"]) == (True, None)


@scenario
def thinking(stage: Stage) -> Seen:
    """Levels are set, cycled through, sent, and cut down to what the model has."""
    agent = stage.start(models=[model("fake-1"), model("plain", reasoning=False)])
    responses, levels, told = {}, {}, {}
    for level in LEVELS:
        start = agent.mark()
        responses[level] = agent.request("set_thinking_level", level=level)
        told[level] = [record["level"] for record in agent.since(start, "thinking_level_changed")]
        levels[level] = agent.ask("get_state")["thinkingLevel"]
    off = stage.server.answers("one")
    agent.run("x")
    cycled = [agent.ask("cycle_thinking_level")["level"] for _ in range(6)]
    agent.ask("set_thinking_level", level="xhigh")
    levels["xhigh"] = agent.ask("get_state")["thinkingLevel"]
    high = stage.server.answers("two")
    agent.run("y")
    agent.ask("set_model", provider="fake", modelId="plain")
    return Seen(
        responses=responses, levels=levels, told=told, cycled=cycled, off=off.request, high=high.request,
        none=agent.request("cycle_thinking_level"),
    )  # fmt: skip


@proves_each("level,shown", {
    "set_thinking_level.off": ("off", "off"),
    "set_thinking_level.minimal": ("minimal", "minimal"),
    "set_thinking_level.low": ("low", "low"),
    "set_thinking_level.medium": ("medium", "medium"),
    "set_thinking_level.high": ("high", "high"),
    "set_thinking_level.xhigh": ("xhigh", "high"),
})  # fmt: skip
def test_the_thinking_level_can_be_set_and_shows_in_the_state(thinking: Seen, level: str, shown: str) -> None:
    assert thinking.levels[level] == shown


@proves("set_thinking_level.response")
def test_setting_a_thinking_level_is_answered_with_a_bare_success(thinking: Seen) -> None:
    found = {(response["success"], "data" in response) for response in thinking.responses.values()}
    assert found == {(True, False)}


@proves("thinking.event")
def test_a_change_of_the_thinking_level_is_an_event(thinking: Seen) -> None:
    assert all(thinking.told[level] in ([level], []) for level in LEVELS)
    assert thinking.told["off"] == ["off"]


@proves("set_thinking_level.sent")
def test_the_level_reaches_the_provider_and_off_sends_none(thinking: Seen) -> None:
    assert thinking.off.get("thinking", {"type": "disabled"}) == {"type": "disabled"}
    assert thinking.high["thinking"]["type"] in ("enabled", "adaptive")


@proves("cycle_thinking_level.moves")
def test_cycling_goes_through_the_levels_and_names_each(thinking: Seen) -> None:
    assert thinking.cycled == ["minimal", "low", "medium", "high", "off", "minimal"]


@proves("cycle_thinking_level.none")
def test_a_model_without_thinking_cycles_to_null(thinking: Seen) -> None:
    assert thinking.none["data"] is None
