"""Skills, templates and context files on the real program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import ModelServer
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure()
    return made


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def last_said(agent: RpcProcess) -> str:
    said = [message for message in agent.ask("get_messages")["messages"] if message["role"] == "user"]
    return str(said[-1]["content"][0]["text"])


def test_templates_and_skills_are_expanded_before_they_are_sent(folders: AgentFolders) -> None:
    put(folders.agent / "prompts" / "greet.md", "---\ndescription: greet someone\n---\nGreet $1 warmly.")
    skill = put(
        folders.agent / "skills" / "deploy" / "SKILL.md", "---\ndescription: ship it\n---\n\nPush the button.\n"
    )
    with RpcProcess(folders, "--no-session", "--model", "demo") as agent:
        agent.run("/greet Ada")
        assert last_said(agent) == "Greet Ada warmly."
        agent.run("/skill:deploy now")
        assert last_said(agent) == (
            f'<skill name="deploy" location="{skill}">\nReferences are relative to {skill.parent}.\n\n'
            "Push the button.\n</skill>\n\nnow"
        )
        agent.run("/nothing of the kind")
        assert last_said(agent) == "/nothing of the kind"


def test_commands_are_listed_with_their_provenance(folders: AgentFolders) -> None:
    prompt = put(folders.agent / "prompts" / "greet.md", "---\ndescription: greet someone\n---\nGreet $1 warmly.")
    skill = put(folders.home / ".agents" / "skills" / "deploy" / "SKILL.md", "---\ndescription: ship it\n---\nPush.")
    named = put(folders.temp / "mine" / "SKILL.md", "---\ndescription: mine\n---\nDo.")

    def entry(name: str, text: str, source: str, location: str, path: Path, info: list[str]) -> dict[str, Any]:
        kind, scope, base = info
        told = {"path": str(path), "source": kind, "scope": scope, "origin": "top-level", "baseDir": base}
        return {
            "name": name, "description": text, "source": source, "location": location, "path": str(path),
            "sourceInfo": told,
        }  # fmt: skip

    with RpcProcess(folders, "--no-session", "--model", "demo", "--skill", str(named.parent)) as agent:
        commands = [c for c in agent.ask("get_commands")["commands"] if c["source"] != "extension"]
    assert commands == [
        entry("greet", "greet someone", "prompt", "user", prompt, ["auto", "user", str(folders.agent)]),
        entry("skill:mine", "mine", "skill", "path", named, ["local", "temporary", str(named.parent)]),
        entry("skill:deploy", "ship it", "skill", "user", skill, ["auto", "user", str(folders.home / ".agents")]),
    ]


def test_the_model_gets_the_context_files_and_the_skills(folders: AgentFolders) -> None:
    put(folders.work / "AGENTS.md", "Use tabs in this project.")
    put(folders.agent / "AGENTS.md", "Answer in verse.")
    put(folders.agent / "skills" / "deploy" / "SKILL.md", "---\ndescription: ship it\n---\nPush.")
    with ModelServer() as server:
        folders.configure(providers(server.url))
        answer = server.answers("fine")
        with RpcProcess(folders, "--no-session", "--provider", "fake", "--model", "fake-1") as agent:
            agent.run("hi")
        system = str(answer.wait_arrived()["system"])
    assert system.index("Answer in verse.") < system.index("Use tabs in this project.") < system.index("ship it")
    assert str(folders.work) in system


def test_a_skill_that_makes_no_sense_is_told_and_stops_nothing(folders: AgentFolders) -> None:
    path = put(folders.agent / "skills" / "bad" / "SKILL.md", "no head")
    with RpcProcess(folders, "--no-session", "--model", "demo") as agent:
        assert [c for c in agent.ask("get_commands")["commands"] if c["source"] == "skill"] == []
        notice = agent.wait_event("extension_ui_request", method="notify")
        assert str(path) in notice["message"]
