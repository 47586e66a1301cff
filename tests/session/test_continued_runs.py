"""Runs that an earlier process began and did not end: they go on, no call is repeated, and each ends once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess
from support.postgres import make_store, run_sql

Record = dict[str, Any]


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure()
    (made.work / "notes.txt").write_text("a note\n")
    return made


class Kept:
    """Where a conversation is kept, and what is in it."""

    def __init__(self, folders: AgentFolders, url: str | None) -> None:
        self.folders = folders
        self.url = url

    def start(self, *more: str, then: Record | None = None) -> RpcProcess:
        """An agent that has been told hello, in one write with a command to follow."""
        store = [] if self.url is None else ["--store", self.url, "--lease-seconds", "1"]
        options = ("--model", "demo", "--dialect", "pi-latest", "--session-id", "one")
        agent = RpcProcess(self.folders, *options, *store, *more)
        hello = {"id": "hello", "type": "hello", "dialect": "pi-latest", "features": ["attribution"]}
        agent.send(hello, *([] if then is None else [then]))
        assert agent.response("hello")["success"]
        return agent

    def entries(self) -> list[Record]:
        if self.url is not None:
            rows = run_sql(self.url, "SELECT line FROM pigeon_entries ORDER BY position")
            return [json.loads(bytes(row[0])) for row in rows]
        file = next(self.folders.agent.glob("sessions/*/*.jsonl"))
        return [json.loads(line) for line in file.read_bytes().splitlines()[1:]]

    def messages(self, role: str) -> list[Record]:
        found = [entry["message"] for entry in self.entries() if entry["type"] == "message"]
        return [message for message in found if message["role"] == role]


@pytest.fixture(params=["files", "postgres"])
async def kept(request: pytest.FixtureRequest, folders: AgentFolders) -> Kept:
    if request.param == "files":
        return Kept(folders, None)
    url = request.getfixturevalue("postgres_url")
    await (await make_store(url)).close()
    return Kept(folders, url)


def kill_at(agent: RpcProcess, is_time: Callable[[Record], bool], prompt: str) -> str:
    """Send a prompt, and kill the process at a record; returns the id of the run."""
    accepted = agent.request("prompt", message=prompt)
    run_id = str(accepted["data"]["runId"])
    agent.wait(is_time)
    agent.kill()
    return run_id


def starts_sleeping(record: Record) -> bool:
    return record["type"] == "tool_execution_start" and "sleep" in json.dumps(record["args"])


def test_a_run_that_died_in_a_tool_call_goes_on_with_a_report_and_ends_once(kept: Kept) -> None:
    run_id = kill_at(kept.start("--continue-runs"), starts_sleeping, "run `sleep 60`")
    with kept.start("--continue-runs") as again:
        end = again.wait_event("agent_settled")
        restarted = [one for one in again.records if one["type"] == "agent_restarted"]
        assert [(one["continued"], "ended during the run" in one["reason"]) for one in restarted] == [(True, True)]
        started = next(one["type"] for one in again.records if one["type"].startswith("agent_"))
        assert started == "agent_restarted"
        assert (end["runId"], end["reason"]) == (run_id, "done")
        again.wait_quiet()
    results = kept.messages("toolResult")
    assert len(results) == 1
    assert results[0]["isError"] is True
    assert "interrupted" in json.dumps(results[0]["content"])
    assert len(kept.messages("user")) == 1


def test_without_the_option_nothing_goes_on_by_itself(kept: Kept) -> None:
    kill_at(kept.start("--continue-runs"), starts_sleeping, "run `sleep 60`")
    with kept.start() as again:
        again.wait_quiet()
        assert not any(one["type"].startswith("agent_") for one in again.records)
        assert "interrupted" in json.dumps(again.ask("get_messages")["messages"][-1])
        again.run("list the files")


def test_a_run_that_died_before_the_answer_asks_the_model_again(kept: Kept) -> None:
    kill_at(kept.start("--continue-runs"), lambda one: one["type"] == "message_update", "list the files")
    with kept.start("--continue-runs") as again:
        assert again.wait_event("agent_settled")["reason"] == "done"
    assert len(kept.messages("user")) == 1
    assert len(kept.messages("toolResult")) == 1
    assert "interrupted" not in json.dumps(kept.messages("toolResult"))


def test_a_prompt_that_comes_first_ends_the_interrupted_run(kept: Kept) -> None:
    run_id = kill_at(kept.start("--continue-runs"), starts_sleeping, "run `sleep 60`")
    prompt = {"id": "p", "type": "prompt", "message": "list the files"}
    with kept.start("--continue-runs", then=prompt) as again:
        assert again.response("p")["success"]
        other = again.wait_event("agent_settled", reason="done")
        ends = [(one["runId"], one["reason"]) for one in again.records if one["type"] == "agent_settled"]
        assert ends == [(run_id, "error"), (other["runId"], "done")]
        assert not any(one["type"] == "agent_restarted" for one in again.records)
    assert "interrupted" in json.dumps(kept.messages("toolResult")[0])


def test_a_run_that_has_ended_is_not_continued(kept: Kept) -> None:
    with kept.start("--continue-runs") as agent:
        agent.run("list the files")
    before = kept.entries()
    with kept.start("--continue-runs") as again:
        again.wait_quiet()
        assert not any(one["type"].startswith("agent_") for one in again.records)
    assert kept.entries() == before


def test_deaths_at_any_moment_lose_no_prompt_and_repeat_no_call(kept: Kept) -> None:
    chance = random.Random(7)
    agent = kept.start("--continue-runs")
    agent.request("prompt", message="list the files, then read notes.txt, then run `echo done`")
    ends: list[str] = []
    for _ in range(4):
        limit = len(agent.records) + chance.randrange(1, 25)
        agent.wait(lambda one, agent=agent, limit=limit: len(agent.records) >= limit or one["type"] == "agent_settled")
        agent.kill()
        ends += [one["runId"] for one in agent.records if one["type"] == "agent_settled"]
        agent = kept.start("--continue-runs")
        if ends:
            break
    if not ends:
        ends.append(agent.wait_event("agent_settled")["runId"])
    agent.close()
    assert len(ends) == 1
    assert len(kept.messages("user")) == 1
    results = Counter(message["toolCallId"] for message in kept.messages("toolResult"))
    calls = [
        block["id"] for one in kept.messages("assistant") for block in one["content"] if block["type"] == "toolCall"
    ]
    assert results == Counter(calls), "each call has one result"
    begun = Counter(entry["data"]["toolCallId"] for entry in kept.entries() if entry.get("customType") == "pigeon.call")
    assert not [call for call, count in begun.items() if count > 1], "no call begins twice"
