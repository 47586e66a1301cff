"""Odd values for every field of every command, in several states of session and disk: an answer never shows insides.

What is sent is drawn at random; `PIGEON_ODD_COMMANDS` says how many commands each state gets.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from fakes.model_server import Hang, ModelServer
from pigeon.wire.commands import ALL, NAMES
from pigeon.wire.errors import UNEXPECTED
from support.agent_process import Record, RpcProcess, Start
from support.contract import proves

COUNT = int(os.environ.get("PIGEON_ODD_COMMANDS", "150"))
INSIDES = re.compile(rf"Traceback|\b[A-Z]\w*(Error|Exception)\b|Errno|nternal error|has no attribute|{UNEXPECTED}")
# No path of a real file among them: `export_html` would write there.
ODD: list[Any] = [
    *("", " ", "x", "\0", "a\0b", "\ud800", "\udcff", "/", "//", "~", "~nobody/x", "../..", "x" * 5000, "x/" * 3000),
    *("\u202e\u2028", "-", "--help", "*", "[", "(?", "{}", "é", "/proc/self/no/such", "%s{0}", "all", "steer", "high"),
    *(None, True, False, 0, -1, 1, 2**63, 10**30, 1.5, [], {}, [None], [[]], [{}], {"": None}, ["x"]),
    *([{"type": "image", "data": "!", "mimeType": "x"}], [{"type": "text"}], "followUp", {"type": "x"}),
    *([{"name": "t", "description": "d", "parameters": {"type": 5}}], [{"name": "x"}], {"deny": [1]}),
    *([{"name": "p", "tasks": [{"content": 1}]}], {"allow": ["bash(("]}, {"content": 5}, {"content": [5, {}]}),
]


def commands(seed: str) -> list[Record]:
    """Commands with the fields of their declaration, and what may be the worst for each."""
    chance = random.Random(seed)
    drawn = []
    for number in range(COUNT):
        kind = chance.choice(ALL)
        fields = [field for field in kind.__struct_encode_fields__ if field != "id"]
        command = {field: chance.choice(ODD) for field in fields if chance.random() < 0.8}
        drawn.append({"id": number, **command, "type": NAMES[kind]})
    return drawn


def nothing(agent: RpcProcess) -> None:
    """An agent that has done nothing yet."""


def folder_gone(agent: RpcProcess) -> None:
    agent.run("hello")
    shutil.rmtree(agent.folders.work)


def everything_gone(agent: RpcProcess) -> None:
    agent.run("hello")
    shutil.rmtree(agent.folders.work)
    shutil.rmtree(agent.folders.agent)


def folder_is_a_file(agent: RpcProcess) -> None:
    agent.run("hello")
    shutil.rmtree(agent.folders.agent)
    agent.folders.agent.write_text("")


def running(agent: RpcProcess) -> None:
    agent.ask("prompt", message="hello")
    agent.wait_event("message_update")


STATES: list[tuple[Callable[[RpcProcess], None], bool]] = [
    *((nothing, True), (nothing, False), (folder_gone, True), (everything_gone, True), (everything_gone, False)),
    *((folder_is_a_file, True), (running, True), (running, False)),
]


@proves("errors.no_insides")
@pytest.mark.parametrize(("state", "keeps"), STATES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_no_answer_shows_the_insides_of_the_program(
    start: Start, server: ModelServer, state: Callable[[RpcProcess], None], keeps: bool
) -> None:
    agent = start(keeps=keeps, settings={"retry": {"enabled": False}})
    server.answers("begun", *([Hang()] if state is running else []))
    state(agent)
    for command in commands(f"{state.__name__} {keeps}"):
        agent.send(command)
    agent.send({"id": "end", "type": "abort"}, {"id": "last", "type": "get_state"})
    agent.response("last")
    agent.response("end")
    shown = [str(record) for record in agent.since(0)]
    assert [text[:400] for text in shown if INSIDES.search(text)] == []
    assert "Traceback" not in agent.stderr, agent.stderr


@proves("errors.folder_deleted")
def test_a_folder_that_was_deleted_is_named_by_what_needs_it(start: Start, server: ModelServer) -> None:
    agent = start(keeps=True)
    server.answers("well")
    folder_gone(agent)
    assert (
        agent.expect_error("export_html", outputPath="page.html")
        == "ENOENT: no such file or directory, open 'page.html'"
    )
    assert agent.expect_error("bash", command="pwd").startswith(
        f"Working directory does not exist: {agent.folders.work}"
    )
    page = agent.folders.agent / "page.html"
    assert agent.ask("export_html", outputPath=str(page)) == {"path": str(page)}
    assert agent.ask("new_session") == {"cancelled": False}
    server.answers("still here")
    agent.run("hello")
