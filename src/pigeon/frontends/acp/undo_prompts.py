"""Undo and redo in editors: prompts that are commands, which no model sees."""

from __future__ import annotations

from collections.abc import Sequence

from pigeon.frontends.acp.editions.edition import CommandView
from pigeon.sdk.conversation import Conversation
from pigeon.wire.commands import FileAndReason
from pigeon.wire.errors import Refusal

FORCE = "force"
COMMANDS = (
    CommandView("redo", "Take the last undo back", FORCE),
    CommandView("undo", "Take back what the last prompt did to files", FORCE),
)
_NAMES = frozenset(f"/{one.name}" for one in COMMANDS)
MOST_NAMED = 50


def is_undo_prompt(text: str) -> bool:
    """Whether a prompt is one of these commands."""
    name, _, rest = text.strip().partition(" ")
    return name in _NAMES and rest.strip() in ("", FORCE)


async def run_undo_prompt(conversation: Conversation, text: str) -> str:
    """Carry it out; returns what to tell the person."""
    name, _, rest = text.strip().partition(" ")
    force = rest.strip() == FORCE
    try:
        result = await (conversation.undo(force=force) if name == "/undo" else conversation.redo(force=force))
    except Refusal as refusal:
        return str(refusal)
    lines = [
        f"Restored: {_join_names([one.path for one in result.files])}." if result.files else "No file was changed."
    ]
    if result.conflicts:
        lines.append(f"Left alone: {_list_reasons(result.conflicts)}. {name} {FORCE} overwrites that.")
    if result.not_covered:
        lines.append(f"Not covered: {_list_reasons(result.not_covered)}.")
    return "\n\n".join(lines)


def _list_reasons(rows: Sequence[FileAndReason]) -> str:
    return _join_names([f"{one.path} ({one.reason})" for one in rows])


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
