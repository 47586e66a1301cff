"""How fast the chat is, in a real pseudo-terminal: `make chat-speed` prints its figures.

The start, until a letter that is typed before it is echoed by the program, in turn with that of another program if its
command is given (`make chat-speed ARGS="node .../cli.js"`); and how long a letter takes to be echoed
while a thousand deltas a second arrive, and while something long is finished: code, a diff, a table, a list, the card
of an edit. A letter is due every thirty milliseconds, and counts from then: one that is late makes those behind it
late. On a machine that does something else, too, none of them means much.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from support.terminal import PtyChat, call, scripted_model_arguments

STARTS = 7
ROUNDS = 5
SECONDS = 4.0
BETWEEN_SECONDS = 0.03
LONGEST_SECONDS = 20.0
# Neither in the texts below nor in what draws them.
LETTERS = b"QZXV"
BACKSPACE = "\x7f"
END = "that is the end of it"
LINES = range(2_000)
TEXT = "word " * 12 + "\n\n- item **bold** `code`\n- other\n\n```python\ndef f(x):\n    return x\n```\n\n"
CODE = "\n".join(f"value_{n} = compute({n}, 'text')  # note" if n % 3 else f"def f{n}(x):" for n in LINES)
DIFF = "\n".join(f"{'+- '[n % 3]} line {n} of the change" for n in LINES)
ROWS = "\n".join(f"| row {n} | `code {n}` | {n} | some **bold** text, number {n} |" for n in range(300))
# Really started, not forked.
PROGRAM = (sys.executable, "-m", "pigeon")
LONG = {
    "code of 2,000 lines": f"```python\n{CODE}\n```\n",
    "diff of 2,000 lines": f"```diff\n{DIFF}\n```\n",
    "table of 300 rows": f"| a | b | c | d |\n|---|---|--:|---|\n{ROWS}\n",
    "list of 2,000 items": "\n".join(f"- item {n} with **bold** and `code`" for n in LINES) + "\n",
}


def start_seconds(folder: Path, program: Sequence[str] | None = None) -> float:
    """From the start of the program, Pigeon or another one, to the echo of what was typed at once."""
    begun = time.perf_counter()
    with PtyChat(folder, program=program or [*PROGRAM, "--model", "demo"]) as chat:
        chat.type("zqx")
        # Behind the first thing that the program itself says to the terminal.
        while b"zqx" not in chat.raw.partition(b"\x1b[?2004h")[2]:
            _read_next(chat, begun)
        return time.perf_counter() - begun


def _read_next(chat: PtyChat, begun: float) -> bytes:
    """What comes next; fails where something does not come at all."""
    assert time.perf_counter() - begun < LONGEST_SECONDS, chat.raw[-2000:]
    return chat.read_raw(1.0) or b""


def streaming_seconds(folder: Path) -> list[float]:
    """Of letters while an answer streams."""
    arguments = scripted_model_arguments(folder, ("go", {"text": TEXT * 400, "chunk": 6, "chunkDelayMs": 1}))
    until = time.monotonic() + SECONDS
    return echo_seconds(folder, arguments, lambda raw: time.monotonic() > until)


def finishing_seconds(folder: Path, reply: Any) -> list[float]:
    """Of letters while a reply comes in a thousand deltas a second, and is finished."""
    text = {"text": f"{reply}\n{END}\n", "chunk": 80, "chunkDelayMs": 1}
    arguments = scripted_model_arguments(folder, ("go", [*reply, END] if isinstance(reply, list) else text))
    return [one for _ in range(ROUNDS) for one in echo_seconds(folder, arguments, lambda raw: END.encode() in raw)]


def edit_of_many_lines(folder: Path) -> list[Any]:
    """A call that changes every line of a file."""
    before = "".join(f"line {n} as it was\n" for n in LINES)
    (folder / "long.txt").write_text(before)
    edits = [{"oldText": before, "newText": before.replace("was", "is now")}]
    return [call("edit", path="long.txt", edits=edits)]


def echo_seconds(folder: Path, arguments: Sequence[str], over: Callable[[bytes], bool]) -> list[float]:
    """Of each letter from the first message on; each is taken back, so that what is drawn anew has one letter."""
    taken = []
    with PtyChat(folder, columns=100, rows=40, program=[*PROGRAM, *arguments]) as chat:
        chat.until("context 0%")
        chat.send_line("go")
        due = first = time.perf_counter()
        begun = len(chat.raw)
        while not over(chat.raw[begun:]):
            assert due - first < LONGEST_SECONDS, chat.raw[-2000:]
            letter = LETTERS[len(taken) % len(LETTERS)]
            while (left := due - time.perf_counter()) > 0:
                chat.read_raw(left)
            chat.type(chr(letter))
            while letter not in _read_next(chat, due):
                pass
            taken.append(time.perf_counter() - due)
            chat.type(BACKSPACE)
            due += BETWEEN_SECONDS
    return taken


def format_times(name: str, seconds: Sequence[float]) -> str:
    """The median, the worst but one in a hundred, and the worst, in milliseconds."""
    ordered = sorted(seconds)
    at = [ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99) - 1], ordered[-1]]
    named = zip(("median", "p99", "max"), at, strict=True)
    return f"{name}: " + ", ".join(f"{what} {1000 * one:.1f} ms" for what, one in named)


def print_figure(line: str) -> None:
    """A figure, as soon as it is there."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def starts(folder: Path, other: Sequence[str]) -> None:
    """Tell how long starts take, and how they compare with those of another program."""
    ours, theirs = [], []
    for _ in range(STARTS):
        ours.append(start_seconds(folder))
        if other:
            theirs.append(start_seconds(folder, other))
    print_figure(format_times("start", ours))
    if other:
        print_figure(format_times(f"start of {other[-1]}", theirs))
        print_figure(f"ratio of the medians: {median(ours) / median(theirs):.2f}")


def main(other: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        starts(folder, other)
        for _ in range(ROUNDS):
            print_figure(format_times("echo in a stream", streaming_seconds(folder)))
        for name, reply in LONG.items():
            print_figure(format_times(name, finishing_seconds(folder, reply)))
        edit = edit_of_many_lines(folder)
        print_figure(format_times("edit of 2,000 lines", finishing_seconds(folder, edit)))


if __name__ == "__main__":
    main(sys.argv[1:])
