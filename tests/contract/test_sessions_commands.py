"""The commands that change and show the conversation: each answer, each refusal, and what is on disk afterwards."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from fakes.model_server import ModelServer, said_in
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import outline, text_of
from support.sessions import OLD, RECORDED

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


@scenario
def first_prompt(stage: Stage) -> Seen:
    """The file of a session before, during and after its first prompt, which fails."""
    before = os.umask(0)
    try:
        agent = stage.start(keeps=True)
    finally:
        os.umask(before)
    file = Path(agent.ask("get_state")["sessionFile"])
    early = file.exists()
    answer = stage.server.fails(400, "no", kind="invalid_request_error")
    agent.send({"type": "prompt", "message": "hello"})
    agent.wait(lambda r: r["type"] == "message_end" and r["message"]["role"] == "user")
    told = lines_of(file)
    answer.wait_arrived()
    agent.wait_end()
    modes = [path.stat().st_mode & 0o777 for path in (file, file.parent, file.parent.parent)]
    return Seen(early=early, told=told, last=lines_of(file)[-1], modes=modes)


@proves("session.first_prompt")
def test_a_session_is_on_disk_from_its_first_prompt_on(first_prompt: Seen) -> None:
    assert not first_prompt.early
    assert first_prompt.told[0]["type"] == "session"
    assert first_prompt.last["message"]["stopReason"] == "error"


@proves("session.before_told")
def test_an_entry_is_on_disk_before_the_host_hears_of_it(first_prompt: Seen) -> None:
    kinds = [entry["type"] for entry in first_prompt.told[1:4]]
    assert kinds == ["model_change", "thinking_level_change", "message"]


@proves("session.private")
def test_sessions_are_private_whatever_the_umask(first_prompt: Seen) -> None:
    assert first_prompt.modes == [0o600, 0o700, 0o700]


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


@scenario
def missing(stage: Stage) -> Seen:
    """Switching to paths without a file, of a session that is kept and of one that is not."""
    tries = {}
    for keeps in (True, False):
        agent = stage.start(keeps=keeps)
        before = agent.ask("get_state")
        targets = (stage.path / "deep" / "er" / "new.jsonl", agent.folders.work / "misspelt.jsonl")
        errors = {str(target): agent.expect_error("switch_session", sessionPath=str(target)) for target in targets}
        stage.server.answers("one")
        agent.run("one")
        after = agent.ask("get_state")
        made = [(stage.path / "deep").exists(), *agent.folders.work.iterdir()]
        tries[keeps] = Seen(before=before, errors=errors, after=after, made=made)
    return Seen(tries=tries)


@proves("switch_session.missing")
def test_a_path_without_a_file_is_refused(missing: Seen) -> None:
    for one in missing.tries.values():
        assert one.errors == {target: f"Session file not found: {target}" for target in one.errors}
        assert one.after.get("sessionFile") == one.before.get("sessionFile")


@proves("switch_session.makes_nothing")
def test_a_switch_that_is_refused_makes_neither_file_nor_folder(missing: Seen) -> None:
    assert [one.made for one in missing.tries.values()] == [[False], [False]]


@scenario
def emptied(stage: Stage) -> Seen:
    """An agent that keeps nothing switches to an empty file."""
    agent = stage.start()
    before = agent.ask("get_state")
    empty = stage.path / "empty.jsonl"
    empty.write_bytes(b"")
    agent.ask("switch_session", sessionPath=os.path.relpath(empty, agent.folders.work))
    file = talk(agent, stage.server, "one")
    ids = (lines_of(empty)[0]["id"], agent.ask("get_state")["sessionId"])
    agent.ask("new_session")
    return Seen(before=before, empty=empty, file=file, ids=ids, later=Path(talk(agent, stage.server, "two")))


@proves("switch_session.empty")
def test_an_empty_file_becomes_a_new_session(emptied: Seen) -> None:
    assert emptied.file == str(emptied.empty)
    assert emptied.ids[0] == emptied.ids[1]


@proves("switch_session.persists")
def test_a_process_that_opens_a_file_keeps_its_sessions_beside_it(emptied: Seen) -> None:
    assert "sessionFile" not in emptied.before
    assert emptied.later.parent == emptied.empty.parent


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
        assert f"version 9 of the format, and this program knows 3: {newer}" in agent.expect_error(kind, **fields), kind
    assert agent.ask("clone") == {"cancelled": False}
    server.answers("go on")
    agent.run("more")
    agent.ask("switch_session", sessionPath=str(newer))
    assert "version 9" in agent.expect_error("prompt", message="more")
    assert len(agent.ask("get_messages")["messages"]) == shown
    agent.close()
    assert newer.read_bytes() == before


WRITING: dict[str, dict[str, str]] = {
    "prompt": {"message": "x"},
    "set_session_name": {"name": "x"},
    "compact": {},
    "bash": {"command": "echo"},
}


@scenario
def unusable(stage: Stage) -> Seen:
    """Switching to a page, to a session whose folder is gone, to a folder, a pipe, and below a file."""
    agent = stage.start(keeps=True)
    talk(agent, stage.server, "one")
    before = agent.ask("get_state")
    page = stage.path / "page.jsonl"
    page.write_text("# not a session\n")
    page.chmod(0o644)
    invalid = agent.expect_error("switch_session", sessionPath=str(page))
    kept = (page.read_text(), page.stat().st_mode & 0o777)
    gone = recorded(stage.path, cwd="/nowhere/at all")
    raw = gone.read_bytes()
    no_folder = agent.expect_error("switch_session", sessionPath=str(gone))
    pipe = stage.path / "pipe.jsonl"
    os.mkfifo(pipe)
    no_files = {path: agent.expect_error("switch_session", sessionPath=str(path)) for path in (stage.path, pipe)}
    below = agent.expect_error("switch_session", sessionPath=str(page / "below.jsonl"))
    after = agent.ask("get_state")
    file = talk(agent, stage.server, "two")
    return Seen(
        work=agent.folders.work, page=page, invalid=invalid, kept=kept, gone=gone, is_same=gone.read_bytes() == raw,
        no_folder=no_folder, no_files=no_files, below=below, before=before, after=after, file=file, texts=texts(agent),
    )  # fmt: skip


@proves("switch_session.invalid")
def test_a_file_that_is_no_session_is_refused_and_left_as_it_is(unusable: Seen) -> None:
    assert unusable.invalid == f"Session file is not a valid pi session: {unusable.page}"
    assert unusable.kept == ("# not a session\n", 0o644)


@proves("switch_session.cwd_gone")
def test_a_session_whose_folder_is_gone_is_refused_with_three_lines(unusable: Seen) -> None:
    assert unusable.no_folder == (
        f"Stored session working directory does not exist: /nowhere/at all\nSession file: {unusable.gone}\n"
        f"Current working directory: {unusable.work}"
    )
    assert unusable.is_same


@proves("switch_session.unreadable")
def test_what_is_no_file_is_refused_with_the_reason(unusable: Seen) -> None:
    for path, refusal in unusable.no_files.items():
        assert refusal == f"Session file cannot be read: {path}: it is not a file"
    assert unusable.below.startswith(("Session file cannot be read", "Session file not found"))


@proves("switch_session.nothing_changes")
def test_a_switch_that_is_refused_changes_nothing(unusable: Seen) -> None:
    assert unusable.after == unusable.before
    assert unusable.file == unusable.before["sessionFile"]
    assert unusable.texts == ["one", "answer one", "two", "answer two"]


@scenario
def of_pi(stage: Stage) -> Seen:
    """Two sessions that pi wrote, opened and continued."""
    agent = stage.start(keeps=True, model=None)
    there = stage.path / "elsewhere"
    there.mkdir()
    found = []
    for name in ("pi-0.73.1.jsonl", "pi-0.87.1.jsonl"):
        agent.ask("switch_session", sessionPath=str(recorded(there, name)))
        state, messages = agent.ask("get_state"), agent.ask("get_messages")["messages"]
        text = agent.ask("get_last_assistant_text")
        folder = agent.ask("bash", command="pwd")["output"].strip()
        asked = stage.server.answers("well")
        agent.run("and then?")
        said = [text for _, text in said_in(asked.request)]
        found.append(Seen(state=state, messages=messages, text=text, folder=folder, said=said))
    return Seen(there=str(there), found=found)


@proves("switch_session.restores")
def test_model_level_and_name_of_the_other_session_are_restored(of_pi: Seen) -> None:
    for one in of_pi.found:
        state = one.state
        assert (state["model"]["id"], state["thinkingLevel"], state["sessionName"]) == ("fake-1", "high", "the notes")


@proves("switch_session.cwd")
def test_commands_work_in_the_folder_of_the_other_session(of_pi: Seen) -> None:
    assert [one.folder for one in of_pi.found] == [of_pi.there] * 2


@proves("session.reads_pi")
def test_sessions_that_pi_wrote_continue_as_they_are(of_pi: Seen) -> None:
    for one in of_pi.found:
        assert one.state["messageCount"] == len(one.messages)
        assert [message["role"] for message in one.messages[:2]] == ["compactionSummary", "assistant"]
        assert text_of(one.messages[-1]) == "After it all."
        assert one.text == {"text": "After it all."}
        assert "THE SUMMARY" in one.said[0]
        assert one.said[-1].endswith("and then?")


@scenario
def bare(stage: Stage) -> Seen:
    """A session whose header has no folder and that has no thinking level."""
    path = stage.path / "old.jsonl"
    user = {"role": "user", "content": "hello", "timestamp": 1}
    path.write_text(
        '{"type":"session","version":3,"id":"abc","timestamp":"2025-01-01T00:00:00.000Z"}\n'
        + json.dumps({"type": "message", "id": "a", "parentId": None, "timestamp": "x", "message": user})
    )
    agent = stage.start("--session", str(path), keeps=True)
    state = agent.ask("get_state")
    folder = agent.ask("bash", command="pwd")["output"].strip()
    return Seen(state=state, folder=folder, work=str(agent.folders.work), kept=lines_of(path))


@proves("session.no_cwd")
def test_a_header_without_a_folder_means_the_folder_of_the_process(bare: Seen) -> None:
    assert (bare.state["sessionId"], bare.state["messageCount"]) == ("abc", 1)
    assert bare.folder == bare.work


@proves("session.thinking_recorded")
def test_a_session_without_a_thinking_level_gets_the_present_one_on_record(bare: Seen) -> None:
    kinds = [entry["type"] for entry in bare.kept]
    assert kinds == ["session", "message", "thinking_level_change", "message"]
    assert bare.kept[2]["thinkingLevel"] == bare.state["thinkingLevel"]


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


@scenario
def strange(stage: Stage) -> Seen:
    """A session with an entry that nobody knows, continued and copied."""
    raw = (RECORDED / "pi-0.87.1.jsonl").read_bytes()
    leaf = lines_of(RECORDED / "pi-0.87.1.jsonl")[-1]["id"]
    entry = (
        b'{"type":"from_the_future", "id":"ffff0001", "parentId":"%s", "timestamp":"2026-11-15T22:15:00.000Z",'
        b' "message":"not an object", "n":1.50, "deep":{"\\u00e9":[ 1 ]}}\n' % leaf.encode()
    )
    path = stage.path / "strange.jsonl"
    path.write_bytes(raw + entry)
    agent = stage.start("--session", str(path), keeps=True)
    told, lines = agent.ask("get_entries"), lines_of(path)[1:]
    talk(agent, stage.server, "on")
    later = path.read_bytes()
    agent.ask("clone")
    copy = Path(agent.ask("get_state")["sessionFile"])
    return Seen(told=told, lines=lines, raw=raw + entry, later=later, path=path, copy=copy, copied=copy.read_bytes(),
                whole=path.read_bytes())  # fmt: skip


@proves("get_entries.raw")
def test_every_entry_is_shown_as_it_is_kept(strange: Seen) -> None:
    assert strange.told["entries"][-1]["id"] == strange.told["leafId"] == "ffff0001"
    assert strange.told["entries"] == strange.lines


@proves("session.unknown_kept")
def test_what_nobody_knows_is_kept_byte_for_byte(strange: Seen) -> None:
    assert strange.later.startswith(strange.raw)
    assert strange.copy != strange.path
    assert strange.copied.split(b"\n", 1)[1] == strange.whole.split(b"\n", 1)[1]


@scenario
def forked(stage: Stage) -> Seen:
    """A fork of a session with labels on two branches, and a clone of the fork."""
    agent, server = stage.start(keeps=True), stage.server
    empty = agent.expect_error("clone")
    file = talk(agent, server, "one", "two")
    entries = agent.ask("get_entries")["entries"]
    by_text = {text_of(entry["message"]): entry["id"] for entry in entries if entry["type"] == "message"}
    agent.ask("navigate_tree", entryId=by_text["answer one"], label="here")
    agent.ask("navigate_tree", entryId=by_text["answer two"], label="there")
    agent.ask("navigate_tree", entryId=by_text["answer one"])
    talk(agent, server, "two again")
    before = Path(file).read_bytes()
    last = agent.ask("get_fork_messages")["messages"][-1]
    made = agent.ask("fork", entryId=last["entryId"])
    after = Path(file).read_bytes()
    copy = agent.ask("get_state")["sessionFile"]
    header, *copied = lines_of(copy)
    there = texts(agent)
    cloned = agent.ask("clone")
    clone = agent.ask("get_state")["sessionFile"]
    clone_header, *clone_lines = lines_of(clone)
    return Seen(
        empty=empty, file=file, last=last, made=made, before=before, after=after, copy=copy, header=header,
        copied=copied, there=there, cloned=cloned, clone=clone, clone_header=clone_header, clone_lines=clone_lines,
        continued=talk(agent, server, "three"),
    )  # fmt: skip


@proves("fork.relinks")
def test_the_entries_of_a_fork_hang_on_each_other_without_a_gap(forked: Seen) -> None:
    assert forked.last["text"] == "two again"
    assert forked.made == {"text": "two again", "cancelled": False}
    assert forked.header["parentSession"] == forked.file
    assert [entry["parentId"] for entry in forked.copied] == [None, *(entry["id"] for entry in forked.copied[:-1])]
    assert forked.there == ["one", "answer one"]


@proves("fork.labels")
def test_labels_of_what_a_fork_has_are_at_its_end_and_others_left_out(forked: Seen) -> None:
    assert [entry["label"] for entry in forked.copied if entry["type"] == "label"] == ["here"]
    assert forked.copied[-1]["type"] == "label"


@proves("fork.untouched")
def test_a_session_that_is_forked_stays_as_it_is(forked: Seen) -> None:
    assert forked.after == forked.before


@proves("clone.response")
def test_a_clone_is_a_copy_of_the_active_branch_that_continues(forked: Seen) -> None:
    assert forked.cloned == {"cancelled": False}
    assert forked.clone != forked.copy
    assert forked.clone_lines == forked.copied
    assert forked.clone_header["parentSession"] == forked.copy
    assert forked.continued == forked.clone


@proves("clone.empty")
def test_there_is_nothing_to_clone_before_the_first_message(forked: Seen) -> None:
    assert forked.empty == "Cannot clone session: no current entry selected"


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


@scenario
def named(stage: Stage) -> Seen:
    """A name of several lines, given before the first message, and two that are none."""
    agent = stage.start(keeps=True)
    mark = agent.mark()
    answer = agent.ask("set_session_name", name="  a\r\n\nlong\nname ")
    words = outline(agent.since(mark))
    event = agent.wait_event("session_info_changed")
    refusals = [agent.expect_error("set_session_name", name=bad) for bad in ("", "  \n ")]
    state = agent.ask("get_state")
    return Seen(answer=answer, words=words, event=event, refusals=refusals, state=state,
                lines=lines_of(talk(agent, stage.server, "one")))  # fmt: skip


@proves("set_session_name.folded")
def test_a_name_is_trimmed_and_put_on_one_line(named: Seen) -> None:
    assert named.answer is None
    assert named.state["sessionName"] == "a long name"
    assert named.refusals == ["Session name cannot be empty"] * 2


@proves("set_session_name.event")
def test_a_name_is_told_before_the_answer(named: Seen) -> None:
    assert named.words == ["session_info_changed", "response:set_session_name"]
    assert named.event["name"] == "a long name"


@proves("set_session_name.on_record")
def test_a_name_that_was_given_before_the_first_message_is_kept(named: Seen) -> None:
    assert [entry["name"] for entry in named.lines if entry["type"] == "session_info"] == ["a long name"]


@scenario
def deleted(stage: Stage) -> Seen:
    """A session is found by its id, and deleted once it is left."""
    agent = stage.start(keeps=True)
    file = talk(agent, stage.server, "one")
    session = agent.ask("get_state")["sessionId"]
    found = agent.ask("list_sessions", sessionId=session)["sessions"]
    part = agent.ask("list_sessions", sessionId=session[:-1])
    searched = [agent.ask("list_sessions", search=words)["sessions"] for words in ("ON", "on absent")]
    in_use = agent.expect_error("delete_session", sessionPath=file)
    agent.ask("new_session")
    left = agent.ask("list_sessions", sessionId=session)["sessions"]
    answer = agent.ask("delete_session", sessionPath=file)
    after = agent.ask("list_sessions", sessionId=session)
    trash = list((agent.folders.agent / "trash").iterdir())
    none = [agent.expect_error("delete_session", sessionPath=str(path)) for path in (file, agent.folders.work)]
    return Seen(file=file, session=session, found=found, part=part, in_use=in_use, left=left, answer=answer,
                after=after, trash=trash, none=none, searched=searched)  # fmt: skip


@proves("list_sessions.id")
def test_a_session_is_found_by_exactly_its_id_with_whether_it_is_written(deleted: Seen) -> None:
    assert [(row["path"], row["inUse"]) for row in deleted.found] == [(deleted.file, True)]
    assert deleted.part == {"sessions": []}
    assert deleted.left[0]["inUse"] is False


@proves("list_sessions.search")
def test_a_session_is_found_by_the_beginnings_of_words_of_a_message(deleted: Seen) -> None:
    assert [[row["id"] for row in rows] for rows in deleted.searched] == [[deleted.session], []]


@proves("delete_session.trash")
def test_a_session_that_nobody_writes_is_moved_to_the_trash(deleted: Seen) -> None:
    assert "End it first" in deleted.in_use
    assert deleted.answer["id"] == deleted.session
    assert deleted.after == {"sessions": []}
    assert len(deleted.trash) == 1
    assert all("There is no session" in error for error in deleted.none)


@scenario
def listed(stage: Stage) -> Seen:
    """Five sessions of this project and one of another, among files that are none."""
    agent = stage.start(keeps=True)
    none = agent.ask("list_sessions")
    made = []
    for number in range(5):
        file = Path(talk(agent, stage.server, f"question {number}"))
        if number == 1:
            agent.ask("set_session_name", name="the second")
        os.utime(file, ns=(0, (1_700_000_000 + number) * 10**9))
        made.append(str(file))
        agent.ask("new_session", parentSession=made[0])
    folder = Path(made[0]).parent
    (folder / "broken.jsonl").write_text("not a session")
    (folder / "dangling.jsonl").symlink_to(stage.path / "nowhere")
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
    rows = {row["path"]: row for row in agent.ask("list_sessions")["sessions"]}
    everywhere = [row["path"] for row in agent.ask("list_sessions", scope="all")["sessions"]]
    refusals = [agent.expect_error("list_sessions", limit=limit) for limit in (0, 501)]
    return Seen(none=none, made=made, other=str(other / "pi-0.87.1.jsonl"), pages=pages, rows=rows,
                everywhere=everywhere, refusals=refusals)  # fmt: skip


@proves("list_sessions.pages")
def test_sessions_are_listed_a_page_at_a_time_newest_first(listed: Seen) -> None:
    assert listed.none == {"sessions": []}
    assert [path for page in listed.pages for path in page] == listed.made[::-1]
    assert max(map(len, listed.pages)) == 2


@proves("list_sessions.rows")
def test_a_row_has_what_there_is_to_say_of_a_session(listed: Seen) -> None:
    first, second, last = (listed.rows[listed.made[number]] for number in (0, 1, 4))
    assert set(first) == {"path", "id", "cwd", "created", "modified", "firstMessage"}
    assert (second["name"], second["parentSession"]) == ("the second", listed.made[0])
    assert (last["firstMessage"], last["modified"]) == ("question 4", "2023-11-14T22:13:24.000Z")


@proves("list_sessions.scope")
def test_sessions_of_this_project_or_of_all_are_listed(listed: Seen) -> None:
    assert listed.everywhere == [*listed.made[::-1], listed.other]


@proves("list_sessions.limit")
def test_a_limit_that_is_too_small_or_too_large_is_refused(listed: Seen) -> None:
    assert all('"limit"' in refusal for refusal in listed.refusals)


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
