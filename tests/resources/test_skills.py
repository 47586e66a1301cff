"""Skills: where they are found, which one counts, how they are listed and expanded."""

from __future__ import annotations

import os

import pytest

from pigeon.resources.resources import Resources
from pigeon.tools.catalog import facts_of

TOOLS = [("read", "Read files", facts_of("read"))]


def names(resources: Resources) -> list[str]:
    return [command.name for command in resources.list_commands() if command.source == "skill"]


def prompt(resources: Resources, folders) -> str:
    return resources.build_system_prompt(str(folders.project), TOOLS)


def test_a_skill_is_expanded_with_its_place_and_the_arguments(folders) -> None:
    path = folders.skill(folders.agent / "skills" / "deploy", body="\n# Deploy\n\nRun it.\n")
    folder = os.path.dirname(path)
    expander = folders.resources()
    opening = f'<skill name="deploy" location="{path}">\n'
    begun = f"{opening}References are relative to {folder}.\n\n# Deploy\n\nRun it.\n</skill>"
    assert expander.expand("/skill:deploy") == begun
    assert expander.expand("/skill:deploy   ") == begun
    assert expander.expand("/skill:deploy  to the  moon \n") == begun + "\n\nto the  moon"
    assert expander.expand("/skill:deploy\nnow") == begun + "\n\nnow"


@pytest.mark.parametrize(
    "text", ["/skill:unknown x", "/skill:", "/skill: deploy", "say /skill:deploy", "skill:deploy", ""]
)
def test_other_text_is_not_touched(folders, text: str) -> None:
    folders.skill(folders.agent / "skills" / "deploy")
    assert folders.resources().expand(text) == text


def test_a_skill_that_can_no_longer_be_read_is_told_and_the_text_stays(folders) -> None:
    path = folders.skill(folders.agent / "skills" / "deploy")
    expander = folders.resources()
    assert expander.expand("/skill:deploy").startswith("<skill")
    os.unlink(path)
    assert expander.expand("/skill:deploy x") == "/skill:deploy x"
    assert folders.failed == [(path, f"ENOENT: no such file or directory, read '{path}'")]


def test_the_first_place_wins_and_what_was_named_comes_first(folders) -> None:
    places = {
        "named": folders.home / "elsewhere" / "s",
        "project": folders.project / ".pigeon" / "skills" / "s",
        "project of pi": folders.project / ".pi" / "skills" / "s",
        "shared project": folders.project / ".agents" / "skills" / "s",
        "user": folders.agent / "skills" / "s",
        "shared user": folders.home / ".agents" / "skills" / "s",
    }
    for described, place in places.items():
        folders.skill(place, description=described)
    (folders.project / ".git").mkdir()
    for described, place in places.items():
        options = {"skills": [str(places["named"])]} if places["named"].exists() else {}
        [command] = folders.resources(**options).list_commands()
        assert command.description == described
        os.unlink(place / "SKILL.md")
        place.rmdir()
    assert names(folders.resources()) == []


def test_nothing_of_a_project_that_is_not_trusted_is_loaded(folders, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (".pigeon", ".pi", ".agents"):
        folders.skill(folders.project / folder / "skills" / folder.strip("."))
    folders.skill(folders.agent / "skills" / "mine")
    seen: list[str] = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: seen.append(str(path)) or real(path))
    assert names(folders.resources(trusted=False)) == ["skill:mine"]
    assert not [path for path in seen if path.startswith(str(folders.project))]


def test_shared_skills_are_looked_for_up_to_the_repository_and_no_further(folders) -> None:
    deep = folders.project / "a" / "b"
    deep.mkdir(parents=True)
    (folders.project / "a" / ".git").write_text("gitdir: elsewhere")
    folders.skill(folders.project / ".agents" / "skills" / "outside")
    folders.skill(folders.project / "a" / ".agents" / "skills" / "inside")
    resources = folders.resources()
    resources.use_folder(str(deep), trusted=True)
    assert names(resources) == ["skill:inside"]


def test_outside_of_a_repository_only_the_folder_itself_is_looked_at(folders) -> None:
    folders.skill(folders.project.parent / ".agents" / "skills" / "above")
    folders.skill(folders.project / ".agents" / "skills" / "here")
    assert names(folders.resources()) == ["skill:here"]


def test_the_users_own_shared_skills_are_not_a_projects(folders) -> None:
    folders.skill(folders.home / ".agents" / "skills" / "mine")
    (folders.home / ".git").mkdir()
    for trusted in (True, False):
        resources = folders.resources()
        resources.use_folder(str(folders.home), trusted)
        [command] = resources.list_commands()
        assert command.location == "user"


def test_without_skills_only_those_that_were_named_are_loaded(folders) -> None:
    folders.skill(folders.agent / "skills" / "mine")
    path = folders.skill(folders.home / "elsewhere" / "named")
    assert names(folders.resources(no_skills=True)) == []
    assert names(folders.resources(no_skills=True, skills=[path])) == ["skill:named"]
    assert names(folders.resources(no_skills=True, skills=[str(folders.home / "elsewhere")])) == ["skill:named"]


def test_a_named_path_that_is_not_there_is_a_problem(folders) -> None:
    resources = folders.resources(skills=["/no/such/skill"])
    assert names(resources) == []
    assert folders.reported == ["/no/such/skill does not exist: no skill or template is loaded from it"]


def test_both_forms_of_provenance_are_given(folders) -> None:
    (folders.project / ".git").mkdir()
    user = folders.skill(folders.agent / "skills" / "a")
    project = folders.skill(folders.project / ".pi" / "skills" / "b")
    shared = folders.skill(folders.project / ".agents" / "skills" / "c")
    named = folders.skill(folders.home / "elsewhere" / "d")
    commands = {c.name: c for c in folders.resources(skills=[os.path.dirname(named)]).list_commands()}

    def provenance_of(name: str) -> tuple[object, ...]:
        c = commands[name]
        info = c.source_info
        assert (c.source, c.description, c.path) == ("skill", "does things", info.path)
        return c.location, c.path, info.source, info.scope, info.origin, info.base_dir

    assert provenance_of("skill:a") == ("user", user, "auto", "user", "top-level", str(folders.agent))
    assert provenance_of("skill:b") == (
        "project",
        project,
        "auto",
        "project",
        "top-level",
        str(folders.project / ".pi"),
    )
    assert provenance_of("skill:c") == (
        "project",
        shared,
        "auto",
        "project",
        "top-level",
        str(folders.project / ".agents"),
    )
    assert provenance_of("skill:d") == ("path", named, "local", "temporary", "top-level", os.path.dirname(named))


def test_a_folder_with_a_skill_is_one_skill_and_is_not_searched_further(folders) -> None:
    folders.skill(folders.agent / "skills" / "group" / "outer")
    folders.skill(folders.agent / "skills" / "group" / "outer" / "inner")
    assert names(folders.resources()) == ["skill:outer"]


def test_hidden_folders_dependencies_and_ignored_ones_are_skipped(folders) -> None:
    skills = folders.agent / "skills"
    for folder in (".hidden", "node_modules/dep", "drafts/one", "drafts/kept", "old", "fine"):
        folders.skill(skills / folder)
    folders.put(skills / ".gitignore", "# not these\n/drafts/*\n!kept\nol?/\n")
    assert names(folders.resources()) == ["skill:kept", "skill:fine"]


def test_loose_files_count_at_the_top_of_our_folders_and_below_it_in_shared_ones(folders) -> None:
    (folders.project / ".git").mkdir()
    head = "---\ndescription: loose\n---\nbody"
    folders.put(folders.agent / "skills" / "top.md", head)
    folders.put(folders.agent / "skills" / "sub" / "below.md", head)
    folders.put(folders.agent / "skills" / "README.md", "# no description, no skill")
    folders.put(folders.home / ".agents" / "skills" / "shared-top.md", head)
    folders.put(folders.home / ".agents" / "skills" / "sub" / "shared-below.md", head)
    assert names(folders.resources()) == ["skill:top", "skill:shared-below"]
    assert folders.reported == []


def test_links_are_followed_but_never_in_a_circle_and_never_twice(folders) -> None:
    real = folders.home / "real"
    folders.skill(real, name="linked")
    skills = folders.agent / "skills"
    skills.mkdir()
    (skills / "one").symlink_to(real)
    (skills / "two").symlink_to(real)
    (skills / "circle").symlink_to(skills)
    (skills / "broken").symlink_to(folders.home / "nothing")
    assert names(folders.resources()) == ["skill:linked"]
    assert folders.reported == []


def test_two_of_one_name_in_one_place_are_reported_and_overriding_is_not(folders) -> None:
    first = folders.skill(folders.agent / "skills" / "a", name="same")
    second = folders.skill(folders.agent / "skills" / "b", name="same")
    folders.skill(folders.project / ".pigeon" / "skills" / "same")
    resources = folders.resources()
    [command] = resources.list_commands()
    assert command.location == "project"
    assert folders.reported == []
    [command] = folders.resources(trusted=False).list_commands()
    assert command.path == first
    assert [f'{second}: skill "same" is hidden by the one of that name in {first}'] == folders.reported


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no head at all", "needs a description"),
        ("---\nname: x\n---\n", "needs a description"),
        ("---\ndescription:\n---\n", "needs a description"),
        ("---\ndescription: [a, b]\n---\n", "needs a description"),
        ("---\ndescription: use when: always\n---\n", "line 2: mapping values are not allowed"),
        ("---\ndescription: x\n", "needs a description"),
    ],
)
def test_a_file_that_is_no_skill_is_not_loaded_and_named(folders, text: str, problem: str) -> None:
    path = folders.put(folders.agent / "skills" / "x" / "SKILL.md", text)
    folders.skill(folders.agent / "skills" / "good")
    assert names(folders.resources()) == ["skill:good"]
    assert len(folders.reported) == 1
    assert folders.reported[0].startswith(path)
    assert problem in folders.reported[0]


@pytest.mark.parametrize("name", ["Upper", "two words", "-x", "x-", "a--b", "ümlaut", "a" * 65])
def test_a_name_outside_of_the_standard_is_loaded_with_a_warning(folders, name: str) -> None:
    folders.skill(folders.agent / "skills" / "x", name=name)
    assert names(folders.resources()) == [f"skill:{name}"]
    assert len(folders.reported) == 1


def test_a_description_beyond_the_limit_is_loaded_with_a_warning_and_shortened_for_the_model(folders) -> None:
    folders.skill(folders.agent / "skills" / "x", description="d" * 1100)
    resources = folders.resources()
    assert "d" * 1024 + "</description>" in prompt(resources, folders)
    assert "1024" in folders.reported[0]


def test_pipes_and_giants_do_not_hold_anybody_up(folders) -> None:
    (folders.agent / "skills" / "pipe").mkdir(parents=True)
    os.mkfifo(folders.agent / "skills" / "loose.md")
    folders.put(folders.agent / "skills" / "giant" / "SKILL.md", "---\ndescription: x\n---\n" + "x" * 1_100_000)
    folders.skill(folders.agent / "skills" / "good")
    assert names(folders.resources()) == ["skill:good"]
    assert len(folders.reported) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_a_folder_that_cannot_be_read_is_reported(folders) -> None:
    locked = folders.agent / "skills" / "locked"
    locked.mkdir(parents=True)
    locked.chmod(0)
    try:
        assert names(folders.resources()) == []
        assert str(locked) in folders.reported[0]
    finally:
        locked.chmod(0o700)


def test_the_model_is_told_of_skills_with_markup_made_harmless(folders) -> None:
    path = folders.skill(folders.agent / "skills" / "a&b", description="'for <tags> & more'", name="odd")
    listed = prompt(folders.resources(), folders)
    assert "<name>odd</name><description>for &lt;tags&gt; &amp; more</description>" in listed
    assert f"<location>{path.replace('&', '&amp;')}</location>" in listed
    assert "<available_skills>" in listed


def test_a_skill_that_the_model_must_not_choose_is_for_the_user_only(folders) -> None:
    folders.skill(folders.agent / "skills" / "secret", disable_model_invocation="true")
    resources = folders.resources()
    assert "<skills>" not in prompt(resources, folders)
    assert names(resources) == ["skill:secret"]


def test_skills_are_not_listed_for_a_model_that_cannot_read_them(folders) -> None:
    folders.skill(folders.agent / "skills" / "a")
    resources = folders.resources()
    assert "<skills>" not in resources.build_system_prompt(str(folders.project), [("edit", "Edit", facts_of("edit"))])
    assert "<skills>" in resources.build_system_prompt(str(folders.project), [("bash", "Run", facts_of("bash"))])


def test_settings_add_places_and_leave_out_skills(folders) -> None:
    folders.skill(folders.agent / "more" / "added")
    for name in ("one", "two", "three", "draft-a", "draft-b"):
        folders.skill(folders.agent / "skills" / name)
    entries = ["more", "!draft-*", "+skills/draft-b", "-skills/two"]
    assert names(folders.resources(user_skills=entries)) == [
        "skill:added", "skill:draft-b", "skill:one", "skill:three",
    ]  # fmt: skip


def test_settings_of_a_project_count_only_when_it_is_trusted(folders) -> None:
    folders.skill(folders.project / ".pi" / "extra" / "theirs")
    assert names(folders.resources(project_skills=["extra"])) == ["skill:theirs"]
    assert names(folders.resources(trusted=False, project_skills=["extra"])) == []


def test_globs_in_settings_are_expanded(folders) -> None:
    for team in ("red", "blue"):
        folders.skill(folders.agent / "teams" / team / team)
    assert names(folders.resources(user_skills=["teams/*/"])) == ["skill:blue", "skill:red"]
    folders.skill(folders.agent / "teams" / "red" / "old" / "deep" / "crimson")
    assert names(folders.resources(user_skills=["teams/**/crimson"])) == ["skill:crimson"]


def test_what_extensions_bring_has_the_lowest_rank(folders) -> None:
    folders.skill(folders.agent / "skills" / "same", description="mine")
    brought = folders.home / "ext"
    folders.skill(brought / "same", description="theirs")
    folders.skill(brought / "more")
    resources = folders.resources()
    expander = resources
    assert [c.description for c in expander.list_commands()] == ["mine"]
    resources.add_new_paths(skills=[str(brought)])
    assert {c.name: c.description for c in expander.list_commands()} == {
        "skill:same": "mine",
        "skill:more": "does things",
    }


def test_a_search_that_never_ends_is_ended(folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pigeon.resources.skills.MOST_FOLDERS", 5)
    for number in range(20):
        (folders.agent / "skills" / f"{number:02}").mkdir(parents=True)
    assert names(folders.resources()) == []
    assert "more than 5 folders" in folders.reported[0]


def test_folders_are_searched_twelve_levels_deep(folders) -> None:
    deep = folders.agent / "skills" / "/".join("abcdefghijk")
    folders.skill(deep / "twelfth")
    folders.skill(deep / "other" / "thirteenth")
    assert names(folders.resources()) == ["skill:twelfth"]


def test_a_relative_path_begins_where_the_options_were_given(folders) -> None:
    path = folders.skill(folders.home / "here")
    [command] = folders.resources(skills=["here"]).list_commands()
    assert command.path == path
