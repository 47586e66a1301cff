"""Which call a piece of a chat answer belongs to.

By the book the `index` says it. But there are servers that give every call the index 0, that send no index, or whose
ids change from piece to piece, so that the name and the end of the arguments have to help.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from pigeon.system.ids import request_id


class CallFunction(Struct):
    """What a piece says about the function."""

    needed: ClassVar = ("name",)
    name: str | None = None
    arguments: Any = None


class CallPiece(Struct):
    """A piece of a call as it came."""

    needed: ClassVar = ("function",)
    index: int | None = None
    id: str | None = None
    function: CallFunction | None = None


class Growing:
    """One call; `index` is its block once it is announced, `held` the arguments that came before that."""

    __slots__ = ("_begun", "_depth", "_escaped", "_quoted", "call_id", "held", "ids", "index", "name", "slot", "unread")

    def __init__(self, slot: int | None, call_id: str) -> None:
        self.slot = slot
        self.call_id = call_id
        self.ids: set[str] = set()
        self.name = ""
        self.index = -1
        self.held: list[str] = []
        self.unread: list[str] = []
        self._begun = False
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def is_complete(self) -> bool:
        """Whether the arguments so far end where JSON may end; what was looked at once is not looked at again."""
        for char in "".join(self.unread):
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
        self.unread.clear()
        return self._begun and not self._quoted and self._depth <= 0


class Calls:
    """The calls of one answer, in the order in which they began."""

    def __init__(self) -> None:
        self.all: list[Growing] = []

    def of(self, piece: CallPiece, place: int | None = None, taken: list[Growing] | None = None) -> Growing:
        """The call of this piece, a new one if need be.

        In a chunk of several pieces, `place` is where this one stands and `taken` are the calls of those before it.
        """
        slot = place if piece.index is None else piece.index
        call = self._known(piece, slot, taken or [])
        if call is None:
            used = piece.id and any(piece.id in one.ids for one in self.all)
            call = Growing(slot, piece.id if piece.id and not used else f"call_{request_id()}")
            self.all.append(call)
        elif not piece.id or piece.id in call.ids:
            return call
        elif call.index < 0 and not call.ids:
            call.call_id = piece.id
        if piece.id and (not call.ids or (piece.function is not None and piece.function.arguments)):
            call.ids.add(piece.id)
        return call

    def _known(self, piece: CallPiece, slot: int | None, taken: list[Growing]) -> Growing | None:
        name = piece.function.name if piece.function is not None else None
        latest: Growing | None = None
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
        return None if latest in taken or _begins_another(latest, piece, name) else latest


def _begins_another(call: Growing, piece: CallPiece, name: str) -> bool:
    """Whether a piece with a name, where another call is open, is the first one of the next call."""
    if not call.name:
        return piece.index is None and bool(piece.id and call.ids)
    if piece.id:
        return piece.index is None or name != call.name or call.is_complete()
    arguments = piece.function.arguments if piece.function is not None else None
    said = arguments.strip() if isinstance(arguments, str) else arguments
    return bool(said) and call.is_complete()
