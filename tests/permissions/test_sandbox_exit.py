"""A command that is to leave the sandbox: the host is asked each time, and everything but a yes is a no."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pigeon.wire import codec
from pigeon.wire.commands import ExtensionUiResponse
from support.in_process_agent import InProcessAgent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the walls of Linux")


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[InProcessAgent]:
    made = InProcessAgent(tmp_path)
    made.configure()
    yield made
    if made.is_running:
        await made.stop()


def leaving(target: Path, **more: Any) -> dict[str, Any]:
    arguments = {"command": f"touch {target}", "unsandboxed": True, "reason": "it is outside", **more}
    return {"toolCalls": [{"name": "bash", "arguments": arguments}]}


async def answer_dialog(agent: InProcessAgent, value: str) -> dict[str, Any]:
    await agent.ask("go")
    asked = await agent.until("extension_ui_request")
    answer = codec.convert({"type": "extension_ui_response", "id": asked["id"], "value": value}, ExtensionUiResponse)
    agent.agent.session.dependencies.dialogs.answer(answer)
    await agent.wait_until_settled()
    return asked


async def test_the_host_sees_the_command_and_the_reason_and_its_yes_runs_it_outside(agent: InProcessAgent) -> None:
    target = agent.home / "new"
    agent.configure(replies=[leaving(target), "Done."])
    await agent.start(sandbox="workspace")
    asked = await answer_dialog(agent, "Allow once")
    assert asked["title"] == f"Run outside the sandbox: touch {target}\nReason: it is outside"
    assert asked["options"] == ["Allow once", "Deny"]
    assert (asked["toolName"], asked["args"]["unsandboxed"]) == ("bash", True)
    assert target.exists()


@pytest.mark.parametrize("value", ["Deny", "Allow for this session", "yes"])
async def test_everything_but_that_yes_is_a_no(agent: InProcessAgent, value: str) -> None:
    target = agent.home / "new"
    agent.configure(replies=[leaving(target), "Done."])
    await agent.start(sandbox="workspace")
    await answer_dialog(agent, value)
    assert not target.exists()
    assert "Running outside the sandbox was not allowed" in agent.results()[0]


async def test_a_rule_that_allows_the_command_does_not_let_it_out(agent: InProcessAgent) -> None:
    target = agent.home / "new"
    agent.configure({"permissions": {"allow": ["bash"]}}, [leaving(target), leaving(target), "Done."])
    await agent.start(sandbox="workspace", unattended=True)
    await agent.prompt("go")
    assert not target.exists()
    assert all("nobody can be asked" in result for result in agent.results())


async def test_a_rule_that_denies_the_command_is_not_asked_about(agent: InProcessAgent) -> None:
    agent.configure({"permissions": {"deny": ["bash(touch *)"]}}, [leaving(agent.home / "new"), "Done."])
    await agent.start(sandbox="workspace")
    await agent.prompt("go")
    assert agent.events_of("extension_ui_request") == []
    assert "denied by the rule" in agent.results()[0]


async def test_a_rule_that_asks_does_not_ask_twice(agent: InProcessAgent) -> None:
    target = agent.home / "new"
    agent.configure({"permissions": {"ask": ["bash"]}}, [leaving(target), "Done."])
    await agent.start(sandbox="workspace")
    await answer_dialog(agent, "Allow once")
    assert len(agent.events_of("extension_ui_request")) == 1
    assert target.exists()


async def test_no_answer_in_time_and_no_reason_are_a_no(agent: InProcessAgent) -> None:
    target = agent.home / "new"
    settings = {"permissions": {"deny": ["bash(never)"], "timeoutMs": 1000}}
    agent.configure(settings, [leaving(target, reason=" "), leaving(target), "Done."])
    await agent.start(sandbox="workspace")
    async with asyncio.timeout(30):
        await agent.prompt("go")
    assert not target.exists()
    assert "needs a reason" in agent.results()[0]
    assert "there was no answer" in agent.results()[1]


async def test_with_a_person_the_way_out_is_asked_about_without_a_time_limit(agent: InProcessAgent) -> None:
    agent.configure(replies=[leaving(agent.home / "new"), "Done."])
    await agent.start(sandbox="workspace", attended=True)
    assert "timeout" not in await answer_dialog(agent, "Deny")


async def test_without_a_sandbox_the_argument_does_not_exist(agent: InProcessAgent) -> None:
    agent.configure(replies=[leaving(agent.work / "new"), "Done."])
    built = await agent.start()
    await agent.prompt("go")
    spec = next(spec for spec in built.session.toolset.specs() if spec.name == "bash")
    assert set(spec.parameters["properties"]) == {"command", "timeout"}
    assert "sandbox" not in spec.description
    assert (agent.work / "new").exists()
    assert agent.events_of("extension_ui_request") == []
