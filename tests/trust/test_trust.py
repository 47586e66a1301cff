"""Trust: what needs it, who decides, and that looking reads nothing."""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path

import pytest

from pigeon.trust.decision import RESOURCES, Decision, find_guarded_paths, initial_decision
from pigeon.trust.trust_file import save_decision, saved_decision
from support.agent_folders import ODD


def folders(project: Path) -> list[str]:
    return [str(project / ".pigeon"), str(project / ".pi")]


@pytest.mark.parametrize("folder", [".pigeon", ".pi"])
@pytest.mark.parametrize("name", RESOURCES)
def test_everything_that_acts_needs_trust(tmp_path: Path, folder: str, name: str) -> None:
    (tmp_path / folder).mkdir()
    assert find_guarded_paths(str(tmp_path), folders(tmp_path), "/home/nobody") == []
    path = tmp_path / folder / name
    path.mkdir() if "." not in name else path.write_text("{")
    assert find_guarded_paths(str(tmp_path), folders(tmp_path), "/home/nobody") == [str(path)]


def test_a_link_that_leads_nowhere_needs_trust_too(tmp_path: Path) -> None:
    (tmp_path / ".pi").mkdir()
    (tmp_path / ".pi" / "extensions").symlink_to("/nowhere")
    assert find_guarded_paths(str(tmp_path), folders(tmp_path), "/home/nobody")


def test_skills_for_any_agent_above_count_but_not_the_users_own(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "home" / "code" / "app"
    project.mkdir(parents=True)
    (home / ".agents" / "skills").mkdir(parents=True)
    assert find_guarded_paths(str(project), folders(project), str(home)) == []
    above = home / "code" / ".agents" / "skills"
    above.mkdir(parents=True)
    assert find_guarded_paths(str(project), folders(project), str(home)) == [str(above)]


def test_the_users_own_skills_need_no_trust_under_another_name(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "home" / "app"
    (home / ".agents" / "skills").mkdir(parents=True)
    (project / ".agents").mkdir(parents=True)
    (project / ".agents" / "skills").symlink_to(home / ".agents" / "skills")
    (tmp_path / "link to home").symlink_to(home)
    assert find_guarded_paths(str(project), folders(project), str(home)) == []
    assert find_guarded_paths(str(project), folders(project), str(tmp_path / "link to home")) == []


def test_looking_opens_nothing_of_the_project(tmp_path: Path) -> None:
    (tmp_path / ".pi").mkdir()
    for name in ("settings.json", "SYSTEM.md"):
        os.mkfifo(tmp_path / ".pi" / name)  # opening one of these would wait for ever
    assert len(find_guarded_paths(str(tmp_path), folders(tmp_path), "/home/nobody")) == 2


def test_the_decision_follows_the_order_of_who_may_decide() -> None:
    answers = (None, True, False)
    for option, vote, saved, default in product(answers, answers, answers, ("ask", "always", "never")):
        by = {"ask": None, "always": True, "never": False}[default]
        said = {"option": option, "extension": vote, "saved": saved, "setting": by}
        name, first = next(((name, answer) for name, answer in said.items() if answer is not None), (None, None))
        found = initial_decision(option=option, vote=vote, saved=saved, default=default)  # type: ignore[arg-type]
        assert found == Decision(first, name)  # type: ignore[arg-type]


def test_the_nearest_saved_decision_counts(tmp_path: Path) -> None:
    agent, project = tmp_path / "agent", tmp_path / "code" / "app"
    agent.mkdir()
    project.mkdir(parents=True)
    assert saved_decision(str(agent), str(project)) == (None, None)
    real = os.path.realpath(tmp_path / "code")
    (agent / "trust.json").write_text(json.dumps({real: True, os.path.join(real, "app"): None, "/": False}))
    assert saved_decision(str(agent), str(project)) == (True, None)
    assert saved_decision(str(agent), "/tmp") == (False, None)
    link = tmp_path / "link"
    link.symlink_to(project)
    assert saved_decision(str(agent), str(link)) == (True, None)


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"/": "yes"', "\x00"])
def test_a_file_that_cannot_be_read_trusts_nobody_and_is_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "trust.json"
    file.write_text(text)
    trusted, problem = saved_decision(str(tmp_path), "/work")
    assert trusted is False
    assert str(file) in str(problem)
    assert str(file) in str(save_decision(str(tmp_path), "/work", True))
    assert file.read_text() == text


def test_a_decision_is_kept_for_its_owner_only_and_beside_the_others(tmp_path: Path) -> None:
    agent = tmp_path / "new" / "agent"
    assert save_decision(str(agent), str(tmp_path), True) is None
    assert save_decision(str(agent), "/", False) is None
    file = agent / "trust.json"
    assert json.loads(file.read_text()) == {os.path.realpath(tmp_path): True, "/": False}
    assert file.stat().st_mode & 0o777 == 0o600
    assert saved_decision(str(agent), str(tmp_path)) == (True, None)


def test_a_decision_made_under_a_link_is_one_about_the_folder_behind_it(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "other").mkdir()
    link = tmp_path / "link"
    link.symlink_to("project")
    assert save_decision(str(tmp_path / "agent"), str(link), True) is None
    link.unlink()
    link.symlink_to("other")
    decisions = [saved_decision(str(tmp_path / "agent"), str(tmp_path / name)) for name in ("project", "link")]
    assert decisions == [(True, None), (None, None)]


def test_a_file_with_comments_is_understood_and_not_overwritten(tmp_path: Path) -> None:
    text = '{\n  // my own\n  "/work": true,\n}\n'
    (tmp_path / "trust.json").write_text(text)
    assert saved_decision(str(tmp_path), "/work") == (True, None)
    problem = save_decision(str(tmp_path), "/other", True)
    assert "comments" in str(problem)
    assert '"/other": true' in str(problem)
    assert (tmp_path / "trust.json").read_text() == text


@pytest.mark.parametrize(
    ("entries", "trusted"),
    [
        ({"/code": True, "/code/evil/": False}, False),
        ({"/code": True, "/code/./evil": False, "/code/evil": True}, False),
        ({"/code": True, "/code/evil": "no"}, False),
        ({"/code": True, "/code/evil": 0}, False),
        ({"/code": True, "/code/evil": None}, True),
        ({"/code/": True}, True),
        ({"code": True, ".": True, "": True}, None),
    ],
)
def test_a_no_is_a_no_however_it_is_written(tmp_path: Path, entries: dict[str, object], trusted: bool | None) -> None:
    (tmp_path / "trust.json").write_text(json.dumps(entries))
    assert saved_decision(str(tmp_path), "/code/evil")[0] is trusted


def test_a_no_for_a_link_is_a_no_for_the_folder_behind_it(tmp_path: Path) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "link").symlink_to("evil")
    real = os.path.realpath(tmp_path)
    (tmp_path / "trust.json").write_text(json.dumps({real: True, f"{real}/link": False}))
    assert saved_decision(str(tmp_path), str(tmp_path / "evil"))[0] is False


@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_file_trusts_nobody_and_stays(tmp_path: Path, kind: str) -> None:
    ODD[kind](tmp_path / "trust.json")
    trusted, problem = saved_decision(str(tmp_path), "/work")
    assert trusted is False
    assert str(tmp_path / "trust.json") in str(problem)
