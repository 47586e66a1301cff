"""Templates and skills: listed with where they come from, and expanded before anybody else sees the message."""

from __future__ import annotations

from pathlib import Path

from fakes.agent_folders import AgentFolders
from fakes.contract_manifest import proves
from fakes.model_server import Gate, ModelServer, said_in
from fakes.rpc_process import Start

GIVEN = {"name", "description", "source", "location", "path", "sourceInfo"}


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


@proves(
    "prompt.skill",
    "prompt.template_queued",
    "get_commands.skill",
    "get_commands.project",
    "get_commands.location_project",
    "get_commands.location_skill",
    "get_commands.path_skill",
)
def test_templates_and_skills_of_user_and_project(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    mine = put(folders.agent / "prompts" / "fix.md", "---\ndescription: Fix it\n---\nPlease fix $1 now.\n")
    ours = put(folders.work / ".pi" / "prompts" / "check.md", "---\ndescription: Check it\n---\nPlease check $@.\n")
    skill = put(
        folders.agent / "skills" / "deploy" / "SKILL.md",
        "---\nname: deploy\ndescription: Ship it\n---\nPush the button.\n",
    )
    agent = start("--approve")
    listed = {command["name"]: command for command in agent.ask("get_commands")["commands"]}
    assert all(set(command) <= GIVEN for command in listed.values())
    facts = {name: (one["source"], one["location"], one["path"]) for name, one in listed.items()}
    assert facts == {
        "fix": ("prompt", "user", str(mine)),
        "check": ("prompt", "project", str(ours)),
        "skill:deploy": ("skill", "user", str(skill)),
    }
    assert [listed[name]["description"] for name in ("fix", "check", "skill:deploy")] == [
        "Fix it", "Check it", "Ship it"
    ]  # fmt: skip
    gate = Gate()
    first, second = server.answers("one", gate), server.answers("two")
    agent.ask("prompt", message="/skill:deploy to the moon")
    gate.wait_reached()
    agent.ask("steer", message="/check this and that")
    assert agent.since(0, "queue_update")[-1]["steering"][0].strip() == "Please check this and that."
    gate.open()
    agent.wait_end()
    said = said_in(first.request)[-1][1]
    assert "Push the button." in said
    assert said.endswith("to the moon")
    assert said_in(second.request)[-1][1].strip() == "Please check this and that."
