"""The help pages: that of the program, with its commands and options in groups, and one for each command."""

from __future__ import annotations

from collections.abc import Sequence
from shutil import get_terminal_size
from textwrap import wrap

from pigeon.cli.args import GROUPS
from pigeon.cli.commands.all import COMMANDS, find_command
from pigeon.frontends.call import Action, CommandDeclaration, Row
from pigeon.frontends.printing import WIDTH, did_you_mean, print_line
from pigeon.transport import exit_codes
from pigeon.wire.errors import UsageError

ABOUT = "Pigeon is a coding agent: it reads and changes files, runs commands and answers questions about them."
USES = (
    ("pigeon", "chat in the terminal"),
    ('pigeon "fix the failing test"', "chat, starting with this prompt"),
    ('pigeon -p "what does this project do?"', "print one answer and exit"),
    ("pigeon COMMAND ...", "run one of the commands below"),
    ("pigeon --mode rpc [options]", "serve a host program: JSON lines on stdin and stdout"),
)
EXAMPLES = (
    ("pigeon demo", "try it without a key"),
    ("pigeon doctor", "see what is set up and what is missing"),
    ('git diff | pigeon -p "review this"', "piped text is part of the prompt"),
    ('pigeon -p @notes.md @screen.png "what is wrong?"', "files and images too"),
    ("pigeon --continue", "continue the latest conversation in this folder"),
    ("pigeon --model sonnet:high", "choose a model and a thinking level"),
)
KEYS = (
    "Pigeon needs an API key for a model: set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or see `pigeon "
    "doctor`."
)
CODES = "Exit codes of -p: 0 done, 1 failed, 2 wrong usage, 3 limit reached, 4 not allowed, 130 interrupted."
NAME_WIDTH = 34
NARROWEST = 60
LEAST_ABOUT = 24


def show_help(name: str = "", called: str = "") -> int:
    """Print the page of a command, or that of the program; raises `UsageError` for an unknown command."""
    if name and name not in COMMANDS:
        raise UsageError(
            f'There is no command "{name}".{did_you_mean(name, COMMANDS)} `pigeon help` lists the commands.\n'
            'To ask the model, put the prompt in quotes: pigeon "help me …"'
        )
    print_line(render_command_page(find_command(name, called)) if name and name != "help" else render_main_page())
    return exit_codes.OK


def render_main_page() -> str:
    width = _page_width()
    commands = [(f"{one.name}", one.summary) for one in COMMANDS.values()]
    shown = {title: rows for title, rows in GROUPS.items() if any(text for _, _, text in rows)}
    return "\n\n".join(
        [
            _wrap_paragraph(ABOUT, width),
            _format_section("Usage", _format_pairs(USES, width)),
            _format_section("Commands (see pigeon help COMMAND)", _format_pairs(commands, width)),
            _format_section("Examples", _format_pairs(EXAMPLES, width)),
            _wrap_paragraph(KEYS, width),
            *(_format_section(title, _format_options(rows, width)) for title, rows in shown.items()),
            _wrap_paragraph(CODES, width),
        ]
    )


def render_command_page(command: CommandDeclaration) -> str:
    width = _page_width()
    calls = [(" ".join(["pigeon", command.name, *_action_words(action)]), action.summary) for action in command.actions]
    title = _wrap_paragraph(f"pigeon {command.name}: {command.summary}.", width)
    parts = [title, _format_section("Usage", _format_pairs(calls, width))]
    if command.actions[0].name:
        parts.append(f"`pigeon {command.name}` alone means `pigeon {command.name} {command.actions[0].name}`.")
    parts.append(_format_section("Options", _format_options(command.rows, width)))
    if command.examples:
        parts.append(_format_section("Examples", _format_pairs(command.examples, width)))
    if command.notes:
        parts.append(_wrap_paragraph(command.notes, width))
    return "\n\n".join(parts)


def _page_width() -> int:
    """The width of the terminal, within readable limits; without one, the widest."""
    return min(WIDTH, max(NARROWEST, get_terminal_size((WIDTH, 0)).columns))


def _action_words(action: Action) -> list[str]:
    return [*([action.name] if action.name else []), *action.arguments]


def _format_section(title: str, body: str) -> str:
    return f"{title}:\n{body}"


def _wrap_paragraph(text: str, width: int) -> str:
    # An example call stays in one piece, since people copy it.
    return "\n".join(wrap(text, width, break_long_words=False, break_on_hyphens=False))


def _format_options(rows: Sequence[Row], width: int) -> str:
    return "\n".join(_format_pair(_format_option_usage(*row), row[2], NAME_WIDTH, width) for row in rows if row[2])


def _format_option_usage(names: str, value: str, _text: str) -> str:
    """An option in the form of the help: `--model PATTERN`."""
    return ", ".join(names.split()) + (f" {value.removesuffix('...')}" if value else "")


def _format_pairs(pairs: Sequence[tuple[str, str]], width: int) -> str:
    """Calls with descriptions: in two columns, or below each other if the calls leave too little room."""
    column = max(len(call) for call, _ in pairs) + 2
    if column + 2 + LEAST_ABOUT <= width:
        return "\n".join(_format_pair(call, text, column, width) for call, text in pairs)
    return "\n".join(f"  {call}\n{_wrap_indented(text, 6, width)}" for call, text in pairs)


def _format_pair(call: str, text: str, column: int, width: int) -> str:
    """One row, `--model PATTERN    description`, on several lines if it is long."""
    about = _wrap_indented(text, column + 2, width)
    return f"  {call}\n{about}" if len(call) > column - 2 else f"  {call.ljust(column)}{about.lstrip()}"


def _wrap_indented(text: str, indent: int, width: int) -> str:
    return "\n".join(" " * indent + line for line in _wrap_paragraph(text, width - indent).splitlines())
