"""The texts for the model about the sandbox: what commands can do, and which rule may have made a command fail.

A failure looks the same whether the sandbox caused it or not, so a hint says "may". It names the one rule that the text
of the failure points to.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pigeon.sandbox.policy import SandboxPolicy

HOW_TO_ASK = (
    "If a command needs more than that, call it again with unsandboxed: true and a reason: the user decides. "
    "Do not look for a way around the sandbox."
)
# What programs print when the sandbox refuses something, by rule. Only the end of the output is searched.
_LOOKED_AT = 4000
_WRITES = r"(?i)read-only file ?system|\bEROFS\b|device or resource busy|\bEBUSY\b"
_NETWORK = (
    r"(?i)network is unreachable|\bENETUNREACH\b|could not resolve host|temporary failure in name resolution|"
    r"name or service not known|\bEAI_AGAIN\b|\bENOTFOUND\b|getaddrinfo|no route to host|failed to resolve|"
    r"unable to resolve host|bad address '|failed to lookup address|connection timed out|newconnectionerror"
)
_OTHER = r"(?i)operation not permitted|permission denied|\bEPERM\b|\bEACCES\b|bad system call"


def describe_policy(policy: SandboxPolicy) -> str:
    """One or two sentences about what commands can do."""
    places = [path for path in policy.roots if path != policy.temporary_folder]
    written = f"can write only {', '.join(places)} and $TMPDIR" if places else "can write nothing but $TMPDIR"
    kept = ", not its .git/hooks, .git/config, .pigeon and .pi" if policy.mode == "workspace" else ""
    network = "" if policy.network else ", have no network"
    hidden = "cannot read the files where keys are kept, see no variables with tokens or passwords, and reach no "
    hidden += "sockets of other programs"
    return f"Commands run in a sandbox: they {written}{kept}{network}, {hidden}."


def failure_hint(policy: SandboxPolicy, output: str) -> str | None:
    """Which rule may have made a command fail, and how to request more; None if nothing points to the sandbox."""
    end = output[-_LOOKED_AT:]
    if re.search(_WRITES, end):
        places = [path for path in policy.roots if path != policy.temporary_folder]
        only = f"only {', '.join(places)} and $TMPDIR" if places else "only $TMPDIR"
        rule = f"it lets {only} be written, and keeps .git/hooks, .git/config, .pigeon and .pi as they are"
    elif not policy.network and re.search(_NETWORK, end):
        rule = "there is no network in it"
    elif re.search(_OTHER, end):
        rule = "it hides keys, refuses Unix sockets, and lets nothing outside be changed or signalled"
    else:
        return None
    return f'[The sandbox ("{policy.mode}") may be why: {rule}. {HOW_TO_ASK}]'
