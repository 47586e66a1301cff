"""Handlers: conversations, and the entries they are made of."""

from __future__ import annotations

from collections.abc import Awaitable

from pigeon.rpc.router import handles
from pigeon.session.history import listing
from pigeon.session.history.views import clean_name, raw_entry, tree_of
from pigeon.session.navigation import NavigationOptions
from pigeon.session.session import Session
from pigeon.session.switching import fork_messages
from pigeon.wire import answers
from pigeon.wire import commands as c
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.entries import SessionInfo
from pigeon.wire.errors import Refusal
from pigeon.wire.events import SessionInfoChanged

MOST_SESSIONS = 500


@handles(c.NewSession)
async def new_session(cmd: c.NewSession, s: Session) -> answers.Cancelled:
    """The old run ends with all its events first."""
    return answers.Cancelled(cancelled=await s.switching.new(cmd.parent_session))


@handles(c.SwitchSession)
async def switch_session(cmd: c.SwitchSession, s: Session) -> answers.Cancelled:
    """A file that cannot be used changes nothing."""
    return answers.Cancelled(cancelled=await s.switching.open(cmd.session_path))


@handles(c.Fork)
async def fork(cmd: c.Fork, s: Session) -> answers.Forked:
    """The text comes back for editing, also when an extension said no."""
    text, cancelled = await s.switching.fork(cmd.entry_id, "forking")
    return answers.Forked(text=text, cancelled=cancelled)


@handles(c.Branch)
async def branch(cmd: c.Branch, s: Session) -> answers.Forked:
    """`fork` under its other name."""
    text, cancelled = await s.switching.fork(cmd.entry_id, "branching")
    return answers.Forked(text=text, cancelled=cancelled)


@handles(c.Clone)
async def clone(cmd: c.Clone, s: Session) -> answers.Cancelled:
    """The whole active branch."""
    return answers.Cancelled(cancelled=await s.switching.clone())


@handles(c.GetForkMessages, c.GetBranchMessages)
def get_fork_messages(cmd: c.GetForkMessages | c.GetBranchMessages, s: Session) -> answers.ForkMessages:
    """On every branch, in the order they were said."""
    return answers.ForkMessages(messages=fork_messages(s.journal.lines))


@handles(c.GetEntries)
def get_entries(cmd: c.GetEntries, s: Session) -> answers.Entries:
    """All entries, or those after one."""
    lines = s.journal.lines
    if not isinstance(cmd.since, Absent):
        at = next((index for index, line in enumerate(lines) if line.id == cmd.since), None)
        if at is None:
            raise Refusal(f"Entry not found: {cmd.since}")
        lines = lines[at + 1 :]
    return answers.Entries(entries=[raw_entry(line) for line in lines], leaf_id=s.journal.leaf_id)


@handles(c.GetTree)
def get_tree(cmd: c.GetTree, s: Session) -> answers.Tree:
    """All entries, by what they hang on."""
    return answers.Tree(tree=tree_of(s.journal.lines), leaf_id=s.journal.leaf_id)


@handles(c.SetSessionName)
def set_session_name(cmd: c.SetSessionName, s: Session) -> None:
    """On record, and announced before the answer."""
    name = clean_name(cmd.name)
    s.journal.append(SessionInfo, name=name)
    s.bus.post(SessionInfoChanged(name=name))


@handles(c.ListSessions)
def list_sessions(cmd: c.ListSessions, s: Session) -> answers.Sessions:
    """Cheap: files are looked at, not read."""
    if not 1 <= cmd.limit <= MOST_SESSIONS:
        raise Refusal(f'Missing or invalid field "limit": it must be between 1 and {MOST_SESSIONS}')
    folders = s.repository.folders() if cmd.scope == "all" else [s.repository.folder]
    rows, cursor = listing.listed(folders, None if isinstance(cmd.cursor, Absent) else cmd.cursor, cmd.limit)
    return answers.Sessions(sessions=rows, next_cursor=ABSENT if cursor is None else cursor)


@handles(c.NavigateTree)
def navigate_tree(cmd: c.NavigateTree, s: Session) -> Awaitable[answers.Navigated]:
    """The active run is aborted first; an aborted summary leaves everything where it was."""
    options = NavigationOptions(summarize=cmd.summarize is True, instructions=cmd.custom_instructions, label=cmd.label)
    return s.engine.navigate(cmd.entry_id, options)
