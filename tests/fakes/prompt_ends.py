"""What a host was told, judged: every command answered, every accepted prompt ended exactly once, everything that was
begun also ended."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
PROMPTS = ("prompt", "abort_and_prompt")
SILENT = ("host_tool_result", "host_tool_update", "extension_ui_response")
PAIRS = {"agent_end": "agent_start", "turn_end": "turn_start", "message_end": "message_start"}


def judge(records: list[Record], sent: list[Record], dialect: str, settled: bool) -> None:
    """Raise `AssertionError` for the first thing that is wrong; `settled` if everything had time to end."""
    _judge_answers(records, sent, dialect, settled)
    _judge_pairs(records, settled)
    if dialect == "omp":
        _judge_results(records, settled)
    else:
        _judge_settled(records, settled)
    for record in records:
        assert "Internal error" not in str(record.get("error", "")), record


def _judge_answers(records: list[Record], sent: list[Record], dialect: str, settled: bool) -> None:
    answers: dict[Any, list[bool]] = {}
    for record in records:
        if record["type"] == "response" and str(record.get("id", "")).startswith("c"):
            answers.setdefault(record["id"], []).append(record["success"])
    for command in sent:
        given = answers.get(command["id"], [])
        if not given and not settled:
            continue
        refused_twice = dialect == "omp" and command["type"] in PROMPTS and given == [True, False]
        assert len(given) == 1 or refused_twice, f"{command} was answered {given}"


def _judge_pairs(records: list[Record], settled: bool) -> None:
    """What begins ends before the agent settles, in the right order; a tool call by its id."""
    open_now = dict.fromkeys(PAIRS.values(), 0)
    calls: set[str] = set()
    for record in records:
        kind = record["type"]
        if kind in open_now:
            assert not open_now[kind], f"a second {kind}"
            open_now[kind] = 1
        elif kind in PAIRS:
            assert open_now[PAIRS[kind]], f"{kind} without its start"
            open_now[PAIRS[kind]] = 0
        elif kind == "message_update":
            assert open_now["message_start"], "an update outside of a message"
        elif kind == "tool_execution_start":
            assert record["toolCallId"] not in calls
            calls.add(record["toolCallId"])
        elif kind == "tool_execution_end":
            calls.remove(record["toolCallId"])
        elif kind in ("agent_settled", "session_settled"):
            assert not any((*open_now.values(), *calls)), f"settled with {open_now} {calls} open"
    if settled:
        assert not any((*open_now.values(), *calls)), f"{open_now} {calls} left open"


def _judge_settled(records: list[Record], settled: bool) -> None:
    """pi: `agent_settled` once for each prompt that started a run, and while one runs for those that are queued."""
    running = None
    for record in records:
        if record["type"] == "response" and record["command"] in PROMPTS and record["success"]:
            disposition = record["data"]["disposition"]
            if disposition == "started":
                assert running is None, f"{record['id']} started while {running} ran"
                running = record["id"]
            elif disposition == "queued":
                assert running is not None, f"{record['id']} is queued, and nothing runs"
        elif record["type"] in ("agent_start", "turn_start"):
            assert running is not None, f"{record['type']} before the prompt was answered"
        elif record["type"] == "agent_settled":
            assert running is not None, "settled twice"
            assert record["aborted"] == (record["reason"] == "aborted")
            running = None
    assert running is None or not settled, f"{running} never ended"


def _judge_results(records: list[Record], settled: bool) -> None:
    """omp: `prompt_result` once for each prompt, behind its answer; then `session_settled` if it was promised."""
    owed: list[Any] = []
    done: set[Any] = set()
    refused: set[Any] = set()
    promised = False
    for record in records:
        id = record.get("id")
        if record["type"] == "response" and record["command"] in PROMPTS:
            if not record["success"]:
                if id in owed:
                    refused.add(id)
            elif record.get("data", {}).get("agentInvoked") is not False:
                assert id not in (*owed, *done), f"{id} was accepted twice"
                owed.append(id)
        elif record["type"] == "prompt_result":
            assert id in owed, f"a result for {id}, which is not open"
            assert id not in refused or not (record["agentInvoked"] or record["status"] == "completed"), record
            owed.remove(id)
            done.add(id)
            promised = promised or not record["sessionSettled"]
        elif record["type"] == "session_settled":
            promised = False
            assert not owed, f"settled while {owed} had no result"
        elif record["type"] == "agent_start":
            promised = True
    if settled:
        assert not owed, f"no result for {owed}"
        assert not promised, "session_settled never came"
        states = [record for record in records if record["type"] == "response" and record["command"] == "get_state"]
        assert states[-1]["data"]["isSettled"] is True
