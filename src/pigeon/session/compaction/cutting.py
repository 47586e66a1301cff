"""Where a compaction cuts the conversation, and which old tool results can be shortened without a summary: pure
functions over the entries of a branch."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pigeon.session.context.transcript import visible_entries
from pigeon.session.history.entry_line import EntryLine
from pigeon.session.history.journal import Journal
from pigeon.wire.content import text_of
from pigeon.wire.entries import CompactionEntry, ContextEdit
from pigeon.wire.messages import (
    BashExecutionMessage,
    BranchSummaryMessage,
    CustomMessage,
    Message,
    ToolResultMessage,
    UserMessage,
)
from pigeon.wire.tokens import estimated_tokens, message_tokens

_STARTS_A_TURN = (UserMessage, CustomMessage, BashExecutionMessage, BranchSummaryMessage)
LARGE = 4000
SHOWN = 400


class Piece(Struct):
    """An entry of the conversation with its text and size."""

    line: EntryLine
    message: Message
    tokens: int


class ConversationCut(Struct):
    """What is summarized and what is kept."""

    first_kept: str
    history: list[Message]
    prefix: list[Message]
    kept: list[Message]
    previous: CompactionEntry | None
    kept_tokens: int

    @property
    def is_empty(self) -> bool:
        return not self.history and not self.prefix


def pieces_of(branch: Sequence[EntryLine]) -> tuple[list[Piece], CompactionEntry | None]:
    """The conversation since the last summary, and that summary."""
    previous: CompactionEntry | None = None
    pieces: list[Piece] = []
    shown = visible_entries(branch)
    for line in shown.lines:
        if line.type == "compaction":
            entry = line.entry
            previous = entry if isinstance(entry, CompactionEntry) else None
            continue
        message = shown.message_of(line)
        if message is not None:
            pieces.append(Piece(line, message, message_tokens(message)))
    return pieces, previous


def find_cut(branch: Sequence[EntryLine], keep_tokens: int, most_kept: int) -> ConversationCut | None:
    """Keep about this many recent tokens, or fewer if one huge message would not leave enough room; None if empty."""
    pieces, previous = pieces_of(branch)
    if not pieces:
        return None
    # One huge recent message may be more than the model accepts: keep less until the rest fits.
    keep = keep_tokens
    while True:
        at = _find_cut_index(pieces, keep)
        kept = sum(piece.tokens for piece in pieces[at:])
        if kept <= most_kept or keep == 0:
            break
        keep //= 2
    start = _find_turn_start(pieces, at)
    return ConversationCut(
        first_kept=_find_first_kept(branch, pieces[at].line),
        history=[piece.message for piece in pieces[:start]],
        prefix=[piece.message for piece in pieces[start:at]],
        kept=[piece.message for piece in pieces[at:]],
        previous=previous,
        kept_tokens=kept,
    )


def _find_cut_index(pieces: list[Piece], keep: int) -> int:
    """The first possible cut at or after the point where enough recent tokens are collected."""
    valid = [index for index, piece in enumerate(pieces) if not isinstance(piece.message, ToolResultMessage)]
    if not valid:
        return 0
    total = 0
    for index in range(len(pieces) - 1, -1, -1):
        total += pieces[index].tokens
        if total >= keep:
            return next((place for place in valid if place >= index), valid[-1])
    return valid[0]


def _find_turn_start(pieces: list[Piece], at: int) -> int:
    """The start of the turn that the cut divides, or the cut itself if it falls between turns."""
    for index in range(at, -1, -1):
        if isinstance(pieces[index].message, _STARTS_A_TURN):
            return index
    return 0


def _find_first_kept(branch: Sequence[EntryLine], line: EntryLine) -> str:
    """Moves the cut back over entries without content, so that a model change stays with what follows it."""
    at = next(index for index, candidate in enumerate(branch) if candidate.id == line.id)
    while at > 0 and branch[at - 1].type not in ("message", "custom_message", "branch_summary", "compaction"):
        at -= 1
    return branch[at].id


def find_prunable_results(branch: Sequence[EntryLine], keep_tokens: int) -> list[tuple[str, str, int]]:
    """Large tool results outside the recent part: entry id, replacement text, tokens saved."""
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
            found.append((piece.line.id, note, piece.tokens - estimated_tokens(len(note), round_up=False)))
    found.reverse()
    return found


def prune_results(journal: Journal, found: list[tuple[str, str, int]]) -> list[ContextEdit]:
    return [
        journal.append(ContextEdit, target_id=entry_id, replacement={"content": note}) for entry_id, note, _ in found
    ]
