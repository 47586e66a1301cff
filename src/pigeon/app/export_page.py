"""Writes a session as a page: the seam between the session's lines and the export room."""

from __future__ import annotations

import os

from pigeon.session.history.entry_line import line_from_bytes
from pigeon.session.history.reading import load_session
from pigeon.session.history.views import name_of, stats_of
from pigeon.wire import codec
from pigeon.wire.errors import Refusal, StartupError


def write_session_page(path: str, file: str, every: list[bytes], branch: list[bytes]) -> None:
    """From the raw lines on, because the records behind them belong to the loop's thread."""
    from pigeon.export.html import page, write_page

    header = codec.decode(every[0])
    lines = [line for line in map(line_from_bytes, every[1:]) if line is not None]
    shown = [line for line in map(line_from_bytes, branch) if line is not None]
    stats = stats_of(str(header.get("id", "")), file, lines)
    items = [line.entry or line.plain() for line in shown]
    write_page(path, page(header, items, stats, name_of(lines)), protected=file)


def run_export(names: list[str]) -> int:
    """`--export FILE [OUT]`: write the page of a session file and say where."""
    file = os.path.abspath(os.path.expanduser(names[0]))
    try:
        loaded = load_session(file)
    except Refusal as error:
        raise StartupError(str(error)) from None
    if loaded is None:
        raise StartupError(f"File not found: {file}")
    path = names[1] if len(names) > 1 else f"pigeon-session-{os.path.basename(file).removesuffix('.jsonl')}.html"
    every = [loaded.header_line, *(line.raw for line in loaded.lines)]
    write_session_page(path, file, every, every[1:])
    print(f"Exported to: {path}")  # noqa: T201
    return 0
