"""Decides what one call of the program is: a command, a mode, a chat or one answer. Imports only what that needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pigeon.app.environment import environment_of_process
from pigeon.cli.args import parse_arguments
from pigeon.frontends.call import CommandLine
from pigeon.system.environment import Environment
from pigeon.transport import exit_codes
from pigeon.wire.errors import UsageError

NOTHING_TO_DO = (
    'There is no terminal to chat in, and no prompt. Print one answer with: pigeon -p "..." (or pipe the prompt in); '
    "serve a host program with: pigeon --mode rpc. See: pigeon --help"
)

# pi's commands for its packages. Here these words would be a prompt, which is not what is meant.
PACKAGE_COMMANDS = ("install", "remove", "uninstall", "update", "list")


def run(program: str, arguments: list[str]) -> int | None:
    """Run the program with these arguments; returns the exit code, or None if it printed the version.

    Raises `UsageError` and `StartupError` with the text to print.
    """
    environment = environment_of_process(program, _pick_session, sys.path)
    if arguments and not arguments[0].startswith("-"):
        from pigeon.cli.commands.all import COMMANDS

        if arguments[0] == "acp" and not {"--help", "-h"} & set(arguments):
            # A mode with its own command name: its options are those of every agent.
            return _run_mode(parse_arguments(["--mode", "acp", *arguments[1:]], program), environment)
        if arguments[0] in COMMANDS:
            return _run_command(arguments[0], arguments[1:], environment)
        if arguments[0] in PACKAGE_COMMANDS:
            raise UsageError(_no_package_manager_text(arguments, environment))
    line = parse_arguments(arguments, program)
    if line.version:
        return None
    if line.help:
        return _show_help(line)
    if line.list_models is not None:
        from pigeon.cli.commands.models import print_models
        from pigeon.cli.masked_output import OutputMasker

        OutputMasker("configuration", environment).replace_streams()
        return print_models(line.list_models, environment)
    if line.export:
        from pigeon.app.pages import export_session_page
        from pigeon.cli.masked_output import OutputMasker

        OutputMasker("text", environment).replace_streams()
        print(f"Exported to: {export_session_page(environment, *line.export[:2])}")  # noqa: T201
        return exit_codes.OK
    return _run_mode(line, environment)


def _no_package_manager_text(arguments: Sequence[str], environment: Environment) -> str:
    folder = environment.agent_dir()
    return (
        f'There is no command "{arguments[0]}": Pigeon has no package manager. An extension is a Python file in '
        f"{folder}/extensions (or given with --extension FILE), a skill a folder in {folder}/skills, a prompt template "
        f"a file in {folder}/prompts; to remove one, delete it. Pigeon itself is updated the way it was installed. "
        f'To send the words as a prompt: pigeon -- "{" ".join(arguments)}"'
    )


def _run_command(name: str, arguments: Sequence[str], environment: Environment) -> int:
    from pigeon.cli.command_calls import parse_command_call
    from pigeon.cli.commands.all import find_command
    from pigeon.cli.help_pages import show_help
    from pigeon.cli.masked_output import OutputMasker

    command = find_command(name, environment.called)
    before_dashes = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--help" in before_dashes or "-h" in before_dashes:
        return show_help(name, environment.called)
    masker = OutputMasker(command.output, environment)
    masker.replace_streams()
    call = parse_command_call(command, arguments, environment, masker)
    raise_on_interrupt()
    return command.run(call)


def raise_on_interrupt() -> None:
    """From now on Ctrl-C raises an exception; before that, it ends the process."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _show_help(line: CommandLine) -> int:
    from pigeon.cli.commands.all import COMMANDS
    from pigeon.cli.help_pages import show_help

    return show_help(next((word for word in line.messages if word in COMMANDS), ""))


def is_agent_without_screen(program: str, arguments: Sequence[str]) -> bool:
    """True for a call of a mode with an agent that needs the terminal for nothing but text: no command, no chat, no
    question which session to resume."""
    words = list(arguments)
    if words[:1] == ["acp"]:
        words[:1] = ["--mode", "acp"]
    elif words and not words[0].startswith("-"):
        from pigeon.cli.commands.all import COMMANDS

        if words[0] in COMMANDS:
            return False
    try:
        line = parse_arguments(words, program)
    except UsageError:
        return False
    if line.help or line.version or line.list_models is not None or line.export or line.agent.resume == "":
        return False
    if line.mode or line.print or line.output or line.output_schema:
        return True
    return not has_terminal() and line.connect is None


def _run_mode(line: CommandLine, environment: Environment) -> int:
    if line.no_ui and line.mode not in ("rpc", "rpc-ui"):
        raise UsageError("--no-ui requires --mode rpc")
    if line.connect is not None and (line.mode or line.print or line.output or not has_terminal()):
        raise UsageError("--connect is for the chat in a terminal; programs use: pigeon attach URL")
    if line.mode in ("rpc", "rpc-ui"):
        from pigeon.frontends.stdio.rpc_mode import run_rpc

        return run_rpc(line, environment)
    if line.mode == "json":
        from pigeon.frontends.print.json_mode import run_json

        return run_json(line, environment)
    if line.mode == "acp":
        from pigeon.frontends.acp.command import run_acp

        return run_acp(line, environment)
    if line.mode == "text" or line.print or line.output or line.output_schema:
        from pigeon.frontends.print.one_answer import run_one_answer

        return run_one_answer(line, environment)
    if not line.unknown:
        # The words may be the value of a misspelt option, and then the option is what gets reported.
        _refuse_misspelt_command(line)
    if has_terminal():
        return open_chat(line, environment)
    from pigeon.frontends.print.one_answer import run_one_answer

    return run_one_answer(line, environment, NOTHING_TO_DO)


def has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def open_chat(line: CommandLine, environment: Environment) -> int:
    """Chat until the person leaves; raises `UsageError` for an option that neither Pigeon nor an extension knows, and
    `StartupError` if the packages of the chat are not installed."""
    from pigeon.system.extras import require_extra

    require_extra("chat", "The chat")
    if line.unknown:
        from pigeon.frontends.starting import refuse_unknown_options

        refuse_unknown_options(line, environment)
    from pigeon.frontends.terminal.chat_mode import run_chat

    raise_on_interrupt()
    return run_chat(line, environment)


def _refuse_misspelt_command(line: CommandLine) -> None:
    """Raise `UsageError` for a single word that is nearly a command, and for a command behind options: neither is a
    prompt."""
    word = line.messages[0] if line.messages else ""
    if not word or word in line.literal or any(char.isspace() for char in word):
        return
    from pigeon.cli.commands.all import COMMANDS
    from pigeon.frontends.printing import find_closest_match

    meant = find_closest_match(word, COMMANDS)
    if meant is None:
        return
    prompt = " ".join(line.messages)
    advice = f'To send it as a prompt: pigeon -p "{prompt}", or pigeon -- "{prompt}"'
    if word in COMMANDS:
        raise UsageError(f"{word} is a command, and commands must come first: pigeon {word}. {advice}")
    raise UsageError(f'There is no command "{word}". Did you mean: pigeon {meant}? {advice}')


def _pick_session(folder: str) -> str:
    from pigeon.frontends.terminal.picker import pick_session

    return pick_session(folder)
