"""What `build` makes of options, settings and files: asked of the finished agent."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pigeon.agent.inference import Delta, ModelRequest
from pigeon.app.build import build
from pigeon.app.options import AgentOptions
from pigeon.dialects.base import Dialect
from pigeon.providers.scripted.model import ScriptedModel
from pigeon.rpc.handlers.state import get_state
from pigeon.rpc.session_connection import SessionConnection
from pigeon.system.environment import Environment
from pigeon.wire.commands import GetState
from pigeon.wire.content import ImageContent
from pigeon.wire.errors import StartupError
from pigeon.wire.messages import UserMessage
from support.in_process_agent import InProcessAgent, bash

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[InProcessAgent]:
    made = InProcessAgent(tmp_path)
    yield made
    if made.is_running:
        await made.stop()


@pytest.mark.parametrize(
    ("cwd", "around", "why"),
    [
        (None, "", "The working directory does not exist any more; name another with --cwd"),
        ("sub", "", "The working directory does not exist any more; name another with --cwd"),
        ("missing", None, "Not a directory: {root}/missing"),
        ("file", None, "Not a directory: {root}/file"),
    ],
)
async def test_an_agent_needs_a_folder_to_work_in(
    tmp_path: Path, cwd: str | None, around: str | None, why: str
) -> None:
    (tmp_path / "file").touch()
    environment = Environment(variables={}, home=str(tmp_path), cwd=str(tmp_path) if around is None else around)
    with pytest.raises(StartupError) as caught:
        await build(AgentOptions(cwd=cwd), environment)
    assert str(caught.value) == why.format(root=tmp_path)


async def test_the_folder_of_the_options_is_meant_from_the_folder_of_the_environment(one: InProcessAgent) -> None:
    one.configure(replies=[bash("pwd"), "done"])
    await one.start(cwd="work")
    await one.prompt("go")
    assert one.results() == [f"{one.work}\n"]


@pytest.mark.parametrize(
    ("settings", "options", "state"),
    [
        (
            {},
            {},
            {
                "steering_mode": "one-at-a-time",
                "follow_up_mode": "one-at-a-time",
                "interrupt_mode": "immediate",
                "auto_compaction_enabled": True,
            },
        ),
        ({"steeringMode": "all", "followUpMode": "all"}, {}, {"steering_mode": "all", "follow_up_mode": "all"}),
        ({}, {"interrupt_mode": "wait"}, {"interrupt_mode": "wait"}),
        ({"interruptMode": "wait"}, {}, {"interrupt_mode": "wait"}),
        ({"interruptMode": "immediate"}, {"interrupt_mode": "wait"}, {"interrupt_mode": "immediate"}),
        ({"compaction": {"enabled": False}}, {}, {"auto_compaction_enabled": False}),
        ({"defaultThinkingLevel": "low"}, {}, {"thinking_level": "low"}),
        ({"defaultThinkingLevel": "low"}, {"thinking": "high"}, {"thinking_level": "high"}),
        ({}, {"name": "  my\nname "}, {"session_name": "my name"}),
    ],
)
async def test_settings_and_options_are_the_state_of_the_session(
    one: InProcessAgent, settings: dict[str, Any], options: dict[str, Any], state: dict[str, Any]
) -> None:
    one.configure(settings)
    agent = await one.start(**options)
    found = get_state(GetState(), SessionConnection(agent.session, Dialect()))
    assert {name: getattr(found, name) for name in state} == state


async def test_a_failed_answer_is_repeated_as_the_settings_say(one: InProcessAgent) -> None:
    failing = {"error": {"message": "overloaded", "retryable": True}}
    one.configure({"retry": {"maxRetries": 2, "baseDelayMs": 1, "maxAgentDelayMs": 1}}, [failing, failing, "at last"])
    await one.start()
    await one.prompt("go")
    assert [event["maxAttempts"] for event in one.events_of("auto_retry_start")] == [2, 2]
    assert one.model_texts()[-1] == "at last"


async def test_a_failed_answer_is_not_repeated_where_that_is_switched_off(one: InProcessAgent) -> None:
    one.configure({"retry": {"enabled": False}}, [{"error": {"message": "overloaded", "retryable": True}}, "unheard"])
    await one.start()
    await one.prompt("go")
    assert one.events_of("auto_retry_start") == []
    assert one.model_texts() == [""]


async def test_what_is_wrong_with_options_and_files_is_listed_once(one: InProcessAgent) -> None:
    one.configure({"steeringMode": 3, "permissions": {"deny": ["(("]}})
    (one.agent_dir / "models.json").write_text("{broken")
    (one.work / ".pigeon").mkdir()
    (one.work / ".pigeon" / "settings.json").write_text("[]")
    agent = await one.start(tools=("read", "raed"), thinking="hard", models=("nothing",), trust_project=True)
    for number, part in enumerate(
        [
            f"{one.agent_dir}/settings.json: steeringMode is ignored",
            '"nothing"',
            'unknown thinking level "hard" is ignored',
            f"{one.agent_dir}/models.json: not valid JSON",
            '--tools: there is no tool "raed"',
            f"{one.work}/.pigeon/settings.json must contain a JSON object",
            "permissions.deny",
        ]
    ):
        assert part in agent.problems[number], agent.problems
    assert len(agent.problems) == 7


async def test_rules_of_the_host_may_be_given_as_they_are(one: InProcessAgent) -> None:
    one.configure(replies=[bash("echo hi"), "done"])
    with pytest.raises(StartupError, match=r"--permissions: permissions\.deny must be a list of rules"):
        await one.start(permissions={"deny": "bash"})
    await one.start(permissions={"deny": ["bash(echo *)"]})
    await one.prompt("go")
    assert 'the rule "bash(echo *)"' in one.results()[0]


async def test_keys_that_cannot_be_read_are_reported(one: InProcessAgent) -> None:
    one.configure()
    (one.agent_dir / "auth.json").write_text("{broken")
    [problem] = (await one.start()).problems
    assert problem.startswith(f"{one.agent_dir}/auth.json: ")


async def test_a_trust_file_that_is_broken_is_reported(one: InProcessAgent) -> None:
    one.configure()
    (one.agent_dir / "trust.json").write_text("{broken")
    (one.work / ".pigeon" / "skills").mkdir(parents=True)
    [problem] = (await one.start()).problems
    assert problem.startswith(f"{one.agent_dir}/trust.json: ")


async def test_trust_is_for_the_folder_it_was_given_for(one: InProcessAgent) -> None:
    one.configure()
    elsewhere = one.root / "elsewhere"
    for folder in (one.work, elsewhere):
        (folder / ".pigeon").mkdir(parents=True)
        (folder / ".pigeon" / "SYSTEM.md").write_text(f"Prompt of {folder.name}.")
    header = {
        "type": "session",
        "version": 3,
        "id": "x",
        "cwd": str(elsewhere),
        "timestamp": "2026-01-01T00:00:00.000Z",
    }
    (one.root / "other.jsonl").write_text(json.dumps(header) + "\n")
    session = (await one.start(trust_project=True)).session
    assert "Prompt of work." in session.system_prompt.text()
    assert await session.switching.veto_or_open("other.jsonl") is False
    assert session.journal.cwd == str(elsewhere)
    assert "Prompt of" not in session.system_prompt.text()


async def test_what_is_found_while_building_is_told_to_the_host_once_there_is_one(one: InProcessAgent) -> None:
    one.configure()
    (one.agent_dir / "rules").mkdir()
    (one.agent_dir / "rules" / "broken.md").write_text("---\ncondition: '('\n---\nx")
    agent = await one.start()
    await agent.session.warm_up()
    notices = [event["message"] for event in one.events_of("extension_ui_request")]
    assert agent.problems == []
    assert len(notices) == 1
    assert "broken.md" in notices[0]


async def test_warming_up_reads_the_files_of_the_system_prompt(one: InProcessAgent) -> None:
    one.configure()
    (one.agent_dir / "AGENTS.md").write_text("Coo softly.")
    agent = await one.start()
    await agent.session.warm_up()
    (one.agent_dir / "AGENTS.md").write_text("Screech.")
    assert "Coo softly." in agent.session.system_prompt.text()


async def test_extensions_add_skills(one: InProcessAgent) -> None:
    skill = one.root / "more" / "knitting"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: knitting\ndescription: d\n---\nx")
    extension = one.root / "extension.py"
    extension.write_text(
        "from pigeon.extensions import Extension, Resources, ResourcesDiscover\n\n"
        "ext = Extension('more')\n\n\n"
        "@ext.on(ResourcesDiscover)\n"
        "def more(event):\n"
        f"    return Resources(skills=[{str(one.root / 'more')!r}])\n"
    )
    one.configure()
    session = (await one.start(extensions=(str(extension),))).session
    async with asyncio.timeout(10):
        while "skill:knitting" not in [command.name for command in session.prompting.list_commands()]:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_start_that_fails_ends_the_extensions_that_it_loaded(one: InProcessAgent) -> None:
    extension = one.root / "extension.py"
    ended = one.root / "ended"
    extension.write_text(
        "from pigeon.extensions import Extension, SessionShutdown\n\n"
        "ext = Extension('more')\n\n\n"
        "@ext.on(SessionShutdown)\n"
        "def end(event):\n"
        f"    open({str(ended)!r}, 'w').close()\n"
    )
    one.configure()
    threads = set(threading.enumerate())
    with pytest.raises(StartupError, match="No session found"):
        await one.start(extensions=(str(extension),), session="nowhere")
    assert ended.exists()
    for thread in set(threading.enumerate()) - threads:
        thread.join(30)
    assert set(threading.enumerate()) <= threads


async def test_images_are_kept_from_the_model_where_the_settings_say_so(
    one: InProcessAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.configure({"images": {"blockImages": True}}, ["nothing to see"])
    requests: list[ModelRequest] = []
    stream = ScriptedModel.stream

    def record_request(model: ScriptedModel, request: ModelRequest) -> AsyncIterator[Delta]:
        requests.append(request)
        return stream(model, request)

    monkeypatch.setattr(ScriptedModel, "stream", record_request)
    await one.start()
    await one.prompt("look", images=[{"type": "image", "data": PICTURE, "mimeType": "image/png"}])
    [request] = requests
    [asked] = [message for message in request.messages if isinstance(message, UserMessage)]
    assert not [block for block in asked.content if isinstance(block, ImageContent)]


@pytest.mark.parametrize("keep", [True, False])
async def test_unreadable_images_are_kept_where_the_dialect_does_so(one: InProcessAgent, keep: bool) -> None:
    one.configure(replies=["seen"])
    await one.start(keep_unreadable_images=keep)
    await one.prompt("look", images=[{"type": "image", "data": "bm90IGFuIGltYWdl", "mimeType": "image/png"}])
    [message] = [message for message in one.agent.session.context if isinstance(message, UserMessage)]
    assert any(isinstance(block, ImageContent) for block in message.content) is keep
