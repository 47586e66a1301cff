"""The system prompt: its sections, where they come from, and when it is made again."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from pigeon.agent.tool_facts import ToolFacts
from pigeon.resources.system_prompt import SHELL_EXPLORES
from pigeon.tools.catalog import facts_of


def tool(name: str, line: str) -> tuple[str, str, ToolFacts]:
    return name, line, facts_of(name)


TOOLS = [tool("read", "Read files"), tool("bash", "Run commands"), tool("quiet", "")]


def make_prompt(folders, tools=TOOLS, trusted: bool = True, guidelines=(), **options) -> str:
    return folders.resources(trusted, **options).build_system_prompt(str(folders.project), tools, guidelines)


def sections(prompt: str) -> list[str]:
    return re.findall(r"^<([a-z_]+)>$", prompt, re.M)


def test_sections_come_in_a_fixed_order_and_the_folder_is_last(folders) -> None:
    folders.put(folders.project / "AGENTS.md", "use tabs")
    folders.skill(folders.agent / "skills" / "s")
    prompt = make_prompt(folders, append_system_prompt=["and smile"], docs="/docs")
    assert prompt.startswith("You are Pigeon")
    known = ["tools", "rules", "docs", "addendum", "project_context", "skills", "available_skills", "cwd"]
    assert sections(prompt) == known
    assert prompt.endswith(f"<cwd>\n{folders.project}\n</cwd>")


def test_tools_are_listed_by_what_they_say_of_themselves(folders) -> None:
    prompt = make_prompt(folders)
    assert "- read: Read files\n- bash: Run commands\n" in prompt
    assert "quiet" not in prompt
    assert "<tools>\n(none)" in make_prompt(folders, tools=[])


def test_rules_fit_the_tools_and_come_once(folders) -> None:
    prompt = make_prompt(folders, guidelines=["Be careful.", "Be careful."])
    assert prompt.count("- Be careful.") == 1
    assert SHELL_EXPLORES in prompt
    assert SHELL_EXPLORES not in make_prompt(folders, tools=[*TOOLS, tool("grep", "Search")])
    assert "Commit only when asked" in prompt
    assert "Commit only when asked" not in make_prompt(folders, tools=[tool("read", "Read files")])
    assert len(make_prompt(folders, tools=[])) < len(make_prompt(folders, tools=[tool("read", "")])) < len(prompt)


def test_what_authors_of_tools_say_is_trimmed_and_nothing_blank_is_listed(folders) -> None:
    tools = [*TOOLS, tool("odd", "  Does\n  odd things "), tool("blank", " \n")]
    prompt = make_prompt(folders, tools=tools, guidelines=["  Mind the gap.\n", "Mind the gap.", " ", ""])
    assert "- odd: Does odd things\n" in prompt
    assert "blank" not in prompt
    assert prompt.count("- Mind the gap.\n") == 1
    assert "- \n" not in prompt
    assert "-\n" not in prompt


def test_the_pages_are_named_to_a_model_that_can_read_them(folders) -> None:
    assert "documentation is in /docs." in make_prompt(folders, docs="/docs")
    assert "/docs" not in make_prompt(folders, tools=[tool("grep", "Search")], docs="/docs")
    assert len(make_prompt(folders, docs="/docs")) - len(make_prompt(folders)) < 500


def test_the_prompt_has_no_date_and_stays_short(folders) -> None:
    prompt = make_prompt(folders)
    assert not re.search(r"20\d\d", prompt.replace(str(folders.project), ""))
    assert len(prompt) < 4_000


def test_a_prompt_of_ones_own_replaces_ours_and_keeps_what_was_added(folders) -> None:
    folders.put(folders.project / "AGENTS.md", "use tabs")
    folders.skill(folders.agent / "skills" / "s")
    prompt = make_prompt(folders, system_prompt="You are a poet.", append_system_prompt=["one", "two"], docs="/docs")
    assert prompt.startswith("You are a poet.\n\n<addendum>\none\n\ntwo\n</addendum>")
    assert sections(prompt) == ["addendum", "project_context", "skills", "available_skills", "cwd"]


def test_text_or_file(folders) -> None:
    path = folders.put(folders.home / "prompt.txt", "\ufefffrom a file\n")
    assert make_prompt(folders, system_prompt=path).startswith("from a file\n\n<cwd>")
    assert "<addendum>\nfrom a file\n\nliteral\n</addendum>" in make_prompt(
        folders, append_system_prompt=[path, "literal"]
    )
    assert make_prompt(folders, system_prompt="two\nlines").startswith("two\nlines")
    assert make_prompt(folders, system_prompt="x" * 10_000).startswith("xxx")
    assert make_prompt(folders, system_prompt="a\0b").startswith("a\0b")


def test_an_empty_prompt_of_ones_own_means_ours(folders) -> None:
    assert make_prompt(folders, system_prompt="").startswith("You are Pigeon")


@pytest.mark.parametrize(("name", "begins"), [("SYSTEM.md", ""), ("APPEND_SYSTEM.md", "<addendum>\n")])
def test_the_projects_file_wins_over_the_users_if_it_is_trusted(folders, name: str, begins: str) -> None:
    folders.put(folders.agent / name, "from the user")
    folders.put(folders.project / ".pi" / name, "from pi")
    assert begins + "from pi" in make_prompt(folders)
    ours = folders.put(folders.project / ".pigeon" / name, "from the project")
    assert begins + "from the project" in make_prompt(folders)
    untrusted = make_prompt(folders, trusted=False)
    assert begins + "from the user" in untrusted
    assert "project\n" not in untrusted.replace(str(folders.project), "")
    os.unlink(ours)
    assert "from the" not in make_prompt(folders, system_prompt="given", append_system_prompt=["given"])


def test_context_files_are_given_whatever_the_trust_and_marked_without_it(folders) -> None:
    path = folders.put(folders.project / "AGENTS.md", "use tabs")
    mine = folders.put(folders.agent / "AGENTS.md", "be kind")
    trusted, untrusted = make_prompt(folders), make_prompt(folders, trusted=False)
    assert f'<file path="{path}">\nuse tabs\n</file>' in trusted
    assert "approved" not in trusted
    assert f'<file path="{path}" approved="no">\nuse tabs\n</file>' in untrusted
    assert f'<file path="{mine}">\nbe kind\n</file>' in untrusted
    assert "use tabs" not in make_prompt(folders, no_context_files=True)


def test_the_prompt_is_made_once_for_the_same_folder_and_tools(folders) -> None:
    path = folders.put(folders.project / "AGENTS.md", "first")
    resources = folders.resources()
    before = resources.build_system_prompt(str(folders.project), TOOLS)
    folders.put(folders.project / "AGENTS.md", "second")
    assert resources.build_system_prompt(str(folders.project), list(TOOLS)) is before
    other = resources.build_system_prompt(str(folders.project), [*TOOLS, tool("grep", "Search")])
    assert "- grep: Search" in other
    assert "first" in other
    resources.reload()
    assert "second" in resources.build_system_prompt(str(folders.project), TOOLS)
    os.unlink(path)


def test_another_folder_has_its_own_files_and_no_trust_unless_it_was_announced(folders) -> None:
    other = folders.home / "other"
    folders.put(other / "AGENTS.md", "over there")
    folders.skill(other / ".pi" / "skills" / "theirs")
    folders.skill(folders.project / ".pi" / "skills" / "ours")
    resources = folders.resources()
    assert [c.name for c in resources.list_commands()] == ["skill:ours"]
    assert 'approved="no">\nover there' in resources.build_system_prompt(str(other), TOOLS)
    assert resources.list_commands() == []
    resources.use_folder(str(other), trusted=True)
    assert [c.name for c in resources.list_commands()] == ["skill:theirs"]
    assert "theirs" in resources.build_system_prompt(str(other), TOOLS)


def test_a_problem_is_reported_once(folders) -> None:
    folders.put(folders.agent / "skills" / "bad" / "SKILL.md", "nothing")
    resources = folders.resources()
    assert folders.reported == []
    resources.build_system_prompt(str(folders.project), TOOLS)
    resources.reload()
    resources.build_system_prompt(str(folders.project), TOOLS)
    assert len(folders.reported) == 1


def test_nothing_is_read_before_it_is_asked_for(folders, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*arguments: object) -> object:
        raise AssertionError(f"read too early: {arguments}")

    for name in ("scandir", "listdir", "open", "stat"):
        monkeypatch.setattr(os, name, forbidden)
    assert folders.resources(skills=["x"], system_prompt="y").expand("hello") == "hello"
    assert folders.reported == []


def test_the_entry_brings_neither_yaml_nor_anything_else_that_is_heavy() -> None:
    code = (
        "import sys; old = set(sys.modules); from pigeon.resources.resources import ResourceOptions, Resources;"
        "Resources('/a', '/b', True, ResourceOptions(), home='/', base='/', report=print, expansion_failed=print)"
        ".expand('hi');"
        "print([n for n in ('yaml', 'glob', 'fnmatch', 'pigeon.resources.skills') if n in set(sys.modules) - old])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
