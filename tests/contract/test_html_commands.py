"""Commands for programs that show a conversation: its entries as HTML, single texts, search, branches."""

from __future__ import annotations

import os
import re
from typing import Any

from fakes.model_server import Call, ModelServer
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario


def talk(agent: RpcProcess, server: ModelServer, *messages: str) -> None:
    for message in messages:
        server.answers(f"answer to *{message}*")
        agent.run(message)


def words(page: dict[str, Any]) -> str:
    """What a reader sees of the pieces."""
    return re.sub(r"<[^>]+>", "", "".join(piece["html"] for piece in page["pieces"]))


@proves("get_html.newest")
def test_entries_come_as_html_a_window_at_a_time(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    empty = agent.ask("get_html")
    assert all("<article" not in piece["html"] for piece in empty["pieces"])
    assert not empty["moreBefore"]
    server.answers(Call("bash", {"command": "echo from-the-tool"}))
    talk(agent, server, "one")
    talk(agent, server, "two", "three")
    whole = agent.ask("get_html", limit=500)
    assert "<em>one</em>" in "".join(piece["html"] for piece in whole["pieces"])
    assert "from-the-tool" in words(whole)
    assert not whole["moreBefore"]
    assert whole["settledId"] == whole["leafId"]
    ids = [piece["entryId"] for piece in whole["pieces"]]
    newest = agent.ask("get_html", limit=2)
    assert [piece["entryId"] for piece in newest["pieces"]] == ids[-2:]
    assert newest["moreBefore"]
    before = agent.ask("get_html", before=newest["firstId"], limit=2)
    assert [piece["entryId"] for piece in before["pieces"]] == ids[-4:-2]
    assert before["moreAfter"]
    after = agent.ask("get_html", after=before["settledId"])
    assert [piece["entryId"] for piece in after["pieces"]] == ids[-2:]
    assert ids[-4] in [piece["entryId"] for piece in agent.ask("get_html", around=ids[-4], limit=3)["pieces"]]
    shown, first = [], None
    while True:
        page = agent.ask("get_html", limit=1, **({"before": first} if first else {}))
        shown[:0] = [piece["entryId"] for piece in page["pieces"]]
        first = page["firstId"]
        if not page["moreBefore"]:
            break
    assert shown == ids
    assert "nowhere" in agent.expect_error("get_html", after="nowhere")


@proves("get_html.source")
def test_messages_come_as_markdown_too_where_that_is_asked_for(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    talk(agent, server, "three")
    assert not any("markdown" in piece for piece in agent.ask("get_html", limit=2)["pieces"])
    written = agent.ask("get_html", limit=2, source=True)["pieces"]
    assert [piece["markdown"] for piece in written] == ["three", "answer to *three*"]


@proves("get_html.running")
def test_an_answer_whose_tool_runs_is_given_again_with_the_result(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    pipe = agent.folders.work / "pipe"
    os.mkfifo(pipe)
    server.answers("Reading.", Call("bash", {"command": "cat pipe"}))
    server.answers("Done.")
    agent.ask("prompt", message="read it")
    agent.wait_event("tool_execution_start")
    page = agent.ask("get_html")
    assert "Reading." in words(page)
    assert "no result" in words(page)
    assert page["settledId"] == page["pieces"][-2]["entryId"]
    pipe.write_text("out of the pipe")
    agent.wait_event("agent_settled")
    again = agent.ask("get_html", after=page["settledId"])
    assert again["pieces"][0]["entryId"] == page["pieces"][-1]["entryId"]
    assert "out of the pipe" in words(again)
    assert again["settledId"] == again["leafId"]


@proves("get_html.masked")
def test_what_looks_like_a_secret_is_masked_in_html(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    secret = "ghp_" + "a1B2" * 9
    talk(agent, server, f"my token is {secret}")
    assert secret not in str(agent.ask("get_html"))
    assert secret not in str(agent.ask("render_html", markdown=f"`{secret}`"))


@proves("render_html.one")
def test_a_single_text_diff_or_call_comes_as_html(agent: RpcProcess) -> None:
    assert "<strong>bold</strong>" in agent.ask("render_html", markdown="**bold** <script>")["html"]
    assert "<script" not in agent.ask("render_html", markdown="**bold** <script>")["html"]
    patch = "--- a\n+++ b\n@@ -1,1 +1,1 @@\n-old\n+new\n"
    assert '<del data-n="1">' in agent.ask("render_html", diff=patch)["html"]
    assert "ls -l" in agent.ask("render_html", call={"name": "bash", "arguments": {"command": "ls -l"}})["html"]
    assert "one of" in agent.expect_error("render_html")
    assert "one of" in agent.expect_error("render_html", markdown="a", diff="b")


@scenario
def searched(stage: Stage) -> Seen:
    """Two branches: texts are looked for on the active one, and both are listed."""
    agent = stage.start(keeps=True)
    talk(agent, stage.server, "one Needle", "two")
    first = agent.ask("get_fork_messages")["messages"][1]["entryId"]
    left = agent.ask("get_html")["leafId"]
    agent.ask("navigate_tree", entryId=first)
    talk(agent, stage.server, "three needle")
    found, none = agent.ask("find_text", text="NEEDLE"), agent.ask("find_text", text="two")
    one, refusal = agent.ask("find_text", text="needle", limit=1), agent.expect_error("find_text", text=" ")
    branches = agent.ask("get_branches")["branches"]
    agent.ask("navigate_tree", entryId=branches[1]["leafId"])
    return Seen(found=found["found"], none=none, one=one, refusal=refusal, branches=branches, left=left,
                there=agent.ask("get_html")["leafId"])  # fmt: skip


@proves("find_text.branch")
def test_a_text_is_found_on_the_active_branch_newest_first(searched: Seen) -> None:
    assert [hit["role"] for hit in searched.found] == ["assistant", "user", "assistant", "user"]
    assert "three needle" in searched.found[1]["text"]
    assert searched.none == {"found": [], "more": False}
    assert searched.one["more"]
    assert "empty" in searched.refusal


@proves("get_branches.all")
def test_the_active_branch_and_the_others_are_listed_and_can_be_gone_to(searched: Seen) -> None:
    titles = [(branch["title"], branch["active"]) for branch in searched.branches]
    assert titles == [("one Needle", True), ("two", False)]
    assert searched.there == searched.left


@proves("get_changes.files")
def test_what_tools_have_changed_is_put_together_file_by_file(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    (agent.folders.work / "a.py").write_text("one\ntwo\nthree\n")
    secret = "ghp_" + "a1B2" * 9
    for old, new in (("two", "2"), ("three", secret)):
        server.answers(Call("edit", {"path": "a.py", "edits": [{"oldText": old, "newText": new}]}))
    server.answers(Call("write", {"path": str(agent.folders.work / "new" / "b.py"), "content": "x = 1\n"}))
    before = agent.ask("get_html")["leafId"]
    talk(agent, server, "go")
    files = agent.ask("get_changes")["files"]
    assert [(file["path"], file["added"], file["removed"], file["whole"]) for file in files] == [
        ("a.py", 2, 2, False),
        ("new/b.py", 1, 0, False),
    ]
    assert files[0]["entryId"] in [piece["entryId"] for piece in agent.ask("get_html")["pieces"]]
    (file,) = agent.ask("get_changes", path="./a.py")["files"]
    (patch,) = file["diffs"]
    assert "@@ -1,3 +1,3 @@\n one\n-two\n-three\n+2\n+" in patch
    assert secret not in patch
    (shown,) = agent.ask("get_changes", path="a.py", format="html")["files"][0]["diffs"]
    assert '<del data-n="2">' in shown
    assert "No tool has changed c.py" in agent.expect_error("get_changes", path="c.py")
    agent.ask("navigate_tree", entryId=before)
    assert agent.ask("get_changes")["files"] == []


@proves("find_files.match")
def test_files_are_found_by_letters_of_their_names(start: Start, server: ModelServer) -> None:
    agent = start()
    work = agent.folders.work
    (work / "src").mkdir()
    for name in ("src/parser.py", "src/part one.py", "notes.txt", "parser.log"):
        (work / name).write_text("")
    (work / ".gitignore").write_text("*.log\n")
    assert agent.ask("find_files", text="PARS")["paths"] == ["src/parser.py"]
    assert agent.ask("find_files", text="prone")["paths"] == ["src/part one.py"]
    assert "src/" in agent.ask("find_files")["paths"]
    assert len(agent.ask("find_files", limit=1)["paths"]) == 1
    assert agent.ask("find_files", text="nothing like it")["paths"] == []
    assert "limit" in agent.expect_error("find_files", limit=0)


@proves("find_files.concealed")
def test_files_that_a_search_would_not_show_are_not_offered(start: Start, server: ModelServer) -> None:
    rules = {"deny": ["read(secret/**)", "find(plans*)"], "ask": ["read(private.txt)", "read"]}
    agent = start(settings={"permissions": rules})
    work = agent.folders.work
    (work / "secret").mkdir()
    (work / "keys").symlink_to("secret/key.pem")
    for name in ("secret/key.pem", "plans.md", "private.txt", "notes.txt"):
        (work / name).write_text("")
    shown = agent.ask("find_files", limit=100)["paths"]
    # The question about `read` is about everything: the person who types would answer it.
    assert "notes.txt" in shown
    assert not {"secret/key.pem", "plans.md", "private.txt"} & set(shown)
    assert agent.ask("find_files", text="key.pem")["paths"] == []
    agent.ask("set_permissions", permissions={"deny": ["find"]})
    assert agent.ask("find_files")["paths"] == []


@proves("selection.told")
def test_a_host_that_wants_it_is_told_what_was_chosen(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    talk(agent, server, "one", "two")
    agent.ask("set_model", provider="fake", modelId="fake-2")
    assert agent.ask("hello", features=["selection"])["features"] == ["selection"]
    agent.ask("set_model", provider="fake", modelId="fake-1")
    told = agent.wait_event("selection_changed", by="set_model")
    assert told["model"]["id"] == "fake-1"
    first = agent.ask("get_fork_messages")["messages"][0]["entryId"]
    leaf = agent.ask("navigate_tree", entryId=first)["leafId"]
    told = agent.wait_event("selection_changed", by="navigate_tree")
    assert told["leafId"] == leaf
