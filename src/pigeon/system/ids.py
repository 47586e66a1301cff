"""Identifiers: session ids, request ids, dialog ids."""

from __future__ import annotations

import os
import uuid


def session_id(now_ms: int) -> str:
    """A UUID version 7: sortable by time."""
    random = int.from_bytes(os.urandom(10), "big")
    value = (now_ms & (2**48 - 1)) << 80 | 0x7 << 76 | (random >> 68 & 0xFFF) << 64 | 0b10 << 62 | random & (2**62 - 1)
    return str(uuid.UUID(int=value))


def request_id() -> str:
    """Sixteen hex digits, for what the host is asked."""
    return os.urandom(8).hex()


def dialog_id() -> str:
    """A random UUID, for dialogs."""
    return str(uuid.uuid4())
