from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.app.options import AgentOptions
from pigeon.cli.args import MODES, WORDS, list_option_rows, parse_arguments
from pigeon.frontends.call import CommandLine
from pigeon.wire.choices import TOOL_OFFERS
from pigeon.wire.errors import StartupError, UsageError
from pigeon.wire.steering import Limits

WITH_VALUE = [
    "--provider", "--model", "--models", "--api-key", "--api-key-file", "--thinking", "--dialect", "--session",
    "--session-id",
    "--session-dir", "--fork", "--name", "-n", "--system-prompt", "--cwd", "--workspace", "--record-cap",
    "--provider-session-id",
    "--store", "--node", "--lease-seconds",
    "--socket", "--connect", "--output-schema", "--trace", "--record", "--sandbox",
    "--approval-mode", "--permissions", "--tools", "-t", "--exclude-tools", "-xt", "--resume", "-r", "--list-models",
]  # fmt: skip
REPEATABLE = ["--append-system-prompt", "--extension", "-e", "--skill", "--prompt-template", "--theme"]
SWITCHES = [
    "--continue", "-c", "--no-session", "--no-tools", "-nt", "--no-builtin-tools", "-nbt", "--no-extensions", "-ne",
    "--no-skills", "-ns", "--no-prompt-templates", "-np", "--no-context-files", "-nc", "--approve", "-a",
    "--no-approve", "-na", "--drain", "--offline", "--print", "-p", "--verbose", "--no-themes", "--no-title",
    "--plain", "--no-rules", "--no-ui", "--attended", "--unattended", "--sandbox-network", "--plans", "--agents",
    "--continue-runs",
    "--no-lsp", "--no-pty", "--no-mcp", "--help", "-h", "--version", "-v",
]  # fmt: skip
LONG = {
    "-n": "--name", "-t": "--tools", "-xt": "--exclude-tools", "-r": "--resume", "-e": "--extension",
    "-c": "--continue", "-nt": "--no-tools", "-nbt": "--no-builtin-tools", "-ne": "--no-extensions",
    "-ns": "--no-skills", "-np": "--no-prompt-templates", "-nc": "--no-context-files", "-a": "--approve",
    "-na": "--no-approve", "-p": "--print", "-h": "--help", "-v": "--version",
}  # fmt: skip


# Accepted because hosts pass them; nothing reads them.
WITHOUT_EFFECT = [
    "--provider-session-id", "--theme", "--offline", "--no-themes",
    "--no-title", "--no-lsp", "--no-pty",
]  # fmt: skip
RENAMED = {"continue": "continue_newest", "extension": "extensions", "skill": "skills"}
VALUES = {"--approval-mode": "write", "--sandbox": "workspace"}
LIMITS = ["--max-turns", "--max-cost", "--max-tokens", "--max-seconds", "--max-tool-calls"]
LISTS = ["models", "tools", "exclude_tools"]


def value_of(line: CommandLine, option: str) -> Any:
    """What an option came to, in the options of the agent or in the call itself."""
    name = LONG.get(option, option)[2:].replace("-", "_")
    if name in TOOL_OFFERS:
        return name in line.agent.offers
    name = RENAMED.get(name, f"{name}s" if name == "prompt_template" else name)
    return getattr(line.agent, name) if name in AgentOptions.__struct_fields__ else getattr(line, name)


@pytest.mark.parametrize("option", WITH_VALUE)
def test_an_option_takes_its_value(option: str) -> None:
    value = VALUES.get(option, "value")
    line = parse_arguments(["--mode", "rpc", option, value])
    assert (line.unknown, line.messages, line.mode) == ((), (), "rpc")
    if option not in WITHOUT_EFFECT:
        in_list = LONG.get(option, option)[2:].replace("-", "_") in LISTS
        assert value_of(line, option) == ((value,) if in_list else value)


@pytest.mark.parametrize("option", REPEATABLE)
def test_an_option_may_be_given_again(option: str) -> None:
    line = parse_arguments([option, "a", "--mode", "rpc", option, "b"])
    assert (line.unknown, line.messages, line.mode) == ((), (), "rpc")
    if option not in WITHOUT_EFFECT:
        assert value_of(line, option) == ("a", "b")


@pytest.mark.parametrize("option", SWITCHES)
def test_a_switch_is_off_until_it_is_given(option: str) -> None:
    line = parse_arguments([option, "--mode", "rpc"])
    assert (line.unknown, line.mode) == ((), "rpc")
    if option not in (*WITHOUT_EFFECT, "--approve", "-a", "--no-approve", "-na", "--no-mcp"):
        assert value_of(line, option) is True
        assert value_of(parse_arguments([]), option) is False


@pytest.mark.parametrize(
    ("arguments", "trust"),
    [([], None), (["--approve"], True), (["-na"], False), (["--approve", "--no-approve"], False)],
)
def test_a_project_is_trusted_by_option_and_no_is_stronger(arguments: list[str], trust: bool | None) -> None:
    assert parse_arguments(arguments).agent.trust_project is trust


@pytest.mark.parametrize(
    ("given", "tools"), [("read,bash", ("read", "bash")), (" read , ,bash ", ("read", "bash")), (",", ()), ("", ())]
)
def test_lists_are_taken_apart_at_commas(given: str, tools: tuple[str, ...] | None) -> None:
    options = parse_arguments(["--tools", given, "--exclude-tools", given, "--models", "a/*, b:high"]).agent
    assert options.tools == tools
    assert options.exclude_tools == (tools or ())
    assert options.models == ("a/*", "b:high")


def test_without_arguments_the_options_are_the_defaults() -> None:
    assert parse_arguments([]).agent == AgentOptions()


def test_the_call_remembers_how_the_program_was_called() -> None:
    line = parse_arguments(["--mode", "rpc", "--", "x"], "/usr/bin/omp")
    assert (line.program, line.arguments) == ("/usr/bin/omp", ("--mode", "rpc", "--", "x"))


def test_tool_servers_of_files_are_left_out_by_option() -> None:
    assert (parse_arguments(["--no-mcp"]).agent.tool_servers, parse_arguments([]).agent.tool_servers) == ((), None)


def test_all_switches_together_are_no_contradiction() -> None:
    assert parse_arguments(SWITCHES).unknown == ()


def test_the_lists_above_are_complete() -> None:
    known = {name for names, _, _ in list_option_rows() for name in names.split()}
    assert known == {*WITH_VALUE, *REPEATABLE, *SWITCHES, *LIMITS, "--mode", "--output", "--export"}


def test_limits_are_taken_as_numbers() -> None:
    line = parse_arguments(["--max-turns", "3", "--max-cost", "0.5", "--max-tokens", "1e6", "--max-seconds=60"])
    assert line.agent.limits == Limits(turns=3, cost=0.5, tokens=1_000_000, seconds=60)


@pytest.mark.parametrize("option", LIMITS)
@pytest.mark.parametrize("value", ["0", "-1", "many", "", "nan", "inf", "1e999"])
def test_a_limit_that_cannot_be_is_refused_by_the_name_of_its_option(option: str, value: str) -> None:
    with pytest.raises(StartupError, match=rf'^Invalid {option} "{value}": expected a '):
        parse_arguments([f"{option}={value}"])


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_of_the_family_is_taken(mode: str) -> None:
    assert parse_arguments(["--mode", mode]).mode == mode


@pytest.mark.parametrize("output", WORDS["--output"])
def test_every_form_of_output_is_taken(output: str) -> None:
    assert parse_arguments(["-p", "--output", output]).output == output
    with pytest.raises(UsageError, match=r'Invalid output "xml"\. Valid values: text, json, stream-json'):
        parse_arguments(["--output", "xml"])


def test_words_behind_options_of_extensions_are_messages_until_the_options_are_known() -> None:
    arguments = ["--color", "red", "paint", "--plan", "it"]
    assert sorted(parse_arguments(arguments).messages) == ["it", "paint", "red"]
    known = parse_arguments(arguments, flags={"color": True, "plan": False})
    assert (known.messages, known.unknown) == (("paint", "it"), ())


def test_what_stands_behind_two_dashes_is_text() -> None:
    assert parse_arguments(["@a", "--", "@b"]).literal == ("@b",)


def test_a_mode_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(StartupError, match=r'Invalid mode "tui"\. Valid values: text, json, rpc'):
        parse_arguments(["--mode", "tui"])


@pytest.mark.parametrize("option", ["--resume", "--list-models"])
def test_an_optional_value_may_be_missing(option: str) -> None:
    assert value_of(parse_arguments([option, "--mode", "rpc"]), option) == ""
    assert value_of(parse_arguments([]), option) is None


def test_an_export_takes_one_file_or_two() -> None:
    assert parse_arguments(["--export", "in.jsonl"]).export == ("in.jsonl",)
    assert parse_arguments(["--export", "in.jsonl", "out.html"]).export == ("in.jsonl", "out.html")


@pytest.mark.parametrize("option", ["--model", "--name", "--system-prompt", "--extension"])
def test_a_value_that_is_missing_is_an_error_that_names_the_option(option: str) -> None:
    for arguments in ([option], [option, "--mode", "rpc"]):
        with pytest.raises(StartupError, match=f"Argument {option}.*expected one argument"):
            parse_arguments(arguments)


@pytest.mark.parametrize("value", ["- one rule", "-1", "-", "a --mode b", "--no tools please", "", "ä=b"])
def test_a_value_may_begin_with_a_dash_where_it_is_no_option(value: str) -> None:
    line = parse_arguments(["--append-system-prompt", value, "--mode", "rpc"])
    assert (line.agent.append_system_prompt, line.mode) == ((value,), "rpc")


@pytest.mark.parametrize("value", ["--mode", "-x", "-c", "a=b"])
def test_a_value_that_looks_like_an_option_is_taken_behind_an_equals_sign(value: str) -> None:
    line = parse_arguments([f"--system-prompt={value}", "--mode", "rpc"])
    assert (line.agent.system_prompt, line.mode, line.unknown) == (value, "rpc", ())


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(lambda value: value != "--"))
def test_any_text_is_taken_behind_an_equals_sign(value: str) -> None:
    assert parse_arguments([f"--name={value}"]).agent.name == value


def test_everything_behind_two_dashes_is_a_message() -> None:
    line = parse_arguments(["--mode", "json", "first", "--", "--model", "-x", "--"])
    assert line.messages == ("first", "--model", "-x", "--")
    assert (line.agent.model, line.unknown) == (None, ())


def test_an_option_is_never_abbreviated() -> None:
    line = parse_arguments(["--mod", "rpc"])
    assert line.mode is None
    assert line.unknown == ("--mod",)


def test_unknown_options_are_kept_for_extensions_and_stop_nothing() -> None:
    line = parse_arguments(["--plan", "--mode", "rpc", "--level=high", "-z", "--color", "red", "--last"])
    assert line.mode == "rpc"
    assert line.agent.flags == {"plan": True, "level": "high", "color": "red", "last": True}
    assert line.unknown == ("--plan", "--level=high", "-z", "--color", "--last")


def test_an_empty_value_of_an_unknown_option_stays_empty() -> None:
    assert parse_arguments(["--level=", "--eq=a=b"]).agent.flags == {"level": "", "eq": "a=b"}


def test_nothing_behind_two_dashes_is_a_flag() -> None:
    assert parse_arguments(["--", "--plan"]).agent.flags == {}


@pytest.mark.parametrize("word", ["\u2014print", "\u2013p", "\u2014\u2014model=demo"])
def test_an_option_with_a_long_dash_is_not_a_prompt(word: str) -> None:
    with pytest.raises(UsageError, match=r"long dash\. Did you mean -"):
        parse_arguments([word, "hello"])
    assert parse_arguments(["--", word]).messages == (word,)
    assert parse_arguments(["\u2014 so they say"]).messages == ("\u2014 so they say",)
