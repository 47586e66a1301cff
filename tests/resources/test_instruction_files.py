"""Links at names that are read for the model: where each kind of file may lead, from every place that is read."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from pigeon.resources.context_files import read_context_files

HEAD = "---\ndescription: d\ncondition: x\n---\n"
SECRET = "the-secret-text"
TARGETS = {
    "hidden folder": ".ssh/id",
    "hidden Markdown": ".ssh/notes.md",
    "below": "docs/agents.md",
    "variables": ".env",
    "beside": "notes.md",
    "beside, of another agent": ".cursorrules",
    "above": "../agents.md",
    "absolute": "/etc/hostname",
    "of git": ".git/config",
}
# What is read at each place, below the folder of the project; the last are read for a trusted project only.
CONTEXT_NAMES = ("AGENTS.md", "CLAUDE.md", "AGENTS.override.md")
TRUSTED_NAMES = (
    ".pigeon/SYSTEM.md",
    ".pi/APPEND_SYSTEM.md",
    ".pigeon/skills/one/SKILL.md",
    ".pi/skills/two.md",
    ".agents/skills/one/SKILL.md",
    ".pigeon/prompts/one.md",
    ".pigeon/rules/one.md",
    ".omp/rules/one.md",
)


def link(folder: Path, name: str, target: str) -> None:
    """A link at this name to a path below the folder, or to the absolute one."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(folder / target, path.parent) if not target.startswith("/") else target)


def read_everything(folders) -> str:
    """All that the model could get from files, with every skill and template expanded."""
    resources = folders.resources()
    texts = [resources.build_system_prompt(str(folders.project), [])]
    texts += [resources.expand(f"/{command.name}") for command in resources.list_commands()]
    texts += [rule.content for rule in resources.read_rules(str(folders.project))]
    return "\n".join(texts)


def is_allowed(name: str, target: str, in_repository: bool) -> bool:
    """The rule of docs/security.md, written down once more."""
    if target.startswith("/") or target.startswith(".."):
        return False
    if not target.endswith(".md") and target != ".cursorrules":
        return False
    return in_repository or name not in CONTEXT_NAMES or "/" not in target


@pytest.mark.parametrize(("name", "in_repository"), list(product((*CONTEXT_NAMES, *TRUSTED_NAMES), (True, False))))
def test_links_of_a_project_lead_only_to_its_other_instructions(folders, name: str, in_repository: bool) -> None:
    if in_repository:
        (folders.project / ".git").mkdir()
    for kind, target in TARGETS.items():
        if kind == "of git" and not in_repository:
            continue
        if not target.startswith("/"):
            folders.put(folders.project / target, f"{HEAD}{SECRET} {kind}")
        link(folders.project, name, target)
        folders.reported.clear()
        text = read_everything(folders)
        allowed = is_allowed(name, target, in_repository)
        assert (f"{SECRET} {kind}" in text) is allowed, (kind, folders.reported)
        if not allowed:
            assert any(name in problem for problem in folders.reported), kind
        (folders.project / name).unlink()


def test_a_context_file_of_a_parent_folder_is_no_way_to_its_hidden_files(folders) -> None:
    folders.put(folders.project.parent / ".ssh" / "id", SECRET)
    (folders.project.parent / "AGENTS.md").symlink_to(".ssh/id")
    folders.put(folders.project.parent / "CLAUDE.md", "fine")
    found = read_context_files(str(folders.agent), str(folders.project), folders.reported.append)
    assert [file.text for file in found] == ["fine"]
    assert "AGENTS.md is a link" in folders.reported[0]


def test_a_linked_folder_of_skills_stays_in_the_project(folders) -> None:
    folders.skill(folders.project / "shared" / "inside", name="inside")
    folders.skill(folders.home / "outside", name="outside", body=SECRET)
    link(folders.project, ".pi/skills/inside", "shared/inside")
    link(folders.project, ".pi/skills/outside", str(folders.home / "outside"))
    assert [command.name for command in folders.resources().list_commands()] == ["skill:inside"]
    assert "leads out of" in folders.reported[0]


def test_a_skill_that_becomes_a_link_after_it_was_listed_is_not_read(folders) -> None:
    path = Path(folders.skill(folders.project / ".pi" / "skills" / "one", name="one"))
    secret = folders.put(folders.home / "id", SECRET)
    resources = folders.resources()
    assert [command.name for command in resources.list_commands()] == ["skill:one"]
    path.unlink()
    path.symlink_to(secret)
    assert resources.expand("/skill:one") == "/skill:one"
    assert "leads out of" in folders.failed[0][1]


def test_files_of_the_user_may_be_links_to_anywhere(folders) -> None:
    for name in ("AGENTS.md", "SYSTEM.md", "prompts/one.md", "rules/one.md", "skills/one/SKILL.md"):
        kept = folders.put(folders.home / "dotfiles" / name.replace("/", "-"), f"{HEAD}mine {name}")
        (folders.agent / name).parent.mkdir(parents=True, exist_ok=True)
        (folders.agent / name).symlink_to(kept)
    text = read_everything(folders)
    assert all(f"mine {name}" in text for name in ("AGENTS.md", "SYSTEM.md", "prompts/one.md", "rules/one.md"))
    assert "mine skills/one/SKILL.md" in text
