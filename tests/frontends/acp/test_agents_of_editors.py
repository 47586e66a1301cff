"""Agents, jobs and plans as an editor sees them: calls with a title and the answer, a mode, a question."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.editor_client import Editor, EditorStarter
from support.agent_folders import AgentFolders

PLAN = "# The plan\n\n1. Read `a.py`\n2. Change it"


def calls(*given: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"toolCalls": [{"name": name, "arguments": arguments} for name, arguments in given]}


def rules(**replies: list[Any]) -> dict[str, Any]:
    """A script: what is answered, in turn, to a prompt with a word; the last answer is repeated."""
    found: list[dict[str, Any]] = []
    for word, listed in replies.items():
        found += [{"when": {"user": word}, "reply": reply, "times": 1} for reply in listed[:-1]]
        found.append({"when": {"user": word}, "reply": listed[-1]})
    return {"rules": found}


def texts_of(update: dict[str, Any]) -> list[str]:
    return [piece["content"]["text"] for piece in update.get("content") or []]


@pytest.mark.parametrize("version", [1, 2])
def test_an_agent_is_a_call_with_its_title_and_its_answer(scripted: EditorStarter, version: int) -> None:
    agent = {"prompt": "CHILD", "title": "Look around", "agent": "explore"}
    looks = calls(("grep", {"pattern": "pigeon"}))
    script = rules(
        ROOT=[calls(("task", agent), ("jobs", {"action": "list"})), "Over."], CHILD=[looks, "**All** is well."]
    )
    editor = scripted(script=script, version=version)
    session = editor.new()
    if version == 1:
        editor.prompt(session, "ROOT")
    else:
        editor.begin_prompt(session, "ROOT")
        editor.wait(lambda one: "Over." in str(one.get("params")))
    told = [one for one in editor.updates(session) if one["sessionUpdate"].startswith("tool_call")]
    mine = [one for one in told if one["toolCallId"] == told[0]["toolCallId"]]
    assert {one["title"] for one in mine if "title" in one} >= {"Look around"}
    assert {one["kind"] for one in mine if "kind" in one} == {"think"}
    assert any("grep" in text or "pigeon" in text for one in mine[:-1] for text in texts_of(one)), "no progress"
    assert (mine[-1]["status"], texts_of(mine[-1])) == ("completed", ["**All** is well."])
    assert [one["status"] for one in told if "status" in one][-1] == "completed", "the tool jobs is there, too"


def test_a_plan_is_asked_as_a_permission_and_accepting_it_leaves_the_mode(
    scripted: EditorStarter, folders: AgentFolders
) -> None:
    submits, writes = calls(("submit_plan", {"plan": PLAN})), calls(("write", {"path": "done.txt", "content": "x"}))
    editor = scripted(script=rules(ROOT=[writes, submits, submits, writes, "Carried out."]))
    answers = iter(["Change", "Accept"])
    editor.handlers["session/request_permission"] = lambda params: {
        "outcome": {"outcome": "selected", "optionId": next(answers)}
    }
    session = editor.new()
    editor.call("session/set_mode", sessionId=session, modeId="plan")
    editor.wait_update(session, "current_mode_update", currentModeId="plan")
    start = editor.mark()
    editor.prompt(session, "ROOT")
    first, second = editor.requests_of("session/request_permission")
    assert [(one["optionId"], one["kind"]) for one in first["params"]["options"]] == [
        ("Accept", "allow_once"),
        ("Change", "reject_once"),
        ("Refuse", "reject_once"),
    ]
    asked = first["params"]["toolCall"]
    assert (asked["title"], asked["kind"], texts_of(asked)) == ("Accept this plan?", "switch_mode", [PLAN])
    known = {one["toolCallId"] for one in editor.updates(session, "tool_call")}
    assert {asked["toolCallId"], second["params"]["toolCall"]["toolCallId"]} < known
    editor.wait_update(session, "current_mode_update", start, currentModeId="yolo")
    failed = [one["toolCallId"] for one in editor.updates(session, "tool_call_update") if one.get("status") == "failed"]
    assert len(failed) == 1, "only what came before the plan"
    assert (folders.work / "done.txt").read_text() == "x"


@pytest.mark.parametrize("answer", [{"outcome": "cancelled"}, {"outcome": "selected", "optionId": "nonsense"}])
def test_no_clear_answer_is_no_acceptance(scripted: EditorStarter, answer: dict[str, str]) -> None:
    editor: Editor = scripted(script=rules(ROOT=[calls(("submit_plan", {"plan": PLAN})), "As you like."]))
    editor.handlers["session/request_permission"] = lambda params: {"outcome": answer}
    session = editor.new()
    editor.call("session/set_mode", sessionId=session, modeId="plan")
    start = editor.mark()
    editor.prompt(session, "ROOT")
    assert editor.updates(session, "tool_call_update")[-1]["status"] == "failed"
    assert editor.updates(session, "current_mode_update", start)[1:] == [], "the mode is as it was"
