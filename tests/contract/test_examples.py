"""The examples, run as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import EXAMPLES, AgentFolders, example
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.records import answers, finished_messages, text_of, tool_texts

Record = dict[str, Any]


def runs(host: RpcProcess, server: ModelServer, *calls: Call) -> list[Record]:
    server.answers(*calls)
    server.answers("done")
    return host.run("x")


@proves("example.load")
@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
@pytest.mark.by_exec  # an example must import what it uses
def test_every_example_loads_without_complaint(start: Start, name: str) -> None:
    host = start(*example(name))
    host.ask("get_commands")
    assert not host.since(0, "extension_error")


@proves("example.permission_gate")
@pytest.mark.parametrize(("answer", "ran"), [("Yes", True), ("No", False), (None, False)])
def test_the_permission_gate_asks_before_dangerous_commands(
    start: Start, folders: AgentFolders, server: ModelServer, answer: str | None, ran: bool
) -> None:
    host = start(*example("permission_gate"))
    victim = folders.work / "victim"
    victim.mkdir()
    server.answers(Call("bash", {"command": "rm -rf victim"}))
    server.answers("done")
    begun = host.mark()
    host.ask("prompt", message="x")
    request = host.wait_event("extension_ui_request", method="select")
    assert "rm -rf victim" in request["title"]
    reply = {"cancelled": True} if answer is None else {"value": answer}
    host.send({"type": "extension_ui_response", "id": request["id"], **reply})
    host.wait_end(begun)
    assert victim.exists() is not ran


@proves("example.permission_gate_strict")
def test_the_permission_gate_refuses_without_asking_if_it_is_strict(start: Start, server: ModelServer) -> None:
    host = start(*example("permission_gate"), "--strict")
    records = runs(host, server, Call("bash", {"command": "sudo ls"}), Call("bash", {"command": "echo fine"}))
    assert tool_texts(records) == ["Dangerous commands are switched off (--strict)", "fine\n"]


@proves("example.protected_paths")
def test_protected_paths_are_kept_away_from(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    host = start(*example("protected_paths"), "--protect=.env,secrets")
    (folders.work / "secrets").mkdir()
    (folders.work / "link").symlink_to("secrets")
    paths = [".env", "deep/.env", "link/key", "fine.txt"]
    records = runs(host, server, *(Call("write", {"path": path, "content": "x"}) for path in paths))
    assert [message["isError"] for message in finished_messages(records, "toolResult")] == [True, True, True, False]
    assert (folders.work / "fine.txt").exists()
    assert list((folders.work / "secrets").iterdir()) == []


@proves("example.todo")
def test_the_list_of_things_to_do_follows_the_conversation(start: Start, server: ModelServer) -> None:
    host = start(*example("todo"))
    add = [Call("checklist", {"action": "add", "text": text}) for text in ("sleep", "eat")]
    records = runs(host, server, *add, Call("checklist", {"action": "done", "number": 1}))
    assert tool_texts(records)[-1] == "1. [x] sleep\n2. [ ] eat"
    widget = [record for record in host.records if record.get("method") == "setWidget"][-1]
    assert widget["widgetLines"] == ["1. [x] sleep", "2. [ ] eat"]
    host.ask("prompt", message="/todos")
    assert host.wait_event("extension_ui_request", method="notify")["message"].startswith("1. [x] sleep")
    failed = runs(host, server, Call("checklist", {"action": "done", "number": 9}))
    assert tool_texts(failed) == ["there is no number 9; there are 2"]
    host.ask("new_session")
    start_again = host.mark()
    host.ask("prompt", message="/todos")
    assert host.wait_event("extension_ui_request", start_again, method="notify")["message"] == "Nothing to do."


@proves("example.custom_tool")
def test_the_custom_tool_counts_words(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    host = start(*example("custom_tool"))
    (folders.work / "text.txt").write_text("coo coo caw\n")
    records = runs(host, server, Call("word_count", {"path": "text.txt", "top": 1}))
    assert tool_texts(records) == ["3 words. Most frequent: coo (2)"]
    (result,) = finished_messages(records, "toolResult")
    assert result["details"] == {"words": 3}


@proves("example.custom_provider")
def test_the_custom_provider_answers_and_calls_tools(start: Start, folders: AgentFolders) -> None:
    (folders.work / "note.txt").write_text("bread")
    host = start(*example("custom_provider"), "--provider", "echo", "--model", "parrot", model=None)
    state = host.ask("get_state")
    assert (state["model"]["provider"], state["model"]["id"]) == ("echo", "parrot")
    assert text_of(answers(host.run("hello there"))[0]) == "hello there "
    records = host.run("read note.txt")
    assert text_of(answers(records)[-1]).startswith("The file says: bread")
    listed = [model["id"] for model in host.ask("get_available_models")["models"]]
    assert "parrot" in listed
    assert "big" not in listed, "its key is not set"


@proves("example.all")
def test_every_example_is_tried() -> None:
    tried = Path(__file__).read_text("utf-8") + (Path(__file__).parent / "test_extension_dialogs.py").read_text("utf-8")
    assert [path.stem for path in EXAMPLES.glob("*.py") if f'"{path.stem}"' not in tried] == []
