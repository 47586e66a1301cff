"""Prompt templates: loading, listing, and the text that a call stands for."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.resources.prompt_templates import split_arguments, substitute_arguments


def test_a_call_stands_for_the_text_with_its_arguments(folders) -> None:
    folders.put(folders.agent / "prompts" / "greet.md", "---\ndescription: greet someone\n---\nGreet $1 ($@).\n")
    expand = folders.resources().expand
    assert expand("/greet Ada Lovelace") == "Greet Ada (Ada Lovelace).\n"
    assert expand("/greet\n'Ada Lovelace'") == "Greet Ada Lovelace (Ada Lovelace).\n"
    assert expand("/greet") == "Greet  ().\n"


@pytest.mark.parametrize("text", ["/unknown x", "/", "/ greet", " /greet", "//greet", "greet", "/greet/x", ""])
def test_other_text_is_not_touched(folders, text: str) -> None:
    folders.put(folders.agent / "prompts" / "greet.md", "Hello")
    assert folders.resources().expand(text) == text


def test_a_template_cannot_take_the_place_of_a_skill(folders) -> None:
    folders.put(folders.agent / "prompts" / "skill:x.md", "template")
    path = folders.skill(folders.agent / "skills" / "x")
    assert path in folders.resources().expand("/skill:x")


def test_the_description_is_the_heads_or_the_first_line_cut_short(folders) -> None:
    folders.put(folders.agent / "prompts" / "a.md", "---\ndescription: told\nargument-hint: <file>\n---\nbody")
    folders.put(folders.agent / "prompts" / "b.md", "\n\n  First line  \nsecond")
    folders.put(folders.agent / "prompts" / "c.md", "x" * 61)
    folders.put(folders.agent / "prompts" / "d.md", "x" * 60)
    folders.put(folders.agent / "prompts" / "e.txt", "no template")
    described = {c.name: c.description for c in folders.resources().list_commands()}
    assert described == {"a": "told", "b": "First line", "c": "x" * 60 + "...", "d": "x" * 60}


def test_templates_are_listed_before_skills_with_both_forms_of_provenance(folders) -> None:
    folders.skill(folders.agent / "skills" / "s")
    user = folders.put(folders.agent / "prompts" / "mine.md", "x")
    project = folders.put(folders.project / ".pi" / "prompts" / "theirs.md", "x")
    named = folders.put(folders.home / "one.md", "x")
    commands = folders.resources(prompt_templates=[named]).list_commands()
    told = [(c.name, c.source, c.location, c.path, c.source_info.scope, c.source_info.source) for c in commands]
    assert told[:3] == [
        ("one", "prompt", "path", named, "temporary", "local"),
        ("theirs", "prompt", "project", project, "project", "auto"),
        ("mine", "prompt", "user", user, "user", "auto"),
    ]
    assert commands[1].source_info.base_dir == str(folders.project / ".pi")
    assert commands[3].name == "skill:s"


def test_what_was_named_comes_first_then_the_project_then_the_user(folders) -> None:
    folders.put(folders.agent / "prompts" / "x.md", "user")
    folders.put(folders.project / ".pi" / "prompts" / "x.md", "pi")
    ours = folders.put(folders.project / ".pigeon" / "prompts" / "x.md", "ours")
    named = folders.put(folders.home / "x.md", "named")
    assert folders.resources(prompt_templates=[named]).expand("/x") == "named"
    assert folders.resources().expand("/x") == "ours"
    os.unlink(ours)
    assert folders.resources().expand("/x") == "pi"
    assert folders.resources(trusted=False).expand("/x") == "user"
    assert folders.resources(no_prompt_templates=True).expand("/x") == "/x"
    assert folders.resources(no_prompt_templates=True, prompt_templates=[named]).expand("/x") == "named"
    assert folders.reported == []


def test_a_bad_head_is_reported_and_the_template_still_works(folders) -> None:
    path = folders.put(folders.agent / "prompts" / "x.md", "---\ndescription: a: b\n---\nbody")
    assert folders.resources().expand("/x") == "body"
    assert path in folders.reported[0]


def test_pipes_and_folders_are_no_templates(folders) -> None:
    (folders.agent / "prompts" / "dir.md").mkdir(parents=True)
    os.mkfifo(folders.agent / "prompts" / "pipe.md")
    assert folders.resources().list_commands() == []
    assert "pipe" in folders.reported[0]


@pytest.mark.parametrize(
    ("body", "filled"),
    [
        ("$1-$2-$3", "one-two words-"),
        ("$0", ""),
        ("$10", ""),
        ("$@|$ARGUMENTS", "one two words|one two words"),
        ("${1:-x} ${3:-x y} ${3:-}", "one x y "),
        ("${@:-none} ${ARGUMENTS:-none}", "one two words one two words"),
        ("${@:2}|${@:0}|${@:1:1}|${@:2:9}|${@:9}", "two words|one two words|one|two words|"),
        ("$$1 \\$1 $x ${1} $", "$one \\one $x ${1} $"),
        ("$" + "9" * 5000, ""),
        ("${@:1:" + "9" * 5000 + "}", "one two words"),
    ],
)
def test_arguments_go_where_the_body_says(body: str, filled: str) -> None:
    assert substitute_arguments(body, ["one", "two words"]) == filled


def test_defaults_stand_in_where_there_is_no_argument() -> None:
    assert substitute_arguments("${@:-none} ${ARGUMENTS:-no} ${1:-$2}", []) == "none no $2"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" a  b\tc\n", ["a", "b", "c"]),
        ("'a b' \"c d\"", ["a b", "c d"]),
        ("a'b c'd", ["ab cd"]),
        ("'' x", ["", "x"]),
        ("'it\"s' \"it's\"", ['it"s', "it's"]),
        ("'open end", ["open end"]),
        ("a\\ b", ["a\\", "b"]),
    ],
)
def test_words_are_split_with_quotes_that_group(text: str, words: list[str]) -> None:
    assert split_arguments(text) == words


PLAIN = st.text(st.characters(exclude_characters="'\"", exclude_categories=["Z", "C"]), min_size=1)


@given(st.lists(PLAIN))
def test_words_without_quotes_come_back_as_they_are(words: list[str]) -> None:
    assert split_arguments(" ".join(words)) == words
    assert split_arguments(" ".join(f"'{word} {word}'" for word in words)) == [f"{word} {word}" for word in words]


@given(st.text(), st.lists(st.text()))
def test_no_body_and_no_argument_can_break_it(body: str, arguments: list[str]) -> None:
    filled = substitute_arguments(body, arguments)
    if "$" not in body:
        assert filled == body


@given(st.lists(st.text()))
def test_arguments_are_never_expanded_again(arguments: list[str]) -> None:
    tricky = [f"$1 ${{@}} $ARGUMENTS {argument}" for argument in arguments]
    assert substitute_arguments("$@", tricky) == " ".join(tricky)
    for place, argument in enumerate(tricky, 1):
        assert substitute_arguments(f"<${place}>", tricky) == f"<{argument}>"


@given(st.lists(st.text()), st.integers(0, 12), st.integers(0, 12))
def test_slices_are_those_of_the_list(arguments: list[str], start: int, length: int) -> None:
    first = max(start, 1) - 1
    assert substitute_arguments(f"${{@:{start}}}", arguments) == " ".join(arguments[first:])
    assert substitute_arguments(f"${{@:{start}:{length}}}", arguments) == " ".join(arguments[first : first + length])


@given(st.text())
def test_splitting_takes_any_text(text: str) -> None:
    assert all(isinstance(word, str) for word in split_arguments(text))
