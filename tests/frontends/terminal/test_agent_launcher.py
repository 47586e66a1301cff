"""The programs that a chat starts to reach its agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pigeon.cli.args import parse_arguments
from pigeon.frontends.terminal import agent_launcher
from pigeon.frontends.terminal.agent_launcher import OFFERS, AgentLauncher
from pigeon.wire.errors import UsageError


class RecordedTransport:
    """Remembers its program instead of starting it."""

    def __init__(self, command: list[str], choices: Any) -> None:
        # After the program come the number of folders with modules, those, and its own options.
        start = command.index("-c") + 2
        self.options = command[start + 1 + int(command[start]) :]
        self.first_line = choices.first_line

    async def start(self) -> None:
        """Nothing is started."""


@pytest.fixture(autouse=True)
def _no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_launcher, "SubprocessTransport", RecordedTransport)


def launcher_of(cwd: Path, *words: str) -> AgentLauncher:
    return AgentLauncher(parse_arguments(words), str(cwd), lambda line: None)


def options_of(transport: Any) -> list[str]:
    return list(transport.options)


async def test_the_first_agent_is_used_once_and_a_later_one_chooses_no_conversation(tmp_path: Path) -> None:
    launcher = launcher_of(tmp_path, "--continue", "--model", "demo/demo")
    first = await launcher.start_first_agent()
    assert launcher.make_next_transport(going_on=False) is first
    assert "--continue" in options_of(first)
    later = options_of(launcher.make_next_transport(going_on=True))
    assert "--continue" not in later
    assert later[:5] == ["--mode", "rpc", "--attended", "--plans", "--agents"]
    assert "demo/demo" in later


async def test_an_agent_trusts_the_project_after_the_person_does_in_its_own_folder_only(tmp_path: Path) -> None:
    launcher = launcher_of(tmp_path, "--no-approve")
    other = tmp_path / "other"
    other.mkdir()
    assert not launcher.trust_project(str(other))
    assert not launcher.trust_project(str(tmp_path / "missing"))
    assert "--no-approve" in options_of(launcher.make_next_transport(going_on=True))
    assert launcher.trust_project(str(tmp_path))
    assert options_of(launcher.make_next_transport(going_on=True))[-1:] == ["--approve"]


async def test_a_key_is_a_line_of_input_and_no_option(tmp_path: Path) -> None:
    transport: Any = await launcher_of(tmp_path, "--api-key", "sk-12345").start_first_agent()
    assert b"sk-12345" in transport.first_line
    assert not any("sk-12345" in option for option in transport.options)
    with pytest.raises(UsageError, match="one line"):
        await launcher_of(tmp_path, "--api-key", "a\nb").start_first_agent()


async def test_a_server_is_asked_for_a_new_conversation_in_the_folder_of_the_chat(tmp_path: Path) -> None:
    launcher = launcher_of(tmp_path, "--connect", "ws://127.0.0.1:1", "--model", "demo/demo")
    options = options_of(launcher.make_next_transport(going_on=False))
    assert options == ["attach", "ws://127.0.0.1:1", "--new", str(tmp_path), *OFFERS, "--model", "demo/demo"]
    assert not launcher.trust_project(str(tmp_path))
