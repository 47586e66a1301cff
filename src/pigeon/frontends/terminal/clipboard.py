"""The clipboard of the person: text is copied to it, images are read from it.

The terminal is asked to take the text (OSC 52), which also works over ssh, and so is the first available program of the
desktop, because not every terminal supports OSC 52.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from pigeon.frontends.terminal.view import View
from pigeon.system.process.run_program import run_program
from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import DESKTOP, plain_environment

COPYING = (("wl-copy",), ("xclip", "-selection", "clipboard"), ("xsel", "-ib"), ("pbcopy",))
PASTING = (
    ("wl-paste", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-t", "image/png", "-o"),
    ("pngpaste", "-"),
)
SECONDS = 3.0
LONGEST_FOR_TERMINAL = 75_000


class Clipboard:
    """The clipboard of the terminal of `view`, and of the desktop that `environment` belongs to.

    Programs are looked up only in `search_path`, which contains none that a command in a sandbox could have put there.
    """

    def __init__(self, view: View, cwd: str, environment: Mapping[str, str], search_path: str) -> None:
        self._view = view
        self._cwd = cwd
        self._environment = plain_environment(environment, *DESKTOP).with_added({"PATH": search_path})
        self._owner = ProcessOwner()

    async def copy_text(self, text: str) -> bool:
        """Copy a text; returns False if neither the terminal nor a program can take it."""
        data = text.encode("utf-8", "replace")
        fits = len(data) <= LONGEST_FOR_TERMINAL
        if fits:
            self._view.send_control(f"\x1b]52;c;{base64.b64encode(data).decode()}\x07")
        return await self._run_first_working_program(COPYING, data) is not None or fits

    async def read_image(self) -> bytes | None:
        """The image in the clipboard, or None if there is none or no program to ask for it."""
        return await self._run_first_working_program(PASTING, None) or None

    async def _run_first_working_program(
        self, programs: tuple[tuple[str, ...], ...], stdin: bytes | None
    ) -> bytes | None:
        """The output of the first of these programs that exists and does not fail, or None."""
        for argv in programs:
            try:
                result = await run_program(
                    self._owner, argv, cwd=self._cwd, environment=self._environment, timeout=SECONDS, stdin=stdin
                )
            except OSError:
                continue
            if result.code == 0 and not result.killed:
                return result.stdout
        return None
