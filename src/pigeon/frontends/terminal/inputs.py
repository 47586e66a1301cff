"""What the person does, in order: the view puts it here, the chat takes it out."""

from __future__ import annotations

import asyncio
from typing import Literal

from msgspec import Struct

# "send": a line with Enter; "queue": a message for when the work is done; "recall_queued": the last message that
# waits; "stop": Esc; "cycle_*": the keys for it.
InputKind = Literal[
    "send",
    "queue",
    "recall_queued",
    "stop",
    "cycle_model",
    "cycle_thinking",
    "paste_image",
    "attach",
    "show_output",
    "leave",
]


class Input(Struct, frozen=True):
    """One line, or one key that the conversation must act upon."""

    kind: InputKind
    text: str = ""


Inputs = asyncio.Queue[Input]
