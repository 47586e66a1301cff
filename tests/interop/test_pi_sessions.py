"""Sessions go back and forth between the originals and Pigeon, and stay what they were.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; `support/installed_programs.py` says where the originals are taken
from. With `PIGEON_RECORD=1` as well, the files in `tests/session/recorded` are made anew.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer, said_in
from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess, command_line
from support.installed_programs import PACKAGES, begin, converse, only_on_request, program, without_our_paths
from support.records import text_of
from support.sessions import OLD, RECORDED

pytestmark = only_on_request
Record = dict[str, Any]
THEIRS = sorted(PACKAGES)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    return AgentFolders(tmp_path)


def lines_of(file: str | Path) -> list[Record]:
    return [json.loads(line) for line in Path(file).read_bytes().split(b"\n") if line]


def messages_of(agent: RpcProcess) -> list[Record]:
    """What is said, as far as both know it: the newer pi keeps its system prompt in the conversation."""
    return [message for message in agent.ask("get_messages")["messages"] if message["role"] != "system"]


def said_to(server: ModelServer, agent: RpcProcess, message: str, answer: str) -> list[tuple[str, str]]:
    """Go on with the conversation; what the model was told."""
    asked = server.answers(answer)
    agent.run(message)
    return [(role, text) for role, text in said_in(asked.request) if text]


@pytest.mark.parametrize("name", THEIRS)
def test_a_session_begun_in_pi_goes_on_in_pigeon_and_back(
    name: str, folders: AgentFolders, server: ModelServer
) -> None:
    pi = begin(folders, server, program(name))
    file = converse(pi, server)
    theirs = messages_of(pi)
    pi.close()
    before = Path(file).read_bytes()

    ours = begin(folders, server, command_line(), "--session", file)
    assert messages_of(ours) == theirs
    state = ours.ask("get_state")
    assert (state["sessionName"], state["thinkingLevel"]) == ("the notes", "high")
    told = said_to(server, ours, "on, in Pigeon", "a dove answers")
    assert "THE SUMMARY" in told[0][1]
    server.answers("look", Call("bash", {"command": "echo again"}, id="toolu_d"))
    server.answers("seen")
    ours.run("use a tool")
    ours.ask("set_session_name", name="two programs")
    kept = messages_of(ours)
    ours.close()
    assert Path(file).read_bytes().startswith(before)

    back = begin(folders, server, program(name), "--session", file)
    assert messages_of(back) == kept
    assert back.ask("get_state")["sessionName"] == "two programs"
    told = said_to(server, back, "back in pi", "well")
    assert [text for _, text in told[-7:-3]] == ["on, in Pigeon", "a dove answers", "use a tool", "look"]
    last = messages_of(back)
    back.close()

    again = begin(folders, server, command_line(), "--continue")
    assert again.ask("get_state")["sessionFile"] == file
    assert messages_of(again) == last
    again.close()


@pytest.mark.parametrize("name", THEIRS)
def test_a_session_begun_in_pigeon_goes_on_in_pi_and_back(
    name: str, folders: AgentFolders, server: ModelServer
) -> None:
    ours = begin(folders, server, command_line())
    file = converse(ours, server)
    kept = messages_of(ours)
    ours.close()

    pi = begin(folders, server, program(name), "--continue")
    assert pi.ask("get_state")["sessionFile"] == file
    theirs = messages_of(pi)
    if name == "pi-0.73.1":
        theirs = [message for message in theirs if message.get("stopReason") != "error"]
    assert theirs == kept
    told = said_to(server, pi, "on, in pi", "pi answers")
    assert "THE SUMMARY" in told[0][1]
    pi.close()

    back = begin(folders, server, command_line(), "--continue")
    assert [text_of(message) for message in messages_of(back)[-2:]] == ["on, in pi", "pi answers"]
    told = said_to(server, back, "back in Pigeon", "well")
    assert [text for _, text in told[-3:]] == ["on, in pi", "pi answers", "back in Pigeon"]
    back.close()


@pytest.mark.parametrize("name", THEIRS)
def test_copies_and_branches_of_one_are_read_by_the_other(
    name: str, folders: AgentFolders, server: ModelServer
) -> None:
    ours = begin(folders, server, command_line())
    converse(ours, server)
    rows = ours.ask("get_fork_messages")["messages"]
    label = {} if name == "pi-0.73.1" else {"label": "here"}  # its own copies lose what hung on a label
    ours.ask("navigate_tree", entryId=rows[1]["entryId"], **label)
    server.answers("another way")
    ours.run("something else")
    file = ours.ask("get_state")["sessionFile"]
    kept = messages_of(ours)
    ours.ask("clone")
    copy = ours.ask("get_state")["sessionFile"]
    ours.close()
    for path in (file, copy):
        pi = begin(folders, server, program(name), "--session", path)
        assert messages_of(pi) == kept
        pi.ask("clone")
        made = pi.ask("get_state")["sessionFile"]
        pi.close()
        again = begin(folders, server, command_line(), "--session", made)
        assert messages_of(again) == kept
        again.close()


@pytest.mark.parametrize("version", ["version-1.jsonl", "version-2.jsonl"])
def test_old_versions_become_the_same_as_in_pi(version: str, folders: AgentFolders, server: ModelServer) -> None:
    found = []
    for number, with_program in enumerate((program("pi-0.87.1"), command_line())):
        path = folders.work / f"{number}.jsonl"
        shutil.copy(OLD / version, path)
        agent = begin(folders, server, with_program, "--session", str(path))
        messages = messages_of(agent)
        agent.close()
        found.append((messages, *_without_ids(lines_of(path), len(lines_of(OLD / version)))))
    assert found[0] == found[1]


def _without_ids(lines: list[Record], count: int) -> tuple[list[Record], list[int]]:
    """The entries with their places in place of their ids, because each program makes ids of its own."""
    places = {line["id"]: number for number, line in enumerate(lines)}
    plain = []
    for line in lines[:count]:
        named = {key: places.get(line[key], line[key]) for key in ("parentId", "firstKeptEntryId") if key in line}
        plain.append({**line, **named, "id": places[line["id"]]})
    return plain, [len(lines) - count]


@pytest.mark.skipif(not os.environ.get("PIGEON_RECORD"), reason="only on request")
@pytest.mark.parametrize("name", [*THEIRS, "pigeon"])
def test_the_recorded_sessions_are_made_anew(name: str, folders: AgentFolders, server: ModelServer) -> None:
    agent = begin(folders, server, program(name) if name in PACKAGES else command_line())
    file = converse(agent, server)
    agent.close()
    (RECORDED / f"{name}.jsonl").write_bytes(without_our_paths(Path(file).read_bytes(), folders))
