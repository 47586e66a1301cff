"""The command line as records: every option that pi's family and its clients use. The only user of `argparse`.

Hosts tend to pass the same flags to every agent. So a flag that has no effect here is accepted all the same, and an
unknown one is kept: it may belong to an extension, and otherwise it is a warning.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from msgspec import Struct

from pigeon.app.options import AgentOptions
from pigeon.wire.errors import StartupError

HELP_WIDTH = 100
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
    "--offline": argparse.SUPPRESS,
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


class _HelpFormatter(argparse.HelpFormatter):
    """Of a fixed width: to ask the terminal, each `add_argument` would need `shutil` and what it imports."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=HELP_WIDTH)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise StartupError(message[:1].upper() + message[1:])


def parser() -> argparse.ArgumentParser:
    """The parser, with all options."""
    made = _Parser(
        prog="pigeon",
        add_help=False,
        allow_abbrev=False,
        description="A coding agent for other programs.",
        formatter_class=_HelpFormatter,
    )
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


class CommandLine(Struct, frozen=True, kw_only=True):
    """One call of the program: how it was called, what it shall do, and the options of its agent."""

    program: str
    arguments: tuple[str, ...]
    agent: AgentOptions
    mode: str | None
    messages: tuple[str, ...]
    dialect: str | None
    record_cap: str | None
    list_models: str | None
    export: tuple[str, ...]
    help: bool
    version: bool
    unknown: tuple[str, ...]


def parse(arguments: Sequence[str], program: str = "pigeon") -> CommandLine:
    """The options; raises `StartupError` for a value that cannot be used."""
    known, messages = _without_messages(arguments)
    found, unknown = parser().parse_known_args(known)
    if found.mode is not None and found.mode not in MODES:
        raise StartupError(f'Invalid mode "{found.mode}". Valid values: text, json, rpc')
    words = [word for word in unknown if not word.startswith("-")]
    options = [word for word in unknown if word.startswith("-")]
    return CommandLine(
        program=program,
        arguments=tuple(arguments),
        agent=_agent_options(found, _flags(options, known)),
        mode=found.mode,
        messages=(*found.messages, *words, *messages),
        dialect=found.dialect,
        record_cap=found.record_cap,
        list_models=found.list_models,
        export=tuple(found.export or ()),
        help=found.help,
        version=found.version,
        unknown=tuple(options),
    )


def _without_messages(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Everything behind `--` is a message."""
    if "--" in arguments:
        at = arguments.index("--")
        return list(arguments[:at]), list(arguments[at + 1 :])
    return list(arguments), []


def _flags(options: list[str], arguments: list[str]) -> dict[str, bool | str]:
    """Options that only extensions may know, by name; a word that follows one is its value."""
    found: dict[str, bool | str] = {}
    for option in options:
        if not option.startswith("--"):
            continue
        name, equals, value = option[2:].partition("=")
        after = arguments[arguments.index(option) + 1 :][:1]
        following = after[0] if after and not after[0].startswith("-") else True
        found[name] = value if equals else following
    return found


def _agent_options(found: argparse.Namespace, flags: dict[str, bool | str]) -> AgentOptions:
    return AgentOptions(
        cwd=found.cwd,
        provider=found.provider,
        model=found.model,
        models=tuple(pattern.strip() for pattern in found.models.split(",")) if found.models else (),
        api_key=found.api_key,
        thinking=found.thinking,
        session=found.session,
        session_id=found.session_id,
        resume=found.resume,
        continue_newest=vars(found)["continue"],
        fork=found.fork,
        no_session=found.no_session,
        session_dir=found.session_dir,
        name=found.name,
        tools=_listed(found.tools) if found.tools else None,
        exclude_tools=_listed(found.exclude_tools or ""),
        no_tools=found.no_tools,
        no_builtin_tools=found.no_builtin_tools,
        extensions=tuple(found.extension),
        no_extensions=found.no_extensions,
        flags=flags,
        skills=tuple(found.skill),
        no_skills=found.no_skills,
        prompt_templates=tuple(found.prompt_template),
        no_prompt_templates=found.no_prompt_templates,
        no_context_files=found.no_context_files,
        no_rules=found.no_rules,
        system_prompt=found.system_prompt,
        append_system_prompt=tuple(found.append_system_prompt),
        trust_project=False if found.no_approve else True if found.approve else None,
        drain=found.drain,
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
