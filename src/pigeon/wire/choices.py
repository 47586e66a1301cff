"""The words that hosts and users choose from: dialects, features, modes and verdicts.

They have a module without records, because the command line names them in its help before it loads the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

DialectName = Literal["pi", "pi-latest", "pi-0.73", "omp", "xcsh", "companion"]
Feature = Literal[
    "deltas", "seq", "trust", "permissions", "attribution", "mcp", "selection", "explanations", "agents", "every_delta"
]
ALL_FEATURES: tuple[Feature, ...] = get_args(Feature)
WorkspaceKind = Literal["local", "ssh", "docker", "podman", "exec", "host", "object"]
FileKind = Literal["file", "folder", "link", "other", "missing"]
Searched = Literal["text", "files"]
SandboxMode = Literal["off", "read-only", "workspace"]
ApprovalMode = Literal["plan", "always-ask", "write", "yolo"]
# The mode in which nothing is changed before a person has accepted a plan.
PLAN: Literal["plan"] = "plan"
# The strictest first.
APPROVAL_MODES: tuple[ApprovalMode, ...] = get_args(ApprovalMode)
# What a front end or host shows, so that the model gets the tools for it (`OFFERED_TOOLS` in the catalogue of tools).
ToolOffer = Literal["plans", "agents"]
TOOL_OFFERS: tuple[ToolOffer, ...] = get_args(ToolOffer)
Verdict = Literal["allow", "ask", "deny"]
# The strictest first; each is also the name of a list of rules.
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)[::-1]


def to_alternatives(words: Iterable[str]) -> str:
    """Words as a sentence has them: `a, b or c`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
