"""The chat in a real pseudo-terminal, as a person has it before them: keys go in, `pyte` keeps the screen.

As with a terminal that knows updates, nobody sees one of which only a part has come.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyte
import pytest

from support.agent_process import command_line
from support.fork_server import can_fork_agents, fork_server

SECONDS = 20.0
SIGN = "\u276f"
ENTER, ESC, TAB, UP, DOWN = "\r", "\x1b", "\t", "\x1b[A", "\x1b[B"
ALT_ENTER, ALT_UP = ESC + ENTER, ESC + UP
SHIFT_TAB, BACKSPACE = "\x1b[Z", "\x7f"
CTRL_B, CTRL_C, CTRL_D, CTRL_G, CTRL_J, CTRL_O, CTRL_P = (chr(ord(letter) - 64) for letter in "BCDGJOP")
CTRL_R, CTRL_T, CTRL_V, CTRL_Z = (chr(ord(letter) - 64) for letter in "RTVZ")
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f64540"
    "0000000049454e44ae426082"
)
BEGIN_UPDATE, END_UPDATE = b"\x1b[?2026h", b"\x1b[?2026l"
# What is drawn around a text, and where it is broken into lines.
_LAYOUT = re.compile(r"[\s│┃|]+")
_COLOUR = re.compile(rb"\x1b\[(?:[\d;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[\d;]*)?m")


@dataclass(frozen=True)
class Look:
    """A terminal to try the chat in: its size, and whether it shows colours."""

    columns: int
    rows: int
    colours: bool

    def open(self, folder: Path, arguments: Sequence[str], **more: Any) -> PtyChat:
        env = {**({} if self.colours else {"NO_COLOR": "1"}), **more.pop("env", {})}
        return PtyChat(folder, arguments, self.columns, self.rows, env, **more)

    def fits(self, chat: PtyChat) -> None:
        """Fails if something was coloured that must not be, or nothing that could be."""
        assert bool(_COLOUR.search(chat.raw)) == self.colours


LOOKS = pytest.mark.parametrize("look", [Look(40, 20, False), Look(200, 50, True)], ids=["narrow-plain", "wide"])


def paste_keys(text: str) -> str:
    """A text as terminals send it when it is pasted."""
    return f"\x1b[200~{text}\x1b[201~"


def scripted_model_arguments(folder: Path, *rules: tuple[str, Any], **options: Any) -> list[str]:
    """The arguments for a model that answers by rules: what a message contains, and the reply to it.

    Several replies are given one after the other, as to the result of a tool that the one before has called.
    """
    found = []
    for word, replies in rules:
        *once, last = replies if isinstance(replies, list) else [replies]
        found += [{"when": {"user": word}, "reply": reply, "times": 1} for reply in once]
        found.append({"when": {"user": word}, "reply": last})
    (folder / "s.json").write_text(json.dumps({"rules": found, "default": "You said: ${user}", **options}))
    return ["--model", "scripted/s.json"]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"toolCalls": [{"name": tool, "arguments": arguments}]}


class PtyChat:
    """One chat; a context manager that leaves nothing behind."""

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str] = ("--model", "demo"),
        columns: int = 80,
        rows: int = 30,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] | None = None,
        typed: str = "",
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=5000)
        self._stream = pyte.ByteStream(self._screen)
        self._rows: dict[int, str] = {}
        self._above: list[str] = []
        self.raw = b""
        self._unfed = b""
        ours, theirs = os.openpty()
        self._terminal = ours
        self._resize(columns, rows)
        # Before the program is there, and so before the terminal is its own.
        os.write(ours, typed.encode())
        home = folder / "home"
        home.mkdir(exist_ok=True)
        variables = {**os.environ, "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8", **(env or {})}
        self.process = self._start(theirs, program, list(arguments), folder, variables)
        os.close(theirs)

    def _start(
        self, theirs: int, program: Sequence[str] | None, arguments: list[str], folder: Path, env: dict[str, str]
    ) -> Any:
        if program is None and can_fork_agents():
            return fork_server(command_line()[0]).start_at(theirs, arguments, folder, env)
        return subprocess.Popen(
            program or [sys.executable, "-m", "pigeon", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=env,
            start_new_session=True,
            # Makes the terminal that of the new session, so that its keys and its end are signals.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - there are no threads here
        )

    def __enter__(self) -> PtyChat:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._terminal)

    def _resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        """Another size, as when a window is pulled."""
        self._resize(columns, rows)
        self._screen.resize(rows, columns)
        os.kill(self.process.pid, signal.SIGWINCH)

    def type(self, *keys: str) -> None:
        """Press keys; what is drawn meanwhile is read, as a terminal does."""
        data = "".join(keys).encode()
        while data:
            if select.select([], [self._terminal], [], 0)[1]:
                data = data[os.write(self._terminal, data[:1024]) :]
            else:
                self._read(0.01)

    def send_line(self, text: str) -> None:
        self.type(text, ENTER)

    def hang_up(self) -> None:
        os.close(self._terminal)
        self._terminal = os.open(os.devnull, os.O_RDONLY)

    @property
    def lines(self) -> list[str]:
        # Only rows that have changed are read again: a screen is looked at after each piece that comes.
        for number in self._screen.dirty:
            self._rows[number] = _row_text(self._screen.buffer[number])
        self._screen.dirty.clear()
        return [self._rows.get(number, "") for number in range(self._screen.lines)]

    @property
    def text(self) -> str:
        """The screen with all that scrolled away above it."""
        above = self._screen.history.top
        if len(above) < len(self._above):
            self._above.clear()
        self._above += map(_row_text, islice(above, len(self._above), None))
        return "\n".join([*self._above, *self.lines]).strip()

    def until(self, found: str | Callable[[str], bool], seconds: float = SECONDS) -> str:
        """Read until a text is on the screen or above it; fails with the screen when it does not come."""
        holds = found if callable(found) else lambda text: found in text
        deadline = time.monotonic() + seconds
        while not holds(self.text):
            left = deadline - time.monotonic()
            assert left > 0, f"{found!r} did not come:\n{self.text}"
            if not self._read(left):
                assert holds(self.text), f"{found!r} did not come before the end:\n{self.text}"
        return self.text

    def reads(self, text: str) -> str:
        """Read until a text is there, whatever lines and frames it is laid out in."""
        wanted = _LAYOUT.sub("", text)
        return self.until(lambda found: wanted in _LAYOUT.sub("", found))

    def answers(self, keys: str, question: str) -> None:
        """Wait for a question, press keys, and wait until it is gone."""
        wanted = _LAYOUT.sub("", question)
        self.until(lambda _: wanted in _LAYOUT.sub("", "".join(self.lines)))
        self.type(keys)
        self.until(lambda _: wanted not in _LAYOUT.sub("", "".join(self.lines)))

    def footer(self, text: str) -> None:
        """Read until the last row that has something in it contains a text."""
        self.until(lambda _: text in next((line for line in reversed(self.lines) if line), ""))

    def empty(self) -> None:
        """Take away what stands in the input."""
        self.type(CTRL_C)
        self.has_input("")

    def wait_until_gone(self, text: str) -> None:
        """Read until a text is not on the screen any more."""
        self.until(lambda _: text not in "\n".join(self.lines))

    def has_input(self, text: str) -> None:
        """Read until this, and nothing else, stands in the row that is written in: the one with the cursor."""
        row = f"{SIGN} {text}".rstrip()

        def holds(_: str) -> bool:
            cursor = self._screen.cursor
            # Of a terminal that shrank, it may stand below the last row until it is drawn.
            return not cursor.hidden and self.lines[cursor.y : cursor.y + 1] == [row]

        self.until(holds)

    def agents(self) -> list[int]:
        """The processes of the agent of this chat."""
        found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in found if _parent(pid) == self.process.pid]

    def kill_agents(self) -> None:
        """The agent dies, as when memory is short."""
        for pid in self.agents():
            os.kill(pid, signal.SIGKILL)

    def wait_for_exit(self, seconds: float = SECONDS) -> int:
        """Read until the program has ended; returns its exit code."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(seconds)

    def _read(self, seconds: float) -> bool:
        data = self.read_raw(seconds)
        if data is not None:
            self._unfed += data
            whole = len(self._unfed) if data == b"" else _whole(self._unfed)
            self._stream.feed(self._unfed[:whole])
            self._unfed = self._unfed[whole:]
        return data != b""

    def read_raw(self, seconds: float) -> bytes | None:
        """What comes next, which the screen does not get: measuring must not wait for it. None if nothing comes."""
        if not select.select([self._terminal], [], [], max(0.0, seconds))[0]:
            return None
        try:
            data = os.read(self._terminal, 65536)
        except OSError:
            data = b""
        self.raw += data
        return data


def _whole(data: bytes) -> int:
    """How much of it a terminal shows: not an update that has only begun, nor what may be the beginning of one."""
    begins = data.rfind(BEGIN_UPDATE)
    if begins > data.rfind(END_UPDATE):
        return begins
    return len(data) - max(size for size in range(len(BEGIN_UPDATE)) if data.endswith(BEGIN_UPDATE[:size]))


def _row_text(row: Mapping[int, Any]) -> str:
    return "".join(row[column].data for column in range(max(row, default=-1) + 1)).rstrip()


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0
