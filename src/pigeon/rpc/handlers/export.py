"""Handlers: the conversation as a page, and parts of it as HTML; the work is done in threads, on raw lines."""

from __future__ import annotations

import asyncio

from pigeon.rpc.router import handles
from pigeon.session.history.entry_line import EntryLine
from pigeon.session.session import Session
from pigeon.wire.answers import Branches, Exported, FoundTexts, HtmlPage, RenderedHtml
from pigeon.wire.base import Absent, value_or_default
from pigeon.wire.commands import Changes, ExportHtml, FindText, GetBranches, GetChanges, GetHtml, RenderHtml
from pigeon.wire.errors import ENTRY_MISSING, Refusal

# How far to search for the answer that results belong to.
FARTHEST = 500


@handles(ExportHtml)
async def export_html(cmd: ExportHtml, s: Session) -> Exported:
    """The active branch at this moment; runs in parallel with everything else."""
    file = s.journal.file
    if file is None:
        raise Refusal("Cannot export in-memory session to HTML")
    if not s.journal.is_saved or not any(line.type == "message" for line in s.journal.branch):
        raise Refusal("Nothing to export yet - start a conversation first")
    every = list(s.journal.iterate_lines())
    branch = [line.raw for line in s.journal.branch]
    return Exported(
        path=await asyncio.to_thread(
            s.dependencies.pages.write_page, value_or_default(cmd.output_path, ""), file, every, branch
        )
    )


@handles(GetHtml)
async def get_html(cmd: GetHtml, s: Session) -> HtmlPage:
    """The current state; an answer whose calls are running may be requested again."""
    branch = s.journal.branch
    start, end = _find_entry_range(cmd, branch)
    window = [line.raw for line in branch[start:end]]
    labels = [line.raw for line in s.journal.lines if line.type == "label"]
    spoken = (line.raw for line in reversed(branch[max(0, start - FARTHEST) : start]) if _is_conversation_message(line))
    first, leaf, more_after = (branch[start].id if window else None), s.journal.leaf_id, end < len(branch)
    before, ids = (branch[start - 1].id if start else None), [line.id for line in branch[start:end]]
    running = s.activity.is_running and not more_after
    previous, source = next(spoken, None), cmd.source
    pieces, settled = await asyncio.to_thread(
        s.dependencies.pages.render_pieces, start, window, labels, previous, running, source
    )
    return HtmlPage(
        pieces=pieces,
        first_id=first,
        settled_id=ids[settled - 1] if settled else before,
        leaf_id=leaf,
        more_before=start > 0,
        more_after=more_after,
    )


def _find_entry_range(cmd: GetHtml, branch: list[EntryLine]) -> tuple[int, int]:
    """The range of entries; the results of an answer stay with it."""
    limit, most = cmd.limit, len(branch)
    if not isinstance(cmd.after, Absent):
        start = _find_position(cmd.after, branch) + 1
        while branch[start - 1].role == "assistant" and _is_result(branch, start):
            start += 1
        end = start + limit
    elif not isinstance(cmd.around, Absent):
        end = _find_position(cmd.around, branch) + limit // 2 + 1
        start = end - limit
    else:
        end = most if isinstance(cmd.before, Absent) else _find_position(cmd.before, branch)
        start = end - limit
    start, end = max(0, start), min(most, end)
    while isinstance(cmd.after, Absent) and start > 0 and _is_result(branch, start):
        start -= 1
    while isinstance(cmd.before, Absent) and end < most and _is_result(branch, end):
        end += 1
    return start, end


def _find_position(id: str, branch: list[EntryLine]) -> int:
    for at in range(len(branch) - 1, -1, -1):
        if branch[at].id == id:
            return at
    raise Refusal(f"{ENTRY_MISSING}{id}")


def _is_result(branch: list[EntryLine], at: int) -> bool:
    return at < len(branch) and branch[at].role == "toolResult"


def _is_conversation_message(line: EntryLine) -> bool:
    return line.type == "message" and line.role not in ("toolResult", "system")


@handles(RenderHtml)
async def render_html(cmd: RenderHtml, s: Session) -> RenderedHtml:
    """Renders without adding anything to the session."""
    if sum(not isinstance(given, Absent) for given in (cmd.markdown, cmd.diff, cmd.call)) != 1:
        raise Refusal('render_html needs one of "markdown", "diff" and "call"')
    return RenderedHtml(html=await asyncio.to_thread(s.dependencies.pages.render_html, cmd))


@handles(FindText)
async def find_text(cmd: FindText, s: Session) -> FoundTexts:
    """Searches the active branch; a result counts as part of the answer that called the tool."""
    if not cmd.text.strip():
        raise Refusal('"text" is empty: say what to look for')
    branch = [line.raw for line in s.journal.branch]
    found, more = await asyncio.to_thread(s.dependencies.pages.find_text, branch, cmd.text, cmd.limit)
    return FoundTexts(found=found, more=more)


@handles(GetBranches)
async def get_branches(cmd: GetBranches, s: Session) -> Branches:
    """Branches without messages are left out."""
    every, active = [line.raw for line in s.journal.lines], [line.id for line in s.journal.branch]
    return Branches(branches=await asyncio.to_thread(s.dependencies.pages.list_branches, every, active))


@handles(GetChanges)
async def get_changes(cmd: GetChanges, s: Session) -> Changes:
    """The current state of the branch: changes of a running call are not known yet."""
    branch = [line.raw for line in s.journal.branch if line.type == "message"]
    path = None if isinstance(cmd.path, Absent) else cmd.path
    places = {line.id for line in s.journal.branch if line.role == "user"}
    recorded = await s.dependencies.checkpoints.list_changes(places)
    files = await asyncio.to_thread(
        s.dependencies.pages.list_changes, branch, s.journal.cwd, path, cmd.format == "html", recorded
    )
    if path is not None and not files:
        raise Refusal(f"No tool has changed {path} on this branch")
    return Changes(files=files)
