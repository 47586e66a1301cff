"""Texts in which clients look for something, as the real program gives them in each dialect.

The patterns are those of the clients. A text that no pattern is about may be worded freely.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.model_server import Call, Hang, ModelServer
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess, command_line

PI = ("pi", "pi-latest", "pi-0.73")
FAMILY = ("omp", "xcsh")
ALL = (*PI, *FAMILY)
LONG = "and so on " * 400

# Who parses it, the pattern, which text, and in which dialects.
ROWS: list[tuple[str, str, str, tuple[str, ...]]] = [
    ("hapi: a command that this agent does not have", r"(?i)unknown command", "unknown", ALL),
    ("PiDeck: a model of a later models.json", r"(?i)model not found", "set_model", ALL),
    ("t3code: steer instead", r"(?i)already processing", "busy", ALL),
    ("as the original says it", r"^Agent .*streamingBehavior \('steer' or 'followUp'\) to queue", "busy", PI),
    ("as the original says it", r"^Agent .*Use steer\(\) or followUp\(\) to queue messages", "busy", FAMILY),
    ("web clients: no failure", r"(?i)nothing to compact", "compact", ALL),
    ("web clients: no failure", r"(?i)already compacted", "compact again", ALL),
    ("hapi: no second report", r"(?i)cancell?ed", "compact aborted", PI),
    ("paseo: no failure", r"(?i)\brequest was aborted\b", "aborted", ALL),
    ("pi's documents", r"^Session name cannot be empty$", "name", ALL),
    ("pi's documents", r"^Invalid entry ID for forking$", "fork", PI),
    ("oh-my-pi's documents", r"^Invalid entry ID for branching$", "branch", FAMILY),
    ("pi-acp: asks for a key", r"(?i)api key", "no key", ALL),
    ("claudian: begins a new session", r"No session found matching 'no-such'", "no session", ALL),
    ("omp-rpc-cli: the tool", r"(?i)Allow tool:\s*bash\n", "question", FAMILY),
    ("omp-rpc-cli: the command", r"(?i)Command:\s*echo hi$", "question", FAMILY),
    ("omp-rpc-cli: yes", r"(?i)^(?:.*\|)?Approve(?:\|.*)?$", "options", FAMILY),
    ("omp-rpc-cli: no", r"(?i)^(?:.*\|)?Deny(?:\|.*)?$", "options", ALL),
    ("several: a table of columns", r"^provider +model +context +max-out +thinking +images\n", "models", ALL),
    ("several: none", r"^No models matching \"no-such\"\n", "no models", ALL),
    ("pi-acp, pi.nvim, pi-rpc-rs, PiDeck", r"^\d+\.\d+\.\d+\n$", "version", ALL),
]  # fmt: skip


class Scenes:
    """One agent of a dialect, and the texts that it gives in turn."""

    def __init__(self, dialect: str, folders: AgentFolders, server: ModelServer) -> None:
        folders.configure(providers(server.url), {"compaction": {"keepRecentTokens": 20, "reserveTokens": 1000}})
        self._dialect = dialect
        self._folders = folders
        self._server = server
        self._options = ("--dialect", dialect, "--provider", "fake", "--model", "fake-1")

    def play(self) -> dict[str, str]:
        with RpcProcess(self._folders, *self._options, "--approval-mode", "write") as agent:
            agent.last_event = "agent_end"
            texts = {**self._play_refusals(agent), **self._play_runs(agent), **self._play_compactions(agent)}
        return {**texts, **self._play_calls()}

    def _play_refusals(self, agent: RpcProcess) -> dict[str, str]:
        fork = "branch" if self._dialect in FAMILY else "fork"
        return {
            "unknown": self._refusal(agent, "no_such_command"),
            "set_model": self._refusal(agent, "set_model", provider="no", modelId="such"),
            "name": self._refusal(agent, "set_session_name", name=" "),
            fork: self._refusal(agent, fork, entryId="none"),
            "compact": self._refusal(agent, "compact"),
        }

    def _play_runs(self, agent: RpcProcess) -> dict[str, str]:
        self._server.answers(f"First. {LONG}")
        agent.run(f"first {LONG}")
        self._server.answers(Call("bash", {"command": "echo hi"}))
        self._server.answers("Second.")
        mark = agent.mark()
        agent.send({"type": "prompt", "message": f"second {LONG}"})
        question = agent.wait_event("extension_ui_request", mark, method="select")
        busy = self._refusal(agent, "prompt", message="in between")
        agent.send({"type": "extension_ui_response", "id": question["id"], "value": question["options"][0]})
        agent.wait_end(mark)
        self._server.answers("On and on", Hang())
        mark = agent.mark()
        agent.send({"type": "prompt", "message": "third"})
        agent.wait_event("message_update", mark)
        agent.ask("abort")
        ended = agent.wait(
            lambda one: one["type"] == "message_end" and one["message"].get("stopReason") == "aborted", mark
        )
        agent.wait_end(mark)
        return {
            "question": question["title"],
            "options": "|".join(question["options"]),
            "busy": busy,
            "aborted": ended["message"]["errorMessage"],
        }

    def _play_compactions(self, agent: RpcProcess) -> dict[str, str]:
        hanging = self._server.answers(Hang())
        agent.send({"id": "stopped", "type": "compact"})
        hanging.wait_arrived()
        agent.ask("abort")
        stopped = agent.wait(lambda one: one.get("id") == "stopped" and one.get("success") is False)["error"]
        self._server.answers("THE SUMMARY")
        agent.ask("compact")
        return {"compact aborted": stopped, "compact again": self._refusal(agent, "compact")}

    def _play_calls(self) -> dict[str, str]:
        """What the program prints, and what it says at the start."""
        printed = {
            "no session": self._print("--mode", "rpc", *self._options, "--session", "no-such").stderr,
            "models": self._print("--list-models").stdout,
            "no models": self._print("--list-models", "no-such").stdout,
            "version": self._print("--version").stdout,
        }
        (self._folders.agent / "models.json").unlink()
        with RpcProcess(self._folders, "--dialect", self._dialect) as agent:
            keyless = self._refusal(agent, "prompt", message="hello")
        return {**printed, "no key": keyless}

    def _print(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command_line(), *words],
            env=self._folders.environment(),
            cwd=self._folders.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def _refusal(self, agent: RpcProcess, command: str, **fields: Any) -> str:
        """The error of a command, whose answer has no id in some dialects."""
        mark = agent.mark()
        agent.send({"id": "refused", "type": command, **fields})
        failed = agent.wait(lambda one: one["type"] == "response" and one["success"] is False, mark)
        assert failed["command"] == command
        return str(failed["error"])


@pytest.fixture(scope="module", params=ALL)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def texts(dialect: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The texts of a dialect, by scene."""
    with ModelServer() as server:
        yield Scenes(dialect, AgentFolders(tmp_path_factory.mktemp(dialect)), server).play()


def test_every_client_finds_what_it_looks_for(dialect: str, texts: dict[str, str]) -> None:
    wrong = [
        (who, pattern, texts[scene])
        for who, pattern, scene, dialects in ROWS
        if dialect in dialects and not re.search(pattern, texts[scene])
    ]
    assert wrong == []


def test_every_text_has_a_client(dialect: str, texts: dict[str, str]) -> None:
    assert texts.keys() - {scene for _, _, scene, dialects in ROWS if dialect in dialects} <= {
        "compact aborted",
        "question",
    }
