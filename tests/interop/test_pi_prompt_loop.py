"""The loop of the simplest client, `promptAndWait` of pi 0.73.1 again and again, with that version and then with ours:
each prompt gets its own answer, whatever follows a run.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; see `support/installed_programs.py` for where the packages go.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Answer, ModelServer, Text
from support.agent_folders import AgentFolders, providers
from support.installed_programs import SHIM, node, npm_source, only_on_request, program, shim_environment

pytestmark = only_on_request
DRIVER = Path(__file__).parent / "clients" / "prompt_loop.mjs"
WORDS = ["one", "two", "three", "four"]
# Long enough for a summary of them to be worth it.
PROMPTS = [f"{word} {'and so on ' * 100}" for word in WORDS]
# Each answer fills the context, so that a compaction follows each run.
FULL = {"input_tokens": 199_500, "output_tokens": 10}
SETTINGS = {
    "compaction": {"keepRecentTokens": 20, "reserveTokens": 1000},
    "retry": {"enabled": True, "maxRetries": 2, "baseDelayMs": 10, "provider": {"maxRetries": 0}},
}


class EchoingServer(ModelServer):
    """Answers each prompt with its own words, and each request for a summary with one."""

    def __init__(self, usage: dict[str, int], fails_first: bool = False) -> None:
        super().__init__()
        self._usage = usage
        self._fails_first = fails_first
        # The first word of each prompt, for each request, or "summary".
        self.asked: list[str] = []

    def next_answer(self, request: dict[str, Any], headers: dict[str, str]) -> Answer:
        asked = first_word(request)
        is_first = asked not in self.asked
        self.asked.append(asked)
        if asked == "summary":
            return Answer(parts=[Text("THE SUMMARY")], usage={"input_tokens": 10, "output_tokens": 5})
        if self._fails_first and is_first:
            error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
            return Answer(parts=[], status=529, error=error)
        return Answer(parts=[Text(f"answer to {asked}")], usage=self._usage)


def first_word(request: dict[str, Any]) -> str:
    """The first word of the last prompt in a request; "summary" if it asks for one."""
    if not request.get("tools"):
        return "summary"
    content = next(one for one in reversed(request["messages"]) if one["role"] == "user")["content"]
    return str(content if isinstance(content, str) else content[-1].get("text")).split()[0]


def run_loop(folders: AgentFolders, server: ModelServer, cli: str, variables: dict[str, str], *words: str) -> Any:
    """What each prompt of the loop came to."""
    folders.configure(providers(server.url), SETTINGS)
    client = npm_source("@mariozechner/pi-coding-agent", "0.73.1") / "dist" / "modes" / "rpc" / "rpc-client.js"
    options = {
        "cliPath": cli, "cwd": str(folders.work), "provider": "fake", "model": "fake-1", "args": list(words),
    }  # fmt: skip
    done = subprocess.run(
        [node(), str(DRIVER), str(client), json.dumps(options), json.dumps(PROMPTS)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("dialect", ["pi", "pi-0.73"])
@pytest.mark.parametrize("usage", [{}, FULL], ids=["nothing", "compaction"])
def test_each_prompt_of_the_loop_gets_its_own_answer_as_with_the_original(
    usage: dict[str, int], dialect: str, tmp_path: Path
) -> None:
    (*_, cli) = program("pi-0.73.1")
    ours, original = AgentFolders(tmp_path / "ours"), AgentFolders(tmp_path / "original")
    with EchoingServer(usage) as server:
        expected = run_loop(original, server, cli, original.environment())
    with EchoingServer(usage) as server:
        seen = run_loop(ours, server, str(SHIM), shim_environment(ours.environment()), "--dialect", dialect)
        assert ("summary" in server.asked) is (usage == FULL)
    assert seen == expected == [f"answer to {word}" for word in WORDS]


@pytest.mark.parametrize("dialect", ["pi", "pi-0.73"])
def test_no_prompt_of_the_loop_is_lost_while_an_answer_is_tried_again(dialect: str, tmp_path: Path) -> None:
    # The original loses one of them, not always the same.
    folders = AgentFolders(tmp_path)
    with EchoingServer({}, fails_first=True) as server:
        run_loop(folders, server, str(SHIM), shim_environment(folders.environment()), "--dialect", dialect)
        assert list(dict.fromkeys(server.asked)) == WORDS
