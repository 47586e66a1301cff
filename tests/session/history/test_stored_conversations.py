"""Conversations in PostgreSQL, with agents as processes: what is announced is stored, and a process that was away does
no harm."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pigeon
from pigeon.store.lines import check_line
from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess, run_pigeon
from support.postgres import make_store, run_sql

Record = dict[str, Any]


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure()
    return made


@pytest.fixture
async def url(postgres_url: str) -> str:
    await (await make_store(postgres_url)).close()
    return postgres_url


@pytest.fixture
def start(folders: AgentFolders, url: str) -> Callable[..., RpcProcess]:
    def start_agent(*arguments: str, lease: str = "2") -> RpcProcess:
        options = ("--store", url, "--lease-seconds", lease, "--model", "demo", "--dialect", "pi-latest")
        return RpcProcess(folders, *options, *arguments)

    return start_agent


def entries(url: str, session_id: str | None = None) -> list[tuple[int, int, str, Record]]:
    """Position, epoch, node and entry of each row."""
    rows = run_sql(
        url,
        "SELECT position, epoch, node, line FROM pigeon_entries WHERE %s::text IS NULL OR session_id = %s "
        "ORDER BY session_id, position",
        session_id,
        session_id,
    )
    return [(position, epoch, node, json.loads(bytes(line))) for position, epoch, node, line in rows]


def messages(url: str, session_id: str | None = None) -> list[Record]:
    return [entry["message"] for *_, entry in entries(url, session_id) if entry["type"] == "message"]


def announced(agent: RpcProcess) -> list[Record]:
    return [record["message"] for record in agent.records if record["type"] == "message_end"]


def texts(found: list[Record]) -> list[str]:
    return [json.dumps(message["content"], sort_keys=True) for message in found if message["role"] != "system"]


def end_connections(url: str) -> None:
    run_sql(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


def test_a_conversation_is_stored_before_it_is_announced(start: Callable[..., RpcProcess], url: str) -> None:
    with start() as agent:
        agent.send({"id": "p", "type": "prompt", "message": "list the files"})
        agent.response("p")
        opening = next(entry for *_, entry in entries(url) if entry.get("customType") == "pigeon.run")
        assert opening["data"]["opening"][0]["content"][0]["text"] == "list the files"
        agent.wait_event("tool_execution_start")
        assert any(entry.get("customType") == "pigeon.call" for *_, entry in entries(url))
        agent.wait_end()
        assert texts(announced(agent)) == texts(messages(url))
        state = agent.ask("get_state")
        assert "sessionFile" not in state
        assert [position for position, *_ in entries(url, state["sessionId"])] == list(range(len(entries(url))))
    assert run_sql(url, "SELECT owner FROM pigeon_leases") == [(None,)], "the lease is given up at the end"


def test_a_stored_conversation_is_opened_listed_searched_and_deleted_by_its_id(
    start: Callable[..., RpcProcess], url: str, folders: AgentFolders
) -> None:
    with start() as agent:
        agent.run("find the quetzal")
        first = agent.ask("get_state")["sessionId"]
        assert agent.expect_error("delete_session", sessionPath=first)
        agent.request("new_session")
        agent.run("list the files")
        rows = agent.ask("list_sessions")["sessions"]
        assert [row["id"] for row in rows] == [agent.ask("get_state")["sessionId"], first]
        assert not any("path" in row for row in rows)
        assert [row["id"] for row in agent.ask("list_sessions", search="QUETZ")["sessions"]] == [first]
        assert agent.ask("list_sessions", search="nowhere")["sessions"] == []
        agent.request("switch_session", sessionPath=first)
        assert agent.ask("get_state")["sessionId"] == first
        agent.run("and now again")
        gone = rows[0]["id"]
        assert agent.ask("delete_session", sessionPath=gone)["id"] == gone
        assert "No session" in agent.expect_error("switch_session", sessionPath=gone)
        forked = agent.ask("get_fork_messages")["messages"][1]["entryId"]
        agent.request("fork", entryId=forked)
        agent.run("another way")
        copied = agent.ask("get_state")["sessionId"]
    assert not list(folders.agent.glob("sessions/**/*.jsonl"))
    with start("--session", first[:-2]) as agent:
        assert agent.ask("get_state")["sessionId"] == first
        assert any("quetzal" in text for text in texts(agent.ask("get_messages")["messages"]))
    with start("--fork", copied) as agent:
        assert agent.ask("get_state")["sessionId"] not in (first, copied)
    with start("--continue") as agent:
        assert agent.ask("get_state")["messageCount"] > 0


def test_nothing_announced_is_missing_after_the_death_of_a_process(start: Callable[..., RpcProcess], url: str) -> None:
    agent = start()
    agent.run("list the files")
    agent.send({"id": "p", "type": "prompt", "message": "run `sleep 60`"})
    agent.wait(lambda one: one["type"] == "tool_execution_start" and "sleep" in json.dumps(one["args"]))
    agent.kill()
    session_id = run_sql(url, "SELECT session_id FROM pigeon_sessions")[0][0]
    with start("--session", session_id) as again:
        kept = again.ask("get_messages")["messages"]
        assert texts(kept)[: len(texts(announced(agent)))] == texts(announced(agent))
        assert "interrupted" in json.dumps(kept[-1])
        again.run("list the files")
    epochs = [epoch for _, epoch, _, _ in entries(url)]
    assert epochs == sorted(epochs)
    assert [position for position, *_ in entries(url)] == list(range(len(epochs)))


def test_a_database_that_restarts_during_runs_loses_and_doubles_nothing(
    start: Callable[..., RpcProcess], url: str
) -> None:
    with start() as agent:
        for number in range(4):
            start_at = agent.mark()
            agent.send({"id": f"p{number}", "type": "prompt", "message": "list the files, then read notes"})
            agent.wait_event("message_start", start_at)
            end_connections(url)
            agent.wait_end(start_at)
        assert texts(announced(agent)) == texts(messages(url))


def test_an_owner_that_slept_can_write_and_announce_nothing_more(start: Callable[..., RpcProcess], url: str) -> None:
    old = start(lease="1")
    old.run("list the files")
    session_id = old.ask("get_state")["sessionId"]
    seen = len(announced(old))
    old.signal(signal.SIGSTOP)
    try:
        with start("--session", session_id, lease="1") as new:
            new.run("list the files")
            before = entries(url)
            old.send({"id": "late", "type": "prompt", "message": "list the files"})
            old.signal(signal.SIGCONT)
            old.wait(lambda one: "taken over" in json.dumps(one))
            old.response("late")
            assert len(announced(old)) == seen
            assert entries(url) == before
            assert "in use" in old.expect_error("prompt", message="once more")
    finally:
        old.signal(signal.SIGCONT)
        old.kill()


def test_a_session_that_lives_elsewhere_is_only_read(start: Callable[..., RpcProcess], url: str) -> None:
    with start(lease="1") as owner:
        owner.run("list the files")
        session_id = owner.ask("get_state")["sessionId"]
        with start("--session", session_id, lease="1") as reader:
            assert len(reader.ask("get_messages")["messages"]) > 1
            assert "in use" in reader.expect_error("prompt", message="mine")
        owner.run("still mine")


@pytest.mark.parametrize(
    "store", ["postgresql://ada:geheim@127.0.0.1:1/x", "mysql://ada:geheim@h/x", "file:/dev/null/x"]
)
def test_an_unusable_store_ends_the_start_with_one_sentence(folders: AgentFolders, store: str) -> None:
    done = run_pigeon(folders, "-p", "hello", "--model", "demo", "--store", store)
    assert done.code != 0
    assert "geheim" not in done.err
    assert "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not list(folders.agent.glob("sessions/**/*.jsonl"))


def test_one_answer_is_kept_in_the_store_that_the_variable_names(folders: AgentFolders, url: str) -> None:
    done = run_pigeon(folders, "-p", "hello quetzal", "--model", "demo", env={"PIGEON_STORE": url})
    assert done.code == 0
    assert len(texts(messages(url))) == 2


async def test_a_program_gives_its_own_store(folders: AgentFolders, tmp_path: Path) -> None:
    kept = pigeon.FileStore(tmp_path / "kept")

    class OwnStore:
        """Passes every call on, so that nothing of `FileStore` itself is used."""

        def __getattr__(self, name: str) -> Any:
            if name not in ("create", "acquire", "renew", "release", "append", "read", "list", "search", "delete"):
                raise AttributeError(name)
            return getattr(kept, name)

    env = folders.environment()
    async with pigeon.Agent(model="demo", cwd=folders.work, env=env, store=OwnStore()) as agent:
        await agent.run("find the quetzal")
        session_id = (await agent.get_state()).session_id
    stored = await kept.read(session_id)
    for line in stored:
        check_line(line)
    assert [row.session_id for row in await kept.search("quetzal")] == [session_id]
    async with pigeon.Agent(model="demo", cwd=folders.work, env=env, store=OwnStore(), session=session_id) as agent:
        assert len((await agent.get_messages()).messages) >= 2
        found = (await agent.list_sessions(search="quetzal")).sessions
        assert [row.id for row in found] == [session_id]


@pytest.mark.parametrize("seconds", ["0", "soon", "nan", "999999"])
def test_a_lease_that_makes_no_sense_is_refused(folders: AgentFolders, url: str, seconds: str) -> None:
    done = run_pigeon(folders, "-p", "hello", "--model", "demo", "--store", url, "--lease-seconds", seconds)
    assert done.code != 0
    assert "--lease-seconds must be a number from 1 to 3600" in done.err


async def test_files_of_another_folder_are_a_store_too(folders: AgentFolders, tmp_path: Path) -> None:
    env = folders.environment()
    async with pigeon.Agent(model="demo", cwd=folders.work, env=env, store=pigeon.FileStore(tmp_path / "k")) as agent:
        await agent.run("list the files")
        assert str((await agent.get_state()).session_file).startswith(str(tmp_path / "k"))
