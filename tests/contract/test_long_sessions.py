"""Sessions with very many entries: each command works, and none of them keeps the others waiting."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from support.agent_process import Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario

COUNT = 20_000
LONG = ["get_entries", "get_tree", "get_messages", "get_session_stats", "get_fork_messages"]


def write_long_session(folder: Path) -> Path:
    """One chain of user messages, ten times as long as Python would follow it by recursion."""
    header = {"type": "session", "version": 3, "id": "long", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/"}
    ids = [None, *(f"{number:08x}" for number in range(COUNT))]
    entries = [
        {
            "type": "message",
            "id": id,
            "parentId": above,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "message": {"role": "user", "content": [{"type": "text", "text": f"number {id}"}], "timestamp": 1},
        }
        for above, id in pairwise(ids)
    ]
    path = folder / "long.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *entries]), "utf-8")
    return path


@pytest.fixture
def long_session(tmp_path: Path) -> Path:
    return write_long_session(tmp_path)


@scenario
def long_answers(stage: Stage) -> Seen:
    """Every long answer is asked for at once, and the state after them."""
    agent = stage.start("--session", str(write_long_session(stage.path)), keeps=True)
    agent.send(*({"id": name, "type": name} for name in LONG), {"id": "get_state", "type": "get_state"})
    found = {name: agent.response(name) for name in LONG}
    order = [record["id"] for record in agent.since(0, "response")]
    return Seen(
        order=order, tree=agent.raw_with(b'"command":"get_tree"'),
        counts=[
            _messages(found["get_entries"]["data"]["entries"]), len(found["get_messages"]["data"]["messages"]),
            len(found["get_fork_messages"]["data"]["messages"]), found["get_session_stats"]["data"]["userMessages"],
        ],
    )  # fmt: skip


@proves("long.overtaken")
def test_the_state_is_told_before_a_long_answer(long_answers: Seen) -> None:
    assert long_answers.order == ["get_state", *LONG]


@proves("long.whole")
def test_a_long_answer_is_whole(long_answers: Seen) -> None:
    assert long_answers.counts == [COUNT] * 4
    # Nested as often as there are entries, which is too deep for the parser of this test.
    assert long_answers.tree.count(b'"children":[{"entry":') >= COUNT - 1
    assert b"]}" * (COUNT - 1) in long_answers.tree


@proves("long.end")
def test_what_was_asked_before_the_input_ended_is_answered_in_full(start: Start, long_session: Path) -> None:
    agent = start("--session", str(long_session), keeps=True)
    agent.send({"id": "e", "type": "get_entries"}, {"id": "m", "type": "get_messages"})
    agent.close()
    answers = {record["id"]: record for record in agent.since(0, "response")}
    assert _messages(answers["e"]["data"]["entries"]) == len(answers["m"]["data"]["messages"]) == COUNT


@proves("long.switch")
def test_other_commands_are_answered_while_a_long_session_is_opened_and_copied(
    start: Start, long_session: Path
) -> None:
    agent = start(keeps=True)
    agent.ask("get_state")
    for kind, fields in (("switch_session", {"sessionPath": str(long_session)}), ("clone", {})):
        begun = agent.mark()
        agent.send({"id": kind, "type": kind, **fields}, {"id": f"after {kind}", "type": "get_state"})
        agent.response(kind)
        order = [record["id"] for record in agent.since(begun, "response")]
        assert order.index(f"after {kind}") < order.index(kind)
        assert agent.ask("get_state")["messageCount"] == COUNT


def _messages(entries: list[dict[str, str]]) -> int:
    """How many messages there are among entries: a start may add the choice of a model."""
    return sum(entry["type"] == "message" for entry in entries)
