"""Every command with its declaration; what carries one out is imported when it is called."""

from __future__ import annotations

from pigeon.frontends.call import Action, CommandCall, CommandDeclaration

JSON = ("--json", "", "print JSON instead of text")


def _sessions(call: CommandCall) -> int:
    from pigeon.cli.commands.sessions import run_sessions

    return run_sessions(call)


def _models(call: CommandCall) -> int:
    from pigeon.cli.commands.models import run_models

    return run_models(call)


def _config(call: CommandCall) -> int:
    from pigeon.cli.commands.config import run_config

    return run_config(call)


def _doctor(call: CommandCall) -> int:
    from pigeon.cli.commands.doctor import run_doctor

    return run_doctor(call)


def _demo(call: CommandCall) -> int:
    from pigeon.cli.commands.demo import run_demo

    return run_demo(call)


def _completions(call: CommandCall) -> int:
    from pigeon.cli.commands.completions import run_completions

    return run_completions(call)


def _schema(call: CommandCall) -> int:
    import json

    from pigeon.frontends.printing import say
    from pigeon.transport import exit_codes
    from pigeon.wire.schema import protocol_schema

    say(json.dumps(protocol_schema(), indent=2))
    return exit_codes.OK


def _serve(call: CommandCall) -> int:
    from pigeon.frontends.serve.command import run_serve

    return run_serve(call)


def _batch(call: CommandCall) -> int:
    from pigeon.frontends.batch.command import run_batch

    return run_batch(call)


def _attach(call: CommandCall) -> int:
    from pigeon.frontends.stdio.attach import run_attach

    return run_attach(call)


def _acp(call: CommandCall) -> int:
    from pigeon.cli.args import parse
    from pigeon.frontends.acp.command import run_acp

    return run_acp(parse(["--mode", "acp"], "pigeon"), call.environment)


def _replay(call: CommandCall) -> int:
    from pigeon.cli.commands.replay import run_replay

    return run_replay(call)


def _mcp(call: CommandCall) -> int:
    from pigeon.cli.commands.mcp import run_mcp

    return run_mcp(call)


def _help(call: CommandCall) -> int:
    from pigeon.cli.help_pages import show_help

    return show_help(call.word(0))


SESSIONS = CommandDeclaration(
    name="sessions",
    summary="list, search, show, export, rename and delete conversations",
    run=_sessions,
    actions=(
        Action("list", (), "list the sessions of this folder, newest first"),
        Action("search", ("TEXT...",), "find sessions that contain this text"),
        Action("show", ("ID",), "print the conversation as text"),
        Action("export", ("ID", "[FILE]"), "write an HTML page, or a trajectory (--format atif)"),
        Action("rename", ("ID", "NAME..."), "rename a session"),
        Action("delete", ("ID",), "move a session to the trash"),
        Action("undelete", ("[ID]",), "restore a session from the trash; without an ID, the one deleted last"),
        Action("trash", (), "list the deleted sessions"),
    ),
    options=(
        ("--all -a", "", "include the sessions of all folders"),
        ("--limit", "N", "list at most N sessions (default: 50)"),
        ("--session-dir", "DIR", "look for sessions in this folder"),
        ("--format", "FORMAT", "with export: html (the default), or atif for training and Harbor"),
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
    ),
)
REPLAY = CommandDeclaration(
    name="replay",
    summary="play a session to a host program as if it were happening now",
    run=_replay,
    actions=(Action("", ("SESSION",), "send its events on stdout, as --mode rpc does, and answer commands"),),
    options=(
        ("--speed", "N", "play N times as fast (default: 1), or max for no pauses at all"),
        ("--max-gap", "SECONDS", "shorten longer pauses to this (default: 5)"),
        ("--dialect", "NAME", "pi, pi-latest, omp, xcsh or companion"),
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
    run=_models,
    actions=(Action("", ("[SEARCH...]",), "list the models you can use, or all whose name contains these words"),),
    options=(("--all -a", "", "include models without a key"), JSON),
    examples=(
        ("pigeon models", "the models you can use now"),
        ("pigeon models sonnet", "all models that match, with and without a key"),
        ("pigeon --model anthropic/claude-sonnet-5:high", "use one, with a high thinking level"),
    ),
)
CONFIG = CommandDeclaration(
    name="config",
    summary="show and change settings",
    run=_config,
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
    run=_doctor,
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
    run=_demo,
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
    run=_completions,
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
    run=_schema,
    actions=(Action("", (), "describes everything that --mode rpc reads and writes"),),
    examples=(("pigeon schema > protocol.schema.json", "save it for a client"),),
)
SERVE = CommandDeclaration(
    name="serve",
    summary="serve many conversations to browsers and programs",
    run=_serve,
    actions=(Action("", ("[-- OPTIONS...]",), "serve until stopped; OPTIONS apply to every agent"),),
    options=(
        ("--host", "ADDRESS", "listen on this address (default: 127.0.0.1)"),
        ("--port", "N", "listen on this port (default: 7463; 0 for any free port)"),
        ("--socket", "PATH", "also listen on a Unix socket, for your own user's programs"),
        ("--token-file", "FILE", "the clients' tokens (default: serve.token in the agent's folder)"),
        ("--root", "DIR...", "a folder in which conversations may work (repeatable; default: this folder)"),
        ("--model", "PATTERN", "the model for new conversations"),
        ("--allow-host", "NAME...", "a host name of this server, optionally limited to a port: NAME:PORT (repeatable)"),
        ("--tls-cert", "FILE", "use TLS with this certificate (PEM, including its chain)"),
        ("--tls-key", "FILE", "the certificate's private key, if it is not in the same file"),
        ("--behind-proxy", "", "trust the X-Forwarded-For, -Host and -Proto headers of a proxy in front"),
        ("--insecure", "", "allow an address that others can reach, without TLS"),
        ("--max-connections", "N", "at most N connections with a token (default: 2000)"),
        ("--request-seconds", "N", "seconds in which a request must be complete (default: 20)"),
        ("--max-frame-mb", "N", "longest record that a client may send, in MB (default: 32)"),
        ("--idle-minutes", "N", "put a conversation to sleep after N idle minutes (default: 10)"),
        ("--drain-seconds", "N", "on shutdown, give active runs N seconds to finish (default: 30)"),
        ("--max-awake", "N", "at most N conversations with a running process (default: 200)"),
        ("--max-kept", "N", "at most N conversations in total (default: 10000)"),
        ("--worker-memory", "MB", "memory limit of a conversation, including its commands (default: 4096; 0: none)"),
        ("--worker-processes", "N", "process limit of a conversation (default: 500; 0: none)"),
        ("--worker-restarts", "N", "restart a process that dies, at most N times a minute (default: 5)"),
        ("--worker-silence", "N", "kill a process that hangs for N seconds (default: 60; 0: never)"),
        ("--host-tool-wait", "N", "fail a host tool call after N seconds without a client (default: 120)"),
        ("--log-level", "LEVEL", "debug, info (the default), warning, error or off"),
        ("--link", "", "print a new link to the running server and exit"),
        ("--scope", "SCOPE", "with --link: what the link allows: read, talk or admin (the default)"),
    ),
    examples=(
        ("pigeon serve", "serve this folder on this machine"),
        ("pigeon serve -- --permissions rules.json --thinking high", "options for the agents, see `pigeon --help`"),
        ("pigeon serve --link", "a new link for another browser; each link works once"),
    ),
)
BATCH = CommandDeclaration(
    name="batch",
    summary="run many tasks, each in a fresh workspace, and write a report",
    run=_batch,
    actions=(Action("", ("[TASKS]", "[-- OPTIONS...]"), "run the tasks in a file; OPTIONS apply to every agent"),),
    options=(
        ("--out", "DIR", "the folder for results; TASKS is JSON Lines or CSV, or - for stdin"),
        ("--resume", "", "continue the batch in DIR: pigeon batch --resume DIR"),
        ("--retry-failed", "", "the same, and run the unsuccessful tasks again"),
        ("--prompt", "TEXT", "prompt template for tasks that have none: {name} is a field or column of the task"),
        ("--template", "FILE", "the same from a file"),
        ("--format", "FORMAT", "jsonl or csv, if the file name does not say"),
        ("--model", "PATTERN", "the model for tasks that name none"),
        ("--folder", "DIR", "workspace for tasks that name none: a fresh copy of this folder"),
        ("--git", "URL", "the same: a fresh checkout of this repository"),
        ("--revision", "REVISION", "with --git: the branch, tag or commit"),
        ("--output-schema", "FILE|JSON", "answers must match this JSON Schema"),
        ("--check", "COMMAND", "run this in the workspace afterwards; the task succeeds if it exits with 0"),
        ("--check-seconds", "N", "time limit of a check (default: 600)"),
        ("--keep", "WHICH", "which workspaces to keep: all (the default), failed or none"),
        ("--concurrency", "N", "run N tasks at a time (default: as many as fit)"),
        ("--max-cost", "DOLLARS", "cost limit for all tasks together"),
        ("--max-tasks", "N", "refuse a file with more tasks than this (default: 1000000)"),
        ("--requests-per-minute", "[PROVIDER=]N...", "requests per minute for all tasks together"),
        ("--tokens-per-minute", "[PROVIDER=]N...", "tokens per minute for all tasks together"),
        ("--engine", "ENGINE", "local (the default) or ray"),
        ("--address", "ADDRESS", "with ray: the cluster; without it, Ray is started on this machine"),
        ("--cpus", "N", "with ray: CPUs that each task needs (default: 1)"),
        ("--resource", "NAME=N...", "with ray: another resource that each task needs"),
        ("--pass-variable", "NAME...", "with ray: pass this environment variable to the machines of the cluster"),
        ("--title", "TEXT", "the title of the report"),
        ("--no-report", "", "do not write a report at the end"),
        ("--report", "", "rewrite the report of the batch in DIR: pigeon batch --report DIR"),
        ("--compare", "", "compare two batches: pigeon batch --compare DIR1 DIR2 [--out FILE]"),
    ),
    examples=(
        ("pigeon batch tasks.jsonl --out results", "run the tasks; the exit code is 0 if all succeed"),
        ('pigeon batch repos.csv --out r --prompt "Upgrade {package}" --check "make test"', "one task per row"),
        ("pigeon batch --resume results", "continue after an interruption"),
        (
            "pigeon batch tasks.jsonl --out r --max-cost 20 -- --max-turns 30 --thinking low",
            "a cost limit, and options for the agents",
        ),
        ("pigeon batch --compare before after", "compare two batches"),
    ),
)
ATTACH = CommandDeclaration(
    name="attach",
    summary="connect stdin and stdout to a conversation of `pigeon serve`",
    run=_attach,
    actions=(Action("", ("URL",), "relay until the input ends; the conversation continues"),),
    options=(
        ("--new", "DIR", "start a new conversation in this folder; URL is then the server's address"),
        ("--model", "PATTERN", "the model for the new conversation"),
        ("--dialect", "NAME", "pi, pi-latest, omp, xcsh or companion"),
        ("--token-file", "FILE", "the token (default: PIGEON_TOKEN, else that of your own server on this machine)"),
        ("--reconnect", "SECONDS", "how long to try to reconnect when the connection breaks (default: 300)"),
        ("--mode", "MODE", ""),
    ),
    examples=(
        ("pigeon attach ws://127.0.0.1:7463/0198f2c4-...", "the command for your host program to start"),
        ("pigeon attach http://127.0.0.1:7463 --new .", "a new conversation in this folder"),
        ("pigeon attach unix:serve.sock?session=0198f2c4-...", "over the server's Unix socket"),
    ),
)
ACP = CommandDeclaration(
    name="acp",
    summary="serve an editor: the Agent Client Protocol on stdin and stdout",
    run=_acp,
    actions=(
        Action("", ("[OPTIONS...]",), "serve until the editor disconnects; OPTIONS are those of `pigeon --help`"),
    ),
    options=(("--setup", "", "ask for a provider's key in the terminal and store it; some editors offer this"),),
    examples=(
        ("pigeon acp", "the command for your editor to start; see docs/editors.md"),
        ("pigeon acp --model sonnet:high --approval-mode write", "a model, and approval before commands"),
    ),
)
MCP = CommandDeclaration(
    name="mcp",
    summary="add, list, test and remove tool servers (Model Context Protocol)",
    run=_mcp,
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
    run=_help,
    actions=(Action("", ("[COMMAND]",), "show the general help, or that of a command"),),
    examples=(("pigeon help sessions", "the help for a command"),),
)
_ALL = (SESSIONS, REPLAY, MODELS, CONFIG, DOCTOR, DEMO, MCP, SERVE, ATTACH, BATCH, ACP, COMPLETIONS, SCHEMA, HELP)
COMMANDS = {one.name: one for one in _ALL}
