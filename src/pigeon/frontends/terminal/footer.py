"""The last line of the screen: model, thinking, context, cost, folder and branch, as far as the width allows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pigeon.frontends.cleaning import clean_text
from pigeon.system.files import read_beginning
from pigeon.wire.base import value_or_default
from pigeon.wire.choices import PLAN

if TYPE_CHECKING:
    from pigeon.wire.answers import Permissions, SessionStats, State
    from pigeon.wire.dialogs import SetStatusRequest

SEPARATOR = "  "
# Parts of this rank or a lower one are only left out when everything is short.
LEAST_RANK = 2


class FooterFacts(Struct):
    """The contents of the footer; `statuses` are those of extensions. Until the agent has started, it `is_starting`.

    `background` is how much runs in the background. `machine` is the name of the machine that `cwd` is on, if it is
    another one.
    """

    model: str = ""
    thinking: str = ""
    context_percent: float | None = None
    context_window: int = 0
    cost: float = 0.0
    cwd: str = ""
    home: str = ""
    branch: str = ""
    session: str = ""
    statuses: dict[str, str] = {}
    is_starting: bool = True
    plans_first: bool = False
    background: int = 0
    waits: bool = False
    machine: str = ""

    def update_from(self, state: State, stats: SessionStats, permissions: Permissions) -> None:
        """Update from the agent's state, statistics and permissions, and read the branch."""
        self.is_starting = False
        self.model = "" if state.model is None else f"{state.model.provider}/{state.model.id}"
        self.thinking = state.thinking_level
        self.session = value_or_default(state.session_name, "")
        self.cost = float(stats.cost)
        self.plans_first = permissions.approval_mode == PLAN
        usage = value_or_default(stats.context_usage, None)
        if usage is not None:
            self.context_percent = None if usage.percent is None else float(usage.percent)
            self.context_window = usage.context_window
        workspace = value_or_default(state.workspace, None)
        if workspace is not None and workspace.kind != "local":
            # The folder is on that machine.
            self.machine, self.cwd = workspace.name, workspace.path
        self.branch = "" if self.machine else read_git_branch(self.cwd)

    def show_background(self, count: int) -> bool:
        """Update how much runs in the background; returns whether the rest must be updated soon, unless that is
        planned already."""
        planned, self.background, self.waits = self.waits, count, True
        return not planned

    def end_waiting(self) -> None:
        """The update that was planned begins."""
        self.waits = False

    def set_status(self, request: SetStatusRequest) -> None:
        """Set the status of an extension; an empty text removes it."""
        text = value_or_default(request.status_text, None)
        if text is None:
            self.statuses.pop(request.status_key, None)
        else:
            self.statuses[request.status_key] = text


def footer_text(facts: FooterFacts, width: int) -> str:
    """The line, at most so wide: the least important part is shortened first, then left out."""
    from prompt_toolkit.utils import get_cwidth

    parts = [part for part in _footer_parts(facts) if part.text]
    while get_cwidth(line := SEPARATOR.join(part.text for part in parts)) > width:
        last = max(parts, key=lambda part: part.rank)
        if last.rank <= LEAST_RANK:
            # Cost and context stay longer than the whole name of the model.
            last = next((part for part in reversed(parts) if part.short and part.short != part.text), last)
        if last.short and last.short != last.text:
            parts[parts.index(last)] = replace(last, text=last.short)
        elif len(parts) > 1:
            parts.remove(last)
        else:
            # If only the model is left, its beginning is shown.
            while line and get_cwidth(line) > width:
                line = line[:-1]
            return line
    return line


class _Part(Struct, frozen=True):
    """A part of the line: the one of the lowest rank stays longest; `short` may replace it."""

    rank: int
    text: str
    short: str = ""


def _footer_parts(facts: FooterFacts) -> list[_Part]:
    """Returns the parts of the footer in the order of the line."""
    model = _to_one_line(facts.model or ("starting" if facts.is_starting else "no model"))
    level = "" if facts.thinking in ("", "off") else f" {_to_one_line(facts.thinking)}"
    where = f"{facts.machine}:{facts.cwd}" if facts.machine else facts.cwd
    if facts.machine:
        where = _to_one_line(where)
    elif facts.home and (where == facts.home or where.startswith(facts.home + os.sep)):
        where = "~" + where[len(facts.home) :]
    percent = "" if facts.context_percent is None else f"{facts.context_percent:.0f}%"
    branch = _to_one_line(facts.branch)
    return [
        _Part(0, model + level, model.rpartition("/")[2]),
        _Part(1, f"context {percent} of {_format_thousands(facts.context_window)}" if percent else "", percent),
        _Part(1, "plan mode" if facts.plans_first else "", "plan"),
        _Part(2, f"${facts.cost:.3f}" if facts.cost else ""),
        _Part(2, f"{facts.background} in the background" if facts.background else "", f"{facts.background} bg"),
        _Part(3, _to_one_line(where), _to_one_line(os.path.basename(where))),
        _Part(4, f"({branch})" if branch else ""),
        _Part(5, _to_one_line(facts.session)),
        *(_Part(6, _to_one_line(text)) for text in facts.statuses.values()),
    ]


def _to_one_line(text: str) -> str:
    return " ".join(clean_text(text).split())


def _format_thousands(count: int) -> str:
    return f"{count / 1_000_000:.1f}M" if count >= 1_000_000 else f"{count / 1000:.0f}k"


def read_git_branch(cwd: str) -> str:
    """The branch that is checked out in a folder, read from git's own file; empty outside a repository."""
    folder = cwd
    while True:
        head = os.path.join(folder, ".git", "HEAD")
        pointer = os.path.join(folder, ".git")
        try:
            if os.path.isfile(pointer):
                head = os.path.join(folder, _read_first_line(pointer).partition(":")[2].strip(), "HEAD")
            line = _read_first_line(head)
            return line.removeprefix("ref: refs/heads/") if line.startswith("ref:") else line[:8]
        except (OSError, ValueError):
            pass
        parent = os.path.dirname(folder)
        if parent == folder:
            return ""
        folder = parent


def _read_first_line(path: str) -> str:
    """The first line of a regular file; nothing is read from a pipe, which a command may have put there."""
    return read_beginning(path, 4096)[0].partition("\n")[0].strip()
