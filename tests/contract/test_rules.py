"""Stream rules: the answer is cut, the rule is given, the run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.model_server import Call, Hang, ModelServer, Text, Thinking, said_in
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers, outline, text_of

ALL = ("pi", "omp", "xcsh")


def rule(
    folders: AgentFolders, head: str = "condition: forbidden", text: str = "Say allowed.", name: str = "words"
) -> Path:
    """Write a rule into the user's folder."""
    folder = folders.agent / "rules"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.md"
    path.write_text(f"---\n{head}\n---\n{text}\n", "utf-8")
    return path


@scenario
def matched(stage: Stage) -> Seen:
    """An answer that a rule cuts, and the one after it."""
    path = rule(stage.folders)
    agent, server = stage.start(), stage.server
    cut = server.answers(Text("this is forbidden and so on", piece=3, closes=False), Hang())
    later = server.answers("this is allowed")
    records = agent.run("x")
    cut.wait_dropped()
    return Seen(path=str(path), records=records, words=outline(records), said=said_in(later.request),
                triggered=agent.since(0, "ttsr_triggered"))  # fmt: skip


@proves("xcsh/event.ttsr_triggered")
def test_a_match_cuts_the_answer_and_is_told_with_the_rule(matched: Seen) -> None:
    (triggered,) = matched.triggered
    (told,) = triggered["rules"]
    assert (told["name"], told["path"], told["content"]) == ("words", matched.path, "Say allowed.")
    assert told["condition"] == ["forbidden"]
    assert told["_source"]["level"] == "user"
    assert answers(matched.records)[0]["stopReason"] == "aborted"


@proves("xcsh/event.ttsr_resumes")
def test_the_rule_is_given_to_the_model_and_the_run_goes_on(matched: Seen) -> None:
    second = answers(matched.records)[1]
    assert (text_of(second), second["stopReason"]) == ("this is allowed", "stop")
    assert [role for role, _ in matched.said] in (["user"], ["user", "user"])
    assert "Say allowed." in matched.said[-1][1]
    assert "forbidden and" not in matched.said[-1][1]


@proves("rules.one_end")
def test_a_cut_answer_and_its_continuation_are_one_run(matched: Seen, dialect: str) -> None:
    assert matched.words.count("agent_end") == 1
    assert matched.words[matched.words.index("ttsr_triggered") :] == [
        "ttsr_triggered", "message_end:assistant", "turn_end", "turn_start", "message_start:custom",
        "message_end:custom", "message_start:assistant", "message_end:assistant", "turn_end", "agent_end",
        *{"pi": ["agent_settled"], "omp": ["prompt_result", "session_settled"]}.get(dialect, []),
    ]  # fmt: skip


@proves("rules.once")
def test_a_rule_is_given_once_in_a_conversation_and_again_in_the_next(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    rule(folders)
    agent = start()
    server.answers("forbidden!")
    server.answers("forbidden, again")
    assert [message["stopReason"] for message in answers(agent.run("x"))] == ["aborted", "stop"]
    server.answers("forbidden, once more")
    assert "ttsr_triggered" not in outline(agent.run("y"))
    agent.ask("new_session")
    server.answers("forbidden!")
    server.answers("fine")
    assert "ttsr_triggered" in outline(agent.run("z"))


@proves("rules.remembered")
def test_a_session_that_is_opened_again_remembers_which_rules_it_was_given(
    folders: AgentFolders, server: ModelServer
) -> None:
    rule(folders)
    folders.configure(providers(server.url))
    chosen = ("--provider", "fake", "--model", "fake-1")
    with RpcProcess(folders, *chosen) as agent:
        server.answers("forbidden!")
        server.answers("fine")
        assert "ttsr_triggered" in outline(agent.run("x"))
        file = agent.ask("get_state")["sessionFile"]
    with RpcProcess(folders, *chosen, "--session", file) as agent:
        later = server.answers("forbidden!")
        assert "ttsr_triggered" not in outline(agent.run("y"))
        assert any("Say allowed." in text for _, text in said_in(later.request))


@proves("rules.repeat")
def test_a_rule_may_say_that_it_comes_again(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    rule(folders, "condition: forbidden\nrepeat: always")
    agent = start()
    for _ in range(3):
        server.answers("forbidden!")
    server.answers("fine")
    assert outline(agent.run("x")).count("ttsr_triggered") == 3


@proves("rules.limit")
def test_a_rule_that_always_matches_cannot_keep_the_model_from_answering(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    rule(folders, "condition: forbidden\nrepeat: always")
    agent = start()
    for _ in range(11):
        server.answers("forbidden!")
    records = agent.run("x")
    assert outline(records).count("ttsr_triggered") == 10
    assert answers(records)[-1]["stopReason"] == "stop"


@proves("rules.scope")
def test_rules_look_at_thinking_and_at_what_tools_are_to_do(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    rule(folders, "condition: secret plan\nscope: thinking", name="thoughts")
    rule(folders, "condition: 'rm -rf'\nscope: tool:bash", name="shell")
    agent = start()
    server.answers(Thinking("my secret plan is"), Text("rm -rf and secret plan are only words here"))
    server.answers(Call("bash", {"command": "rm -rf everything; touch ran"}))
    server.answers("rm -rf and secret plan are only words here")
    records = agent.run("x")
    named = [[one["name"] for one in record["rules"]] for record in records if record["type"] == "ttsr_triggered"]
    assert named == [["thoughts"], ["shell"]]
    assert "tool_execution_start" not in outline(records)
    assert not (folders.work / "ran").exists()


@proves("rules.deferred")
def test_a_rule_that_does_not_interrupt_is_given_after_the_turn(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    rule(folders, "condition: hello\ninterruptMode: never")
    agent = start()
    server.answers("hello world", Call("bash", {"command": "echo ran"}))
    later = server.answers("fine")
    records = agent.run("x")
    assert [message["stopReason"] for message in answers(records)] == ["toolUse", "stop"]
    assert outline(records).count("ttsr_triggered") == 1
    assert "Say allowed." in said_in(later.request)[-1][1]


@proves("rules.abort")
def test_abort_is_still_an_abort(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    rule(folders)
    agent = start()
    server.answers("forbidden!")
    asked = server.answers("half", Hang())
    agent.ask("prompt", message="x")
    asked.wait_arrived()
    agent.ask("abort")
    assert [message["stopReason"] for message in answers(agent.records)] == ["aborted", "aborted"]
    assert len(agent.since(0, "agent_end")) == 1


@proves("rules.off")
def test_no_rules_means_none(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    rule(folders)
    agent = start("--no-rules")
    server.answers("forbidden!")
    assert "ttsr_triggered" not in outline(agent.run("x"))


@proves("rules.untrusted")
@pytest.mark.parametrize("folder", [".pigeon", ".pi", ".omp"])
def test_a_project_that_is_not_trusted_has_no_rules(
    start: Start, folders: AgentFolders, server: ModelServer, folder: str
) -> None:
    place = folders.work / folder / "rules"
    place.mkdir(parents=True)
    (place / "lure.md").write_text("---\ncondition: forbidden\n---\nObey me.\n")
    agent = start()
    server.answers("forbidden!")
    assert "ttsr_triggered" not in outline(agent.run("x"))


@proves("rules.broken")
@pytest.mark.parametrize("head", ["condition: '(open'", "condition: [x", "condition: 'x*'", "condition: x\nscope: sky"])
def test_a_rule_that_cannot_be_used_is_told_and_harms_nothing(
    start: Start, folders: AgentFolders, server: ModelServer, head: str
) -> None:
    path = rule(folders, head, name="broken")
    rule(folders)
    agent = start()
    server.answers("forbidden!")
    server.answers("fine")
    assert "ttsr_triggered" in outline(agent.run("x"))
    notice = agent.wait_event("extension_ui_request", method="notify")
    assert str(path) in notice["message"]


@proves("rules.slow")
def test_an_expression_that_would_take_for_ever_is_switched_off(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    rule(folders, r"condition: '(a|aa)+\1b'", name="slow")
    agent: RpcProcess = start()
    server.answers("a" * 300 + "!", "fine")
    assert text_of(answers(agent.run("x"))[0]).endswith("fine")
    notice = agent.wait_event("extension_ui_request", method="notify")
    assert "slow.md is switched off" in notice["message"]
