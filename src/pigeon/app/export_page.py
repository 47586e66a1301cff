"""Sessions as pages: the seam between the lines of a session and the export room.

The host's `export_html` and the option `--export` write their pages here, so both name and place them alike.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from pigeon.app.environment import Environment
from pigeon.app.models import registry_of
from pigeon.guard.secrets import Redactor
from pigeon.session.history.entry_line import line_from_bytes
from pigeon.session.history.reading import load_session
from pigeon.session.history.views import name_of, stats_of
from pigeon.system.paths import expand_home
from pigeon.system.process.start import ProcessOwner
from pigeon.wire import codec
from pigeon.wire.errors import Refusal, StartupError


class PageWriter:
    """Writes pages; a relative path begins in the folder of the environment."""

    def __init__(self, environment: Environment, mask_text: Callable[[str], str]) -> None:
        """`mask_text` takes keys out of the page: the session may be older than the masking of what is kept."""
        self._environment = environment
        self._mask_text = mask_text

    def write(self, asked: str, file: str, every: list[bytes], branch: list[bytes]) -> str:
        """Write the page of a session and return its path as it was asked for.

        Runs in a thread: so it gets raw lines, because the records behind them belong to the event loop.
        """
        from pigeon.export.html import page, write_page

        header = codec.decode(every[0])
        lines = [line for line in map(line_from_bytes, every[1:]) if line is not None]
        shown = [line for line in map(line_from_bytes, branch) if line is not None]
        stats = stats_of(str(header.get("id", "")), file, lines)
        items = [line.entry or line.plain() for line in shown]
        path = expand_home(asked, self._environment.home) or _page_name(file)
        text = self._mask_text(page(header, items, stats, name_of(lines)))
        write_page(self._environment.absolute(path), text, protected=file, called=path)
        return path

    def export(self, file: str, asked: str = "") -> str:
        """Write the page of a session file, with all its branches, and return its path."""
        file = self._environment.absolute(file)
        try:
            loaded = load_session(file)
        except Refusal as error:
            raise StartupError(str(error)) from None
        if loaded is None:
            raise StartupError(f"File not found: {file}")
        every = [loaded.header_line, *(line.raw for line in loaded.lines)]
        return self.write(asked, file, every, every[1:])


def export_file(environment: Environment, file: str, asked: str = "") -> str:
    """Write the page of a session file without an agent; the user's keys are masked all the same."""
    redactor = Redactor()
    folder = environment.agent_dir()
    registry_of(folder, environment.variables, environment.cwd or "/", ProcessOwner(), redactor)
    return PageWriter(environment, redactor.mask_text).export(file, asked)


def _page_name(file: str) -> str:
    return f"pigeon-session-{os.path.basename(file).removesuffix('.jsonl')}.html"
