"""Every command: small ones are declared here, those of front ends in their folders. The code of a command is imported
when it is called."""

from __future__ import annotations

from typing import get_args

from pigeon.frontends.acp.arguments import ACP
from pigeon.frontends.batch.arguments import BATCH
from pigeon.frontends.call import JSON, Action, CommandCall, CommandDeclaration, Row
from pigeon.frontends.serve.arguments import SERVE
from pigeon.frontends.stdio.arguments import ATTACH
from pigeon.wire.choices import DialectName, to_alternatives


def _run_sessions(call: CommandCall) -> int:
    from pigeon.cli.commands.sessions import run_sessions

    return run_sessions(call)


def _run_store(call: CommandCall) -> int:
    from pigeon.cli.commands.store import run_store

    return run_store(call)


def _run_models(call: CommandCall) -> int:
    from pigeon.cli.commands.models import run_models

    return run_models(call)


def _run_family_models(call: CommandCall) -> int:
    from pigeon.cli.commands.models import run_family_models

    return run_family_models(call)


def _run_config(call: CommandCall) -> int:
    from pigeon.cli.commands.config import run_config

    return run_config(call)


def _run_doctor(call: CommandCall) -> int:
    from pigeon.cli.commands.doctor import run_doctor

    return run_doctor(call)


def _run_demo(call: CommandCall) -> int:
    from pigeon.cli.commands.demo import run_demo

    return run_demo(call)


def _run_completions(call: CommandCall) -> int:
    from pigeon.cli.commands.completions import run_completions

    return run_completions(call)


def _run_schema(call: CommandCall) -> int:
    import json

    from pigeon.frontends.printing import print_line
    from pigeon.transport import exit_codes
    from pigeon.wire.schema import protocol_schema

    print_line(json.dumps(protocol_schema(), indent=2))
    return exit_codes.OK


def _run_replay(call: CommandCall) -> int:
    from pigeon.cli.commands.replay import run_replay

    return run_replay(call)


def _run_mcp(call: CommandCall) -> int:
    from pigeon.cli.commands.mcp import run_mcp

    return run_mcp(call)


def _run_warm(call: CommandCall) -> int:
    from pigeon.cli.commands.warm import run_warm

    return run_warm(call)


def _run_help(call: CommandCall) -> int:
    from pigeon.cli.help_pages import show_help

    return show_help(call.word_at(0), call.environment.called)


STORE: Row = ("--store", "URL", "where conversations are kept: postgresql://..., file:DIR, pgserver:; or PIGEON_STORE")
SESSIONS = CommandDeclaration(
    name="sessions",
    summary="list, search, show, export, rename and delete conversations",
    run=_run_sessions,
    actions=(
        Action("list", (), "list the sessions of this folder, newest first"),
        Action("search", ("TEXT...",), "find sessions that contain this text"),
        Action("show", ("ID",), "print the conversation as text"),
        Action("export", ("ID", "[FILE]"), "write an HTML page, or a trajectory (--format atif)"),
        Action("rename", ("ID", "NAME..."), "rename a session"),
        Action("delete", ("ID",), "move a session to the trash"),
        Action("undelete", ("[ID]",), "restore a session from the trash; without an ID, the one deleted last"),
        Action("trash", (), "list the deleted sessions"),
        Action("copy", ("[ID]",), "copy a session, or with --all every one, to another store (--to URL)"),
        Action("checkpoints", ("[ID]",), "show how much disk the recorded files take that undo needs"),
    ),
    options=(
        ("--all -a", "", "include the sessions of all folders"),
        ("--limit", "N", "list at most N sessions (default: 50)"),
        ("--session-dir", "DIR", "look for sessions in this folder"),
        STORE,
        ("--to", "URL", "with copy: the store that gets the copies"),
        ("--format", "FORMAT", "with export: html (the default), or atif for training and Harbor"),
        ("--free", "", "with checkpoints: remove those of this ID; without one, those of sessions that are gone"),
        ("--leaf", "ENTRY", "with --format atif: export the branch that ends in this entry instead of the active one"),
        JSON,
    ),
    examples=(
        ("pigeon sessions", "list the sessions of this folder"),
        ("pigeon sessions search --all login", "find conversations about logins"),
        ("pigeon sessions show 019a", "read one; a unique prefix of the ID is enough"),
        ("pigeon sessions export 019a run.json --format atif", "a trajectory, with its images in a folder beside it"),
        ("pigeon sessions delete 019a", "delete it; `pigeon sessions undelete` restores it"),
        ("pigeon --session 019a", "continue it"),
        (
            "pigeon sessions copy --all --to postgresql://db/pigeon",
            "copy all to a database",
        ),
    ),
)
STORES = CommandDeclaration(
    name="store",
    summary="create, check and print the store of conversations: files, or PostgreSQL",
    run=_run_store,
    actions=(
        Action("check", (), "connect, and say what is guaranteed"),
        Action("init", (), "create the store in a database; does nothing if there is one"),
        Action("migrate", (), "bring the store to the version of this program"),
        Action("dump", (), "print every row as JSON (--jsonl)"),
        Action("audit", (), "print who did what and when (--jsonl)"),
    ),
    options=(
        STORE,
        ("--jsonl", "", "with dump and audit: one object on each line"),
        ("--session", "ID", "with dump: this session only"),
    ),
    examples=(
        ("pigeon store init --store postgresql://pigeon@db/pigeon", "create the tables"),
        ("pigeon --store postgresql://pigeon@db/pigeon", "a conversation that is kept there"),
        ("PIGEON_STORE=pgserver: pigeon store check", "the embedded database, with its data in the agent's folder"),
    ),
)
REPLAY = CommandDeclaration(
    name="replay",
    summary="play a session to a host program as if it were happening now",
    run=_run_replay,
    actions=(Action("", ("SESSION",), "send its events on stdout, as --mode rpc does, and answer commands"),),
    options=(
        ("--speed", "N", "play N times as fast (default: 1), or max for no pauses at all"),
        ("--max-gap", "SECONDS", "shorten longer pauses to this (default: 5)"),
        ("--dialect", "NAME", to_alternatives(get_args(DialectName))),
        ("--drain", "", "when stdin ends, play to the end before exiting"),
        ("--session-dir", "DIR", "look for sessions in this folder"),
        ("--mode", "MODE", ""),
    ),
    examples=(
        ("pigeon replay 019a --speed 10", "the command for your host program to start"),
        ("pigeon replay 019a --speed max --drain < /dev/null > events.jsonl", "write all events to a file"),
    ),
)
MODELS = CommandDeclaration(
    name="models",
    summary="list models, with context size, price and whether you have a key",
    run=_run_models,
    output="configuration",
    actions=(Action("", ("[SEARCH...]",), "list the models you can use, or all whose name contains these words"),),
    options=(("--all -a", "", "include models without a key"), JSON),
    examples=(
        ("pigeon models", "the models you can use now"),
        ("pigeon models sonnet", "all models that match, with and without a key"),
        ("pigeon --model anthropic/claude-sonnet-5:high", "use one, with a high thinking level"),
    ),
)
# In the place of `models` where the program is called like an agent that has this form of it.
FAMILY_MODELS = CommandDeclaration(
    name="models",
    summary="list the models that can be used",
    run=_run_family_models,
    output="configuration",
    actions=(
        Action("ls", ("[FILTER]",), "list them, or those of a provider, or those whose name contains this text"),
        Action("list", ("[FILTER]",), "the same"),
        Action("find", ("[PATTERN]",), "list those whose provider, id or name contains this text"),
        Action("refresh", ("[FILTER]",), "list them; there is no catalogue that could be out of date"),
    ),
    options=(
        JSON,
        ("--kind", "KIND", "chat (the default) or all; there are models of no other kind"),
        ("--extension -e", "PATH...", ""),
        ("--no-extensions", "", ""),
        ("--config", "FILE...", ""),
    ),
    examples=(
        ("omp models anthropic", "the models of one provider"),
        ("omp models --json", "for programs"),
    ),
)
CONFIG = CommandDeclaration(
    name="config",
    summary="show and change settings",
    run=_run_config,
    output="configuration",
    actions=(
        Action("list", (), "list every setting with its value and where it comes from"),
        Action("get", ("KEY",), "print the value of one setting"),
        Action("set", ("KEY", "VALUE"), "change a setting; the value is JSON, or a plain word"),
        Action("unset", ("KEY",), "restore the default"),
        Action("path", (), "print the path of the settings file"),
        Action("edit", (), "open the file in your editor ($VISUAL or $EDITOR)"),
    ),
    options=(("--project", "", "use the settings of the project in this folder instead of yours"), JSON),
    examples=(
        ("pigeon config set defaultModel claude-sonnet-5", "a plain word needs no quotes"),
        ("pigeon config set retry.maxRetries 5", "a setting within a group"),
        ('pigeon config set enabledModels \'["sonnet", "gpt-5"]\'', "a list, as JSON"),
        ("pigeon config get retry", "a whole group"),
    ),
)
DOCTOR = CommandDeclaration(
    name="doctor",
    summary="check keys, models, shell, folders and terminal, and say how to fix problems",
    run=_run_doctor,
    output="configuration",
    actions=(Action("", (), "check everything"),),
    options=(
        ("--offline", "", "do not contact the model servers"),
        JSON,
    ),
    examples=(
        ("pigeon doctor", "check everything; the exit code is 1 if something is broken"),
        ("pigeon doctor --offline", "the same without the network"),
    ),
    notes="Each provider that has a key is asked for its list of models, which costs nothing.",
)
DEMO = CommandDeclaration(
    name="demo",
    summary="try Pigeon without a key",
    run=_run_demo,
    actions=(Action("", ("[PROMPT...]",), "chat with the demo model, starting with this prompt if given"),),
    examples=(
        ("pigeon demo", "a chat; without a terminal: a short tour"),
        ('pigeon demo "list the files"', "a chat that starts with this prompt; without a terminal: one answer"),
    ),
    notes="The demo model understands a few plain sentences: list or read files, run a command, write or change a "
    "file, search. It calls real tools in this folder. The tour works in a temporary folder.",
)
COMPLETIONS = CommandDeclaration(
    name="completions",
    summary="print a script that completes commands and options in your shell",
    run=_run_completions,
    output="fixed",
    actions=(Action("", ("bash|zsh|fish",), "print the script for this shell"),),
    examples=(
        ('eval "$(pigeon completions bash)"', "in ~/.bashrc"),
        ('eval "$(pigeon completions zsh)"', "in ~/.zshrc, after compinit"),
        ("pigeon completions fish > ~/.config/fish/completions/pigeon.fish", "run once"),
    ),
)
SCHEMA = CommandDeclaration(
    name="schema",
    summary="print the JSON Schema of the protocol",
    run=_run_schema,
    output="fixed",
    actions=(Action("", (), "describes everything that --mode rpc reads and writes"),),
    examples=(("pigeon schema > protocol.schema.json", "save it for a client"),),
)
MCP = CommandDeclaration(
    name="mcp",
    summary="add, list, test and remove tool servers (Model Context Protocol)",
    run=_run_mcp,
    output="configuration",
    actions=(
        Action("list", (), "list the configured servers and the files that define them"),
        Action("add", ("NAME", "COMMAND|URL", "[ARGUMENT...]"), "add a server: a program to start, or a URL"),
        Action("test", ("NAME",), "connect to a server and report problems; signs in if necessary"),
        Action("remove", ("NAME",), "remove a server from its file"),
    ),
    options=(
        ("--project", "", "use the project's file (.pigeon/mcp.json in this folder) instead of yours"),
        (
            "--env -e",
            "NAME=VALUE...",
            "with add: set an environment variable; $NAME is resolved when the program starts",
        ),
        ("--header -H", "NAME:VALUE...", "with add: send this header; $NAME is resolved when connecting"),
        ("--sse", "", "with add: the URL uses the older transport, server-sent events"),
        ("--device", "", "with add: sign in by entering a code in a browser on any device"),
        JSON,
    ),
    examples=(
        (
            "pigeon mcp add files -- npx -y @modelcontextprotocol/server-filesystem .",
            "a program; put `--` before its options",
        ),
        ("pigeon mcp add docs https://example.com/mcp -H 'Authorization: Bearer $DOCS_TOKEN'", "a service"),
        ("pigeon mcp test files", "connect to it and list its tools"),
    ),
)
HELP = CommandDeclaration(
    name="help",
    summary="explain a command",
    run=_run_help,
    output="fixed",
    actions=(Action("", ("[COMMAND]",), "show the general help, or that of a command"),),
    examples=(("pigeon help sessions", "the help for a command"),),
)
WARM = CommandDeclaration(
    name="warm",
    summary="keep a process from which calls of pigeon start at once",
    run=_run_warm,
    actions=(Action("", (), "start it, unless it runs already, and return"),),
    options=(
        ("--status", "", "list the warm parents; the exit code is 1 if there is none"),
        ("--stop", "", "end all of them; what they have started goes on"),
        ("--idle-minutes", "N", "end it after N minutes without a call (default: the setting warm.idleMinutes)"),
        ("--parent", "DESCRIPTOR", ""),
    ),
    examples=(
        ("pigeon warm", "from now on, `pigeon -p`, `--mode rpc` and `pigeon acp` start warm"),
        ("pigeon warm --stop", "from now on, every call starts by itself"),
    ),
)
_OF_HOSTS = (SERVE, ATTACH, BATCH, ACP, WARM, COMPLETIONS, SCHEMA)
_ALL = (SESSIONS, STORES, REPLAY, MODELS, CONFIG, DOCTOR, DEMO, MCP, *_OF_HOSTS, HELP)
COMMANDS = {one.name: one for one in _ALL}
# By the name that the program is called by; other names have `COMMANDS` alone.
_OF_FAMILY = {"omp": (FAMILY_MODELS,), "xcsh": (FAMILY_MODELS,)}


def find_command(name: str, called: str) -> CommandDeclaration:
    """The command of this name, as the agent has it whose name the program was called by."""
    return next((one for one in _OF_FAMILY.get(called, ()) if one.name == name), COMMANDS[name])
