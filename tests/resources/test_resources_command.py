"""Skills, templates and context files on the real program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.agent_desk import Desk, providers
from fakes.model_server import ModelServer
from fakes.rpc_process import RpcProcess


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.configure()
    return made


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def last_said(agent: RpcProcess) -> str:
    said = [message for message in agent.ask("get_messages")["messages"] if message["role"] == "user"]
    return str(said[-1]["content"][0]["text"])


def test_templates_and_skills_are_expanded_before_they_are_sent(desk: Desk) -> None:
    put(desk.agent / "prompts" / "greet.md", "---\ndescription: greet someone\n---\nGreet $1 warmly.")
    skill = put(desk.agent / "skills" / "deploy" / "SKILL.md", "---\ndescription: ship it\n---\n\nPush the button.\n")
    with RpcProcess(desk, "--no-session", "--model", "demo") as agent:
        agent.run("/greet Ada")
        assert last_said(agent) == "Greet Ada warmly."
        agent.run("/skill:deploy now")
        assert last_said(agent) == (
            f'<skill name="deploy" location="{skill}">\nReferences are relative to {skill.parent}.\n\n'
            "Push the button.\n</skill>\n\nnow"
        )
        agent.run("/nothing of the kind")
        assert last_said(agent) == "/nothing of the kind"


def test_commands_are_listed_with_their_provenance(desk: Desk) -> None:
    prompt = put(desk.agent / "prompts" / "greet.md", "---\ndescription: greet someone\n---\nGreet $1 warmly.")
    skill = put(desk.home / ".agents" / "skills" / "deploy" / "SKILL.md", "---\ndescription: ship it\n---\nPush.")
    named = put(desk.temp / "mine" / "SKILL.md", "---\ndescription: mine\n---\nDo.")

    def entry(name: str, text: str, source: str, location: str, path: Path, info: list[str]) -> dict[str, Any]:
        kind, scope, base = info
        told = {"path": str(path), "source": kind, "scope": scope, "origin": "top-level", "baseDir": base}
        return {
            "name": name, "description": text, "source": source, "location": location, "path": str(path),
            "sourceInfo": told,
        }  # fmt: skip

    with RpcProcess(desk, "--no-session", "--model", "demo", "--skill", str(named.parent)) as agent:
        commands = [c for c in agent.ask("get_commands")["commands"] if c["source"] != "extension"]
    assert commands == [
        entry("greet", "greet someone", "prompt", "user", prompt, ["auto", "user", str(desk.agent)]),
        entry("skill:mine", "mine", "skill", "path", named, ["local", "temporary", str(named.parent)]),
        entry("skill:deploy", "ship it", "skill", "user", skill, ["auto", "user", str(desk.home / ".agents")]),
    ]


def test_the_model_gets_the_context_files_and_the_skills(desk: Desk) -> None:
    put(desk.work / "AGENTS.md", "Use tabs in this project.")
    put(desk.agent / "AGENTS.md", "Answer in verse.")
    put(desk.agent / "skills" / "deploy" / "SKILL.md", "---\ndescription: ship it\n---\nPush.")
    with ModelServer() as server:
        desk.configure(providers(server.url))
        answer = server.answers("fine")
        with RpcProcess(desk, "--no-session", "--provider", "fake", "--model", "fake-1") as agent:
            agent.run("hi")
        system = str(answer.wait_arrived()["system"])
    assert system.index("Answer in verse.") < system.index("Use tabs in this project.") < system.index("ship it")
    assert str(desk.work) in system


def test_a_skill_that_makes_no_sense_is_told_and_stops_nothing(desk: Desk) -> None:
    path = put(desk.agent / "skills" / "bad" / "SKILL.md", "no head")
    with RpcProcess(desk, "--no-session", "--model", "demo") as agent:
        assert [c for c in agent.ask("get_commands")["commands"] if c["source"] == "skill"] == []
        notice = agent.wait_event("extension_ui_request", method="notify")
        assert str(path) in notice["message"]
