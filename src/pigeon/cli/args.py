"""The command line as records: every option that pi's family and its clients use. The only user of `argparse`.

Hosts tend to pass the same flags to every agent. So a flag that has no effect here is accepted all the same, and an
unknown one is kept: it may belong to an extension, and otherwise it is a warning.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn, get_args

from msgspec import Struct

from pigeon.app.options import AgentOptions
from pigeon.config.tool_selection import option_selection
from pigeon.wire.answers import ApprovalMode
from pigeon.wire.errors import BadRecord, StartupError
from pigeon.wire.steering import LIMIT_FIELDS, Limits, checked_limit

HELP_WIDTH = 100
TOOL_LISTS = ("--tools", "-t", "--exclude-tools", "-xt")
MODES = ("text", "json", "rpc", "rpc-ui", "acp")
APPROVAL_MODES: tuple[str, ...] = get_args(ApprovalMode)
USAGE = """
  pigeon --mode rpc [options]               serve a host program: JSON lines on stdin and stdout
  pigeon --mode json [options] PROMPT ...   run prompts and print their events as JSON lines
  pigeon schema                             print the JSON Schema of the protocol"""

# (names, metavar, help). A metavar that ends in "..." may be given several times, one in brackets may be left out, and
# without one the option is a switch. Help that is empty hides the option.
Row = tuple[str, str, str]
GROUPS: dict[str, list[Row]] = {
    "general options": [
        ("--mode", "MODE", "rpc or json"),
        ("--cwd", "DIR", "work in this directory"),
        ("--dialect", "NAME", "pi, pi-latest, omp, xcsh or companion"),
        ("--record-cap", "BYTES", "longest line to accept on stdin"),
        ("--socket", "PATH", "serve the first connection to a unix socket there, instead of stdin and stdout"),
        ("--drain", "", "when stdin ends, finish the current run before exiting"),
        ("--no-ui", "", "show nothing at the host and ask nothing there; needs --mode rpc"),
        (
            "--unattended",
            "",
            "nobody can be asked: questions get a no at once, and the work is verified at the end",
        ),
        ("--plain", "", "chat in plain lines: for screen readers and simple terminals"),
        ("--list-models", "[SEARCH]", "list the models with credentials and exit"),
        ("--export", "FILE", "write a session file as an HTML page (to a second FILE if given) and exit"),
        ("--help -h", "", "show this help and exit"),
        ("--version -v", "", "show the version and exit"),
    ],
    "model": [
        ("--model", "PATTERN", "id, provider/id or part of a name, optionally with :level"),
        ("--provider", "NAME", "provider of the model"),
        ("--models", "LIST", "models to cycle through: comma-separated patterns, globs allowed"),
        ("--thinking", "LEVEL", "off, minimal, low, medium, high, xhigh or max"),
        ("--api-key", "KEY", "key for the model's provider, for this process only; seen in the list of processes"),
        ("--api-key-file", "FILE", "the same from the first line of a file or pipe; - is the first line of stdin"),
    ],
    "session": [
        ("--continue -c", "", "continue the newest session of this directory"),
        ("--resume -r", "[PATH|ID]", "open a session; without a value, choose one at the terminal"),
        ("--session", "PATH|ID", "open a session"),
        ("--session-id", "ID", "open or create the session with this id"),
        ("--fork", "PATH|ID", "start from a copy of a session"),
        ("--session-dir", "DIR", "keep sessions in this directory"),
        ("--name -n", "NAME", "display name of the session"),
        ("--no-session", "", "keep nothing on disk"),
    ],
    "tools and extensions": [
        ("--tools -t", "LIST", "use only these tools (comma-separated, * for any characters), or +add and -drop some"),
        ("--exclude-tools -xt", "LIST", "leave out these tools, * for any characters"),
        ("--no-tools -nt", "", "use no tools at all"),
        ("--no-builtin-tools -nbt", "", "use only tools of extensions and of the host"),
        ("--extension -e", "PATH...", "load an extension"),
        ("--no-extensions -ne", "", "load only extensions named with --extension"),
        ("--permissions", "FILE|JSON", "rules that tighten those of the user, in the form of the setting"),
        ("--approval-mode", "MODE", "ask before tools: always-ask, write (not for files) or yolo (not at all)"),
        ("--approve -a", "", "trust this project's files, for this process only"),
        ("--no-approve -na", "", "do not trust this project's files"),
    ],
    "limits of the conversation": [
        ("--max-turns", "N", "most requests for an answer, repeated ones included"),
        ("--max-cost", "DOLLARS", "most that all requests may cost together"),
        ("--max-tokens", "N", "most tokens of all requests together"),
        ("--max-seconds", "SECONDS", "longest time of all runs together"),
        ("--max-tool-calls", "N", "most tool calls"),
    ],
    "prompt": [
        ("--system-prompt", "TEXT|FILE", "replace the system prompt"),
        ("--append-system-prompt", "TEXT|FILE...", "add to the system prompt"),
        ("--no-context-files -nc", "", "do not read AGENTS.md and similar files"),
        ("--skill", "PATH...", "load a skill"),
        ("--no-skills -ns", "", "load only skills named with --skill"),
        ("--prompt-template", "PATH...", "load a prompt template"),
        ("--no-prompt-templates -np", "", "load only templates named with --prompt-template"),
        ("--no-rules", "", "do not use stream rules"),
    ],
    "accepted without effect": [
        ("--theme", "PATH...", ""),
        ("--provider-session-id", "ID", ""),
        ("--offline", "", ""),
        ("--print -p", "", ""),
        ("--verbose", "", ""),
        ("--no-themes", "", ""),
        ("--no-title", "", ""),
        ("--no-lsp", "", ""),
        ("--no-pty", "", ""),
        ("--no-mcp", "", ""),
    ],
}


class _HelpFormatter(argparse.HelpFormatter):
    """Of a fixed width: to ask the terminal, each `add_argument` would need `shutil` and what it imports."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=HELP_WIDTH, max_help_position=34)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise StartupError(message[:1].upper() + message[1:])


def parser() -> argparse.ArgumentParser:
    """The parser, with all options."""
    made = _Parser(prog="pigeon", usage=USAGE, add_help=False, allow_abbrev=False, formatter_class=_HelpFormatter)
    made.add_argument("messages", nargs="*", help=argparse.SUPPRESS)
    for title, rows in GROUPS.items():
        group = made.add_argument_group(title)
        for names, value, text in rows:
            group.add_argument(*names.split(), help=text or argparse.SUPPRESS, **_kind(names, value))
    return made


def _kind(names: str, value: str) -> dict[str, Any]:
    if not value:
        return {"action": "store_true"}
    if names == "--export":
        return {"nargs": "+", "metavar": value}
    if value.startswith("["):
        return {"nargs": "?", "const": "", "metavar": value.strip("[]")}
    if value.endswith("..."):
        return {"action": "append", "default": [], "metavar": value.removesuffix("...")}
    return {"metavar": value}


class CommandLine(Struct, frozen=True, kw_only=True):
    """One call of the program: how it was called, what it shall do, and the options of its agent."""

    program: str
    arguments: tuple[str, ...]
    agent: AgentOptions
    api_key_file: str | None
    mode: str | None
    messages: tuple[str, ...]
    dialect: str | None
    socket: str | None
    record_cap: str | None
    no_ui: bool
    plain: bool
    list_models: str | None
    export: tuple[str, ...]
    help: bool
    version: bool
    unknown: tuple[str, ...]


def parse(arguments: Sequence[str], program: str = "pigeon") -> CommandLine:
    """The options; raises `StartupError` for a value that cannot be used."""
    known, messages = _without_messages(arguments)
    known = _with_tool_lists(known)
    found, unknown = parser().parse_known_args(known)
    if found.mode is not None and found.mode not in MODES:
        raise StartupError(f'Invalid mode "{found.mode}". Valid values: text, json, rpc')
    if found.approval_mode is not None and found.approval_mode not in APPROVAL_MODES:
        raise StartupError(f'Invalid approval mode "{found.approval_mode}". Valid values: {", ".join(APPROVAL_MODES)}')
    words = [word for word in unknown if not word.startswith("-")]
    options = [word for word in unknown if word.startswith("-")]
    return CommandLine(
        program=program,
        arguments=tuple(arguments),
        agent=_agent_options(found, _flags(options, known)),
        api_key_file=found.api_key_file,
        mode=found.mode,
        messages=(*found.messages, *words, *messages),
        dialect=found.dialect,
        socket=found.socket,
        record_cap=found.record_cap,
        no_ui=found.no_ui,
        plain=found.plain,
        list_models=found.list_models,
        export=tuple(found.export or ()),
        help=found.help,
        version=found.version,
        unknown=tuple(options),
    )


def agent_arguments(arguments: Sequence[str]) -> list[str]:
    """The options among the arguments, with their values: what another process of the same agent is started with."""
    takes = {name: value for rows in GROUPS.values() for names, value, _ in rows for name in names.split()}
    kept: list[str] = []
    words = list(_without_messages(arguments)[0])
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            continue
        kept.append(word)
        value = takes.get(word, "")
        if words and ((value and not value.startswith("[")) or (value and not words[0].startswith("-"))):
            kept.append(words.pop(0))
    return kept


def _without_messages(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Everything behind `--` is a message."""
    if "--" in arguments:
        at = arguments.index("--")
        return list(arguments[:at]), list(arguments[at + 1 :])
    return list(arguments), []


def _with_tool_lists(arguments: Sequence[str]) -> list[str]:
    """The same arguments with each list of tools joined to its option: it may begin like an option (`-bash`)."""
    joined: list[str] = []
    words = iter(arguments)
    for word in words:
        value = next(words, None) if word in TOOL_LISTS else None
        joined.append(word if value is None else f"{word}={value}")
        option, equals, given = joined[-1].partition("=")
        if equals and option in TOOL_LISTS[:2]:
            option_selection(_listed(given), option)
    return joined


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
        tools=None if found.tools is None else _listed(found.tools),
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
        permissions=found.permissions,
        approval_mode=found.approval_mode or "yolo",
        limits=_limits(found),
        drain=found.drain,
        unattended=found.unattended,
    )


def _limits(found: argparse.Namespace) -> Limits:
    """Those that were given; raises `StartupError` that names the option."""
    limits: dict[str, int | float] = {}
    for name, field in LIMIT_FIELDS.items():
        text = getattr(found, f"max_{field}")
        if text is not None:
            try:
                limits[field] = checked_limit(name, _number(text), f'Invalid --max-{field.replace("_", "-")} "{text}"')
            except BadRecord as error:
                raise StartupError(str(error)) from None
    return Limits(**limits)  # type: ignore[arg-type]


def _number(text: str) -> int | float | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
