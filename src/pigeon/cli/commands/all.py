"""Every command with its declaration; what carries one out is imported when it is called."""

from __future__ import annotations

from pigeon.cli.commands.call import Action, CommandCall, CommandDeclaration

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

    from pigeon.cli.printing import say
    from pigeon.transport import exit_codes
    from pigeon.wire.schema import protocol_schema

    say(json.dumps(protocol_schema(), indent=2))
    return exit_codes.OK


def _serve(call: CommandCall) -> int:
    from pigeon.cli.commands.serve import run_serve

    return run_serve(call)


def _batch(call: CommandCall) -> int:
    from pigeon.cli.commands.batch import run_batch

    return run_batch(call)


def _attach(call: CommandCall) -> int:
    from pigeon.cli.commands.attach import run_attach

    return run_attach(call)


def _acp(call: CommandCall) -> int:
    from pigeon.cli.args import parse
    from pigeon.cli.commands.acp import run_acp

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
        Action("list", (), "the sessions of this folder, newest first"),
        Action("search", ("TEXT...",), "sessions in which this text was said"),
        Action("show", ("ID",), "what was said, as text"),
        Action("export", ("ID", "[FILE]"), "write an HTML page, or a trajectory (--format atif)"),
        Action("rename", ("ID", "NAME..."), "give a session another name"),
        Action("delete", ("ID",), "move a session to the trash"),
        Action("undelete", ("[ID]",), "bring one back from the trash; without an ID, the one deleted last"),
        Action("trash", (), "the deleted sessions"),
    ),
    options=(
        ("--all -a", "", "sessions of all folders"),
        ("--limit", "N", "list at most N sessions (50 unless told)"),
        ("--session-dir", "DIR", "look for sessions in this folder"),
        ("--format", "FORMAT", "with export: html (unless told), or atif for trainers and Harbor"),
        ("--leaf", "ENTRY", "with --format atif: the branch that ends in this entry, not the active one"),
        JSON,
    ),
    examples=(
        ("pigeon sessions", "list the sessions of this folder"),
        ("pigeon sessions search --all login", "find where logins were talked about"),
        ("pigeon sessions show 019a", "read one; the beginning of an ID is enough"),
        ("pigeon sessions export 019a run.json --format atif", "a trajectory, with its images beside it"),
        ("pigeon sessions delete 019a", "delete it; `pigeon sessions undelete` brings it back"),
        ("pigeon --session 019a", "continue it"),
    ),
)
REPLAY = CommandDeclaration(
    name="replay",
    summary="play a session to a host, as if it happened now",
    run=_replay,
    actions=(Action("", ("SESSION",), "tell its events on stdout, in the protocol, and answer commands"),),
    options=(
        ("--speed", "N", "so many times as fast (1 unless told), or max for without any pause"),
        ("--max-gap", "SECONDS", "wait at most so long where nothing happened (5 unless told)"),
        ("--dialect", "NAME", "pi, pi-latest, omp, xcsh or companion"),
        ("--drain", "", "when stdin ends, play to the end before exiting"),
        ("--session-dir", "DIR", "look for sessions in this folder"),
        ("--mode", "MODE", ""),
    ),
    examples=(
        ("pigeon replay 019a --speed 10", "for a program that starts a subprocess"),
        ("pigeon replay 019a --speed max --drain < /dev/null > events.jsonl", "all events as a file"),
    ),
)
MODELS = CommandDeclaration(
    name="models",
    summary="list the models, with context size, price and whether there is a key",
    run=_models,
    actions=(Action("", ("[SEARCH...]",), "the models that can be used, or all whose name has these words"),),
    options=(("--all -a", "", "also models without a key"), JSON),
    examples=(
        ("pigeon models", "the models that can be used now"),
        ("pigeon models sonnet", "all models with this word, with and without a key"),
        ("pigeon --model anthropic/claude-sonnet-5:high", "use one, with much thinking"),
    ),
)
CONFIG = CommandDeclaration(
    name="config",
    summary="show and change settings",
    run=_config,
    actions=(
        Action("list", (), "every setting with its value and where it comes from"),
        Action("get", ("KEY",), "the value of one setting"),
        Action("set", ("KEY", "VALUE"), "change a setting; the value is JSON, or a plain word"),
        Action("unset", ("KEY",), "go back to the default"),
        Action("path", (), "where the settings are kept"),
        Action("edit", (), "open the file in your editor ($VISUAL or $EDITOR)"),
    ),
    options=(("--project", "", "the settings of this folder's project instead of yours"), JSON),
    examples=(
        ("pigeon config set defaultModel claude-sonnet-5", "a plain word needs no quotes"),
        ("pigeon config set retry.maxRetries 5", "a setting within a group"),
        ('pigeon config set enabledModels \'["sonnet", "gpt-5"]\'', "a list, as JSON"),
        ("pigeon config get retry", "a whole group"),
    ),
)
DOCTOR = CommandDeclaration(
    name="doctor",
    summary="check keys, models, shell, folders and terminal, and say what to do",
    run=_doctor,
    actions=(Action("", (), "check everything"),),
    options=(
        ("--offline", "", "do not ask the model servers"),
        JSON,
    ),
    examples=(
        ("pigeon doctor", "check everything; the exit code is 1 if something is broken"),
        ("pigeon doctor --offline", "the same without the network"),
    ),
    notes="For each provider with a key the list of its models is asked for, which costs nothing.",
)
DEMO = CommandDeclaration(
    name="demo",
    summary="try Pigeon without a key",
    run=_demo,
    actions=(Action("", ("[PROMPT...]",), "chat with the demo model, or let it answer this prompt"),),
    examples=(
        ("pigeon demo", "a chat; without a terminal, a short tour"),
        ('pigeon demo "list the files"', "one prompt"),
    ),
    notes="The demo model understands a few plain sentences: list or read files, run a command, write or change a "
    "file, search. It calls real tools in this folder. The tour works in a folder of its own.",
)
COMPLETIONS = CommandDeclaration(
    name="completions",
    summary="print what makes a shell complete commands and options",
    run=_completions,
    actions=(Action("", ("bash|zsh|fish",), "the script for this shell"),),
    examples=(
        ('eval "$(pigeon completions bash)"', "in ~/.bashrc"),
        ('eval "$(pigeon completions zsh)"', "in ~/.zshrc, behind compinit"),
        ("pigeon completions fish > ~/.config/fish/completions/pigeon.fish", "once"),
    ),
)
SCHEMA = CommandDeclaration(
    name="schema",
    summary="print the JSON Schema of the protocol",
    run=_schema,
    actions=(Action("", (), "everything that --mode rpc takes and sends"),),
    examples=(("pigeon schema > protocol.schema.json", "keep it for a client"),),
)
SERVE = CommandDeclaration(
    name="serve",
    summary="serve many conversations over the network, with a page",
    run=_serve,
    actions=(Action("", ("[-- OPTIONS...]",), "serve until a signal; the options are those of every agent"),),
    options=(
        ("--host", "ADDRESS", "listen on this address (127.0.0.1 unless told)"),
        ("--port", "N", "listen on this port (7463 unless told; 0 for any)"),
        ("--socket", "PATH", "also listen on a unix socket, for programs of your own user"),
        ("--token-file", "FILE", "the tokens that let clients in (serve.token in the agent's folder unless told)"),
        ("--root", "DIR...", "folders in which conversations may work (repeatable; this folder unless told)"),
        ("--model", "PATTERN", "the model of new conversations"),
        ("--allow-host", "NAME...", "a name of this server, with its port if only that is meant (repeatable)"),
        ("--tls-cert", "FILE", "serve with TLS, with this certificate (PEM, with those that vouch for it)"),
        ("--tls-key", "FILE", "the key of the certificate, if it is not in the same file"),
        ("--behind-proxy", "", "a proxy stands in front: believe what it says in X-Forwarded-For, -Host and -Proto"),
        ("--insecure", "", "listen on an address that others can reach, without TLS"),
        ("--max-connections", "N", "at most so many connections with a token (2000 unless told)"),
        ("--request-seconds", "N", "a request must be whole after so many seconds (20 unless told)"),
        ("--max-frame-mb", "N", "the longest record that a client may send, in MB (32 unless told)"),
        ("--idle-minutes", "N", "put a conversation to sleep after so long without use (10 unless told)"),
        ("--drain-seconds", "N", "when told to stop, let runs end for so long (30 unless told)"),
        ("--max-awake", "N", "at most so many conversations with a process (200 unless told)"),
        ("--max-kept", "N", "at most so many conversations at all (10000 unless told)"),
        ("--worker-memory", "MB", "memory of a conversation with all its commands (4096 unless told; 0 for any)"),
        ("--worker-processes", "N", "processes of a conversation (500 unless told; 0 for any)"),
        ("--worker-restarts", "N", "start a process that dies so often within a minute (5 unless told)"),
        ("--worker-silence", "N", "end a process that hangs for so many seconds (60 unless told; 0 for any)"),
        ("--host-tool-wait", "N", "a host tool fails without a client for so many seconds (120 unless told)"),
        ("--log-level", "LEVEL", "debug, info (unless told), warning, error or off"),
        ("--link", "", "print a new link to the server that is running, and leave"),
        ("--scope", "SCOPE", "with --link: what it allows: read, talk or admin (unless told)"),
    ),
    examples=(
        ("pigeon serve", "serve this folder on this machine"),
        ("pigeon serve -- --permissions rules.json --thinking high", "options of agents, as in `pigeon --help`"),
        ("pigeon serve --link", "a new link for another browser; each can be used once"),
    ),
)
BATCH = CommandDeclaration(
    name="batch",
    summary="run many tasks, each in a fresh workspace, and report on them",
    run=_batch,
    actions=(
        Action("", ("[TASKS]", "[-- OPTIONS...]"), "run the tasks of a file; the options are those of every agent"),
    ),
    options=(
        ("--out", "DIR", "the folder for results; TASKS are JSON Lines or CSV, - for stdin"),
        ("--resume", "", "go on with the batch in DIR: pigeon batch --resume DIR"),
        ("--retry-failed", "", "the same, and run those again that are not done"),
        ("--prompt", "TEXT", "a template for tasks without a prompt: {name} is a field of the task, or a column"),
        ("--template", "FILE", "the same from a file"),
        ("--format", "FORMAT", "jsonl or csv, where the name of the file does not tell"),
        ("--model", "PATTERN", "the model of tasks that name none"),
        ("--folder", "DIR", "the workspace of tasks that have none: a fresh copy of this folder for each"),
        ("--git", "URL", "the same: a fresh checkout of this repository"),
        ("--revision", "REVISION", "with --git: the branch, tag or commit"),
        ("--output-schema", "FILE|JSON", "answers have to fit this JSON Schema"),
        ("--check", "COMMAND", "run this in the workspace afterwards; a task is done if it ends with 0"),
        ("--check-seconds", "N", "the longest time of a check (600 unless told)"),
        ("--keep", "WHICH", "the workspaces that stay: all (unless told), failed or none"),
        ("--concurrency", "N", "so many tasks at a time (as many as fit unless told)"),
        ("--max-cost", "DOLLARS", "the most that all tasks may cost together"),
        ("--requests-per-minute", "[PROVIDER=]N...", "the most requests in a minute, of all tasks together"),
        ("--tokens-per-minute", "[PROVIDER=]N...", "the most tokens in a minute, of all tasks together"),
        ("--engine", "ENGINE", "local (unless told) or ray"),
        ("--address", "ADDRESS", "with ray: a cluster; without one, ray is started on this machine"),
        ("--cpus", "N", "with ray: what a task takes of a machine's CPUs (1 unless told)"),
        ("--resource", "NAME=N...", "with ray: what else a task takes of a machine"),
        ("--pass-variable", "NAME...", "with ray: a variable that the machines of the cluster get from here"),
        ("--title", "TEXT", "what the report calls the batch"),
        ("--no-report", "", "write no report at the end"),
        ("--report", "", "write the report of the batch in DIR anew: pigeon batch --report DIR"),
        ("--compare", "", "compare two batches: pigeon batch --compare DIR1 DIR2 [--out FILE]"),
    ),
    examples=(
        ("pigeon batch tasks.jsonl --out results", "run them; the exit code is 0 if all are done"),
        ('pigeon batch repos.csv --out r --prompt "Upgrade {package}" --check "make test"', "a task for each row"),
        ("pigeon batch --resume results", "go on after an interruption"),
        (
            "pigeon batch tasks.jsonl --out r --max-cost 20 -- --max-turns 30 --thinking low",
            "limits; options of agents",
        ),
        ("pigeon batch --compare before after", "did it get better?"),
    ),
)
ATTACH = CommandDeclaration(
    name="attach",
    summary="speak the protocol on stdin and stdout with a conversation of `pigeon serve`",
    run=_attach,
    actions=(Action("", ("URL",), "relay until the input ends; the conversation goes on"),),
    options=(
        ("--new", "DIR", "begin a new conversation in this folder; the URL is then that of the server"),
        ("--model", "PATTERN", "the model of the new conversation"),
        ("--dialect", "NAME", "pi, pi-latest, omp, xcsh or companion"),
        ("--token-file", "FILE", "the token (PIGEON_TOKEN, else that of your server on this machine, unless told)"),
        ("--reconnect", "SECONDS", "try so long to come back when the connection breaks (300 unless told)"),
        ("--mode", "MODE", ""),
    ),
    examples=(
        ("pigeon attach ws://127.0.0.1:7463/0198f2c4-...", "for a program that starts a subprocess"),
        ("pigeon attach http://127.0.0.1:7463 --new .", "a new conversation in this folder"),
        ("pigeon attach unix:serve.sock?session=0198f2c4-...", "over the socket of a server"),
    ),
)
ACP = CommandDeclaration(
    name="acp",
    summary="work in an editor: the Agent Client Protocol on stdin and stdout",
    run=_acp,
    actions=(Action("", ("[OPTIONS...]",), "serve an editor until it goes; the options are those of every agent"),),
    options=(("--setup", "", "ask for a key in a terminal and store it, for editors that offer to do that"),),
    examples=(
        ("pigeon acp", "what an editor starts; docs/editors.md has the settings of each"),
        ("pigeon acp --model sonnet:high --approval-mode write", "a model, and questions before commands"),
    ),
)
MCP = CommandDeclaration(
    name="mcp",
    summary="add, list, test and remove tool servers (Model Context Protocol)",
    run=_mcp,
    actions=(
        Action("list", (), "the servers that are configured, and where"),
        Action("add", ("NAME", "COMMAND|URL", "[ARGUMENT...]"), "add a server: a program to start, or an address"),
        Action("test", ("NAME",), "connect to a server and say where it breaks; signs in if need be"),
        Action("remove", ("NAME",), "take a server out of its file"),
    ),
    options=(
        ("--project", "", "the file of this folder's project (.pigeon/mcp.json) instead of yours"),
        ("--env -e", "NAME=VALUE...", "with add: a variable of the program; $NAME is filled in when it starts"),
        ("--header -H", "NAME:VALUE...", "with add: a header of requests; $NAME is filled in"),
        ("--sse", "", "with add: the address speaks the older form, with server-sent events"),
        JSON,
    ),
    examples=(
        (
            "pigeon mcp add files -- npx -y @modelcontextprotocol/server-filesystem .",
            "a program; `--` before its options",
        ),
        ("pigeon mcp add docs https://example.com/mcp -H 'Authorization: Bearer $DOCS_TOKEN'", "a service"),
        ("pigeon mcp test files", "connect to it, and list its tools"),
    ),
)
HELP = CommandDeclaration(
    name="help",
    summary="explain a command",
    run=_help,
    actions=(Action("", ("[COMMAND]",), "this page, or that of a command"),),
    examples=(("pigeon help sessions", "the page of a command"),),
)
_ALL = (SESSIONS, REPLAY, MODELS, CONFIG, DOCTOR, DEMO, MCP, SERVE, ATTACH, BATCH, ACP, COMPLETIONS, SCHEMA, HELP)
COMMANDS = {one.name: one for one in _ALL}
