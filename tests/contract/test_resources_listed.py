"""Templates and skills: listed with where they come from, and expanded before anybody else sees the message."""

from __future__ import annotations

from pathlib import Path

from fakes.model_server import Gate, said_in
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario

GIVEN = {"name", "description", "source", "location", "path", "sourceInfo"}


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


@scenario
def resources(stage: Stage) -> Seen:
    """A template of the user, one of the project and a skill: listed, and called."""
    folders = stage.folders
    mine = put(folders.agent / "prompts" / "fix.md", "---\ndescription: Fix it\n---\nPlease fix $1 now.\n")
    ours = put(folders.work / ".pi" / "prompts" / "check.md", "---\ndescription: Check it\n---\nPlease check $@.\n")
    skill = put(
        folders.agent / "skills" / "deploy" / "SKILL.md",
        "---\nname: deploy\ndescription: Ship it\n---\nPush the button.\n",
    )
    agent = stage.start("--approve")
    commands = agent.ask("get_commands")["commands"]
    gate = Gate()
    first, second = stage.server.answers("one", gate), stage.server.answers("two")
    agent.ask("prompt", message="/skill:deploy to the moon")
    gate.wait_reached()
    agent.ask("steer", message="/check this and that")
    queued = agent.since(0, "queue_update")[-1]["steering"][0].strip()
    gate.open()
    agent.wait_end()
    return Seen(
        mine=str(mine), ours=str(ours), skill=str(skill), listed={command["name"]: command for command in commands},
        queued=queued, first=said_in(first.request)[-1][1], second=said_in(second.request)[-1][1].strip(),
    )  # fmt: skip


@proves("get_commands.skill")
def test_a_skill_is_listed_under_its_name_with_its_source(resources: Seen) -> None:
    skill = resources.listed["skill:deploy"]
    assert (skill["source"], skill["description"]) == ("skill", "Ship it")


@proves("get_commands.project")
def test_the_templates_of_user_and_project_are_listed(resources: Seen) -> None:
    listed = resources.listed
    assert set(listed) == {"fix", "check", "skill:deploy"}
    assert all(set(command) <= GIVEN for command in listed.values())
    found = {name: (listed[name]["source"], listed[name]["description"]) for name in ("fix", "check")}
    assert found == {"fix": ("prompt", "Fix it"), "check": ("prompt", "Check it")}
    assert (listed["fix"]["location"], listed["fix"]["path"]) == ("user", resources.mine)


@proves("get_commands.location_project")
def test_a_template_of_the_project_says_so(resources: Seen) -> None:
    assert (resources.listed["check"]["location"], resources.listed["check"]["path"]) == ("project", resources.ours)


@proves("get_commands.location_skill")
def test_a_skill_of_the_user_says_so(resources: Seen) -> None:
    assert resources.listed["skill:deploy"]["location"] == "user"


@proves("get_commands.path_skill")
def test_a_skill_is_listed_with_its_absolute_path(resources: Seen) -> None:
    assert resources.listed["skill:deploy"]["path"] == resources.skill


@proves("prompt.skill")
def test_a_skill_is_expanded_before_it_is_sent(resources: Seen) -> None:
    assert "Push the button." in resources.first
    assert resources.first.endswith("to the moon")


@proves("prompt.template_queued")
def test_a_template_is_expanded_before_it_is_queued(resources: Seen) -> None:
    assert resources.queued == resources.second == "Please check this and that."
