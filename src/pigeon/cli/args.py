"""The options of the command line as records: every one that pi's family and its clients use. The only user of
`argparse`; the help pages and the completions of shells are made from the same table.

Hosts tend to pass the same flags to every agent. So a flag that has no effect here is accepted all the same, and an
unknown one is kept: it may belong to an extension. If no extension knows it either, the mode decides what happens.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any, NoReturn, get_args

from pigeon.app.options import LEASE_SECONDS, AgentOptions
from pigeon.config.tool_selection import parse_option_selection
from pigeon.frontends.call import CommandLine, Row
from pigeon.wire.choices import APPROVAL_MODES, TOOL_OFFERS, DialectName, SandboxMode, to_alternatives
from pigeon.wire.errors import BadRecord, UsageError
from pigeon.wire.model import LEVELS
from pigeon.wire.steering import LIMIT_FIELDS, Limits, check_limit

LONG_DASHES = "\u2013\u2014"
TOOL_LISTS = ("--tools", "-t", "--exclude-tools", "-xt")
MODES = ("text", "json", "rpc", "rpc-ui", "acp")
# Options whose value is one of a few words.
WORDS: dict[str, Sequence[str]] = {
    "--mode": MODES[:3],
    "--output": ("text", "json", "stream-json"),
    "--thinking": LEVELS,
    "--approval-mode": APPROVAL_MODES,
    "--sandbox": get_args(SandboxMode),
    "--dialect": get_args(DialectName),
}

GROUPS: dict[str, list[Row]] = {
    "What to do": [
        ("--print -p", "", "print one answer and exit; piped text is part of the prompt"),
        ("--output", "FORMAT", "with -p: text, json (one object) or stream-json (an event per line)"),
        ("--output-schema", "FILE|JSON", "with -p: answer with data that matches this JSON Schema"),
        ("--mode", "MODE", "rpc: serve a host program; json: print the events of each prompt; text: the same as -p"),
        ("--plain", "", "chat in plain lines, for screen readers and simple terminals"),
        ("--connect", "URL", "join a conversation of `pigeon serve`, or start one if URL is the server's address"),
        ("--help -h", "", "show this help"),
        ("--version -v", "", "show the version"),
    ],
    "Model": [
        ("--model", "PATTERN", "id, provider/id or part of a name, optionally with :level for thinking"),
        ("--provider", "NAME", "the model's provider"),
        ("--models", "LIST", "models to switch between: comma-separated patterns, globs allowed"),
        ("--thinking", "LEVEL", to_alternatives(LEVELS)),
        ("--api-key", "KEY", "key for the model's provider, for this process only; visible in the process list"),
        ("--api-key-file", "FILE", "the same, from the first line of a file or pipe; - reads the first line of stdin"),
    ],
    "Session": [
        ("--continue -c", "", "continue the newest session in this folder"),
        ("--resume -r", "[PATH|ID]", "open a session; without a value, choose one from a list"),
        ("--session", "PATH|ID", "open a session"),
        ("--session-id", "ID", "open or create the session with this id"),
        ("--fork", "PATH|ID", "start from a copy of a session"),
        ("--session-dir", "DIR", "keep sessions in this folder"),
        ("--store", "URL", "keep conversations in a store: postgresql://..., file:DIR or pgserver:"),
        ("--node", "NAME", "with --store, the name of this process as owner of conversations"),
        (
            "--lease-seconds",
            "N",
            "with --store, how long a process that has died still owns its conversations (10)",
        ),
        ("--continue-runs", "", "go on with a run that was interrupted by the death of its process"),
        ("--name -n", "NAME", "display name of the session"),
        ("--no-session", "", "keep nothing on disk"),
    ],
    "Tools and permissions": [
        ("--cwd", "DIR", "work in this folder"),
        ("--workspace", "URL", "work on another machine: ssh://, docker://, podman://, exec:COMMAND#/path, host:/path"),
        ("--tools -t", "LIST", "use only these tools (comma-separated, * is a wildcard), or +add and -remove some"),
        ("--exclude-tools -xt", "LIST", "leave out these tools; * is a wildcard"),
        ("--no-tools -nt", "", "use no tools at all"),
        ("--no-builtin-tools -nbt", "", "use only the tools of extensions and the host"),
        ("--permissions", "FILE|JSON", "further rules, in the format of the setting; they can only tighten yours"),
        (
            "--approval-mode",
            "MODE",
            "ask before tool calls: always-ask, write (not file changes), yolo (never); or plan first",
        ),
        (
            "--sandbox",
            "MODE",
            "sandbox for commands: workspace (they can write only in this folder), read-only, off",
        ),
        ("--sandbox-network", "", "with --sandbox, let commands use the network"),
        ("--approve -a", "", "trust this project's files, for this process only"),
        ("--no-approve -na", "", "do not trust this project's files"),
        ("--attended", "", "a person answers: questions about permission wait, unless permissions.timeoutMs is set"),
        ("--unattended", "", "nobody is there to ask: deny what needs approval, and verify the work at the end"),
    ],
    "Limits of the conversation": [
        ("--max-turns", "N", "maximum number of requests for an answer, including retries"),
        ("--max-cost", "DOLLARS", "maximum cost of all requests together"),
        ("--max-tokens", "N", "maximum tokens of all requests together"),
        ("--max-seconds", "SECONDS", "maximum duration of all runs together"),
        ("--max-tool-calls", "N", "maximum number of tool calls"),
    ],
    "What the model is told": [
        ("--system-prompt", "TEXT|FILE", "replace the system prompt"),
        ("--append-system-prompt", "TEXT|FILE...", "add to the system prompt"),
        ("--no-context-files -nc", "", "do not read AGENTS.md and similar files"),
        ("--skill", "PATH...", "load a skill"),
        ("--no-skills -ns", "", "load only skills named with --skill"),
        ("--prompt-template", "PATH...", "load a prompt template"),
        ("--no-prompt-templates -np", "", "load only templates named with --prompt-template"),
        ("--no-mcp", "", "ignore the tool servers in mcp.json files"),
        ("--extension -e", "PATH...", "load an extension"),
        ("--no-extensions -ne", "", "load only extensions named with --extension"),
        ("--no-rules", "", "do not use stream rules"),
    ],
    "Finding out what happens": [
        ("--verbose", "", "report on stderr which files are read, which model is asked and how long it takes"),
        ("--trace", "FILE", "record the protocol and all exchanges with model servers; keys are masked"),
        ("--record", "FILE", "record the exchanges with model servers; replay them with --model recorded/FILE"),
        ("--offline", "", "accepted for compatibility: Pigeon never checks for updates or sends telemetry"),
        ("--list-models", "[SEARCH]", "list models that have a key, in pi's format; `pigeon models` shows more"),
        ("--export", "FILE", "write a session file as an HTML page (to a second FILE, if given)"),
    ],
    "For host programs": [
        ("--dialect", "NAME", to_alternatives(get_args(DialectName))),
        ("--socket", "PATH", "serve the first connection to a Unix socket instead of stdin and stdout"),
        ("--drain", "", "when stdin ends, finish the current run before exiting"),
        ("--no-ui", "", "with --mode rpc: send the host no questions and no notices"),
        ("--plans", "", "the host shows plans: let the model keep one (the tool todo)"),
        ("--agents", "", "the host shows agents: let the model start them (the tools task and jobs)"),
        ("--record-cap", "BYTES", "longest line accepted on stdin"),
    ],
    "accepted without effect": [
        ("--theme", "PATH...", ""),
        ("--provider-session-id", "ID", ""),
        ("--no-themes", "", ""),
        ("--no-title", "", ""),
        ("--no-lsp", "", ""),
        ("--no-pty", "", ""),
    ],
}


class _HelpFormatter(argparse.HelpFormatter):
    """Has a fixed width: to query the terminal, each `add_argument` would need `shutil` and its imports."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80, max_help_position=34)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message[:1].upper() + message[1:])


def make_parser(rows: Sequence[Row]) -> argparse.ArgumentParser:
    """A parser of these options, and of words between them."""
    made = _Parser(prog="pigeon", add_help=False, allow_abbrev=False, formatter_class=_HelpFormatter)
    made.add_argument("messages", nargs="*")
    for names, value, _ in rows:
        made.add_argument(*names.split(), **_to_argparse_settings(names, value))
    return made


@cache
def _make_plain_parser() -> argparse.ArgumentParser:
    """The parser without options of extensions; a warm parent makes it once for all calls."""
    return make_parser(list_option_rows())


def list_option_rows() -> list[Row]:
    return [row for rows in GROUPS.values() for row in rows]


def option_names(rows: Sequence[Row]) -> list[str]:
    """The spellings of those options that the help shows."""
    return [name for names, _, text in rows if text for name in names.split()]


def _to_argparse_settings(names: str, value: str) -> dict[str, Any]:
    if not value:
        return {"action": "store_true"}
    if names == "--export":
        return {"nargs": "+", "metavar": value}
    if value.startswith("[") and value.endswith("]"):
        return {"nargs": "?", "const": "", "metavar": value.strip("[]")}
    if value.endswith("..."):
        return {"action": "append", "default": [], "metavar": value.removesuffix("...")}
    return {"metavar": value}


def parse_arguments(
    arguments: Sequence[str], program: str = "pigeon", flags: Mapping[str, bool] | None = None
) -> CommandLine:
    """The options; raises `UsageError` for a value that cannot be used.

    `flags` are the options of extensions where they are known by now, and whether they take a value.
    """
    known, literal = _split_at_double_dash(arguments)
    known = _join_tool_lists(known)
    own = [(f"--{name}", "VALUE" if takes_value else "", "") for name, takes_value in (flags or {}).items()]
    table = {name for names, _, _ in list_option_rows() for name in names.split()}
    added = [row for row in own if row[0] not in table]
    parser = make_parser([*list_option_rows(), *added]) if added else _make_plain_parser()
    found, unknown = parser.parse_known_args(known)
    _check_choice_values(found)
    _refuse_long_dashes(found.messages, table)
    words = [word for word in unknown if not word.startswith("-")]
    options = [word for word in unknown if word.startswith("-")]
    return CommandLine(
        program=program,
        arguments=tuple(arguments),
        agent=_to_agent_options(found, _parse_extension_flags(options, known)),
        api_key_file=found.api_key_file,
        mode=found.mode,
        print=found.print,
        output=found.output,
        output_schema=found.output_schema,
        messages=(*found.messages, *words, *literal),
        literal=tuple(literal),
        dialect=found.dialect,
        socket=found.socket,
        connect=found.connect,
        record_cap=found.record_cap,
        no_ui=found.no_ui,
        verbose=found.verbose,
        trace=found.trace,
        plain=found.plain,
        list_models=found.list_models,
        export=tuple(found.export or ()),
        help=found.help,
        version=found.version,
        unknown=tuple(options),
        known=tuple(option_names(list_option_rows())),
        parse_again=partial(parse_arguments, arguments, program),
        own_options=partial(select_agent_arguments, arguments),
    )


def _check_choice_values(found: argparse.Namespace) -> None:
    """Options whose value is one of a few words."""
    for field in ("mode", "output", "approval_mode", "sandbox"):
        given, shown = getattr(found, field), WORDS[f"--{field.replace('_', '-')}"]
        if given is not None and given not in (MODES if field == "mode" else shown):
            raise UsageError(f'Invalid {field.replace("_", " ")} "{given}". Valid values: {", ".join(shown)}')


def _refuse_long_dashes(words: Sequence[str], table: Collection[str]) -> None:
    """Refuse an option whose dashes became a long one, as word processors and web pages make it."""
    for word in words:
        name = word.lstrip(LONG_DASHES).partition("=")[0]
        if word.startswith(tuple(LONG_DASHES)):
            meant = next((option for option in (f"--{name}", f"-{name}") if option in table), None)
            if meant is not None:
                raise UsageError(f"{word} begins with a long dash. Did you mean {meant}? Put text after --")


def select_agent_arguments(arguments: Sequence[str], without: Collection[str]) -> list[str]:
    """The arguments without the named options, to start another process of this agent."""
    takes = {name: value for names, value, _ in list_option_rows() for name in names.split()}
    kept: list[str] = []
    words = list(_split_at_double_dash(arguments)[0])
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            continue
        option = [word]
        value = takes.get(word, "")
        if words and value and (not value.startswith("[") or not words[0].startswith("-")):
            option.append(words.pop(0))
        if word.partition("=")[0] not in without:
            kept += option
    return kept


def _split_at_double_dash(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Everything behind `--` is a message."""
    if "--" in arguments:
        at = arguments.index("--")
        return list(arguments[:at]), list(arguments[at + 1 :])
    return list(arguments), []


def _join_tool_lists(arguments: Sequence[str]) -> list[str]:
    """The arguments with each list of tools joined to its option, since a list may look like an option (`-bash`)."""
    joined: list[str] = []
    words = iter(arguments)
    for word in words:
        value = next(words, None) if word in TOOL_LISTS else None
        joined.append(word if value is None else f"{word}={value}")
        option, equals, given = joined[-1].partition("=")
        if equals and option in TOOL_LISTS[:2]:
            parse_option_selection(_split_list(given), option)
    return joined


def _parse_extension_flags(options: list[str], arguments: list[str]) -> dict[str, bool | str]:
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


def _to_agent_options(found: argparse.Namespace, flags: dict[str, bool | str]) -> AgentOptions:
    return AgentOptions(
        cwd=found.cwd,
        workspace=found.workspace,
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
        store=found.store,
        node=found.node,
        lease_seconds=LEASE_SECONDS if found.lease_seconds is None else found.lease_seconds,
        name=found.name,
        continue_runs=found.continue_runs,
        tools=None if found.tools is None else _split_list(found.tools),
        exclude_tools=_split_list(found.exclude_tools or ""),
        no_tools=found.no_tools,
        no_builtin_tools=found.no_builtin_tools,
        offers=tuple(offer for offer in TOOL_OFFERS if getattr(found, offer)),
        extensions=tuple(found.extension),
        no_extensions=found.no_extensions,
        flags=flags,
        skills=tuple(found.skill),
        no_skills=found.no_skills,
        tool_servers=() if found.no_mcp else None,
        prompt_templates=tuple(found.prompt_template),
        no_prompt_templates=found.no_prompt_templates,
        no_context_files=found.no_context_files,
        no_rules=found.no_rules,
        system_prompt=found.system_prompt,
        append_system_prompt=tuple(found.append_system_prompt),
        trust_project=False if found.no_approve else True if found.approve else None,
        permissions=found.permissions,
        approval_mode=found.approval_mode or "yolo",
        sandbox=found.sandbox,
        sandbox_network=found.sandbox_network,
        limits=_parse_limits(found),
        drain=found.drain,
        unattended=found.unattended,
        attended=found.attended,
        record=found.record,
    )


def _parse_limits(found: argparse.Namespace) -> Limits:
    """The given limits; raises `UsageError` that names the option."""
    limits: dict[str, int | float] = {}
    for name, field in LIMIT_FIELDS.items():
        text = getattr(found, f"max_{field}")
        if text is not None:
            try:
                limits[field] = check_limit(
                    name, _parse_number(text), f'Invalid --max-{field.replace("_", "-")} "{text}"'
                )
            except BadRecord as error:
                raise UsageError(str(error)) from None
    return Limits(**limits)  # type: ignore[arg-type]


def _parse_number(text: str) -> int | float | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _split_list(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
