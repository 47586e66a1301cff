"""Handlers: the conversation as a page."""

from __future__ import annotations

import asyncio
import os

from pigeon.rpc.router import handles
from pigeon.session.kept import kept_from_line
from pigeon.session.naming import name_of
from pigeon.session.session import Session
from pigeon.session.stats import stats_of
from pigeon.wire import codec
from pigeon.wire.answers import Exported
from pigeon.wire.base import or_else
from pigeon.wire.commands import ExportHtml
from pigeon.wire.errors import Refusal


@handles(ExportHtml)
async def export_html(cmd: ExportHtml, s: Session) -> Exported:
    """The active branch as it is now; the work is done beside everything else."""
    file = s.journal.file
    if file is None:
        raise Refusal("Cannot export in-memory session to HTML")
    if not s.journal.saved or not any(line.type == "message" for line in s.journal.branch):
        raise Refusal("Nothing to export yet - start a conversation first")
    path = _path(or_else(cmd.output_path, ""), file)
    every = list(s.journal.every_line())
    branch = [line.raw for line in s.journal.branch]
    await asyncio.to_thread(_write, path, file, every, branch)
    return Exported(path=path)


def _path(asked: str, file: str) -> str:
    """Where the page goes; a name without a folder means the folder that the process was started in."""
    return os.path.expanduser(asked or f"pigeon-session-{os.path.basename(file).removesuffix('.jsonl')}.html")


def _write(path: str, file: str, every: list[bytes], branch: list[bytes]) -> None:
    """From the raw lines on, because the records behind them belong to the loop's thread."""
    from pigeon.export.html import page, write_page

    header = codec.decode(every[0])
    lines = [line for line in map(kept_from_line, every[1:]) if line is not None]
    shown = [line for line in map(kept_from_line, branch) if line is not None]
    stats = stats_of(str(header.get("id", "")), file, lines)
    items = [line.entry or line.plain() for line in shown]
    write_page(path, page(header, items, stats, name_of(lines)), protected=file)
