"""How prompts end in the newest omp: one `prompt_result` each, behind its answer, then `session_settled`."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from fakes.model_server import Call, Gate, Hang, ModelServer, said_in
from support.agent_folders import AgentFolders, extension
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import outline

Record = dict[str, Any]
OMP = ("omp",)
FAST = {"retry": {"baseDelayMs": 1}}
SLOW_INPUT = """
@ext.on(Input)
async def look(event, ctx):
    if event.text == "wait":
        await asyncio.Event().wait()
    await asyncio.sleep(0)

@ext.command("hi")
async def hi(args, ctx):
    ctx.ui.notify("hi")
"""


@pytest.fixture
def omp(start: Start) -> RpcProcess:
    return start(dialect="omp", settings=FAST)


def results(agent: RpcProcess) -> dict[str, Record]:
    """The results so far; each prompt has at most one."""
    told = agent.since(0, "prompt_result")
    by_id = {record["id"]: record for record in told}
    assert len(by_id) == len(told), told
    return by_id


def ends(agent: RpcProcess) -> list[str]:
    """The last records of a run, and answers, in order."""
    kinds = ("agent_end", "prompt_result", "session_settled", "response:")
    return [word for word in outline(agent.records) if word.startswith(kinds)]


def begin(agent: RpcProcess, server: ModelServer, id: str = "a") -> None:
    """A prompt whose answer hangs."""
    gate = Gate()
    server.answers("begun", gate)
    agent.send({"id": id, "type": "prompt", "message": "go"})
    gate.wait_reached()


@proves("omp.result.busy", dialects=OMP)
def test_a_prompt_that_is_refused_in_a_run_has_its_result_at_once(omp: RpcProcess, server: ModelServer) -> None:
    begin(omp, server)
    omp.send({"id": "b", "type": "prompt", "message": "me too"})
    omp.wait_event("prompt_result", id="b")
    first, second, result = (record for record in omp.records if record.get("id") == "b")
    assert (first["success"], second["success"]) == (True, False)
    assert result["agentInvoked"] is False
    assert (result["status"], result["sessionSettled"]) == ("error", False)
    assert result["error"] == {"message": second["error"], "retryable": False}
    omp.ask("abort")


@proves("omp.result.abort", dialects=OMP)
def test_an_abort_is_answered_between_the_end_of_the_run_and_the_results(omp: RpcProcess, server: ModelServer) -> None:
    begin(omp, server)
    omp.send({"id": "q", "type": "prompt", "message": "later", "streamingBehavior": "followUp"})
    omp.response("q")
    omp.ask("abort")
    omp.wait_event("session_settled")
    words = ["agent_end", "response:abort", "prompt_result", "prompt_result", "session_settled"]
    assert ends(omp)[2:] == words
    assert {id: (r["status"], r["agentInvoked"], r["sessionSettled"]) for id, r in results(omp).items()} == {
        "a": ("aborted", True, True),
        "q": ("aborted", False, True),
    }
    assert omp.ask("get_state")["isSettled"] is True


@proves("omp.result.leftover", dialects=OMP)
def test_a_prompt_that_waited_through_an_abort_is_said_with_the_next_one_and_ends_only_once(
    omp: RpcProcess, server: ModelServer
) -> None:
    begin(omp, server)
    omp.send({"id": "q", "type": "prompt", "message": "later", "streamingBehavior": "followUp"})
    omp.response("q")
    omp.ask("abort")
    omp.wait_event("session_settled")
    server.answers("one")
    server.answers("two")
    start = omp.mark()
    omp.send({"id": "b", "type": "prompt", "message": "next"})
    omp.wait_event("session_settled", start)
    assert ("user", "later") in said_in(server.requests[-1])
    assert sorted(results(omp)) == ["a", "b", "q"]


@proves("omp.result.cleared", dialects=OMP)
def test_a_prompt_that_is_taken_out_of_the_queue_ends_there(omp: RpcProcess, server: ModelServer) -> None:
    begin(omp, server)
    omp.send({"id": "q", "type": "prompt", "message": "later", "streamingBehavior": "steer"})
    omp.response("q")
    assert omp.ask("clear_queue")["steering"] == ["later"]
    result = results(omp)["q"]
    assert (result["status"], result["agentInvoked"], result["sessionSettled"]) == ("aborted", False, False)
    omp.ask("abort")
    omp.wait_event("session_settled")
    assert sorted(results(omp)) == ["a", "q"]


@proves("omp.result.error", dialects=OMP)
def test_a_failed_prompt_says_what_failed_and_where(omp: RpcProcess, server: ModelServer) -> None:
    server.fails(400, "no such thing", "invalid_request_error")
    omp.send({"id": "a", "type": "prompt", "message": "go"})
    omp.wait_event("session_settled")
    error = results(omp)["a"]["error"]
    assert {key: value for key, value in error.items() if key != "message"} == {
        "provider": "fake",
        "model": "fake-1",
        "httpStatus": 400,
        "retryable": False,
    }
    assert "no such thing" in error["message"]


@proves("omp.result.retried", dialects=OMP)
def test_an_error_that_is_retried_has_one_end_and_one_result(omp: RpcProcess, server: ModelServer) -> None:
    server.fails(529, "busy", "overloaded_error")
    server.answers("now")
    omp.send({"id": "a", "type": "prompt", "message": "go"})
    omp.wait_event("session_settled")
    assert ends(omp) == ["response:prompt", "agent_end", "prompt_result", "session_settled"]
    assert results(omp)["a"]["status"] == "completed"


@proves("omp.result.no_message", dialects=OMP)
def test_a_prompt_without_message_is_one_failure(omp: RpcProcess) -> None:
    omp.send({"id": "a", "type": "prompt"})
    assert omp.response("a")["success"] is False
    omp.ask("get_state")
    assert ends(omp) == ["response:prompt", "response:get_state"]


@proves("omp.result.filtered", dialects=OMP)
def test_results_are_never_filtered(omp: RpcProcess, server: ModelServer) -> None:
    omp.ask("set_event_filter", events=["turn_end"])
    server.answers("hello")
    omp.send({"id": "a", "type": "prompt", "message": "go"})
    omp.wait_event("session_settled")
    expected = ["response:set_event_filter", "response:prompt", "turn_end", "prompt_result", "session_settled"]
    assert [word for word in outline(omp.records) if word not in ("ready", "available_commands_update")] == expected


@scenario
def with_input(stage: Stage) -> Seen:
    """An extension that takes its time: a prompt that it handles, and one that it does not."""
    omp = stage.start(*extension(stage.folders, SLOW_INPUT))
    handled = omp.ask("prompt", message="/hi")
    stage.server.answers("hello")
    omp.send({"id": "a", "type": "prompt", "message": "go"})
    omp.wait_event("session_settled")
    words = [word for word in outline(omp.records) if word.startswith(("response", "agent", "prompt", "session"))]
    return Seen(handled=handled, words=words)


@proves("omp.result.handled")
def test_a_prompt_that_an_extension_handles_says_so_and_has_no_result(with_input: Seen) -> None:
    assert with_input.handled == {"agentInvoked": False}
    assert with_input.words.count("prompt_result") == 1


@proves("prompt.answered_first")
def test_with_extensions_the_answer_comes_before_the_run(with_input: Seen) -> None:
    wanted = ["response:prompt", "agent_start", "agent_end", "prompt_result", "session_settled"]
    assert with_input.words[1:] == wanted


@proves("omp.result.preflight", dialects=OMP)
def test_a_prompt_that_is_aborted_while_an_extension_looks_at_it_has_a_result_and_leaves_the_session_free(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    omp = start(*extension(folders, SLOW_INPUT), dialect="omp")
    omp.send({"id": "a", "type": "prompt", "message": "wait"}, {"id": "b", "type": "prompt", "message": "two"})
    omp.ask("abort")
    omp.wait_event("prompt_result", id="a")
    assert {id: r["status"] for id, r in results(omp).items()} == {"a": "aborted", "b": "aborted"}
    assert omp.ask("get_state")["isSettled"] is True
    server.answers("hello")
    omp.send({"id": "c", "type": "prompt", "message": "go"})
    omp.wait_event("session_settled")
    assert results(omp)["c"]["status"] == "completed"


@proves("omp.result.replaced", dialects=OMP)
def test_abort_and_prompt_ends_both_prompts_once(omp: RpcProcess, server: ModelServer) -> None:
    begin(omp, server)
    server.answers("other")
    omp.send({"id": "b", "type": "abort_and_prompt", "message": "instead"})
    omp.wait_event("session_settled")
    assert {id: (r["status"], r["sessionSettled"]) for id, r in results(omp).items()} == {
        "a": ("aborted", False),
        "b": ("completed", True),
    }


@proves("exit.signal_silent", dialects=("pi",))
@pytest.mark.by_exec
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("dialect", ["pi", "pi-latest", "omp", "xcsh", "companion"])
def test_a_signal_in_a_run_is_followed_by_no_record(
    start: Start, server: ModelServer, number: int, dialect: str
) -> None:
    agent = start(dialect=dialect, keeps=True)
    server.answers(Call("bash", {"command": "sleep 600"}))
    agent.send({"id": "a", "type": "prompt", "message": "go"})
    agent.wait_event("tool_execution_start")
    agent.signal(number)
    agent.wait_exit()
    assert agent.records[-1]["type"] in ("tool_execution_start", "tool_execution_update")


@proves("exit.eof_unsettled")
@pytest.mark.by_exec
@pytest.mark.parametrize("dialect", ["pi", "pi-latest", "omp", "xcsh", "companion"])
def test_the_end_of_input_in_a_run_is_not_followed_by_its_end(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start(dialect=dialect)
    server.answers("begun", Hang())
    agent.send({"id": "a", "type": "prompt", "message": "go"})
    agent.wait_event(
        "message_start", message=agent.wait(lambda r: r.get("message", {}).get("role") == "assistant")["message"]
    )
    agent.close()
    assert agent.records[-1]["type"] == "turn_end"


@proves("omp.result.switched", dialects=OMP)
@pytest.mark.parametrize("kind", ["new_session", "switch_session", "branch", "open_session"])
def test_another_session_during_a_run_ends_its_prompts_first(start: Start, server: ModelServer, kind: str) -> None:
    omp = start(dialect="omp", keeps=True)
    server.answers("one")
    omp.run("first")
    state = omp.ask("get_state")
    omp.ask("new_session")
    begin(omp, server)
    entries = omp.ask("get_entries")["entries"]
    fields = {
        "new_session": {},
        "switch_session": {"sessionPath": state["sessionFile"]},
        "branch": {"entryId": next(entry["id"] for entry in entries if entry.get("message", {}).get("role") == "user")},
        "open_session": {"sessionDir": "elsewhere"},
    }[kind]
    place = omp.mark()
    omp.ask(kind, **fields)
    words = [word for word in outline(omp.since(place)) if not word.startswith(("message", "turn"))]
    assert words == ["agent_end", "prompt_result", "session_settled", "available_commands_update", f"response:{kind}"]
    assert results(omp)["a"]["status"] == "aborted"


@proves("omp.open_session", dialects=OMP)
def test_a_folder_is_opened_at_its_newest_session_with_a_message(start: Start, server: ModelServer) -> None:
    omp = start(dialect="omp", keeps=True)
    fresh = omp.ask("open_session", sessionDir="mine")
    assert (fresh["cancelled"], fresh["resumed"]) == (False, False)
    assert omp.ask("open_session", sessionDir="mine") == fresh
    server.answers("one")
    omp.run("first")
    assert omp.ask("open_session", sessionDir="mine") == {**fresh, "resumed": True}
    other = omp.ask("open_session", sessionDir="other")
    assert other["sessionId"] != fresh["sessionId"]
    assert omp.ask("open_session", sessionDir="mine") == {**fresh, "resumed": True}
    assert [message["role"] for message in omp.ask("get_messages")["messages"]] == ["user", "assistant"]
    assert "sessionDir" in omp.expect_error("open_session")
    (omp.folders.work / "file").write_text("x")
    assert "not a folder" in omp.expect_error("open_session", sessionDir="file")
    assert "not a folder" in omp.expect_error("open_session", sessionDir="file/below")
    assert omp.ask("get_state")["sessionId"] == fresh["sessionId"]


@proves("omp.open_session_memory", dialects=OMP)
def test_a_folder_is_not_opened_where_nothing_is_kept(omp: RpcProcess) -> None:
    assert (
        omp.expect_error("open_session", sessionDir="x")
        == "open_session requires session persistence (omit --no-session)"
    )


@proves("omp.commands_update_start", dialects=OMP)
def test_the_commands_are_told_before_the_first_answer_and_in_no_other_dialect(
    start: Start, folders: AgentFolders
) -> None:
    template = folders.agent / "prompts" / "review.md"
    template.parent.mkdir()
    template.write_text("---\ndescription: Look at it\n---\nReview it.")
    omp = start(*extension(folders, SLOW_INPUT), dialect="omp")
    omp.ask("get_state")
    assert outline(omp.records)[:3] == ["ready", "available_commands_update", "response:get_state"]
    (told,) = omp.since(0, "available_commands_update")
    assert {"name": "review", "source": "file", "description": "Look at it"} in told["commands"]
    assert {"name": "hi", "source": "extension"} in told["commands"]
    for dialect in ("pi", "pi-latest", "xcsh", "companion"):
        other = start(dialect=dialect)
        other.close()
        assert other.since(0, "available_commands_update") == []


@proves("omp.unknown_since", dialects=OMP)
def test_entries_after_one_that_is_not_there_are_refused_with_a_code(omp: RpcProcess) -> None:
    answer = omp.request("get_entries", since="zz")
    assert (answer["error"], answer["code"]) == ("Unknown entries cursor: zz", "unknown_since")


@proves("omp.handoff", dialects=OMP)
def test_a_handoff_is_refused_with_the_reason_that_applies(omp: RpcProcess, server: ModelServer) -> None:
    assert omp.expect_error("handoff") == "Nothing to hand off (no messages yet)"
    begin(omp, server)
    assert omp.expect_error("handoff") == "Cannot hand off while a response is in progress"
    omp.ask("abort")
    assert "not available" in omp.expect_error("handoff")


@proves("omp.no_ui")
def test_without_ui_nothing_is_asked_or_shown(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    agent = start("--no-ui", *extension(folders, SLOW_INPUT))
    agent.ask("set_permissions", permissions={"ask": ["bash"]})
    agent.ask("prompt", message="/hi")
    server.answers(Call("bash", {"command": "echo hi"}))
    server.answers("done")
    records = agent.run("go")
    (ended,) = [record for record in records if record["type"] == "tool_execution_end"]
    assert ended["isError"] is True
    assert agent.since(0, "extension_ui_request") == []


@proves("omp.compact_in_run", dialects=OMP)
def test_a_compaction_that_is_asked_for_in_a_run_ends_its_prompts(omp: RpcProcess, server: ModelServer) -> None:
    begin(omp, server)
    assert "Nothing to compact" in omp.expect_error("compact")
    omp.wait_event("session_settled")
    assert results(omp)["a"]["status"] == "aborted"
    assert omp.ask("get_state")["isSettled"] is True


@proves("omp.skill_answer", dialects=OMP)
def test_a_prompt_with_a_skill_is_answered_like_any_other(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    skill = folders.agent / "skills" / "tidy" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: tidy\ndescription: Tidy up\n---\nTidy up.")
    omp = start(dialect="omp")
    server.answers("done")
    omp.send({"id": "a", "type": "prompt", "message": "/skill:tidy"})
    omp.wait_event("session_settled")
    assert "data" not in omp.response("a")
    assert results(omp)["a"]["status"] == "completed"


@proves("exit.eof_last_run")
@pytest.mark.by_exec
def test_no_run_begins_when_the_input_has_ended(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    agent = start(*extension(folders, SLOW_INPUT))
    server.answers("begun", Hang())
    agent.ask("prompt", message="go")
    agent.wait_delta("begun"[:2])
    # It finds the commands and the end of its input at the same time.
    agent.signal(signal.SIGSTOP)
    agent.send(*({"id": name, "type": "abort_and_prompt", "message": "instead"} for name in "bcd"))
    agent.close_stdin()
    agent.signal(signal.SIGCONT)
    assert agent.wait_exit() == 0
    assert [record["type"] for record in agent.records].count("agent_start") == 1
    assert all(
        "is closing" in agent.response(name)["error"] or "aborted" in agent.response(name)["error"] for name in "bcd"
    )


@proves("omp.commands_update", dialects=OMP)
def test_the_commands_are_told_again_with_every_other_session(start: Start) -> None:
    omp = start(dialect="omp", keeps=True)
    place = omp.mark()
    omp.ask("new_session")
    assert "available_commands_update" in outline(omp.since(place))
