"""The command `pigeon acp`; what carries it out is imported when it is called."""

from __future__ import annotations

from pigeon.frontends.call import Action, CommandCall, CommandDeclaration


def _run_acp(call: CommandCall) -> int:
    from pigeon.frontends.acp.command import run_acp

    return run_acp(call.parse_agent(["--mode", "acp"]), call.environment)


ACP = CommandDeclaration(
    name="acp",
    summary="serve an editor: the Agent Client Protocol on stdin and stdout",
    run=_run_acp,
    actions=(
        Action("", ("[OPTIONS...]",), "serve until the editor disconnects; OPTIONS are those of `pigeon --help`"),
    ),
    options=(("--setup", "", "ask for a provider's key in the terminal and store it; some editors offer this"),),
    examples=(
        ("pigeon acp", "the command for your editor to start; see docs/editors.md"),
        ("pigeon acp --model sonnet:high --approval-mode write", "a model, and approval before commands"),
    ),
)
