"""The last line of the screen: model, thinking, context, cost, folder and branch, as far as the width allows."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from pigeon.terminal.painting import cleaned
from pigeon.wire.answers import SessionStats, State
from pigeon.wire.base import or_else
from pigeon.wire.dialogs import SetStatusRequest

SEPARATOR = "  "


@dataclass(slots=True)
class FooterFacts:
    """What the line is made of; `statuses` are those of extensions."""

    model: str = ""
    thinking: str = ""
    context_percent: float | None = None
    context_window: int = 0
    cost: float = 0.0
    cwd: str = ""
    home: str = ""
    branch: str = ""
    session: str = ""
    statuses: dict[str, str] = field(default_factory=dict)

    def learn(self, state: State, stats: SessionStats) -> None:
        """Take over what the agent says of itself, and look at the branch."""
        self.model = "" if state.model is None else f"{state.model.provider}/{state.model.id}"
        self.thinking = state.thinking_level
        self.session = or_else(state.session_name, "")
        self.cost = float(stats.cost)
        usage = or_else(stats.context_usage, None)
        if usage is not None:
            self.context_percent = None if usage.percent is None else float(usage.percent)
            self.context_window = usage.context_window
        self.branch = branch_of(self.cwd)

    def set_status(self, request: SetStatusRequest) -> None:
        """Take over an entry of an extension; without a text it goes."""
        text = or_else(request.status_text, None)
        if text is None:
            self.statuses.pop(request.status_key, None)
        else:
            self.statuses[request.status_key] = text


def footer_text(facts: FooterFacts, width: int) -> str:
    """The line, at most so wide; what matters least is left out first."""
    from prompt_toolkit.utils import get_cwidth

    parts = [(rank, text) for rank, text in _parts(facts) if text]
    while parts and get_cwidth(SEPARATOR.join(text for _, text in parts)) > width:
        parts.remove(max(parts, key=lambda part: part[0]))
    return SEPARATOR.join(text for _, text in parts)


def _parts(facts: FooterFacts) -> list[tuple[int, str]]:
    """In the order of the line, each with its rank: the lowest stays longest."""
    level = "" if facts.thinking in ("", "off") else f":{facts.thinking}"
    where = facts.cwd
    if facts.home and (where == facts.home or where.startswith(facts.home + os.sep)):
        where = "~" + where[len(facts.home) :]
    context = ""
    if facts.context_percent is not None:
        context = f"{facts.context_percent:.0f}% of {_thousands(facts.context_window)}"
    return [
        (0, cleaned(facts.model or "no model") + level),
        (1, context),
        (2, f"${facts.cost:.3f}" if facts.cost else ""),
        (3, cleaned(where)),
        (4, f"({cleaned(facts.branch)})" if facts.branch else ""),
        (5, cleaned(facts.session)),
        *((6, cleaned(text)) for text in facts.statuses.values()),
    ]


def _thousands(count: int) -> str:
    return f"{count / 1_000_000:.1f}M" if count >= 1_000_000 else f"{count / 1000:.0f}k"


def branch_of(cwd: str) -> str:
    """The branch that is checked out in a folder, read from git's own file; empty outside a repository."""
    folder = cwd
    while True:
        head = os.path.join(folder, ".git", "HEAD")
        pointer = os.path.join(folder, ".git")
        try:
            if os.path.isfile(pointer):
                with open(pointer, encoding="utf-8", errors="replace") as file:
                    head = os.path.join(folder, file.readline().partition(":")[2].strip(), "HEAD")
            with open(head, encoding="utf-8", errors="replace") as file:
                line = file.readline(4096).strip()
            return line.removeprefix("ref: refs/heads/") if line.startswith("ref:") else line[:8]
        except OSError:
            pass
        parent = os.path.dirname(folder)
        if parent == folder:
            return ""
        folder = parent
