"""The inputs of the person, in order: the view adds them, the chat takes them out."""

from __future__ import annotations

import asyncio
from typing import Literal

from msgspec import Struct

# "send": a line with Enter; "reply": the same in place of an answer to a question; "queue": a message for after the
# run; "recall_queued": take back the last queued message; "stop": Esc; "background": let a command run on;
# "cycle_*": the keys for it.
InputKind = Literal[
    "send",
    "reply",
    "queue",
    "recall_queued",
    "stop",
    "background",
    "cycle_model",
    "cycle_thinking",
    "paste_image",
    "attach",
    "show_output",
    "leave",
]


class Input(Struct, frozen=True):
    """One line, or one key that the conversation must handle."""

    kind: InputKind
    text: str = ""


Inputs = asyncio.Queue[Input]
