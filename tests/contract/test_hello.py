"""`hello`: a host that knows us says what it speaks; and the two commands that only hosts of xcsh have."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.model_server import Call, Gate, ModelServer
from support.agent_process import RpcProcess, Start
from support.contract import in_each, proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers, deltas, outline, text_of

Record = dict[str, Any]


@proves("hello.welcome")
def test_hello_says_who_we_are_and_changes_nothing_that_was_not_asked_for(
    agent: RpcProcess, server: ModelServer
) -> None:
    welcome = agent.ask("hello")
    assert (welcome["name"], welcome["dialect"], welcome["features"]) == ("pigeon", "pi", [])
    assert len(welcome["version"].split(".")) == 3
    assert welcome["limits"] == {"recordBytes": 32 * 1024 * 1024, "commandsInFlight": 1000}
    server.answers("hi")
    records = agent.run("x")
    assert deltas(records, "text_delta")[0]["partial"]["role"] == "assistant"
    assert not [record for record in records if "seq" in record]


@scenario
def asked_for(stage: Stage) -> Seen:
    """A host that asks for deltas, numbers and something nobody has."""
    agent = stage.start()
    welcome = agent.ask("hello", features=["seq", "telepathy", "deltas"])
    start = agent.mark()
    stage.server.answers("Looking.", Call("bash", {"command": "echo hi"}))
    stage.server.answers("Done.")
    agent.send({"type": "prompt", "message": "x"})
    agent.wait_end(start)
    records = agent.since(start)
    none = [] if stage.dialect == "companion" else agent.ask("hello", features=[])["features"]
    return Seen(welcome=welcome, records=records, none=none)


@proves("hello.features")
def test_a_host_is_told_its_dialect_and_the_features_it_gets(asked_for: Seen, dialect: str) -> None:
    assert (asked_for.welcome["dialect"], asked_for.welcome["features"]) == (dialect, ["deltas", "seq"])
    assert asked_for.none == []


@proves("hello.seq")
def test_events_are_numbered_without_gaps_for_a_host_that_asks(asked_for: Seen) -> None:
    events = [record for record in asked_for.records if record["type"] != "response"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert not [record for record in asked_for.records if record["type"] == "response" and "seq" in record]


@proves("hello.deltas")
def test_updates_have_the_delta_only_for_a_host_that_asks(asked_for: Seen, dialect: str) -> None:
    updates = [record for record in asked_for.records if record["type"] == "message_update"]
    assert updates
    members = {"type", "usage", "assistantMessageEvent", "seq", *(["messageId"] if dialect == "omp" else [])}
    assert all(set(update) == members for update in updates)
    assert text_of(answers(asked_for.records)[-1]) == "Done."


@proves("hello.dialect")
@pytest.mark.parametrize(
    ("asked", "ends"), [("omp", "session_settled"), ("xcsh", "agent_end"), ("pi-latest", "agent_settled")]
)
def test_a_host_can_say_which_dialect_it_speaks(agent: RpcProcess, server: ModelServer, asked: str, ends: str) -> None:
    assert agent.ask("hello", dialect=asked)["dialect"] == asked
    agent.send({"id": "u", "type": "nope"})
    unknown = agent.wait_event("response", command="nope")
    assert ("id" in unknown) is (asked != "xcsh")
    mode = "immediate" if asked == "omp" else "wait"
    assert agent.ask("get_state")["interruptMode"] == mode
    server.answers("hi")
    agent.send({"type": "prompt", "message": "x"})
    agent.wait_event(ends)
    agent.ask("get_state")
    told = [word for word in outline(agent.records) if not word.startswith("response")]
    assert told[-1] == ends
    partial = "partial" in deltas(agent.records, "text_delta")[0]
    assert partial is (asked != "pi-latest")


@proves("hello.companion")
def test_the_answer_to_hello_is_the_same_in_all_dialects(start: Start, server: ModelServer) -> None:
    agent = start()
    assert agent.ask("hello", dialect="companion")["dialect"] == "companion"
    server.answers("hi")
    agent.send({"type": "get_state"}, {"type": "prompt", "message": "x"})
    agent.wait_event("agent_end")
    assert len(agent.since(0, "response")) == 1
    assert agent.ask("hello", dialect="pi")["dialect"] == "pi"
    agent.ask("get_state")


@proves("hello.refused")
def test_hello_is_refused_in_a_run_and_for_what_nobody_speaks(agent: RpcProcess, server: ModelServer) -> None:
    assert "dialect" in agent.expect_error("hello", dialect="klingon")
    assert "features" in agent.expect_error("hello", features="seq")
    gate = Gate()
    server.answers("one", gate, "two")
    agent.ask("prompt", message="x")
    gate.wait_reached()
    assert "run" in agent.expect_error("hello", dialect="omp")
    gate.open()
    agent.wait_end()
    assert text_of(answers(agent.records)[0]) == "onetwo"
    assert agent.ask("hello", dialect="omp")["dialect"] == "omp"


@proves("xcsh.set_locale", dialects=("pi", "xcsh"))
@in_each("pi", "xcsh")
def test_the_locale_of_the_person_reaches_the_model(spoken: RpcProcess, server: ModelServer) -> None:
    spoken.send({"id": "l", "type": "set_locale", "locale": "de-CH"})
    assert spoken.response("l") == {"id": "l", "type": "response", "command": "set_locale", "success": True}
    first = server.answers("Guten Tag.")
    spoken.run("x")
    second = server.answers("Bonjour.")
    spoken.run("y", locale="fr-FR")
    assert "de-CH" in str(first.request["system"])
    assert "fr-FR" in str(second.request["system"])
    spoken.ask("set_locale", locale="")
    third = server.answers("Hello.")
    spoken.run("z")
    assert "fr-FR" not in str(third.request["system"])
    assert "locale" in spoken.expect_error("set_locale")


@proves("omp.get_available_commands", dialects=("omp",))
@in_each("omp")
def test_commands_are_listed_under_the_name_that_omp_uses(spoken: RpcProcess) -> None:
    (spoken.folders.agent / "prompts").mkdir()
    (spoken.folders.agent / "prompts" / "fix.md").write_text("Fix it.")
    spoken.close()
    with RpcProcess(spoken.folders, "--no-session", "--dialect", "omp", "--model", "demo") as agent:
        listed = agent.ask("get_available_commands")
        assert listed == agent.ask("get_commands")
        assert [command["name"] for command in listed["commands"]] == ["fix"]


@proves("xcsh.get_integrations", dialects=("xcsh",))
@in_each("xcsh")
def test_integrations_say_whether_there_is_a_model(start: Start, dialect: str) -> None:
    data = start(dialect=dialect).ask("get_integrations")
    assert data["model"] == {"state": "connected", "provider": "fake"}
    assert (data["services"], bool(data["version"])) == ([], True)
    without = start(dialect=dialect, models=[], model=None).ask("get_integrations")
    assert without["model"] == {"state": "no_provider"}
