"""Every command of the documents exists and is answered under its name."""

from __future__ import annotations

from typing import Any

from support.contract import proves, proves_each
from support.contract_scenes import Seen, Stage, scenario

COMMANDS: dict[str, dict[str, Any]] = {
    "get_state": {},
    "get_messages": {},
    "get_available_models": {},
    "set_model": {"provider": "fake", "modelId": "fake-2"},
    "cycle_model": {},
    "set_thinking_level": {"level": "low"},
    "cycle_thinking_level": {},
    "set_steering_mode": {"mode": "all"},
    "set_follow_up_mode": {"mode": "all"},
    "set_interrupt_mode": {"mode": "wait"},
    "set_auto_compaction": {"enabled": False},
    "set_auto_retry": {"enabled": False},
    "set_session_name": {"name": "a name"},
    "set_todos": {"phases": []},
    "set_host_tools": {"tools": []},
    "prompt": {"message": "hello"},
    "compact": {},
    "bash": {"command": "true"},
    "abort": {},
    "abort_bash": {},
    "abort_retry": {},
    "get_session_stats": {},
    "get_last_assistant_text": {},
    "export_html": {},
    "steer": {"message": "then"},
    "follow_up": {"message": "later"},
    "abort_and_prompt": {"message": "instead"},
    "new_session": {},
}
LISTING = {"pi": "get_fork_messages", "omp": "get_branch_messages", "xcsh": "get_branch_messages"}
BRANCHING = {"pi": "fork", "omp": "branch", "xcsh": "branch"}
OF_PI: dict[str, dict[str, Any]] = {
    "get_commands": {},
    "get_entries": {},
    "get_tree": {},
    "get_html": {},
    "render_html": {"markdown": "*x*"},
    "find_text": {"text": "hello"},
    "find_files": {"query": "x"},
    "get_branches": {},
    "get_changes": {},
    "list_sessions": {},
    "set_approval_mode": {"mode": "yolo"},
    "set_host_services": {"services": []},
    "clone": {},
}


@scenario
def catalogue(stage: Stage) -> Seen:
    """Each command once, with arguments it can use."""
    agent = stage.start(keeps=True, settings={"compaction": {"keepRecentTokens": 1}})
    responses: dict[str, dict[str, Any]] = {}
    for command, arguments in COMMANDS.items():
        if "message" in arguments:
            for _ in range(3):
                stage.server.answers(f"an answer {'word ' * 50}")
        if command == "compact":
            agent.run(f"more {'word ' * 50}")
            stage.server.answers("THE SUMMARY")
        start = agent.mark()
        responses[command] = agent.request(command, **arguments)
        if command in ("prompt", "abort_and_prompt"):
            agent.wait_end(start)
    stage.server.answers("hello again")
    agent.run("hello again")
    file = agent.ask("get_state")["sessionFile"]
    if stage.dialect == "pi":
        responses |= {command: agent.request(command, **arguments) for command, arguments in OF_PI.items()}
        entry = agent.ask("get_entries")["entries"][-1]["id"]
        responses["navigate_tree"] = agent.request("navigate_tree", entryId=entry)
    responses["listing"] = agent.request(LISTING[stage.dialect])
    row = responses["listing"]["data"]["messages"][0]
    responses["branching"] = agent.request(BRANCHING[stage.dialect], entryId=row["entryId"])
    responses["switch_session"] = agent.request("switch_session", sessionPath=file)
    if stage.dialect == "pi":
        left = agent.ask("clone")
        assert left["cancelled"] is False
        responses["delete_session"] = agent.request("delete_session", sessionPath=file)
        start = agent.mark()
        agent.send({"id": "h", "type": "host_service_result", "content": "x"})
        agent.ask("get_state")
        responses["host_service_result"] = {
            "answers": [r for r in agent.since(start, "response") if r.get("id") == "h"]
        }
    return Seen(responses=responses)


@proves_each("name,command", {
    "command.prompt": ("prompt", "prompt"),
    "command.steer": ("steer", "steer"),
    "command.follow_up": ("follow_up", "follow_up"),
    "command.abort": ("abort", "abort"),
    "command.new_session": ("new_session", "new_session"),
    "command.get_state": ("get_state", "get_state"),
    "command.get_messages": ("get_messages", "get_messages"),
    "command.set_model": ("set_model", "set_model"),
    "command.cycle_model": ("cycle_model", "cycle_model"),
    "command.get_available_models": ("get_available_models", "get_available_models"),
    "command.set_thinking_level": ("set_thinking_level", "set_thinking_level"),
    "command.cycle_thinking_level": ("cycle_thinking_level", "cycle_thinking_level"),
    "command.set_steering_mode": ("set_steering_mode", "set_steering_mode"),
    "command.set_follow_up_mode": ("set_follow_up_mode", "set_follow_up_mode"),
    "command.compact": ("compact", "compact"),
    "command.set_auto_compaction": ("set_auto_compaction", "set_auto_compaction"),
    "command.set_auto_retry": ("set_auto_retry", "set_auto_retry"),
    "command.abort_retry": ("abort_retry", "abort_retry"),
    "command.bash": ("bash", "bash"),
    "command.abort_bash": ("abort_bash", "abort_bash"),
    "command.get_session_stats": ("get_session_stats", "get_session_stats"),
    "command.export_html": ("export_html", "export_html"),
    "command.switch_session": ("switch_session", "switch_session"),
    "command.get_last_assistant_text": ("get_last_assistant_text", "get_last_assistant_text"),
    "command.set_session_name": ("set_session_name", "set_session_name"),
    "command.fork": ("branching", "fork"),
    "command.get_fork_messages": ("listing", "get_fork_messages"),
    "command.get_commands": ("get_commands", "get_commands"),
    "command.abort_and_prompt": ("abort_and_prompt", "abort_and_prompt"),
    "command.set_interrupt_mode": ("set_interrupt_mode", "set_interrupt_mode"),
    "omp+xcsh/command.branch": ("branching", "branch"),
    "omp+xcsh/command.get_branch_messages": ("listing", "get_branch_messages"),
    "omp+xcsh/command.set_interrupt_mode": ("set_interrupt_mode", "set_interrupt_mode"),
    "xcsh/command.set_todos": ("set_todos", "set_todos"),
    "xcsh/command.set_host_tools": ("set_host_tools", "set_host_tools"),
    "xcsh/command.abort_and_prompt": ("abort_and_prompt", "abort_and_prompt"),
    "command.clone": ("clone", "clone"),
    "command.get_entries": ("get_entries", "get_entries"),
    "command.get_tree": ("get_tree", "get_tree"),
    "command.navigate_tree": ("navigate_tree", "navigate_tree"),
    "command.list_sessions": ("list_sessions", "list_sessions"),
    "command.get_html": ("get_html", "get_html"),
    "command.render_html": ("render_html", "render_html"),
    "command.find_text": ("find_text", "find_text"),
    "command.find_files": ("find_files", "find_files"),
    "command.get_branches": ("get_branches", "get_branches"),
    "command.get_changes": ("get_changes", "get_changes"),
    "command.set_approval_mode": ("set_approval_mode", "set_approval_mode"),
    "command.delete_session": ("delete_session", "delete_session"),
    "command.set_host_services": ("set_host_services", "set_host_services"),
})  # fmt: skip
def test_the_command_exists_and_is_answered_under_its_name(catalogue: Seen, name: str, command: str) -> None:
    response = catalogue.responses[name]
    assert (response["command"], response["success"]) == (command, True), response


@proves("command.host_service_result")
def test_the_result_of_a_host_service_is_a_command_without_an_answer(catalogue: Seen) -> None:
    assert catalogue.responses["host_service_result"] == {"answers": []}
