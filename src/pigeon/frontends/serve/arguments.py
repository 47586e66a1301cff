"""The command `pigeon serve`; what carries it out is imported when it is called."""

from __future__ import annotations

from pigeon.frontends.call import Action, CommandCall, CommandDeclaration


def _run_serve(call: CommandCall) -> int:
    from pigeon.frontends.serve.command import run_serve

    return run_serve(call)


SERVE = CommandDeclaration(
    name="serve",
    summary="serve many conversations to browsers and programs",
    run=_run_serve,
    output="links",
    actions=(Action("", ("[-- OPTIONS...]",), "serve until stopped; OPTIONS apply to every agent"),),
    options=(
        ("--host", "ADDRESS", "listen on this address (default: 127.0.0.1)"),
        ("--port", "N", "listen on this port (default: 7463; 0 for any free port)"),
        ("--socket", "PATH", "also listen on a Unix socket, for your own user's programs"),
        ("--token-file", "FILE", "the clients' tokens (default: serve.token in the agent's folder)"),
        ("--root", "DIR...", "a folder in which conversations may work (repeatable; default: this folder)"),
        ("--model", "PATTERN", "the model for new conversations"),
        ("--allow-exec", "", "let clients choose workspaces by a command of this machine (exec:COMMAND#/path)"),
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
        ("--shared", "N", "up to N conversations in one process, if they trust each other (default: 1)"),
        ("--max-awake", "N", "at most N conversations with a running process (default: 200)"),
        ("--max-kept", "N", "at most N conversations in total (default: 10000)"),
        ("--worker-memory", "MB", "memory limit of a worker, including its commands (default: 4096; 0: none)"),
        ("--worker-processes", "N", "process limit of a worker (default: 500; 0: none)"),
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
