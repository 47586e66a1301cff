"""The two models that need no key and no network, and what happens without any model."""

from __future__ import annotations

import json

import pytest

from fakes.clock import within
from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.records import answers, deltas, finished_messages, text_of, tool_texts


@pytest.fixture
def bare(folders: AgentFolders) -> AgentFolders:
    """No models.json at all."""
    folders.configure()
    return folders


@proves("demo.converses")
def test_the_demo_lists_reads_runs_writes_and_edits_with_real_tools(bare: AgentFolders) -> None:
    (bare.work / "notes.txt").write_text("hello world\n")
    with RpcProcess(bare, "--no-session", "--model", "demo") as agent:
        assert "Hello" in text_of(answers(agent.run("hi"))[-1])
        assert "notes.txt" in text_of(answers(agent.run("list the files"))[-1])
        assert "hello world" in text_of(answers(agent.run("read notes.txt"))[-1])
        assert "42" in text_of(answers(agent.run("run `echo $((6 * 7))`"))[-1])
        agent.run('replace "world" with "there" in notes.txt')
        assert (bare.work / "notes.txt").read_text() == "hello there\n"
        agent.run("write one line to new.txt")
        assert (bare.work / "new.txt").read_text() == "one line\n"
        assert "do not understand" in text_of(answers(agent.run("prove that P is not NP"))[-1])


@proves("demo.streams")
def test_the_demo_streams_like_a_model(bare: AgentFolders) -> None:
    with RpcProcess(bare, "--no-session", "--model", "demo", "--thinking", "low") as agent:
        records = agent.run("list the files, then run `echo hi`")
    assert len(deltas(records, "text_delta")) > 5
    assert deltas(records, "thinking_delta")
    assert [message["stopReason"] for message in answers(records)] == ["toolUse", "toolUse", "stop"]
    assert answers(records)[0]["usage"]["output"] > 0
    assert answers(records)[0]["usage"]["cost"]["total"] == 0


@proves("demo.drains")
def test_a_demo_prompt_through_a_pipe_is_answered_to_its_end(bare: AgentFolders) -> None:
    agent = RpcProcess(bare, "--no-session", "--model", "demo")
    agent.send({"type": "prompt", "message": "run `echo piped`"})
    agent.close()
    assert "piped" in text_of(answers(agent.records)[-1])


@proves("models.none")
def test_without_a_model_a_prompt_says_how_to_get_one(bare: AgentFolders) -> None:
    with RpcProcess(bare, "--no-session") as agent:
        assert agent.ask("get_state").get("model") is None
        error = agent.expect_error("prompt", message="x")
        assert "API_KEY" in error
        assert "demo" in error
        assert not agent.since(0, "agent_start")


@proves("scripted.plays")
def test_a_script_is_played_through_the_real_protocol(folders: AgentFolders, start: Start) -> None:
    script = [
        {"thinking": "hm", "text": "Look.", "toolCalls": [{"name": "bash", "arguments": {"command": "echo 7"}}]},
        {"text": "It is ${toolResult}", "usage": {"input": 3, "output": 4}},
        {"text": "half", "error": {"message": "broken", "status": 400}},
    ]
    (folders.work / "s.json").write_text(json.dumps(script))
    agent = start("--model", "scripted/s.json", model=None)
    state = agent.ask("get_state")
    assert (state["model"]["provider"], state["model"]["id"]) == ("scripted", "s.json")
    records = agent.run("x")
    assert text_of(answers(records)[-1]).startswith("It is 7")
    assert answers(records)[-1]["usage"]["totalTokens"] == 7
    failed = answers(agent.run("y"))[-1]
    assert (failed["stopReason"], failed["errorMessage"], text_of(failed)) == ("error", "broken", "half")
    failed = answers(agent.run("z"))[-1]
    assert "used up" in failed["errorMessage"]


@proves("scripted.names_faults")
def test_a_missing_script_is_an_answer_that_names_it(start: Start) -> None:
    agent = start("--model", "scripted/none.json", model=None)
    failed = answers(agent.run("x"))[0]
    assert failed["stopReason"] == "error"
    assert "none.json" in failed["errorMessage"]


@proves("scripted.aborts")
def test_a_hanging_script_is_aborted(folders: AgentFolders, start: Start) -> None:
    (folders.work / "s.json").write_text(json.dumps([{"text": "tick", "hang": True}, "next"]))
    agent = start("--model", "scripted/s.json", model=None)
    agent.ask("prompt", message="x")
    agent.wait_event("message_update")
    with within(1):
        agent.ask("abort")
    assert answers(agent.records)[0]["stopReason"] == "aborted"
    assert text_of(answers(agent.run("y"))[0]) == "next"


@proves("scripted.deterministic")
def test_the_same_script_gives_the_same_deltas(folders: AgentFolders, start: Start) -> None:
    (folders.work / "s.json").write_text(json.dumps([{"text": "The same words every time, in the same pieces."}]))
    told = []
    for _ in range(2):
        agent = start("--model", "scripted/s.json", model=None)
        told.append([event["delta"] for event in deltas(agent.run("x"), "text_delta")])
        agent.close()
    assert told[0] == told[1]
    assert len(told[0]) > 1


@proves("tools.first_form")
def test_the_four_tools_do_their_work(folders: AgentFolders, start: Start) -> None:
    calls = [
        {"name": "write", "arguments": {"path": "sub/a.txt", "content": "one\ntwo\n"}},
        {"name": "edit", "arguments": {"path": "sub/a.txt", "edits": [{"oldText": "two", "newText": "three"}]}},
        {"name": "read", "arguments": {"path": "sub/a.txt"}},
        {"name": "bash", "arguments": {"command": "cat sub/a.txt | wc -l"}},
        {"name": "read", "arguments": {"path": "gone.txt"}},
    ]
    (folders.work / "s.json").write_text(json.dumps([{"toolCalls": calls}, "done"]))
    agent = start("--model", "scripted/s.json", model=None)
    records = agent.run("x")
    assert (folders.work / "sub" / "a.txt").read_text() == "one\nthree\n"
    texts = tool_texts(records)
    assert "three" in texts[2]
    assert texts[3].strip() == "2"
    assert [message["isError"] for message in finished_messages(records, "toolResult")] == [False] * 4 + [True]
    assert "gone.txt" in texts[4]
