"""The tree of a conversation: shown, walked, and a branch summarized when it is left."""

from __future__ import annotations

from typing import Any

from fakes.contract_manifest import proves
from fakes.model_server import Hang, ModelServer, said_in
from fakes.record_outline import text_of
from fakes.rpc_process import RpcProcess, Start

Record = dict[str, Any]


def texts(agent: RpcProcess) -> list[str]:
    return [text_of(message) for message in agent.ask("get_messages")["messages"]]


def talk(agent: RpcProcess, server: ModelServer, *messages: str) -> None:
    """Say these things and get an answer to each."""
    for message in messages:
        server.answers(f"answer {message}")
        agent.run(message)


@proves("get_fork_messages.every_branch", "get_entries.since", "get_entries.unknown", "get_tree.shape")
@proves("navigate_tree.moves", "navigate_tree.text", "navigate_tree.unknown", "command.get_entries", "command.get_tree")
@proves("command.navigate_tree")
def test_a_tree_is_walked_and_shown(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    assert agent.ask("get_tree")["leafId"] == agent.ask("get_entries")["leafId"]
    talk(agent, server, "one", "two")
    entries = agent.ask("get_entries")["entries"]
    by_text = {text_of(entry["message"]): entry["id"] for entry in entries if entry["type"] == "message"}
    went = agent.ask("navigate_tree", entryId=by_text["two"])
    assert went == {"cancelled": False, "leafId": by_text["answer one"], "text": "two"}
    assert texts(agent) == ["one", "answer one"]
    talk(agent, server, "other two")
    later = agent.ask("get_entries", since=entries[-1]["id"])
    assert [text_of(entry["message"]) for entry in later["entries"]] == ["other two", "answer other two"]
    assert agent.ask("get_entries", since=later["leafId"])["entries"] == []
    assert agent.refused("get_entries", since="nobody") == "Entry not found: nobody"
    assert agent.refused("navigate_tree", entryId="nobody") == "Entry not found: nobody"
    assert [row["text"] for row in agent.ask("get_fork_messages")["messages"]] == ["one", "two", "other two"]
    went = agent.ask("navigate_tree", entryId=by_text["answer two"], label="mark")
    label = agent.ask("get_entries")["entries"][-1]
    assert went == {"cancelled": False, "leafId": label["id"]}
    assert (label["type"], label["targetId"], label["label"]) == ("label", by_text["answer two"], "mark")
    tree = agent.ask("get_tree")
    assert tree["leafId"] == label["id"]
    nodes = _flat(tree["tree"])
    assert len(tree["tree"]) == 1
    assert sorted(node["entry"]["id"] for node in nodes) == sorted(
        entry["id"] for entry in agent.ask("get_entries")["entries"]
    )
    marked = next(node for node in nodes if node["entry"]["id"] == by_text["answer two"])
    assert (marked["label"], marked["labelTimestamp"]) == ("mark", label["timestamp"])
    fork = next(node for node in nodes if node["entry"]["id"] == by_text["answer one"])
    assert [text_of(child["entry"]["message"]) for child in fork["children"]] == ["two", "other two"]
    agent.ask("navigate_tree", entryId=entries[0]["id"])
    assert texts(agent) == []


def _flat(nodes: list[Record]) -> list[Record]:
    return [found for node in nodes for found in (node, *_flat(node["children"]))]


@proves("navigate_tree.summary", "navigate_tree.abort", "navigate_tree.failure")
def test_a_branch_that_is_left_can_be_summarized(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    talk(agent, server, "one", "two")
    rows = agent.ask("get_fork_messages")["messages"]
    before = agent.ask("get_entries")
    server.fails(400, "cannot", kind="invalid_request_error")
    error = agent.refused("navigate_tree", entryId=rows[1]["entryId"], summarize=True)
    assert "cannot" in error
    gate = server.answers("half", Hang())
    agent.send({"id": "n", "type": "navigate_tree", "entryId": rows[1]["entryId"], "summarize": True})
    gate.wait_arrived()
    assert agent.ask("get_state")["isCompacting"] is True
    agent.ask("abort")
    assert agent.response("n")["data"] == {"cancelled": True, "leafId": before["leafId"]}
    assert agent.ask("get_entries") == before
    asked = server.answers("WHAT THE BRANCH DID")
    went = agent.ask("navigate_tree", entryId=rows[1]["entryId"], summarize=True, customInstructions="colours only")
    request = "".join(text for _, text in said_in(asked.request))
    assert "colours only" in request
    assert "answer two" in request
    assert "answer one" not in request
    entry = agent.ask("get_entries")["entries"][-1]
    assert (entry["type"], entry["id"], entry["fromId"]) == (
        "branch_summary", went["summaryEntryId"], before["leafId"]
    )  # fmt: skip
    assert entry["summary"] == "WHAT THE BRANCH DID"
    assert went["text"] == "two"
    roles = [message["role"] for message in agent.ask("get_messages")["messages"]]
    assert roles == ["user", "assistant", "branchSummary"]
    later = server.answers("well")
    agent.run("on")
    assert "WHAT THE BRANCH DID" in "".join(text for _, text in said_in(later.request))
