"""Old tool output first: what the model has long used is replaced by a note, which costs no summary."""

from __future__ import annotations

from collections.abc import Sequence

from pigeon.session.compaction.cutting import pieces_of
from pigeon.session.context.size import CHARS_PER_TOKEN
from pigeon.session.history.entry_line import Kept
from pigeon.session.history.journal import Journal
from pigeon.wire.content import text_of
from pigeon.wire.entries import ContextEdit
from pigeon.wire.messages import ToolResultMessage

LARGE = 4000
SHOWN = 400


def prunable(branch: Sequence[Kept], keep_tokens: int) -> list[tuple[str, str, int]]:
    """Large tool results outside the recent part: entry, what to show instead, tokens saved."""
    pieces, _ = pieces_of(branch)
    found: list[tuple[str, str, int]] = []
    recent = 0
    for piece in reversed(pieces):
        recent += piece.tokens
        if recent <= keep_tokens or not isinstance(piece.message, ToolResultMessage):
            continue
        text = text_of(piece.message.content)
        if len(text) > LARGE:
            note = f"{text[:SHOWN]}\n[... {len(text) - SHOWN} characters of old output removed to save context]"
            found.append((piece.line.id, note, piece.tokens - len(note) // CHARS_PER_TOKEN))
    found.reverse()
    return found


def prune(journal: Journal, found: list[tuple[str, str, int]]) -> list[ContextEdit]:
    """Put the replacements on record."""
    return [
        journal.append(ContextEdit, target_id=entry_id, replacement={"content": note}) for entry_id, note, _ in found
    ]
