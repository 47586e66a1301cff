"""The help pages: that of the program, with its commands and options in groups, and one for each command."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from pigeon.cli.args import GROUPS, HELP_WIDTH, Row
from pigeon.cli.commands.all import COMMANDS
from pigeon.cli.commands.call import Action, CommandDeclaration
from pigeon.cli.printing import did_you_mean, say, table
from pigeon.transport import exit_codes
from pigeon.wire.errors import UsageError

ABOUT = "Pigeon is a coding agent: it reads and changes files, runs commands and answers questions about them."
USES = (
    ("pigeon", "chat in the terminal"),
    ('pigeon "fix the failing test"', "chat, beginning with this prompt"),
    ('pigeon -p "what does this project do?"', "print one answer and exit"),
    ("pigeon COMMAND ...", "one of the commands below"),
    ("pigeon --mode rpc [options]", "serve a host program: JSON lines on stdin and stdout"),
)
EXAMPLES = (
    ("pigeon demo", "try it without a key"),
    ("pigeon doctor", "see what is set up, and what is missing"),
    ('git diff | pigeon -p "review this"', "piped text is part of the prompt"),
    ('pigeon -p @notes.md @screen.png "what is wrong?"', "files and images too"),
    ("pigeon --continue", "go on with the last conversation of this folder"),
    ("pigeon --model sonnet:high", "another model, with much thinking"),
)
KEYS = (
    "Pigeon asks a model, so it needs the key of a provider: set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, "
    "or see `pigeon doctor`."
)
CODES = "Exit codes of -p: 0 done, 1 failed, 2 wrong usage, 3 a limit was reached, 4 not allowed, 130 interrupted."
NAME_WIDTH = 34


def show_help(name: str = "") -> int:
    """Print the page of a command, or that of the program; raises `UsageError` where there is no such command."""
    if name and name not in COMMANDS:
        raise UsageError(
            f'There is no command "{name}".{did_you_mean(name, COMMANDS)} `pigeon help` lists the commands.\n'
            'To ask the model, put the prompt in quotes: pigeon "help me …"'
        )
    say(command_page(COMMANDS[name]) if name and name != "help" else main_page())
    return exit_codes.OK


def main_page() -> str:
    """What `pigeon --help` prints."""
    commands = [(f"{one.name}", one.summary) for one in COMMANDS.values()]
    groups = [_section(title, _options(rows)) for title, rows in GROUPS.items() if any(text for _, _, text in rows)]
    return "\n\n".join(
        [
            ABOUT,
            _section("Usage", table(USES, "  ")),
            _section("Commands (pigeon help COMMAND says more)", table(commands, "  ")),
            _section("Examples", table(EXAMPLES, "  ")),
            "\n".join(wrap(KEYS, HELP_WIDTH)),
            *groups,
            CODES,
        ]
    )


def command_page(command: CommandDeclaration) -> str:
    """What `pigeon help COMMAND` prints."""
    calls = [(" ".join(["pigeon", command.name, *_words(action)]), action.summary) for action in command.actions]
    parts = [f"pigeon {command.name}: {command.summary}.", _section("Usage", table(calls, "  "))]
    if command.actions[0].name:
        parts.append(f"`pigeon {command.name}` alone is `pigeon {command.name} {command.actions[0].name}`.")
    parts.append(_section("Options", _options(command.rows)))
    if command.examples:
        parts.append(_section("Examples", table(command.examples, "  ")))
    if command.notes:
        parts.append("\n".join(wrap(command.notes, HELP_WIDTH)))
    return "\n\n".join(parts)


def _words(action: Action) -> list[str]:
    return [*([action.name] if action.name else []), *action.arguments]


def _section(title: str, body: str) -> str:
    return f"{title}:\n{body}"


def _options(rows: Sequence[Row]) -> str:
    return "\n".join(line for names, value, text in rows if text for line in _option(names, value, text))


def _option(names: str, value: str, text: str) -> list[str]:
    """`--model PATTERN    what it does`, on more lines where it is long."""
    shown = ", ".join(names.split()) + (f" {value.removesuffix('...')}" if value else "")
    about = wrap(text, HELP_WIDTH - NAME_WIDTH - 2)
    if len(shown) > NAME_WIDTH - 2:
        return [f"  {shown}", *(" " * (NAME_WIDTH + 2) + line for line in about)]
    first, *more = about
    return [f"  {shown.ljust(NAME_WIDTH)}{first}", *(" " * (NAME_WIDTH + 2) + line for line in more)]
