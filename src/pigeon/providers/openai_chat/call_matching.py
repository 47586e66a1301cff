"""Which tool call a piece of a streamed chat answer belongs to.

A call comes in pieces: first its id and name, then its arguments as cuts of a JSON text. In the standard each piece
names its call by `index`. Servers that imitate the API do not: some give every call the index 0, some send none, some
make up a new id for each piece, some repeat the name. `CallMatcher.match_piece` decides in this order; `slot` is the
index or, in a chunk of several pieces without one, the place in the chunk:

    piece has                        an earlier call                          the piece belongs to
    -------------------------------  ---------------------------------------  ------------------------------
    neither id nor name              the latest in its slot                   that call
    a known id                       with this id, in its slot                that call
    a known id, no index or no name  with this id, anywhere                   that call
    an id, but no name               the latest in its slot                   that call (ids that change)
    a name                           the latest in its slot, but it has a     a new call
                                     piece of this chunk already
    a name                           the latest in its slot                   a new call if `_is_next_call`,
                                                                              else that call
    anything                         none in its slot                         a new call

`_is_next_call` checks what is known about the open call: another name, or arguments that are complete JSON, mean that
the piece begins the next one. `ChatStream` feeds the matcher and announces a call once its name is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import Struct

from pigeon.system.ids import RANDOM_IDS

MOST_IDS = 1000
CALL_SIZE = 1000


class CallFunction(Struct):
    """The part of a piece that names the function."""

    needed: ClassVar = ("name",)
    name: str | None = None
    arguments: Any = None


class CallPiece(Struct):
    """A piece of a call as it arrived."""

    needed: ClassVar = ("function",)
    index: int | None = None
    id: str | None = None
    function: CallFunction | None = None


class PendingCall:
    """One call while it arrives; `index` is its block once it is announced, and until then arguments are held."""

    def __init__(self, slot: int | None, call_id: str) -> None:
        self.slot = slot
        self.call_id = call_id
        self.ids: set[str] = set()
        self.name = ""
        self.index = -1
        self._held: list[str] = []
        self._unread: list[str] = []
        self._begun = False
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def set_call_id(self, call_id: str) -> None:
        """Use the id of a later piece, unless the call has a server's id or is announced already."""
        if self.index < 0 and not self.ids:
            self.call_id = call_id

    def mark_announced_and_pop_held(self, name: str, index: int) -> str:
        """Set the name and block of the call; returns the arguments that were held."""
        self.name, self.index = name, index
        held = "".join(self._held)
        self._held.clear()
        return held

    def try_pass_arguments(self, text: str) -> bool:
        """Add arguments; returns True if they can be passed on now, False if they are held until the call is
        announced."""
        self._unread.append(text)
        if self.index < 0:
            self._held.append(text)
        return self.index >= 0

    def is_complete(self) -> bool:
        """Whether the arguments so far are complete JSON; text that was examined is not examined again."""
        for char in "".join(self._unread):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped = char == "\\"
                self._quoted = char != '"'
            elif char == '"':
                self._begun = self._quoted = True
            elif not char.isspace():
                self._begun = True
                self._depth += (char in "{[") - (char in "}]")
        self._unread.clear()
        return self._begun and not self._quoted and self._depth <= 0


class CallMatcher:
    """The calls of one answer in the order of their beginnings; `hold` counts what is kept of them."""

    def __init__(self, hold: Callable[[int], None], new_id: Callable[[], str] = RANDOM_IDS.request_id) -> None:
        self._hold = hold
        self._new_id = new_id
        self.all: list[PendingCall] = []

    def match_piece(
        self, piece: CallPiece, place: int | None = None, taken: list[PendingCall] | None = None
    ) -> PendingCall:
        """The call of this piece, a new one if need be.

        In a chunk of several pieces, `place` is the position of this one, and `taken` are the calls of those before it.
        """
        slot = place if piece.index is None else piece.index
        call = self._find_call(piece, slot, taken or [])
        if call is None:
            used = piece.id and any(piece.id in one.ids for one in self.all)
            call = PendingCall(slot, piece.id if piece.id and not used else f"call_{self._new_id()}")
            self._hold(CALL_SIZE + len(call.call_id))
            self.all.append(call)
        elif not piece.id or piece.id in call.ids:
            return call
        else:
            call.set_call_id(piece.id)
        if piece.id and (not call.ids or (piece.function is not None and piece.function.arguments)):
            self._hold(len(piece.id))
            # Servers that invent an id for each piece never reuse an old one.
            if len(call.ids) < MOST_IDS:
                call.ids.add(piece.id)
        return call

    def _find_call(self, piece: CallPiece, slot: int | None, taken: list[PendingCall]) -> PendingCall | None:
        name = piece.function.name if piece.function is not None else None
        latest: PendingCall | None = None
        for call in reversed(self.all):
            if slot is not None and call.slot != slot:
                continue
            if (not piece.id and not name) or piece.id in call.ids:
                return call
            latest = latest or call
        if piece.id and (piece.index is None or not name):
            for call in self.all:
                if piece.id in call.ids:
                    return call
        if latest is None or not name:
            return latest
        return None if latest in taken or _is_next_call(latest, piece, name) else latest


def _is_next_call(call: PendingCall, piece: CallPiece, name: str) -> bool:
    """Whether a piece with a name begins the next call while another one is open."""
    if not call.name:
        return piece.index is None and bool(piece.id and call.ids)
    if piece.id:
        return piece.index is None or name != call.name or call.is_complete()
    arguments = piece.function.arguments if piece.function is not None else None
    said = arguments.strip() if isinstance(arguments, str) else arguments
    return bool(said) and call.is_complete()
