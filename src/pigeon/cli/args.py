"""The command line: every option that pi's family and its clients use.

Hosts often pass one flag always, so nothing of this list is ever refused, and an option that nobody knows is a warning,
not an end.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

from pigeon.wire.errors import StartupError

MODES = ("text", "json", "rpc", "rpc-ui", "acp")

_VALUES: dict[str, tuple[str, str]] = {
    "--provider": ("NAME", "provider of the model"),
    "--model": ("PATTERN", "model: id, provider/id, part of a name, optionally with :level"),
    "--models": ("LIST", "models to cycle through, comma separated, globs allowed"),
    "--api-key": ("KEY", "key for the chosen model's provider, for this process only"),
    "--thinking": ("LEVEL", "off, minimal, low, medium, high, xhigh or max"),
    "--dialect": ("NAME", "pi, pi-latest, omp, xcsh or companion"),
    "--session": ("PATH|ID", "open a session"),
    "--session-id": ("ID", "open or create the session with this id"),
    "--session-dir": ("DIR", "where sessions are kept"),
    "--fork": ("PATH|ID", "begin with a copy of a session"),
    "--name": ("NAME", "display name of the session"),
    "--system-prompt": ("TEXT|FILE", "replace the system prompt"),
    "--cwd": ("DIR", "work in this folder"),
    "--record-cap": ("BYTES", "longest line that is read from stdin"),
    "--provider-session-id": ("ID", argparse.SUPPRESS),
    "--approval-mode": ("MODE", argparse.SUPPRESS),
}
_LISTS: dict[str, tuple[str, str]] = {
    "--append-system-prompt": ("TEXT|FILE", "add to the system prompt"),
    "--extension": ("PATH", "load an extension"),
    "--skill": ("PATH", "load a skill"),
    "--prompt-template": ("PATH", "load a prompt template"),
    "--theme": ("PATH", argparse.SUPPRESS),
}
_SWITCHES: dict[str, str] = {
    "--continue": "go on with the newest session of this folder",
    "--no-session": "keep nothing on disk",
    "--no-tools": "no tools at all",
    "--no-builtin-tools": "no built-in tools",
    "--no-extensions": "only extensions named with --extension",
    "--no-skills": "only skills named with --skill",
    "--no-prompt-templates": "only templates named with --prompt-template",
    "--no-context-files": "do not read AGENTS.md and the like",
    "--approve": "trust this project's files for this process",
    "--no-approve": "do not trust this project's files",
    "--drain": "when stdin ends, finish the run before leaving",
    "--offline": "no network but the chosen provider",
    "--print": argparse.SUPPRESS,
    "--verbose": argparse.SUPPRESS,
    "--no-themes": argparse.SUPPRESS,
    "--no-title": argparse.SUPPRESS,
    "--no-rules": argparse.SUPPRESS,
    "--no-lsp": argparse.SUPPRESS,
    "--no-pty": argparse.SUPPRESS,
}
_SHORT = {
    "--continue": "-c", "--name": "-n", "--no-tools": "-nt", "--no-builtin-tools": "-nbt", "--extension": "-e",
    "--no-extensions": "-ne", "--no-skills": "-ns", "--no-prompt-templates": "-np", "--no-context-files": "-nc",
    "--approve": "-a", "--no-approve": "-na", "--print": "-p",
}  # fmt: skip


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise StartupError(message[:1].upper() + message[1:])


def parser() -> argparse.ArgumentParser:
    """The parser, with all options."""
    made = _Parser(prog="pigeon", add_help=False, allow_abbrev=False, description="A coding agent for other programs.")
    made.add_argument("messages", nargs="*", help=argparse.SUPPRESS)
    made.add_argument(
        "--mode", metavar="MODE", help="rpc: JSON lines on stdin and stdout; json: one prompt, its events on stdout"
    )
    made.add_argument("--tools", "-t", metavar="LIST", help="allow only these tools, comma separated")
    made.add_argument("--exclude-tools", "-xt", metavar="LIST", help="leave these tools out")
    made.add_argument("--resume", "-r", nargs="?", const="", metavar="PATH|ID", help="choose a session to open")
    made.add_argument("--list-models", nargs="?", const="", metavar="SEARCH", help="list models and leave")
    made.add_argument("--export", nargs="+", metavar="FILE", help="write a session as HTML and leave")
    made.add_argument("--help", "-h", action="store_true", help="show this help and leave")
    made.add_argument("--version", "-v", action="store_true", help="show the version and leave")
    for option, (value, text) in _VALUES.items():
        made.add_argument(*_names(option), metavar=value, help=text)
    for option, (value, text) in _LISTS.items():
        made.add_argument(*_names(option), metavar=value, help=text, action="append", default=[])
    for option, text in _SWITCHES.items():
        made.add_argument(*_names(option), help=text, action="store_true")
    return made


def _names(option: str) -> list[str]:
    return [option, _SHORT[option]] if option in _SHORT else [option]


class Options(argparse.Namespace):
    """What was asked for; an option's name is its long form with underscores."""

    unknown: list[str]
    arguments: list[str]

    def flags(self) -> dict[str, bool | str]:
        """Options that nobody here knows, by name: extensions may."""
        found: dict[str, bool | str] = {}
        for option in self.unknown:
            if not option.startswith("--"):
                continue
            name, equals, value = option[2:].partition("=")
            after = self.arguments[self.arguments.index(option) + 1 :][:1]
            following = after[0] if after and not after[0].startswith("-") else True
            found[name] = value if equals else following
        return found


def parse(arguments: list[str]) -> Options:
    """The options; raises `StartupError` for a value that cannot be used."""
    known, messages = _without_messages(arguments)
    options = Options()
    _, unknown = parser().parse_known_args(known, options)
    words = [word for word in unknown if not word.startswith("-")]
    options.messages = [*options.messages, *words, *messages]
    options.unknown = [word for word in unknown if word.startswith("-")]
    options.arguments = known
    if options.mode is not None and options.mode not in MODES:
        raise StartupError(f'Invalid mode "{options.mode}". Valid values: text, json, rpc')
    return options


def _without_messages(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Everything behind `--` is a message."""
    if "--" in arguments:
        at = arguments.index("--")
        return arguments[:at], arguments[at + 1 :]
    return arguments, []
