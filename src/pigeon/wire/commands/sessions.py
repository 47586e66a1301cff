"""Commands about sessions: which there are, which is open, what they hold."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from pigeon.wire import answers
from pigeon.wire.base import ABSENT, Absent, Json, Record
from pigeon.wire.commands.base import Command

RestoreChoice = Literal["conversation", "files", "both"]
ListScope = Literal["project", "all"]
PageLimit = Annotated[int, Meta(ge=1, le=500)]


class RenderedCall(Record, kw_only=True):
    """A tool call to be rendered as HTML, by its name and arguments."""

    name: str
    arguments: dict[str, Json]


class NewSession(Command, tag="new_session", kw_only=True):
    """Start an empty conversation."""

    answer = answers.Cancelled
    required_scope = "talk"
    older_names = ("reset",)
    session_paths = ("parent_session",)
    parent_session: str | Absent = ABSENT


class SwitchSession(Command, tag="switch_session", kw_only=True):
    """Open another session file in place of the current one."""

    answer = answers.Cancelled
    required_scope = "admin"
    session_paths = ("session_path",)
    session_path: str


class OpenSession(Command, tag="open_session", kw_only=True):
    """Continue the newest session in a folder, or start one there; sessions are kept there from then on."""

    answer = answers.OpenedSession
    required_scope = "admin"
    session_paths = ("session_dir",)
    session_dir: str


class Fork(Command, tag="fork", kw_only=True):
    """Branch off into a new session that ends before the given user message.

    With `restore`, the files are brought back to what they were then as well ("both"), or they alone ("files").
    """

    answer = answers.Forked
    required_scope = "talk"
    entry_id: str
    restore: RestoreChoice = "conversation"


class Branch(Command, tag="branch", kw_only=True):
    """`fork` under its other name."""

    answer = answers.Forked
    required_scope = "talk"
    entry_id: str


class Clone(Command, tag="clone", kw_only=True):
    """Copy the whole active branch into a new session."""

    answer = answers.Cancelled
    required_scope = "talk"


class GetForkMessages(Command, tag="get_fork_messages", kw_only=True):
    """The user messages that `fork` accepts."""

    lane = "beside"
    answer = answers.ForkMessages
    required_scope = "read"
    effect = "reads"


class GetBranchMessages(Command, tag="get_branch_messages", kw_only=True):
    """`get_fork_messages` under its other name."""

    lane = "beside"
    answer = answers.ForkMessages
    required_scope = "read"
    effect = "reads"


class GetEntries(Command, tag="get_entries", kw_only=True):
    """Session entries in the order they were appended."""

    lane = "beside"
    answer = answers.Entries
    required_scope = "read"
    effect = "reads"
    since: str | Absent = ABSENT


class GetTree(Command, tag="get_tree", kw_only=True):
    """All entries of the session as a tree, which nests as deep as the conversation is long. With `flat` the same nodes
    come in one list, parents first, each with empty `children`."""

    lane = "beside"
    answer = answers.Tree
    required_scope = "read"
    effect = "reads"
    flat: bool | Absent = ABSENT


class NavigateTree(Command, tag="navigate_tree", kw_only=True):
    """Go to another entry of the session; with `summarize`, the branch that is left is summarized.

    With `restore`, the files are brought back to what they were there as well ("both"), or they alone ("files"). What
    others have changed is left as it is.
    """

    lane = "beside"
    answer = answers.Navigated
    required_scope = "talk"
    entry_id: str
    summarize: bool | Absent = ABSENT
    custom_instructions: str | Absent = ABSENT
    label: str | Absent = ABSENT
    restore: RestoreChoice = "conversation"


class ListSessions(Command, tag="list_sessions", kw_only=True):
    """Sessions on disk, newest first, a page at a time; with `sessionId`, the one with exactly this id, if there is
    one, and with `search`, those with a message that has all these words (there is no further page then in a store).
    Those of started agents are left out unless `agents` is true."""

    lane = "beside"
    answer = answers.Sessions
    required_scope = "read"
    effect = "reads"
    scope: ListScope = "project"
    cursor: str | Absent = ABSENT
    limit: PageLimit = 50
    session_id: str | Absent = ABSENT
    agents: bool = False
    search: str | Absent = ABSENT


class DeleteSession(Command, tag="delete_session", kw_only=True):
    """Move a session to the trash; `pigeon sessions undelete` restores it. One that a process is writing, such as the
    one that is open here, cannot be deleted."""

    lane = "beside"
    answer = answers.SessionRow
    required_scope = "admin"
    session_paths = ("session_path",)
    session_path: str


class SetSessionName(Command, tag="set_session_name", kw_only=True):
    """Give the session a display name."""

    required_scope = "talk"
    effect = "sets"
    name: str


class ExportHtml(Command, tag="export_html", kw_only=True):
    """Write the session as an HTML page."""

    lane = "beside"
    answer = answers.Exported
    required_scope = "admin"
    output_paths = ("output_path",)
    output_path: str | Absent = ABSENT


class GetHtml(Command, tag="get_html", kw_only=True):
    """Entries of the active branch as HTML, for programs that show the conversation.

    These are the newest ones, or those `before`, `after` or `around` an entry of the branch; `limit` counts entries,
    and tool results come with their calls. With `source`, messages also come as the text that was written.
    """

    lane = "beside"
    answer = answers.HtmlPage
    required_scope = "read"
    effect = "reads"
    before: str | Absent = ABSENT
    after: str | Absent = ABSENT
    around: str | Absent = ABSENT
    limit: PageLimit = 30
    source: bool = False


class RenderHtml(Command, tag="render_html", kw_only=True):
    """One text as HTML: `markdown`, a `diff`, or the `call` of a tool that has no result yet."""

    lane = "beside"
    answer = answers.RenderedHtml
    required_scope = "read"
    effect = "reads"
    markdown: str | Absent = ABSENT
    diff: str | Absent = ABSENT
    call: RenderedCall | Absent = ABSENT


class FindText(Command, tag="find_text", kw_only=True):
    """The entries of the active branch that contain a text, ignoring case, newest first."""

    lane = "beside"
    answer = answers.FoundTexts
    required_scope = "read"
    effect = "reads"
    text: str
    limit: PageLimit = 100


class FindFiles(Command, tag="find_files", kw_only=True):
    """Files and folders in the working directory whose paths have these letters in this order, the best match first.

    Paths are relative to that directory, and those of folders end with a slash. Left out is what git ignores, and
    what the tool `find` would not show: what permission rules deny or ask about, and what the sandbox hides. It is for
    completing names: in a large project, it lists what has been found so far.
    """

    lane = "beside"
    answer = answers.FoundFiles
    required_scope = "talk"
    effect = "reads"
    text: str = ""
    limit: PageLimit = 20


class GetBranches(Command, tag="get_branches", kw_only=True):
    """The branches of the session, the active one first; `navigate_tree` goes to their `leafId`."""

    lane = "beside"
    answer = answers.Branches
    required_scope = "read"
    effect = "reads"


SESSIONS: tuple[type[Command], ...] = (
    NewSession, SwitchSession, OpenSession, Fork, Branch, Clone, GetForkMessages, GetBranchMessages, GetEntries,
    GetTree, NavigateTree, ListSessions, DeleteSession, SetSessionName, ExportHtml, GetHtml, RenderHtml, FindText,
    FindFiles, GetBranches,
)  # fmt: skip
