"""Handlers: the conversation as a page."""

from __future__ import annotations

import asyncio

from pigeon.rpc.router import handles
from pigeon.session.session import Session
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
    every = list(s.journal.every_line())
    branch = [line.raw for line in s.journal.branch]
    return Exported(path=await asyncio.to_thread(s.write_page, or_else(cmd.output_path, ""), file, every, branch))
