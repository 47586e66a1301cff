"""Rule files: what a head may say, what is reported, and which folders count."""

from __future__ import annotations

from pathlib import Path

import pytest

from pigeon.resources.rule_files import LARGEST, read_rules, rule_folders
from pigeon.wire import codec
from pigeon.wire.base import ABSENT
from pigeon.wire.steering import Rule


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.reports: list[str] = []

    def write(self, text: str, name: str = "one.md") -> Path:
        file = self.path / name
        file.write_text(text, "utf-8")
        return file

    def read(self) -> list[Rule]:
        return read_rules([(str(self.path), "user")], self.reports.append)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_rule_is_its_head_and_its_text(folder: Folder) -> None:
    path = folder.write(
        "---\nname: no-print\ndescription: No prints\ncondition:\n  - 'print\\('\n  - pdb\n"
        "scope: text, tool:write(*.py)\ninterruptMode: tool-only\nrepeat: 5\nglobs: ['*.py']\nalwaysApply: false\n"
        "---\n\nUse the logger.\n"
    )
    (rule,) = folder.read()
    assert codec.to_plain(rule) == {
        "name": "no-print",
        "path": str(path),
        "content": "Use the logger.",
        "description": "No prints",
        "condition": ["print\\(", "pdb"],
        "scope": ["text", "tool:write(*.py)"],
        "interruptMode": "tool-only",
        "repeat": 5,
        "globs": ["*.py"],
        "alwaysApply": False,
        "_source": {"provider": "native", "providerName": "Pigeon", "path": str(path), "level": "user"},
    }
    assert folder.reports == []


def test_only_the_condition_is_needed(folder: Folder) -> None:
    folder.write("---\ncondition: foo, bar\n---\nNo.", "short.mdc")
    (rule,) = folder.read()
    assert (rule.name, rule.condition, rule.scope, rule.repeat) == ("short", ["foo, bar"], ABSENT, ABSENT)


def test_files_that_watch_nothing_are_passed_over(folder: Folder) -> None:
    folder.write("Just text.")
    folder.write("---\ndescription: for later\n---\nText.", "two.md")
    folder.write("---\ncondition: x\n---\nText.", "three.txt")
    folder.write("---\ncondition: x\n---\nText.", ".hidden.md")
    assert folder.read() == []
    assert folder.reports == []


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("condition: [x", "YAML"),
        ("- x", "front matter"),
        ("condition: {a: b}", "condition must be"),
        ("condition: [x, [y]]", "condition must be"),
        ("condition: x\nscope: {a: b}", "scope must be"),
        ("condition: x\ninterruptMode: loud", "interruptMode must be one of always, never"),
        ("condition: x\nrepeat: often", "repeat must be"),
        ("condition: x\nrepeat: 0", "repeat must be"),
    ],
)
def test_a_file_that_makes_no_sense_is_reported_and_the_others_count(folder: Folder, head: str, reason: str) -> None:
    path = folder.write(f"---\n{head}\n---\nText.")
    folder.write("---\ncondition: y\n---\nText.", "two.md")
    assert [rule.name for rule in folder.read()] == ["two"]
    assert len(folder.reports) == 1
    assert str(path) in folder.reports[0]
    assert reason in folder.reports[0]


def test_a_file_that_cannot_be_read_or_is_too_long_is_reported(folder: Folder) -> None:
    (folder.path / "dir.md").mkdir()
    folder.write("x" * (LARGEST + 1))
    assert folder.read() == []
    assert ["cannot be read" in folder.reports[0], "longer than" in folder.reports[1]] == [True, True]


@pytest.mark.parametrize(
    ("line", "repeat"),
    [
        ("once: true", ABSENT),
        ("once: false", 1),
        ("repeat: once", ABSENT),
        ("repeat: always", 1),
        ("repeat: after-gap", 10),
        ("repeat: 3", 3),
    ],
)
def test_how_often_a_rule_may_come(folder: Folder, line: str, repeat: object) -> None:
    folder.write(f"---\ncondition: x\n{line}\n---\nText.")
    assert folder.read()[0].repeat == repeat


def test_the_projects_rule_goes_before_the_users_of_the_same_name(tmp_path: Path) -> None:
    for place, text in (("agent", "mine"), ("work/.pi", "theirs"), ("work/.omp", "others")):
        (tmp_path / place / "rules").mkdir(parents=True)
        (tmp_path / place / "rules" / "same.md").write_text(f"---\ncondition: x\n---\n{text}")
    work, agent = str(tmp_path / "work"), str(tmp_path / "agent")
    for trusted, expected in ((True, "theirs"), (False, "mine")):
        (rule,) = read_rules(rule_folders(agent, work, trusted), print)
        assert rule.content == expected


def test_a_project_that_is_not_trusted_is_not_even_looked_at(tmp_path: Path) -> None:
    assert rule_folders("/a", "/w", False) == [("/a/rules", "user")]
    assert [folder for folder, _ in rule_folders("/a", "/w", True)] == [
        "/w/.pigeon/rules",
        "/w/.pi/rules",
        "/w/.omp/rules",
        "/a/rules",
    ]
