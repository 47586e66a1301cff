"""Skills: where they are found, which one counts, how they are listed and expanded."""

from __future__ import annotations

import os

import pytest

from pigeon.resources.resources import Resources

TOOLS = [("read", "Read files")]


def names(resources: Resources) -> list[str]:
    return [command.name for command in resources.commands() if command.source == "skill"]


def prompt(resources: Resources, town) -> str:
    return resources.system_prompt(str(town.project), TOOLS)


def test_a_skill_is_expanded_with_its_place_and_the_arguments(town) -> None:
    path = town.skill(town.agent / "skills" / "deploy", body="\n# Deploy\n\nRun it.\n")
    folder = os.path.dirname(path)
    expander = town.resources()
    opening = f'<skill name="deploy" location="{path}">\n'
    begun = f"{opening}References are relative to {folder}.\n\n# Deploy\n\nRun it.\n</skill>"
    assert expander.expand("/skill:deploy") == begun
    assert expander.expand("/skill:deploy   ") == begun
    assert expander.expand("/skill:deploy  to the  moon \n") == begun + "\n\nto the  moon"
    assert expander.expand("/skill:deploy\nnow") == begun + "\n\nnow"


@pytest.mark.parametrize(
    "text", ["/skill:unknown x", "/skill:", "/skill: deploy", "say /skill:deploy", "skill:deploy", ""]
)
def test_other_text_is_not_touched(town, text: str) -> None:
    town.skill(town.agent / "skills" / "deploy")
    assert town.resources().expand(text) == text


def test_a_skill_that_can_no_longer_be_read_is_told_and_the_text_stays(town) -> None:
    path = town.skill(town.agent / "skills" / "deploy")
    expander = town.resources()
    assert expander.expand("/skill:deploy").startswith("<skill")
    os.unlink(path)
    assert expander.expand("/skill:deploy x") == "/skill:deploy x"
    assert town.failed == [(path, f"ENOENT: no such file or directory, read '{path}'")]


def test_the_first_place_wins_and_what_was_named_comes_first(town) -> None:
    places = {
        "named": town.home / "elsewhere" / "s",
        "project": town.project / ".pigeon" / "skills" / "s",
        "project of pi": town.project / ".pi" / "skills" / "s",
        "shared project": town.project / ".agents" / "skills" / "s",
        "user": town.agent / "skills" / "s",
        "shared user": town.home / ".agents" / "skills" / "s",
    }
    for described, place in places.items():
        town.skill(place, description=described)
    (town.project / ".git").mkdir()
    for described, place in places.items():
        options = {"skills": [str(places["named"])]} if places["named"].exists() else {}
        [command] = town.resources(**options).commands()
        assert command.description == described
        os.unlink(place / "SKILL.md")
        place.rmdir()
    assert names(town.resources()) == []


def test_nothing_of_a_project_that_is_not_trusted_is_loaded(town, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (".pigeon", ".pi", ".agents"):
        town.skill(town.project / folder / "skills" / folder.strip("."))
    town.skill(town.agent / "skills" / "mine")
    seen: list[str] = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: seen.append(str(path)) or real(path))
    assert names(town.resources(trusted=False)) == ["skill:mine"]
    assert not [path for path in seen if path.startswith(str(town.project))]


def test_shared_skills_are_looked_for_up_to_the_repository_and_no_further(town) -> None:
    deep = town.project / "a" / "b"
    deep.mkdir(parents=True)
    (town.project / "a" / ".git").write_text("gitdir: elsewhere")
    town.skill(town.project / ".agents" / "skills" / "outside")
    town.skill(town.project / "a" / ".agents" / "skills" / "inside")
    resources = town.resources()
    resources.move_to(str(deep), trusted=True)
    assert names(resources) == ["skill:inside"]


def test_outside_of_a_repository_only_the_folder_itself_is_looked_at(town) -> None:
    town.skill(town.project.parent / ".agents" / "skills" / "above")
    town.skill(town.project / ".agents" / "skills" / "here")
    assert names(town.resources()) == ["skill:here"]


def test_the_users_own_shared_skills_are_not_a_projects(town) -> None:
    town.skill(town.home / ".agents" / "skills" / "mine")
    (town.home / ".git").mkdir()
    for trusted in (True, False):
        resources = town.resources()
        resources.move_to(str(town.home), trusted)
        [command] = resources.commands()
        assert command.location == "user"


def test_without_skills_only_those_that_were_named_are_loaded(town) -> None:
    town.skill(town.agent / "skills" / "mine")
    path = town.skill(town.home / "elsewhere" / "named")
    assert names(town.resources(no_skills=True)) == []
    assert names(town.resources(no_skills=True, skills=[path])) == ["skill:named"]
    assert names(town.resources(no_skills=True, skills=[str(town.home / "elsewhere")])) == ["skill:named"]


def test_a_named_path_that_is_not_there_is_a_problem(town) -> None:
    resources = town.resources(skills=["/no/such/skill"])
    assert names(resources) == []
    assert town.reported == ["/no/such/skill does not exist: no skill or template is loaded from it"]


def test_both_forms_of_provenance_are_given(town) -> None:
    (town.project / ".git").mkdir()
    user = town.skill(town.agent / "skills" / "a")
    project = town.skill(town.project / ".pi" / "skills" / "b")
    shared = town.skill(town.project / ".agents" / "skills" / "c")
    named = town.skill(town.home / "elsewhere" / "d")
    commands = {c.name: c for c in town.resources(skills=[os.path.dirname(named)]).commands()}

    def told(name: str) -> tuple[object, ...]:
        c = commands[name]
        info = c.source_info
        assert (c.source, c.description, c.path) == ("skill", "does things", info.path)
        return c.location, c.path, info.source, info.scope, info.origin, info.base_dir

    assert told("skill:a") == ("user", user, "auto", "user", "top-level", str(town.agent))
    assert told("skill:b") == ("project", project, "auto", "project", "top-level", str(town.project / ".pi"))
    assert told("skill:c") == ("project", shared, "auto", "project", "top-level", str(town.project / ".agents"))
    assert told("skill:d") == ("path", named, "local", "temporary", "top-level", os.path.dirname(named))


def test_a_folder_with_a_skill_is_one_skill_and_is_not_searched_further(town) -> None:
    town.skill(town.agent / "skills" / "group" / "outer")
    town.skill(town.agent / "skills" / "group" / "outer" / "inner")
    assert names(town.resources()) == ["skill:outer"]


def test_hidden_folders_dependencies_and_ignored_ones_are_skipped(town) -> None:
    skills = town.agent / "skills"
    for folder in (".hidden", "node_modules/dep", "drafts/one", "drafts/kept", "old", "fine"):
        town.skill(skills / folder)
    town.put(skills / ".gitignore", "# not these\n/drafts/*\n!kept\nol?/\n")
    assert names(town.resources()) == ["skill:kept", "skill:fine"]


def test_loose_files_count_at_the_top_of_our_folders_and_below_it_in_shared_ones(town) -> None:
    (town.project / ".git").mkdir()
    head = "---\ndescription: loose\n---\nbody"
    town.put(town.agent / "skills" / "top.md", head)
    town.put(town.agent / "skills" / "sub" / "below.md", head)
    town.put(town.agent / "skills" / "README.md", "# no description, no skill")
    town.put(town.home / ".agents" / "skills" / "shared-top.md", head)
    town.put(town.home / ".agents" / "skills" / "sub" / "shared-below.md", head)
    assert names(town.resources()) == ["skill:top", "skill:shared-below"]
    assert town.reported == []


def test_links_are_followed_but_never_in_a_circle_and_never_twice(town) -> None:
    real = town.home / "real"
    town.skill(real, name="linked")
    skills = town.agent / "skills"
    skills.mkdir()
    (skills / "one").symlink_to(real)
    (skills / "two").symlink_to(real)
    (skills / "circle").symlink_to(skills)
    (skills / "broken").symlink_to(town.home / "nothing")
    assert names(town.resources()) == ["skill:linked"]
    assert town.reported == []


def test_two_of_one_name_in_one_place_are_reported_and_overriding_is_not(town) -> None:
    first = town.skill(town.agent / "skills" / "a", name="same")
    second = town.skill(town.agent / "skills" / "b", name="same")
    town.skill(town.project / ".pigeon" / "skills" / "same")
    resources = town.resources()
    [command] = resources.commands()
    assert command.location == "project"
    assert town.reported == []
    [command] = town.resources(trusted=False).commands()
    assert command.path == first
    assert [f'{second}: skill "same" is hidden by the one of that name in {first}'] == town.reported


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
def test_a_file_that_is_no_skill_is_not_loaded_and_named(town, text: str, problem: str) -> None:
    path = town.put(town.agent / "skills" / "x" / "SKILL.md", text)
    town.skill(town.agent / "skills" / "good")
    assert names(town.resources()) == ["skill:good"]
    assert len(town.reported) == 1
    assert town.reported[0].startswith(path)
    assert problem in town.reported[0]


@pytest.mark.parametrize("name", ["Upper", "two words", "-x", "x-", "a--b", "ümlaut", "a" * 65])
def test_a_name_outside_of_the_standard_is_loaded_with_a_warning(town, name: str) -> None:
    town.skill(town.agent / "skills" / "x", name=name)
    assert names(town.resources()) == [f"skill:{name}"]
    assert len(town.reported) == 1


def test_a_description_beyond_the_limit_is_loaded_with_a_warning_and_shortened_for_the_model(town) -> None:
    town.skill(town.agent / "skills" / "x", description="d" * 1100)
    resources = town.resources()
    assert "d" * 1024 + "</description>" in prompt(resources, town)
    assert "1024" in town.reported[0]


def test_pipes_and_giants_do_not_hold_anybody_up(town) -> None:
    (town.agent / "skills" / "pipe").mkdir(parents=True)
    os.mkfifo(town.agent / "skills" / "loose.md")
    town.put(town.agent / "skills" / "giant" / "SKILL.md", "---\ndescription: x\n---\n" + "x" * 1_100_000)
    town.skill(town.agent / "skills" / "good")
    assert names(town.resources()) == ["skill:good"]
    assert len(town.reported) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_a_folder_that_cannot_be_read_is_reported(town) -> None:
    locked = town.agent / "skills" / "locked"
    locked.mkdir(parents=True)
    locked.chmod(0)
    try:
        assert names(town.resources()) == []
        assert str(locked) in town.reported[0]
    finally:
        locked.chmod(0o700)


def test_the_model_is_told_of_skills_with_markup_made_harmless(town) -> None:
    path = town.skill(town.agent / "skills" / "a&b", description="'for <tags> & more'", name="odd")
    listed = prompt(town.resources(), town)
    assert "<name>odd</name><description>for &lt;tags&gt; &amp; more</description>" in listed
    assert f"<location>{path.replace('&', '&amp;')}</location>" in listed
    assert "<available_skills>" in listed


def test_a_skill_that_the_model_must_not_choose_is_for_the_user_only(town) -> None:
    town.skill(town.agent / "skills" / "secret", disable_model_invocation="true")
    resources = town.resources()
    assert "<skills>" not in prompt(resources, town)
    assert names(resources) == ["skill:secret"]


def test_skills_are_not_listed_for_a_model_that_cannot_read_them(town) -> None:
    town.skill(town.agent / "skills" / "a")
    resources = town.resources()
    assert "<skills>" not in resources.system_prompt(str(town.project), [("edit", "Edit")])
    assert "<skills>" in resources.system_prompt(str(town.project), [("bash", "Run")])


def test_settings_add_places_and_leave_out_skills(town) -> None:
    town.skill(town.agent / "more" / "added")
    for name in ("one", "two", "three", "draft-a", "draft-b"):
        town.skill(town.agent / "skills" / name)
    entries = ["more", "!draft-*", "+skills/draft-b", "-skills/two"]
    assert names(town.resources(user_skills=entries)) == [
        "skill:added", "skill:draft-b", "skill:one", "skill:three",
    ]  # fmt: skip


def test_settings_of_a_project_count_only_when_it_is_trusted(town) -> None:
    town.skill(town.project / ".pi" / "extra" / "theirs")
    assert names(town.resources(project_skills=["extra"])) == ["skill:theirs"]
    assert names(town.resources(trusted=False, project_skills=["extra"])) == []


def test_globs_in_settings_are_expanded(town) -> None:
    for team in ("red", "blue"):
        town.skill(town.agent / "teams" / team / team)
    assert names(town.resources(user_skills=["teams/*/"])) == ["skill:blue", "skill:red"]


def test_what_extensions_bring_has_the_lowest_rank(town) -> None:
    town.skill(town.agent / "skills" / "same", description="mine")
    brought = town.home / "ext"
    town.skill(brought / "same", description="theirs")
    town.skill(brought / "more")
    resources = town.resources()
    expander = resources
    assert [c.description for c in expander.commands()] == ["mine"]
    resources.add_paths(skills=[str(brought)])
    assert {c.name: c.description for c in expander.commands()} == {"skill:same": "mine", "skill:more": "does things"}


def test_a_search_that_never_ends_is_ended(town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pigeon.resources.skills.MOST_FOLDERS", 5)
    for number in range(20):
        (town.agent / "skills" / f"{number:02}").mkdir(parents=True)
    assert names(town.resources()) == []
    assert "more than 5 folders" in town.reported[0]


def test_a_relative_path_begins_where_the_options_were_given(town) -> None:
    path = town.skill(town.home / "here")
    [command] = town.resources(skills=["here"]).commands()
    assert command.path == path
