"""`--resume` without a name: choose a session at the terminal, whatever stdin and stdout are used for."""

from __future__ import annotations

import os

from pigeon.frontends.cleaning import clean_text
from pigeon.session.history.session_folders import SessionFolders
from pigeon.system.environment import refuse_to_choose_session
from pigeon.wire.answers import SessionRow
from pigeon.wire.base import value_or_default
from pigeon.wire.errors import StartupError

MOST = 20


def pick_session(folder: str, terminal: str = "/dev/tty") -> str:
    """The path of the chosen session; raises `StartupError` without a terminal or a choice."""
    try:
        screen = open(terminal, "r+b", buffering=0, opener=_open_without_adopting)  # noqa: SIM115 - closed below
    except OSError:
        return refuse_to_choose_session(folder)
    with screen:
        rows, _ = SessionFolders.list_sessions([folder], None, MOST)
        if not rows:
            raise StartupError("There are no sessions in this folder to resume")
        lines = [f"{number:3}  {_row_text(row)}" for number, row in enumerate(rows, 1)]
        screen.write(("\r\n".join([*lines, "Which one? (number, or Enter for none) "])).encode("utf-8", "replace"))
        chosen = screen.readline().decode("utf-8", "replace").strip()
    if not chosen.isdecimal() or not 1 <= int(chosen) <= len(rows):
        raise StartupError("No session was chosen")
    return rows[int(chosen) - 1].reference


def _open_without_adopting(path: str, flags: int) -> int:
    """A process without a terminal must not be given this one: its end would end the process."""
    return os.open(path, flags | os.O_NOCTTY)


def _row_text(row: SessionRow) -> str:
    """One line, without control characters."""
    text = value_or_default(row.name, "") or value_or_default(row.first_message, "") or row.id
    return f"{row.modified[:16].replace('T', ' ')}  {' '.join(clean_text(text).split())[:80]}"
