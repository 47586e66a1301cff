"""Identifiers of sessions, entries, requests and dialogs; and the random part of pauses.

Each agent has one `Ids` (`Environment.ids`). With a seed it produces the same ids in the same order again, so that a
recorded run is replayed to a host byte for byte. Kinds of ids do not depend on each other: an additional dialog changes
no entry.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Container
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


class Ids:
    """Makes the ids of one agent, randomly or from a seed."""

    def __init__(self, seed: str | None = None) -> None:
        self._seed = seed
        self._sources: dict[str, Random] = {}

    def session_id(self, now_ms: int) -> str:
        """A UUID version 7: sortable by time."""
        random = int.from_bytes(self._random_bytes("session", 10), "big")
        time = (now_ms & (2**48 - 1)) << 80
        value = time | 0x7 << 76 | (random >> 68 & 0xFFF) << 64 | 0b10 << 62 | random & (2**62 - 1)
        return str(uuid.UUID(int=value))

    def entry_id(self, taken: Container[str]) -> str:
        """An id for a new entry of a session: eight hex digits, or a long one when those are used up."""
        for _ in range(100):
            candidate = self._random_bytes("entry", 4).hex()
            if candidate not in taken:
                return candidate
        return self._random_bytes("entry", 16).hex()

    def request_id(self) -> str:
        """Sixteen hex digits, for requests to the host."""
        return self._random_bytes("request", 8).hex()

    def checkpoint_id(self) -> str:
        """Twelve hex digits for the state of files before a prompt."""
        return self._random_bytes("checkpoint", 6).hex()

    def dialog_id(self) -> str:
        return str(uuid.UUID(bytes=self._random_bytes("dialog", 16), version=4))

    def folder_id(self) -> str:
        """Eight hex digits for a folder; the same each time if there is a seed."""
        return os.urandom(4).hex() if self._seed is None else Ids(self._seed)._random_bytes("folder", 4).hex()

    def random_fraction(self) -> float:
        """From 0 to 1, for the length of a pause."""
        return int.from_bytes(self._random_bytes("fraction", 4), "big") / 0xFFFFFFFF

    def _random_bytes(self, kind: str, count: int) -> bytes:
        if self._seed is None:
            return os.urandom(count)
        if kind not in self._sources:
            from random import Random

            self._sources[kind] = Random(f"{self._seed}/{kind}")
        return self._sources[kind].randbytes(count)


RANDOM_IDS = Ids()
