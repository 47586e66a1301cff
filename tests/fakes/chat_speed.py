"""How fast the chat is, in a real pseudo-terminal: `python -m fakes.chat_speed` in `tests/` prints two figures.

The start, until a letter that is typed before it is echoed by the program; and how long a letter takes to be echoed
while a thousand deltas a second arrive. On a machine that does something else, too, neither means much.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from fakes.pty_chat import PtyChat, scripted

STARTS = 7
KEYS = 100
BETWEEN_SECONDS = 0.04
LETTERS = "QZXJVK"
TEXT = "word " * 12 + "\n\n- item **bold** `code`\n- other\n\n```python\ndef f(x):\n    return x\n```\n\n"


def start_seconds(folder: Path) -> float:
    """From the start of the program to the echo of what was typed at once."""
    begun = time.perf_counter()
    with PtyChat(folder) as chat:
        chat.type("zqx")
        # Behind the first thing that the program itself says to the terminal.
        while b"zqx" not in chat.raw.partition(b"\x1b[?2004h")[2]:
            chat.read_raw(1.0)
        return time.perf_counter() - begun


def echo_seconds(folder: Path) -> list[float]:
    """Of each of many letters, while an answer streams."""
    arguments = scripted(folder, ("go", {"text": TEXT * 400, "chunk": 6, "chunkDelayMs": 1}))
    taken = []
    with PtyChat(folder, arguments, columns=100, rows=40) as chat:
        chat.until("context 0%")
        chat.say("go")
        chat.until("word word")
        for number in range(KEYS):
            letter = LETTERS[number % len(LETTERS)].encode()
            seen = chat.raw.count(letter)
            begun = time.perf_counter()
            chat.type(letter.decode())
            while chat.raw.count(letter) == seen:
                chat.read_raw(1.0)
            taken.append(time.perf_counter() - begun)
            while time.perf_counter() - begun < BETWEEN_SECONDS:
                chat.read_raw(0.005)
    return sorted(taken)


def shown(name: str, seconds: Sequence[float]) -> str:
    """The median, the worst but one in a hundred, and the worst, in milliseconds."""
    ordered = sorted(seconds)
    at = [ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99) - 1], ordered[-1]]
    named = zip(("median", "p99", "max"), at, strict=True)
    return f"{name}: " + ", ".join(f"{what} {1000 * one:.1f} ms" for what, one in named)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        sys.stdout.write(shown("start", [start_seconds(Path(place)) for _ in range(STARTS)]) + "\n")
        sys.stdout.write(shown("echo", echo_seconds(Path(place))) + "\n")
