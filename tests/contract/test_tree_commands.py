"""The tree of a conversation: shown, walked, and a branch summarized when it is left."""

from __future__ import annotations

from typing import Any

from fakes.model_server import Hang, ModelServer, said_in
from support.agent_process import RpcProcess
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import text_of

Record = dict[str, Any]


def texts(agent: RpcProcess) -> list[str]:
    return [text_of(message) for message in agent.ask("get_messages")["messages"]]


def talk(agent: RpcProcess, server: ModelServer, *messages: str) -> None:
    """Say these things and get an answer to each."""
    for message in messages:
        server.answers(f"answer {message}")
        agent.run(message)


@scenario
def walked(stage: Stage) -> Seen:
    """Two branches, a label, and back to the beginning."""
    agent, server = stage.start(keeps=True), stage.server
    leaves = (agent.ask("get_tree")["leafId"], agent.ask("get_entries")["leafId"])
    talk(agent, server, "one", "two")
    entries = agent.ask("get_entries")["entries"]
    by_text = {text_of(entry["message"]): entry["id"] for entry in entries if entry["type"] == "message"}
    went_back = agent.ask("navigate_tree", entryId=by_text["two"])
    texts_there = texts(agent)
    talk(agent, server, "other two")
    later = agent.ask("get_entries", since=entries[-1]["id"])
    nothing = agent.ask("get_entries", since=later["leafId"])["entries"]
    unknown = agent.expect_error("get_entries", since="nobody")
    nowhere = agent.expect_error("navigate_tree", entryId="nobody")
    rows = [row["text"] for row in agent.ask("get_fork_messages")["messages"]]
    went_over = agent.ask("navigate_tree", entryId=by_text["answer two"], label="mark")
    all_entries = agent.ask("get_entries")["entries"]
    tree, flat = agent.ask("get_tree"), agent.ask("get_tree", flat=True)
    agent.ask("navigate_tree", entryId=entries[0]["id"])
    return Seen(
        leaves=leaves, by_text=by_text, went_back=went_back, texts_there=texts_there, later=later, nothing=nothing,
        unknown=unknown, nowhere=nowhere, rows=rows, went_over=went_over, entries=all_entries, label=all_entries[-1],
        tree=tree, flat=flat, nodes={node["entry"]["id"]: node for node in _flat(tree["tree"])},
        texts_at_root=texts(agent),
    )  # fmt: skip


@proves("navigate_tree.text")
def test_going_to_a_user_message_makes_its_parent_the_leaf_and_gives_its_text(walked: Seen) -> None:
    assert walked.went_back == {"cancelled": False, "leafId": walked.by_text["answer one"], "text": "two"}
    assert walked.texts_there == ["one", "answer one"]


@proves("navigate_tree.moves")
def test_another_entry_becomes_the_leaf_with_a_label_if_one_is_given(walked: Seen) -> None:
    label = walked.label
    assert walked.went_over == {"cancelled": False, "leafId": label["id"]}
    assert (label["type"], label["targetId"], label["label"]) == ("label", walked.by_text["answer two"], "mark")
    assert walked.texts_at_root == []


@proves("navigate_tree.unknown")
def test_going_nowhere_is_refused(walked: Seen) -> None:
    assert walked.nowhere == "Entry not found: nobody"


@proves("get_tree.flat")
def test_a_flat_tree_has_the_same_nodes_unnested(walked: Seen) -> None:
    assert walked.flat["leafId"] == walked.tree["leafId"]
    assert walked.flat["tree"] == [{**node, "children": []} for node in walked.nodes.values()]


@proves("get_entries.since")
def test_entries_are_given_from_one_on(walked: Seen) -> None:
    assert [text_of(entry["message"]) for entry in walked.later["entries"]] == ["other two", "answer other two"]
    assert walked.nothing == []


@proves("get_entries.unknown")
def test_entries_from_an_unknown_one_on_are_refused(walked: Seen) -> None:
    assert walked.unknown == "Entry not found: nobody"


@proves("get_fork_messages.every_branch")
def test_the_messages_of_every_branch_are_listed_in_their_order(walked: Seen) -> None:
    assert walked.rows == ["one", "two", "other two"]


@proves("get_tree.shape")
def test_the_tree_has_roots_children_by_time_labels_and_the_leaf(walked: Seen) -> None:
    assert walked.leaves[0] == walked.leaves[1]
    assert walked.tree["leafId"] == walked.label["id"]
    assert len(walked.tree["tree"]) == 1
    assert sorted(walked.nodes) == sorted(entry["id"] for entry in walked.entries)
    assert len(walked.nodes) == len(_flat(walked.tree["tree"]))
    marked = walked.nodes[walked.by_text["answer two"]]
    assert (marked["label"], marked["labelTimestamp"]) == ("mark", walked.label["timestamp"])
    fork = walked.nodes[walked.by_text["answer one"]]
    assert [text_of(child["entry"]["message"]) for child in fork["children"]] == ["two", "other two"]


def _flat(nodes: list[Record]) -> list[Record]:
    return [found for node in nodes for found in (node, *_flat(node["children"]))]


@scenario
def left(stage: Stage) -> Seen:
    """A branch is left with a summary: one that fails, one that is stopped, and one that works."""
    agent, server = stage.start(keeps=True), stage.server
    talk(agent, server, "one", "two")
    entry = agent.ask("get_fork_messages")["messages"][1]["entryId"]
    before = agent.ask("get_entries")
    server.fails(400, "cannot", kind="invalid_request_error")
    error = agent.expect_error("navigate_tree", entryId=entry, summarize=True)
    after_error = agent.ask("get_entries")
    gate = server.answers("half", Hang())
    agent.send({"id": "n", "type": "navigate_tree", "entryId": entry, "summarize": True})
    gate.wait_arrived()
    compacting = agent.ask("get_state")["isCompacting"]
    agent.ask("abort")
    stopped = agent.response("n")["data"]
    after_abort = agent.ask("get_entries")
    asked = server.answers("WHAT THE BRANCH DID")
    went = agent.ask("navigate_tree", entryId=entry, summarize=True, customInstructions="colours only")
    added = agent.ask("get_entries")["entries"][-1]
    roles = [message["role"] for message in agent.ask("get_messages")["messages"]]
    later = server.answers("well")
    agent.run("on")
    return Seen(
        before=before, error=error, after_error=after_error, compacting=compacting, stopped=stopped,
        after_abort=after_abort, request="".join(text for _, text in said_in(asked.request)), went=went, added=added,
        roles=roles, later="".join(text for _, text in said_in(later.request)),
    )  # fmt: skip


@proves("navigate_tree.failure")
def test_a_summary_that_fails_is_an_error_and_nothing_has_moved(left: Seen) -> None:
    assert "cannot" in left.error
    assert left.after_error == left.before


@proves("navigate_tree.abort")
def test_a_summary_that_is_stopped_leaves_everything_where_it_was(left: Seen) -> None:
    assert left.compacting is True
    assert left.stopped == {"cancelled": True, "leafId": left.before["leafId"]}
    assert left.after_abort == left.before


@proves("navigate_tree.summary")
def test_a_branch_that_is_left_is_summarized_recorded_and_told_to_the_model(left: Seen) -> None:
    assert "colours only" in left.request
    assert "answer two" in left.request
    assert "answer one" not in left.request
    found = (left.added["type"], left.added["id"], left.added["fromId"])
    assert found == ("branch_summary", left.went["summaryEntryId"], left.before["leafId"])
    assert left.added["summary"] == "WHAT THE BRANCH DID"
    assert left.went["text"] == "two"
    assert left.roles == ["user", "assistant", "branchSummary"]
    assert "WHAT THE BRANCH DID" in left.later
