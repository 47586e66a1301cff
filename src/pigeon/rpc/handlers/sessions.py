"""Handlers: conversations, and the entries they are made of."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from itertools import islice

from pigeon.rpc.outbox import LongAnswer
from pigeon.rpc.router import handles
from pigeon.session.history.entry_line import EntryLine
from pigeon.session.history.views import clean_name, encode_entries, encode_tree
from pigeon.session.navigation import NavigationOptions
from pigeon.session.session import Session
from pigeon.session.switching import encode_fork_messages
from pigeon.wire import answers
from pigeon.wire import commands as c
from pigeon.wire.base import ABSENT, Absent, value_or_default
from pigeon.wire.entries import SessionInfo
from pigeon.wire.errors import ENTRY_MISSING, Refusal
from pigeon.wire.events import SessionInfoChanged


@handles(c.NewSession)
async def new_session(cmd: c.NewSession, s: Session) -> answers.Cancelled:
    """The old run ends first, with all its events."""
    return answers.Cancelled(cancelled=await s.switching.veto_or_open_new(cmd.parent_session))


@handles(c.SwitchSession)
async def switch_session(cmd: c.SwitchSession, s: Session) -> answers.Cancelled:
    """A file that cannot be used changes nothing."""
    return answers.Cancelled(cancelled=await s.switching.veto_or_open(cmd.session_path))


@handles(c.OpenSession)
async def open_session(cmd: c.OpenSession, s: Session) -> answers.OpenedSession:
    """The active run ends first, unless the session is open already."""
    cancelled, resumed = await s.switching.open_newest(cmd.session_dir)
    journal = s.journal
    file = journal.file or ABSENT
    return answers.OpenedSession(cancelled=cancelled, resumed=resumed, session_id=journal.session_id, session_file=file)


@handles(c.Fork)
async def fork(cmd: c.Fork, s: Session) -> answers.Forked:
    """Returns the text for editing, even if an extension refused."""
    restored: list[tuple[str, c.RestoredFiles]] = []

    async def restore_files() -> None:
        restored.append(await s.history.file_undo.restore_files(cmd.entry_id))

    if cmd.restore == "files":
        text = s.switching.find_user_text(cmd.entry_id, "forking")
        await s.engine.abort_and_settle()
        await restore_files()
        cancelled = False
    else:
        settled = restore_files if cmd.restore == "both" else None
        text, cancelled = await s.switching.fork(cmd.entry_id, "forking", settled)
    for one in restored:
        s.history.file_undo.announce(*one)
    return answers.Forked(text=text, cancelled=cancelled)


@handles(c.Branch)
async def branch(cmd: c.Branch, s: Session) -> answers.Forked:
    """`fork` under its other name."""
    text, cancelled = await s.switching.fork(cmd.entry_id, "branching")
    return answers.Forked(text=text, cancelled=cancelled)


@handles(c.Clone)
async def clone(cmd: c.Clone, s: Session) -> answers.Cancelled:
    """Copies the whole active branch to a new session."""
    return answers.Cancelled(cancelled=await s.switching.veto_or_clone())


@handles(c.GetForkMessages, c.GetBranchMessages)
def get_fork_messages(cmd: c.GetForkMessages | c.GetBranchMessages, s: Session) -> LongAnswer:
    """User messages of every branch, in order."""
    return LongAnswer(encode_fork_messages(_current_entries(s.journal.lines)))


@handles(c.GetEntries)
def get_entries(cmd: c.GetEntries, s: Session) -> LongAnswer:
    """All entries, or those after one."""
    lines, start = s.journal.lines, 0
    if not isinstance(cmd.since, Absent):
        known = s.journal.find_line(cmd.since)
        if known is None:
            raise Refusal(f"{ENTRY_MISSING}{cmd.since}")
        start = lines.index(known) + 1
    return LongAnswer(encode_entries(_current_entries(lines, start), s.journal.leaf_id))


@handles(c.GetTree)
def get_tree(cmd: c.GetTree, s: Session) -> LongAnswer:
    return LongAnswer(encode_tree(_current_entries(s.journal.lines), s.journal.leaf_id, flat=cmd.flat is True))


def _current_entries(lines: list[EntryLine], start: int = 0) -> Iterator[EntryLine]:
    """The entries that exist now: the lists of a journal only grow, so they need not be copied."""
    return islice(lines, start, len(lines))


@handles(c.SetSessionName)
def set_session_name(cmd: c.SetSessionName, s: Session) -> None:
    """Recorded and announced before the answer."""
    name = clean_name(cmd.name)
    s.journal.append(SessionInfo, name=name)
    s.bus.post(SessionInfoChanged(name=name))


@handles(c.ListSessions)
async def list_sessions(cmd: c.ListSessions, s: Session) -> answers.Sessions:
    """Cheap without `search`: of most files only names and times are read."""
    rows, cursor = await s.dependencies.repository.list_sessions(
        None if cmd.scope == "all" else s.journal.cwd,
        limit=cmd.limit,
        cursor=value_or_default(cmd.cursor, None),
        search=value_or_default(cmd.search, None),
        session_id=value_or_default(cmd.session_id, None),
        agents=cmd.agents is True,
    )
    return answers.Sessions(sessions=rows, next_cursor=ABSENT if cursor is None else cursor)


@handles(c.DeleteSession)
async def delete_session(cmd: c.DeleteSession, s: Session) -> answers.SessionRow:
    """No process writes it meanwhile."""
    return await s.dependencies.repository.delete_session(cmd.session_path)


@handles(c.NavigateTree)
def navigate_tree(cmd: c.NavigateTree, s: Session) -> Awaitable[answers.Navigated]:
    """The active run is aborted first; an aborted summary changes nothing."""
    options = NavigationOptions(summarize=cmd.summarize is True, instructions=cmd.custom_instructions, label=cmd.label)
    return _announce_navigation(s.history.navigate(cmd.entry_id, options, cmd.restore), s)


async def _announce_navigation(navigating: Awaitable[answers.Navigated], s: Session) -> answers.Navigated:
    navigated = await navigating
    if not navigated.cancelled:
        s.announce_selection("navigate_tree")
    return navigated
