from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.cli.args import MODES, parse, parser
from pigeon.wire.errors import StartupError

WITH_VALUE = [
    "--provider", "--model", "--models", "--api-key", "--thinking", "--dialect", "--session", "--session-id",
    "--session-dir", "--fork", "--name", "-n", "--system-prompt", "--cwd", "--record-cap", "--provider-session-id",
    "--approval-mode", "--tools", "-t", "--exclude-tools", "-xt", "--resume", "-r", "--list-models",
]  # fmt: skip
REPEATABLE = ["--append-system-prompt", "--extension", "-e", "--skill", "--prompt-template", "--theme"]
SWITCHES = [
    "--continue", "-c", "--no-session", "--no-tools", "-nt", "--no-builtin-tools", "-nbt", "--no-extensions", "-ne",
    "--no-skills", "-ns", "--no-prompt-templates", "-np", "--no-context-files", "-nc", "--approve", "-a",
    "--no-approve", "-na", "--drain", "--offline", "--print", "-p", "--verbose", "--no-themes", "--no-title",
    "--no-rules", "--no-lsp", "--no-pty", "--help", "-h", "--version", "-v",
]  # fmt: skip
LONG = {
    "-n": "--name", "-t": "--tools", "-xt": "--exclude-tools", "-r": "--resume", "-e": "--extension",
    "-c": "--continue", "-nt": "--no-tools", "-nbt": "--no-builtin-tools", "-ne": "--no-extensions",
    "-ns": "--no-skills", "-np": "--no-prompt-templates", "-nc": "--no-context-files", "-a": "--approve",
    "-na": "--no-approve", "-p": "--print", "-h": "--help", "-v": "--version",
}  # fmt: skip


def name_of(option: str) -> str:
    return LONG.get(option, option)[2:].replace("-", "_")


@pytest.mark.parametrize("option", WITH_VALUE)
def test_an_option_takes_its_value(option: str) -> None:
    options = parse(["--mode", "rpc", option, "value"])
    assert vars(options)[name_of(option)] == "value"
    assert (options.unknown, options.messages, options.mode) == ([], [], "rpc")


@pytest.mark.parametrize("option", REPEATABLE)
def test_an_option_may_be_given_again(option: str) -> None:
    assert vars(parse([option, "a", "--mode", "rpc", option, "b"]))[name_of(option)] == ["a", "b"]


@pytest.mark.parametrize("option", SWITCHES)
def test_a_switch_is_off_until_it_is_given(option: str) -> None:
    options = parse([option, "--mode", "rpc"])
    assert vars(options)[name_of(option)] is True
    assert (options.unknown, options.mode) == ([], "rpc")
    assert vars(parse([]))[name_of(option)] is False


def test_all_switches_together_are_no_contradiction() -> None:
    assert parse(SWITCHES).unknown == []


def test_the_lists_above_are_complete() -> None:
    known = {option for action in parser()._actions for option in action.option_strings}
    assert known == {*WITH_VALUE, *REPEATABLE, *SWITCHES, "--mode", "--export"}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_of_the_family_is_taken(mode: str) -> None:
    assert parse(["--mode", mode]).mode == mode


def test_a_mode_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(StartupError, match=r'Invalid mode "tui"\. Valid values: text, json, rpc'):
        parse(["--mode", "tui"])


@pytest.mark.parametrize("option", ["--resume", "--list-models"])
def test_an_optional_value_may_be_missing(option: str) -> None:
    assert vars(parse([option, "--mode", "rpc"]))[name_of(option)] == ""
    assert vars(parse([]))[name_of(option)] is None


def test_an_export_takes_one_file_or_two() -> None:
    assert parse(["--export", "in.jsonl"]).export == ["in.jsonl"]
    assert parse(["--export", "in.jsonl", "out.html"]).export == ["in.jsonl", "out.html"]


@pytest.mark.parametrize("option", ["--model", "--name", "--system-prompt", "--extension"])
def test_a_value_that_is_missing_is_an_error_that_names_the_option(option: str) -> None:
    for arguments in ([option], [option, "--mode", "rpc"]):
        with pytest.raises(StartupError, match=f"Argument {option}.*expected one argument"):
            parse(arguments)


@pytest.mark.parametrize("value", ["- one rule", "-1", "-", "a --mode b", "--no tools please", "", "ä=b"])
def test_a_value_may_begin_with_a_dash_where_it_is_no_option(value: str) -> None:
    options = parse(["--append-system-prompt", value, "--mode", "rpc"])
    assert (options.append_system_prompt, options.mode) == ([value], "rpc")


@pytest.mark.parametrize("value", ["--mode", "-x", "-c", "a=b"])
def test_a_value_that_looks_like_an_option_is_taken_behind_an_equals_sign(value: str) -> None:
    options = parse([f"--system-prompt={value}", "--mode", "rpc"])
    assert (options.system_prompt, options.mode, options.unknown) == (value, "rpc", [])


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(lambda value: value != "--"))
def test_any_text_is_taken_behind_an_equals_sign(value: str) -> None:
    assert parse([f"--name={value}"]).name == value


def test_everything_behind_two_dashes_is_a_message() -> None:
    options = parse(["--mode", "json", "first", "--", "--model", "-x", "--"])
    assert options.messages == ["first", "--model", "-x", "--"]
    assert (options.model, options.unknown) == (None, [])


def test_an_option_is_never_abbreviated() -> None:
    options = parse(["--mod", "rpc"])
    assert options.mode is None
    assert options.unknown == ["--mod"]


def test_unknown_options_are_kept_for_extensions_and_stop_nothing() -> None:
    options = parse(["--plan", "--mode", "rpc", "--level=high", "-z", "--color", "red", "--last"])
    assert options.mode == "rpc"
    assert options.flags() == {"plan": True, "level": "high", "color": "red", "last": True}
    assert [option for option in options.unknown if option.startswith("-")] == [
        "--plan",
        "--level=high",
        "-z",
        "--color",
        "--last",
    ]


def test_an_empty_value_of_an_unknown_option_stays_empty() -> None:
    assert parse(["--level=", "--eq=a=b"]).flags() == {"level": "", "eq": "a=b"}


def test_nothing_behind_two_dashes_is_a_flag() -> None:
    assert parse(["--", "--plan"]).flags() == {}
