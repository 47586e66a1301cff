"""The same conversation in every dialect, compared with the transcripts in this folder (see README.md)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, Gate, Hang, ModelServer, Text, Thinking
from pigeon import __version__
from support.agent_folders import AgentFolders, providers
from support.agent_process import LAST_EVENTS, RpcProcess
from support.processes import eventually
from support.records import PlainTranscript
from support.warm_calls import warm_home

FOLDER = Path(__file__).parent
DIALECTS = ("pi", "pi-latest", "pi-0.73", "omp", "xcsh", "companion")
SETTINGS = {"retry": {"baseDelayMs": 1}, "compaction": {"keepRecentTokens": 10, "reserveTokens": 1000}}
PICTURE = {"type": "image", "source": {"type": "base64", "mediaType": "image/png", "data": "iVBORw0KGgo="}}


class Conversation:
    """Sends commands; waits for answers only where the dialect has them."""

    def __init__(self, agent: RpcProcess, server: ModelServer, dialect: str) -> None:
        self._agent = agent
        self._server = server
        self._answers = dialect != "companion"
        self._last_event = LAST_EVENTS.get(dialect, "agent_end")
        self._count = 0

    def play(self) -> None:
        """Everything, in order."""
        self._command("get_state")
        self._a_prompt_with_a_tool()
        self._refusals()
        self._interruptions()
        self._another_try()
        self._rest()

    def _a_prompt_with_a_tool(self) -> None:
        call = Call("bash", {"command": "echo one"}, id="call_1")
        self._server.answers(Thinking("Let me see."), Text("Looking\u2028around. ", piece=6), call)
        self._server.answers("It says one.")
        self._run("What is there?", images=[PICTURE])

    def _refusals(self) -> None:
        self._agent.send("{not json", "null")
        self._command("set_model", provider="nobody", modelId="nothing")
        self._agent.send({"id": "unknown", "type": "no_such_command"})
        self._command("get_last_assistant_text")
        if not self._answers:
            self._agent.wait_count("error", 3)

    def _interruptions(self) -> None:
        gate = Gate()
        start = self._agent.mark()
        self._server.answers("Well", gate)
        self._server.answers("Half an answ", Hang())
        self._agent.send({"id": "begin", "type": "prompt", "message": "Tell me more"})
        gate.wait_reached()
        # The end of the text comes on its own, and perhaps later than its last piece.
        self._agent.wait(lambda record: record.get("assistantMessageEvent", {}).get("type") == "text_end", start)
        self._command("steer", message="Shorter, please")
        self._agent.send({"id": "busy", "type": "prompt", "message": "And this?"})
        self._agent.wait(lambda record: "Agent is already processing" in str(record.get("error")), start)
        gate.open()
        self._agent.wait_delta("sw", start)
        self._command("abort")
        self._wait_end(start)

    def _another_try(self) -> None:
        self._server.fails(503, "Not now")
        self._server.answers("At last.")
        start = self._agent.mark()
        self._agent.send({"id": "again", "type": "prompt", "message": "Once more"})
        self._agent.wait(lambda record: record["type"] == "agent_end" and "At last." in str(record), start)
        self._agent.wait_event(self._last_event, start)

    def _rest(self) -> None:
        if not self._answers:
            return
        self._command("bash", command="echo two; exit 3")
        self._server.answers("They looked around.")
        self._server.answers("They looked around.")
        self._command("compact")
        for command in ("get_messages", "get_session_stats", "new_session", "get_state"):
            self._command(command)

    def _run(self, message: str, **more: Any) -> None:
        start = self._agent.mark()
        self._agent.send({"id": "prompt", "type": "prompt", "message": message, **more})
        self._wait_end(start)

    def _wait_end(self, start: int) -> None:
        self._agent.wait_event(self._last_event, start)

    def _command(self, kind: str, **fields: Any) -> None:
        self._count += 1
        name = f"command {self._count}"
        self._agent.send({"id": name, "type": kind, **fields})
        if self._answers:
            self._agent.response(name)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_conversation_is_told_as_it_was(dialect: str, tmp_path: Path) -> None:
    lines = play_conversation(dialect, tmp_path, AgentFolders(tmp_path))
    file = FOLDER / f"{dialect}.jsonl"
    if os.environ.get("PIGEON_GOLDEN") == "write":
        file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    assert lines == file.read_text("utf-8").split("\n")[:-1], "see tests/golden/README.md"


@pytest.mark.skipif(sys.platform != "linux", reason="warm starts need Linux")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_agent_that_started_warm_tells_it_in_the_same_way(dialect: str, tmp_path: Path) -> None:
    with warm_home(tmp_path) as home:
        lines = play_conversation(dialect, tmp_path, home.folders, by_exec=True, env=home.variables_of_calls)
        assert eventually(lambda: home.finished == 1), "it did not start warm"
    assert lines == (FOLDER / f"{dialect}.jsonl").read_text("utf-8").split("\n")[:-1]


def play_conversation(dialect: str, root: Path, folders: AgentFolders, **started: Any) -> list[str]:
    """What the agent sends, without what changes from run to run."""
    with ModelServer() as server:
        folders.configure(providers(server.url), SETTINGS)
        args = ("--no-session", "--provider", "fake", "--model", "fake-1", "--dialect", dialect)
        with RpcProcess(folders, *args, **started) as agent:
            Conversation(agent, server, dialect).play()
    return PlainTranscript({str(root): "<root>"}, __version__).lines(agent.records)
