"""The commands that change and show the conversation: each answer, each refusal, and what is on disk afterwards."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from fakes.contract_manifest import proves
from fakes.model_server import ModelServer, said_in
from fakes.record_outline import outline, text_of
from fakes.repositories import OLD, RECORDED
from fakes.rpc_process import RpcProcess, Start

Record = dict[str, Any]


def lines_of(file: str | Path) -> list[Record]:
    return [json.loads(line) for line in Path(file).read_bytes().split(b"\n") if line]


def texts(agent: RpcProcess) -> list[str]:
    return [text_of(message) for message in agent.ask("get_messages")["messages"]]


def talk(agent: RpcProcess, server: ModelServer, *messages: str) -> str:
    """Say these things and get an answer to each; the session's file."""
    for message in messages:
        server.answers(f"answer {message}")
        agent.run(message)
    return str(agent.ask("get_state")["sessionFile"])


def recorded(folder: Path, name: str = "pi-0.87.1.jsonl", cwd: str | None = None) -> Path:
    """A session that pi wrote, in this folder."""
    path = folder / name
    path.write_bytes((RECORDED / name).read_bytes().replace(b'"cwd":"/"', f'"cwd":"{cwd or folder}"'.encode(), 1))
    return path


@proves("session.first_prompt", "session.before_told", "session.private")
def test_a_session_is_on_disk_from_its_first_prompt_on(start: Start, server: ModelServer) -> None:
    before = os.umask(0)
    try:
        agent = start(keeps=True)
    finally:
        os.umask(before)
    file = Path(agent.ask("get_state")["sessionFile"])
    assert not file.exists()
    answer = server.fails(400, "no", kind="invalid_request_error")
    agent.send({"type": "prompt", "message": "hello"})
    agent.wait(lambda r: r["type"] == "message_end" and r["message"]["role"] == "user")
    header, *entries = lines_of(file)
    assert header["type"] == "session"
    assert [entry["type"] for entry in entries[:3]] == ["model_change", "thinking_level_change", "message"]
    answer.wait_arrived()
    agent.wait_end()
    assert lines_of(file)[-1]["message"]["stopReason"] == "error"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert file.parent.parent.stat().st_mode & 0o777 == 0o700


@proves("new_session.parent_verbatim")
def test_a_new_session_keeps_any_parent_and_an_empty_one_is_none(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    first = talk(agent, server, "one")
    for given, kept in (("not/checked at all", "not/checked at all"), ("", None)):
        assert agent.ask("new_session", parentSession=given) == {"cancelled": False}
        state = agent.ask("get_state")
        assert (state["messageCount"], Path(state["sessionFile"]).exists()) == (0, False)
        file = talk(agent, server, "two")
        assert lines_of(file)[0].get("parentSession") == kept
        assert Path(file).parent == Path(first).parent


@proves("switch_session.missing", "switch_session.makes_nothing")
@pytest.mark.parametrize("keeps", [True, False])
def test_a_path_without_a_file_is_refused_and_makes_nothing(
    start: Start, server: ModelServer, tmp_path: Path, keeps: bool
) -> None:
    agent = start(keeps=keeps)
    before = agent.ask("get_state")
    for target in (tmp_path / "deep" / "er" / "new.jsonl", agent.folders.work / "misspelt.jsonl"):
        assert agent.refused("switch_session", sessionPath=str(target)) == f"Session file not found: {target}"
    server.answers("one")
    agent.run("one")
    state = agent.ask("get_state")
    assert state.get("sessionFile") == before.get("sessionFile")
    assert not (tmp_path / "deep").exists()
    assert list(agent.folders.work.iterdir()) == []


@proves("switch_session.persists", "switch_session.empty")
def test_an_empty_file_becomes_a_new_session(start: Start, server: ModelServer, tmp_path: Path) -> None:
    agent = start()
    assert "sessionFile" not in agent.ask("get_state")
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    agent.ask("switch_session", sessionPath=os.path.relpath(empty, agent.folders.work))
    assert talk(agent, server, "one") == str(empty)
    assert lines_of(empty)[0]["id"] == agent.ask("get_state")["sessionId"]
    agent.ask("new_session")
    assert Path(talk(agent, server, "two")).parent == empty.parent


@proves("session.newer_version")
def test_a_session_of_a_newer_version_is_read_and_never_written(
    start: Start, server: ModelServer, tmp_path: Path
) -> None:
    newer = recorded(tmp_path, cwd=str(tmp_path))
    header, *rest = newer.read_text("utf-8").splitlines(keepends=True)
    newer.write_text(json.dumps({**json.loads(header), "version": 9}) + "\n" + "".join(rest), "utf-8")
    before = newer.read_bytes()
    agent = start("--session", str(newer), "--name", "x", keeps=True)
    shown = len(agent.ask("get_messages")["messages"])
    assert shown > 0
    for kind, fields in WRITING.items():
        assert f"version 9 of the format, and this program knows 3: {newer}" in agent.refused(kind, **fields), kind
    assert agent.ask("clone") == {"cancelled": False}
    server.answers("go on")
    agent.run("more")
    agent.ask("switch_session", sessionPath=str(newer))
    assert "version 9" in agent.refused("prompt", message="more")
    assert len(agent.ask("get_messages")["messages"]) == shown
    agent.close()
    assert newer.read_bytes() == before


WRITING: dict[str, dict[str, str]] = {
    "prompt": {"message": "x"},
    "set_session_name": {"name": "x"},
    "compact": {},
    "bash": {"command": "echo"},
}


@proves(
    "switch_session.invalid", "switch_session.cwd_gone", "switch_session.unreadable", "switch_session.nothing_changes"
)
def test_a_file_that_cannot_be_used_changes_nothing(start: Start, server: ModelServer, tmp_path: Path) -> None:
    agent = start(keeps=True)
    talk(agent, server, "one")
    before = agent.ask("get_state")
    page = tmp_path / "page.jsonl"
    page.write_text("# not a session\n")
    page.chmod(0o644)
    assert agent.refused("switch_session", sessionPath=str(page)) == f"Session file is not a valid pi session: {page}"
    assert (page.read_text(), page.stat().st_mode & 0o777) == ("# not a session\n", 0o644)
    gone = recorded(tmp_path, cwd="/nowhere/at all")
    raw = gone.read_bytes()
    assert agent.refused("switch_session", sessionPath=str(gone)) == (
        f"Stored session working directory does not exist: /nowhere/at all\nSession file: {gone}\n"
        f"Current working directory: {agent.folders.work}"
    )
    assert gone.read_bytes() == raw
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path, reason in ((tmp_path, "it is not a file"), (tmp_path / "pipe.jsonl", "it is not a file")):
        refusal = agent.refused("switch_session", sessionPath=str(path))
        assert refusal == f"Session file cannot be read: {path}: {reason}"
    below = agent.refused("switch_session", sessionPath=str(page / "below.jsonl"))
    assert below.startswith(("Session file cannot be read", "Session file not found"))
    assert agent.ask("get_state") == before
    assert talk(agent, server, "two") == before["sessionFile"]
    assert texts(agent) == ["one", "answer one", "two", "answer two"]


@proves("switch_session.restores", "switch_session.cwd", "session.reads_pi")
def test_a_session_of_pi_is_opened_with_its_model_level_and_folder(
    start: Start, server: ModelServer, tmp_path: Path
) -> None:
    agent = start(keeps=True, model=None)
    there = tmp_path / "elsewhere"
    there.mkdir()
    for name in ("pi-0.73.1.jsonl", "pi-0.87.1.jsonl"):
        agent.ask("switch_session", sessionPath=str(recorded(there, name)))
        state = agent.ask("get_state")
        assert (state["model"]["id"], state["thinkingLevel"], state["sessionName"]) == ("fake-1", "high", "the notes")
        messages = agent.ask("get_messages")["messages"]
        assert state["messageCount"] == len(messages)
        assert [message["role"] for message in messages[:2]] == ["compactionSummary", "assistant"]
        assert text_of(messages[-1]) == "After it all."
        assert agent.ask("get_last_assistant_text") == {"text": "After it all."}
        assert agent.ask("bash", command="pwd")["output"].strip() == str(there)
        asked = server.answers("well")
        agent.run("and then?")
        said = [text for _, text in said_in(asked.request)]
        assert "THE SUMMARY" in said[0]
        assert said[-1].endswith("and then?")


@proves("session.no_cwd", "session.thinking_recorded")
def test_a_header_without_a_folder_means_the_folder_of_the_process(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    user = {"role": "user", "content": "hello", "timestamp": 1}
    path.write_text(
        '{"type":"session","version":3,"id":"abc","timestamp":"2025-01-01T00:00:00.000Z"}\n'
        + json.dumps({"type": "message", "id": "a", "parentId": None, "timestamp": "x", "message": user})
    )
    agent = start("--session", str(path), keeps=True)
    state = agent.ask("get_state")
    assert (state["sessionId"], state["messageCount"]) == ("abc", 1)
    assert agent.ask("bash", command="pwd")["output"].strip() == str(agent.folders.work)
    kept = lines_of(path)
    assert [entry["type"] for entry in kept] == ["session", "message", "thinking_level_change", "message"]
    assert kept[2]["thinkingLevel"] == state["thinkingLevel"]


@proves("session.migrates")
def test_old_versions_are_written_anew_and_go_on(start: Start, server: ModelServer, tmp_path: Path) -> None:
    agent = start(keeps=True)
    for name in ("version-1.jsonl", "version-2.jsonl"):
        path = tmp_path / name
        shutil.copy(OLD / name, path)
        before = lines_of(path)
        agent.ask("switch_session", sessionPath=str(path))
        after = lines_of(path)
        assert after[0] == {**before[0], "version": 3}
        assert [entry["type"] for entry in after[: len(before)]] == [entry["type"] for entry in before]
        assert [entry["parentId"] for entry in after[1:]] == [None, *(entry["id"] for entry in after[1:-1])]
        assert [entry["message"]["role"] for entry in after if entry.get("message", {}).get("customType")] == ["custom"]
        talk(agent, server, "on")
        assert lines_of(path)[: len(after)] == after
    assert texts(agent)[:2] == ["first", "a hook said this"]


@proves("session.unknown_kept", "get_entries.raw")
def test_what_nobody_knows_is_kept_byte_for_byte(start: Start, server: ModelServer, tmp_path: Path) -> None:
    raw = (RECORDED / "pi-0.87.1.jsonl").read_bytes()
    leaf = lines_of(RECORDED / "pi-0.87.1.jsonl")[-1]["id"]
    strange = (
        b'{"type":"from_the_future", "id":"ffff0001", "parentId":"%s", "timestamp":"2026-11-15T22:15:00.000Z",'
        b' "message":"not an object", "n":1.50, "deep":{"\\u00e9":[ 1 ]}}\n' % leaf.encode()
    )
    path = tmp_path / "strange.jsonl"
    path.write_bytes(raw + strange)
    agent = start("--session", str(path), keeps=True)
    told = agent.ask("get_entries")
    assert [entry["id"] for entry in told["entries"]][-1] == told["leafId"] == "ffff0001"
    assert told["entries"] == lines_of(path)[1:]
    talk(agent, server, "on")
    assert path.read_bytes().startswith(raw + strange)
    agent.ask("clone")
    copy = Path(agent.ask("get_state")["sessionFile"])
    assert copy != path
    assert copy.read_bytes().split(b"\n", 1)[1] == path.read_bytes().split(b"\n", 1)[1]


@proves("fork.relinks", "fork.labels", "fork.untouched", "clone.response", "clone.empty", "command.clone")
def test_a_fork_has_its_path_and_its_labels_and_nothing_else(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    assert agent.refused("clone") == "Cannot clone session: no current entry selected"
    file = talk(agent, server, "one", "two")
    entries = agent.ask("get_entries")["entries"]
    by_text = {text_of(entry["message"]): entry["id"] for entry in entries if entry["type"] == "message"}
    agent.ask("navigate_tree", entryId=by_text["answer one"], label="here")
    agent.ask("navigate_tree", entryId=by_text["answer two"], label="there")
    agent.ask("navigate_tree", entryId=by_text["answer one"])
    talk(agent, server, "two again")
    before = Path(file).read_bytes()
    last = agent.ask("get_fork_messages")["messages"][-1]
    assert last["text"] == "two again"
    assert agent.ask("fork", entryId=last["entryId"]) == {"text": "two again", "cancelled": False}
    assert Path(file).read_bytes() == before
    copy = agent.ask("get_state")["sessionFile"]
    header, *copied = lines_of(copy)
    assert header["parentSession"] == file
    assert [entry["parentId"] for entry in copied] == [None, *(entry["id"] for entry in copied[:-1])]
    assert [entry["label"] for entry in copied if entry["type"] == "label"] == ["here"]
    assert copied[-1]["type"] == "label"
    assert texts(agent) == ["one", "answer one"]
    assert agent.ask("clone") == {"cancelled": False}
    again = agent.ask("get_state")
    assert again["sessionFile"] != copy
    assert lines_of(again["sessionFile"])[1:] == copied
    assert lines_of(again["sessionFile"])[0]["parentSession"] == copy
    assert talk(agent, server, "three") == again["sessionFile"]


@proves("fork.memory")
def test_a_conversation_in_memory_forks_in_memory(start: Start, server: ModelServer) -> None:
    agent = start()
    for message in ("one", "two"):
        server.answers(f"answer {message}")
        agent.run(message)
    first, second = agent.ask("get_fork_messages")["messages"]
    assert agent.ask("fork", entryId=second["entryId"])["text"] == "two"
    assert texts(agent) == ["one", "answer one"]
    assert "sessionFile" not in agent.ask("get_state")
    assert agent.ask("branch", entryId=first["entryId"])["text"] == "one"
    assert texts(agent) == []
    assert list(agent.folders.agent.rglob("*.jsonl")) == []


@proves("set_session_name.folded", "set_session_name.event", "set_session_name.on_record")
def test_a_name_is_one_line_and_told_before_the_answer(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    mark = agent.mark()
    assert agent.ask("set_session_name", name="  a\r\n\nlong\nname ") is None
    assert outline(agent.since(mark)) == ["session_info_changed", "response:set_session_name"]
    assert agent.wait_event("session_info_changed")["name"] == "a long name"
    for bad in ("", "  \n "):
        assert agent.refused("set_session_name", name=bad) == "Session name cannot be empty"
    assert agent.ask("get_state")["sessionName"] == "a long name"
    file = talk(agent, server, "one")
    assert [entry["name"] for entry in lines_of(file) if entry["type"] == "session_info"] == ["a long name"]


@proves("list_sessions.id", "delete_session.trash", "command.delete_session")
def test_a_session_is_found_by_its_id_and_deleted(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    file = talk(agent, server, "one")
    session = agent.ask("get_state")["sessionId"]
    [row] = agent.ask("list_sessions", sessionId=session)["sessions"]
    assert (row["path"], row["inUse"]) == (file, True)
    assert agent.ask("list_sessions", sessionId=session[:-1]) == {"sessions": []}
    assert "End it first" in agent.refused("delete_session", sessionPath=file)
    agent.ask("new_session")
    assert agent.ask("list_sessions", sessionId=session)["sessions"][0]["inUse"] is False
    assert agent.ask("delete_session", sessionPath=file)["id"] == session
    assert agent.ask("list_sessions", sessionId=session) == {"sessions": []}
    assert len(list((agent.folders.agent / "trash").iterdir())) == 1
    assert "There is no session" in agent.refused("delete_session", sessionPath=file)
    assert "There is no session" in agent.refused("delete_session", sessionPath=str(agent.folders.work))


@proves("list_sessions.pages", "list_sessions.rows", "list_sessions.scope", "list_sessions.limit")
@proves("command.list_sessions")
def test_sessions_are_listed_a_page_at_a_time(start: Start, server: ModelServer, tmp_path: Path) -> None:
    agent = start(keeps=True)
    assert agent.ask("list_sessions") == {"sessions": []}
    made = []
    for number in range(5):
        file = Path(talk(agent, server, f"question {number}"))
        if number == 1:
            agent.ask("set_session_name", name="the second")
        os.utime(file, ns=(0, (1_700_000_000 + number) * 10**9))
        made.append(str(file))
        agent.ask("new_session", parentSession=made[0])
    folder = Path(made[0]).parent
    (folder / "broken.jsonl").write_text("not a session")
    (folder / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    os.mkfifo(folder / "pipe.jsonl")
    other = agent.folders.agent / "sessions" / "--elsewhere--"
    other.mkdir()
    os.utime(recorded(other), ns=(0, 1_600_000_000 * 10**9))
    pages, cursor = [], None
    while True:
        page = agent.ask("list_sessions", limit=2, **({"cursor": cursor} if cursor else {}))
        pages.append([row["path"] for row in page["sessions"]])
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    assert [path for page in pages for path in page] == made[::-1]
    assert max(map(len, pages)) == 2
    rows = {row["path"]: row for row in agent.ask("list_sessions")["sessions"]}
    assert rows[made[1]]["name"] == "the second"
    assert rows[made[1]]["parentSession"] == made[0]
    assert set(rows[made[0]]) == {"path", "id", "cwd", "created", "modified", "firstMessage"}
    assert rows[made[4]]["firstMessage"] == "question 4"
    assert rows[made[4]]["modified"] == "2023-11-14T22:13:24.000Z"
    everywhere = agent.ask("list_sessions", scope="all")["sessions"]
    assert [row["path"] for row in everywhere] == [*made[::-1], str(other / "pi-0.87.1.jsonl")]
    for limit in (0, 501):
        assert '"limit"' in agent.refused("list_sessions", limit=limit)


@proves("session.symlink")
def test_a_session_behind_a_link_is_the_session(start: Start, server: ModelServer, tmp_path: Path) -> None:
    agent = start(keeps=True)
    file = Path(talk(agent, server, "one"))
    link = tmp_path / "link.jsonl"
    link.symlink_to(file)
    assert agent.ask("switch_session", sessionPath=str(link)) == {"cancelled": False}
    assert texts(agent) == ["one", "answer one"]
    talk(agent, server, "two")
    assert link.is_symlink()
    assert text_of(lines_of(file)[-1]["message"]) == "answer two"
    old = tmp_path / "old.jsonl"
    shutil.copy(OLD / "version-2.jsonl", old)
    link.unlink()
    link.symlink_to(old)
    agent.ask("switch_session", sessionPath=str(link))
    assert link.is_symlink()
    assert lines_of(old)[0]["version"] == 3
    dangling = tmp_path / "dangling.jsonl"
    dangling.symlink_to(tmp_path / "new.jsonl")
    agent.ask("switch_session", sessionPath=str(dangling))
    talk(agent, server, "three")
    assert dangling.is_symlink()
    assert len(lines_of(tmp_path / "new.jsonl")) > 2
