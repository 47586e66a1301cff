"""What the session says of itself: state, messages, statistics, new sessions, commands."""

from __future__ import annotations

from typing import Any

from fakes.model_server import Hang, ModelServer, said_in
from support.agent_folders import model
from support.agent_process import RpcProcess
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers, outline, text_of

LATER: list[tuple[str, dict[str, Any]]] = [
    ("compact", {}),
    ("bash", {"command": "true"}),
    ("export_html", {}),
    ("switch_session", {"sessionPath": "x.jsonl"}),
    ("fork", {"entryId": "x"}),
    ("set_session_name", {"name": "x"}),
]


@scenario
def beginning(stage: Stage) -> Seen:
    """The state of a session that has just begun and is not kept."""
    agent = stage.start()
    response = agent.request("get_state")
    return Seen(response=response, state=response["data"], stats=agent.ask("get_session_stats"))


@proves("get_state.superset")
def test_the_state_has_the_members_of_all_documents_at_once(beginning: Seen) -> None:
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
    assert {key: beginning.state[key] for key in fixed} == fixed


@proves("start.no_session", dialects=("pi",))
def test_a_session_that_is_not_kept_has_no_file(beginning: Seen) -> None:
    assert "sessionFile" not in beginning.state
    assert "sessionFile" not in beginning.stats


@proves("note/response.fields")
def test_a_response_has_command_and_success(beginning: Seen) -> None:
    assert (beginning.response["command"], beginning.response["success"]) == ("get_state", True)


@proves("note/response.data")
def test_the_state_is_the_data_of_its_response(beginning: Seen) -> None:
    assert isinstance(beginning.response["data"], dict)


@proves("note/ops.get_state")
def test_the_state_has_what_a_status_bar_shows(beginning: Seen) -> None:
    assert {"model", "isStreaming", "sessionId"} <= set(beginning.state)


@scenario
def levels(stage: Stage) -> Seen:
    """The levels of a model that thinks and of one that does not."""
    agent = stage.start(models=[model("fake-1"), model("plain", reasoning=False)])
    able = agent.ask("get_available_thinking_levels")
    agent.ask("set_thinking_level", level="off")
    cycled = [agent.ask("cycle_thinking_level")["level"] for _ in able["levels"]]
    agent.ask("set_model", provider="fake", modelId="plain")
    unable = agent.ask("get_available_thinking_levels")
    agent.ask("set_thinking_level", level="high")
    return Seen(able=able, cycled=cycled, unable=unable, clamped=agent.ask("get_state")["thinkingLevel"])


@proves("thinking.levels")
def test_the_thinking_levels_of_the_model_are_listed(levels: Seen) -> None:
    assert levels.able == {"levels": ["off", "minimal", "low", "medium", "high"]}
    assert levels.cycled == [*levels.able["levels"][1:], "off"]
    assert levels.unable == {"levels": ["off"]}
    assert levels.clamped == "off"


@scenario
def template(stage: Stage) -> Seen:
    """A prompt template of the user is listed, and expanded when it is called."""
    first = stage.start()
    none = first.ask("get_commands")
    first.close()
    folder = stage.folders.agent / "prompts"
    folder.mkdir()
    file = folder / "review.md"
    file.write_text("---\ndescription: Look at it\n---\nReview $1 please.\n")
    second = stage.start()
    (listed,) = second.ask("get_commands")["commands"]
    asked = stage.server.answers("ok")
    second.run("/review main.py")
    return Seen(none=none, file=str(file), listed=listed, said=said_in(asked.request)[-1][1])


@proves("get_commands.empty")
def test_without_templates_no_command_is_listed(template: Seen) -> None:
    assert template.none["commands"] == []


@proves("get_commands.prompt")
def test_a_prompt_template_is_listed_with_its_description(template: Seen) -> None:
    listed = template.listed
    assert (listed["name"], listed["description"], listed["source"]) == ("review", "Look at it", "prompt")


@proves("get_commands.shape")
def test_a_listed_command_has_name_source_and_what_is_optional(template: Seen) -> None:
    assert {"name", "source"} <= set(template.listed)
    assert set(template.listed) <= {"name", "description", "source", "location", "path", "sourceInfo"}


@proves("get_commands.path")
def test_a_template_is_listed_with_its_absolute_path(template: Seen) -> None:
    assert template.listed["path"] == template.file


@proves("get_commands.location_user")
def test_a_template_of_the_user_says_so(template: Seen) -> None:
    assert template.listed["location"] == "user"


@proves("prompt.template")
def test_a_prompt_template_is_expanded_before_it_is_sent(template: Seen) -> None:
    assert template.said.strip() == "Review main.py please."


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
