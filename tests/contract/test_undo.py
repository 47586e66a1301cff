"""Undo over the protocol: checkpoints, previews, what is restored, and who is told."""

from __future__ import annotations

from typing import Any

from fakes.model_server import Call, ModelServer, said_in
from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import text_of

Record = dict[str, Any]
COMMAND = "printf two > a.txt; rm b.txt; mkdir -p made/empty; chmod 4711 tool; printf x > made/c.txt"


def prompt(agent: RpcProcess, server: ModelServer, message: str, *calls: Call) -> None:
    """A prompt in which the model makes these calls."""
    for call in calls:
        server.answers(call)
    server.answers("done")
    agent.run(message)


def paths(rows: list[Record]) -> list[tuple[str, str]]:
    return [(row["path"], row.get("change") or row["reason"]) for row in rows]


@scenario
def undone(stage: Stage) -> Seen:
    """Two prompts that change files, an undo of both, what the model is told of it, and a redo."""
    agent, server = stage.start(keeps=True), stage.server
    folder = stage.folders.work
    (folder / "a.txt").write_text("one")
    (folder / "b.txt").write_text("bee")
    (folder / "tool").write_text("tool")
    (folder / "tool").chmod(0o640)
    (folder / ".gitignore").write_text("*.log\n")
    none = agent.ask("get_checkpoints")
    nothing = agent.expect_error("undo")
    outside = stage.path / "outside.txt"
    write = [Call("write", {"path": path, "content": "w"}) for path in ("new.txt", "k.log", str(outside))]
    prompt(agent, server, "first", Call("bash", {"command": COMMAND}), *write)
    prompt(agent, server, "only talk")
    prompt(agent, server, "second", Call("write", {"path": "a.txt", "content": "three"}))
    (folder / "made" / "c.txt").write_text("a person's")
    listed = agent.ask("get_checkpoints")["checkpoints"]
    changes = agent.ask("get_changes")["files"]
    unknown = agent.expect_error("undo", checkpoint="nobody")
    preview = agent.ask("preview_undo", checkpoint=listed[0]["id"])
    start = agent.mark()
    done = agent.ask("undo", checkpoint=listed[0]["id"])
    event = agent.wait_event("files_restored", start)
    there = {name: (folder / name).read_text() for name in ("a.txt", "b.txt", "made/c.txt", "k.log")}
    mode = (folder / "tool").stat().st_mode & 0o7777
    after = agent.ask("get_checkpoints")["checkpoints"]
    changes_left = agent.ask("get_changes")["files"]
    forced = agent.ask("undo", force=True)
    gone = not (folder / "made").exists()
    agent.ask("redo")
    back = (folder / "made" / "c.txt").read_text()
    redone = agent.ask("redo")
    nothing_to_redo = agent.expect_error("redo")
    again = (folder / "a.txt").read_text()
    agent.ask("undo", files=["a.txt"])
    alone = ((folder / "a.txt").read_text(), (folder / "b.txt").exists())
    prompt(agent, server, "third")
    no_more = agent.expect_error("redo")
    told = said_in(server.requests[-1])
    entries = agent.ask("get_entries")["entries"]
    prompts = {entry["id"]: text_of(entry["message"]) for entry in entries if entry["type"] == "message"}
    return Seen(
        none=none, nothing=nothing, listed=listed, unknown=unknown, preview=preview, done=done, event=event,
        there=there, mode=mode, after=after, forced=forced, gone=gone, back=back, redone=redone, again=again,
        nothing_to_redo=nothing_to_redo, alone=alone, no_more=no_more, told=told, prompts=prompts,
        outside=str(outside), changes=changes, changes_left=changes_left,
    )  # fmt: skip


@proves("undo.checkpoints")
def test_each_prompt_that_changed_files_has_a_checkpoint(undone: Seen) -> None:
    assert undone.none == {"checkpoints": []}
    assert [(undone.prompts[row["entryId"]], row["text"], row["undone"]) for row in undone.listed] == [
        ("first", "first", False),
        ("second", "second", False),
    ]
    assert paths(undone.listed[0]["files"]) == [
        ("a.txt", "change"),
        ("b.txt", "delete"),
        ("made/c.txt", "create"),
        ("new.txt", "create"),
        ("tool", "change"),
    ]


@proves("undo.preview")
def test_a_preview_says_what_would_be_done_left_alone_and_is_not_covered(undone: Seen) -> None:
    assert paths(undone.preview["files"]) == [
        ("a.txt", "change"),
        ("b.txt", "create"),
        ("new.txt", "delete"),
        ("tool", "change"),
    ]
    assert [row["path"] for row in undone.preview["conflicts"]] == ["made/c.txt"]
    assert paths(undone.preview["notCovered"]) == [(undone.outside, "outside"), ("k.log", "ignored")]
    assert "-three\n" in undone.preview["diff"]
    assert "+bee\n" in undone.preview["diff"]
    assert "old mode 104711\nnew mode 100640\n" in undone.preview["diff"]


@proves("undo.restores")
def test_undo_restores_content_and_modes_and_leaves_alone_what_others_have_changed(undone: Seen) -> None:
    assert undone.done["files"] == undone.preview["files"]
    assert undone.done["conflicts"] == undone.preview["conflicts"]
    assert undone.there == {"a.txt": "one", "b.txt": "bee", "made/c.txt": "a person's", "k.log": "w"}
    assert undone.mode == 0o640
    assert undone.after[1]["undone"]


@proves("undo.files_restored")
def test_clients_hear_of_it_and_the_model_is_told_with_the_next_request(undone: Seen) -> None:
    assert undone.event["checkpoint"] == undone.listed[0]["id"]
    assert undone.event["files"] == undone.done["files"]
    notice = next(text for role, text in undone.told if "reverted" in text)
    assert "a.txt, b.txt, new.txt, tool" in notice


@proves("undo.force")
def test_force_overwrites_and_redo_brings_that_back(undone: Seen) -> None:
    assert paths(undone.forced["files"]) == [("made/c.txt", "delete")]
    assert undone.gone
    assert undone.back == "a person's"


@proves("undo.redo")
def test_redo_takes_an_undo_back_until_the_next_prompt(undone: Seen) -> None:
    assert paths(undone.redone["files"])[:2] == [("a.txt", "change"), ("b.txt", "delete")]
    assert undone.again == "three"
    assert "nothing to redo" in undone.nothing_to_redo
    assert "nothing to redo" in undone.no_more


@proves("undo.files")
def test_single_files_can_be_undone(undone: Seen) -> None:
    assert undone.alone == ("two", False)


@proves("undo.refused")
def test_undo_without_a_checkpoint_is_refused(undone: Seen) -> None:
    assert "nothing to undo" in undone.nothing
    assert 'There is no checkpoint "nobody"' in undone.unknown


@proves("get_changes.commands")
def test_changes_of_commands_are_listed_without_those_of_others_and_what_was_undone(undone: Seen) -> None:
    assert [row["path"] for row in undone.changes] == [
        "a.txt", "b.txt", "k.log", "made/c.txt", "new.txt", "tool", undone.outside
    ]  # fmt: skip
    assert [row["path"] for row in undone.changes_left] == ["k.log", "made/c.txt", undone.outside]


@scenario
def went_back(stage: Stage) -> Seen:
    """Moves in the conversation that take the files along."""
    agent, server = stage.start(keeps=True), stage.server
    file = stage.folders.work / "a.txt"
    file.write_text("zero")
    for number, word in enumerate(("one", "two")):
        prompt(agent, server, f"prompt {number}", Call("bash", {"command": f"printf {word} > a.txt"}))
    entries = agent.ask("get_entries")
    ids = {text_of(entry["message"]): entry["id"] for entry in entries["entries"] if entry["type"] == "message"}
    agent.ask("navigate_tree", entryId=ids["prompt 1"])
    kept = file.read_text()
    agent.ask("navigate_tree", entryId=entries["leafId"])
    files = agent.ask("navigate_tree", entryId=ids["prompt 1"], restore="files")
    only_files = (file.read_text(), files["leafId"] != entries["leafId"])
    agent.ask("redo")
    both = agent.ask("navigate_tree", entryId=ids["prompt 0"], restore="both")
    both_text = (both["text"], file.read_text())
    prompt(agent, server, "other", Call("bash", {"command": "printf other > a.txt"}))
    agent.ask("navigate_tree", entryId=entries["leafId"], restore="both")
    forth = file.read_text()
    forked = agent.ask("fork", entryId=ids["prompt 1"], restore="both")
    wrong = agent.expect_error("navigate_tree", entryId=ids["prompt 0"], restore="all")
    return Seen(
        kept=kept, only_files=only_files, both=both_text, forth=forth, forked=forked["text"], left=file.read_text(),
        wrong=wrong,
    )  # fmt: skip


@proves("navigate_tree.restore")
def test_files_go_along_with_the_conversation_if_that_is_asked_for(went_back: Seen) -> None:
    assert went_back.kept == "two"
    assert went_back.only_files == ("one", True)
    assert went_back.both == ("prompt 0", "zero")
    assert went_back.forth == "two"
    assert "restore" in went_back.wrong


@proves("fork.restore")
def test_files_go_along_with_a_fork_if_that_is_asked_for(went_back: Seen) -> None:
    assert (went_back.forked, went_back.left) == ("prompt 1", "one")


@proves("undo.running")
def test_undo_is_refused_during_a_run(start: Start, server: ModelServer) -> None:
    agent = start()
    server.answers(Call("bash", {"command": "printf x > x; sleep 60"}))
    begun = agent.mark()
    agent.ask("prompt", message="go")
    agent.wait_event("tool_execution_start", begun)
    assert "running" in agent.expect_error("undo")
    agent.ask("abort")
    agent.wait_end(begun)


@proves("undo.off")
def test_where_there_is_no_undo_one_notice_says_why(start: Start, server: ModelServer, folders: AgentFolders) -> None:
    agent = start(settings={"undo": {"maxFiles": 3}})
    for number in range(5):
        (folders.work / f"{number}.txt").write_text("x")
    begun = agent.mark()
    for name in ("six", "seven"):
        prompt(agent, server, name, Call("write", {"path": f"{name}.txt", "content": name}))
    listed = agent.ask("get_checkpoints")
    notices = [one["message"] for one in agent.since(begun, "extension_ui_request") if one["method"] == "notify"]
    assert len(notices) == 1
    assert "undo" in notices[0]
    assert "more than 3 files" in notices[0]
    assert listed == {"checkpoints": [], "off": notices[0]}
    assert agent.expect_error("undo") == notices[0]


@proves("undo.disabled")
def test_undo_can_be_switched_off(start: Start, server: ModelServer, folders: AgentFolders) -> None:
    agent = start(settings={"undo": {"enabled": False}})
    begun = agent.mark()
    prompt(agent, server, "go", Call("bash", {"command": "echo x > x"}))
    assert agent.ask("get_checkpoints")["off"] == "undo is switched off (setting undo.enabled)"
    assert not agent.since(begun, "extension_ui_request")
    assert not list(folders.home.rglob("checkpoints"))
