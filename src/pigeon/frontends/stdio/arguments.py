"""The command `pigeon attach`; what carries it out is imported when it is called."""

from __future__ import annotations

from typing import get_args

from pigeon.frontends.call import Action, CommandCall, CommandDeclaration
from pigeon.wire.choices import DialectName, to_alternatives


def _run_attach(call: CommandCall) -> int:
    from pigeon.frontends.stdio.attach import run_attach

    return run_attach(call)


ATTACH = CommandDeclaration(
    name="attach",
    summary="connect stdin and stdout to a conversation of `pigeon serve`",
    run=_run_attach,
    actions=(Action("", ("URL",), "relay until the input ends; the conversation continues"),),
    options=(
        ("--new", "DIR", "start a new conversation in this folder; URL is then the server's address"),
        ("--model", "PATTERN", "the model for the new conversation"),
        ("--plans", "", "in the new conversation, the model can keep a plan (the tool todo)"),
        ("--agents", "", "in the new conversation, the model can start agents (the tools task and jobs)"),
        ("--dialect", "NAME", to_alternatives(get_args(DialectName))),
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
