"""Slash commands about conversations: switching to others, and to other points of this one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pigeon.frontends.terminal.blocks import Notice
from pigeon.frontends.terminal.footer import FooterFacts
from pigeon.frontends.terminal.past import recent_blocks_of
from pigeon.frontends.terminal.view import Choice, ChoiceQuestion, View
from pigeon.sdk.conversation import Conversation
from pigeon.wire.answers import SessionRow, Tree, TreeNode
from pigeon.wire.base import value_or_default
from pigeon.wire.content import ToolCall, text_of
from pigeon.wire.entries import BranchSummaryEntry, CompactionEntry, MessageEntry
from pigeon.wire.messages import AssistantMessage, UserMessage

MOST_SESSIONS = 200
LONGEST_ROW = 100
DEEPEST = 12


class SessionCommands:
    """The slash commands for one conversation."""

    def __init__(
        self,
        conversation: Conversation,
        view: View,
        facts: FooterFacts,
        update_facts: Callable[[], Awaitable[None]],
    ) -> None:
        self._conversation = conversation
        self._view = view
        self._facts = facts
        self._update_facts = update_facts

    async def start_new(self, rest: str) -> None:
        if not (await self._conversation.new_session()).cancelled:
            await self._show_session("A new conversation")

    async def choose_and_resume(self, rest: str) -> None:
        """Switch to a conversation on disk."""
        rows = (await self._conversation.list_sessions(limit=MOST_SESSIONS)).sessions
        state = await self._conversation.get_state()
        current = value_or_default(state.session_file, state.session_id)
        choices = [
            Choice(row.reference, _to_one_line(_title_of(row)), hint=_time_of(row))
            for row in rows
            if row.reference != current
        ]
        if not choices:
            self._view.show(Notice("There is no other conversation in this folder", "warning"))
            return
        chosen = await self._view.ask(ChoiceQuestion("Continue which conversation?", choices, search=True))
        if chosen is not None and not (await self._conversation.switch_session(chosen)).cancelled:
            await self._show_session("")

    async def fork(self, rest: str) -> None:
        """Copy the conversation up to a message of the person, which may then be rewritten."""
        messages = (await self._conversation.get_fork_messages()).messages
        choices = [Choice(one.entry_id, _to_one_line(one.text)) for one in reversed(messages)]
        if not choices:
            self._view.show(Notice("There is no message to go back to yet", "warning"))
            return
        chosen = await self._view.ask(ChoiceQuestion("Branch off before which message?", choices, search=True))
        if chosen is None:
            return
        forked = await self._conversation.fork(chosen)
        if not forked.cancelled:
            await self._show_session("A copy of the conversation up to that message")
            self._view.set_input(value_or_default(forked.text, ""))

    async def navigate_tree(self, rest: str) -> None:
        """Go to another point of the tree of this conversation."""
        tree = await self._conversation.get_tree()
        choices, here = _tree_choices(tree)
        if not choices:
            self._view.show(Notice("There is nothing to go back to yet", "warning"))
            return
        chosen = await self._view.ask(ChoiceQuestion("Go to which point?", choices, search=True, chosen=here))
        if chosen is None or chosen == here:
            return
        gone = await self._conversation.navigate_tree(chosen)
        if not gone.cancelled:
            await self._show_session("")
            self._view.set_input(value_or_default(gone.text, ""))

    async def rename(self, rest: str) -> None:
        if not rest:
            self._view.show(Notice(f"Its name: {self._facts.session or 'none yet. Set it with /name NAME'}"))
            return
        await self._conversation.set_session_name(rest)
        await self._update_facts()
        self._view.show(Notice(f"Named: {rest}", "faint"))

    async def export(self, rest: str) -> None:
        exported = await self._conversation.export_html(output_path=rest or None)
        self._view.show(Notice(f"Written to {exported.path}"))

    async def show_recent_messages(self, on_open: Callable[[ToolCall], None] | None = None) -> bool:
        """Show the last messages of the conversation, as `recent_blocks_of` does; returns whether there are any."""
        messages = (await self._conversation.get_messages()).messages
        for block in recent_blocks_of(messages, on_open):
            self._view.show(block)
        return bool(messages)

    async def _show_session(self, notice: str) -> None:
        self._view.clear()
        if notice:
            self._view.show(Notice(notice, "faint"))
        await self.show_recent_messages()
        await self._update_facts()


def _title_of(row: SessionRow) -> str:
    return value_or_default(row.name, "") or value_or_default(row.first_message, "") or row.id


def _time_of(row: SessionRow) -> str:
    return row.modified[:16].replace("T", " ")


def _to_one_line(text: str) -> str:
    line = " ".join(text[: LONGEST_ROW * 4].split())
    return line if len(line) <= LONGEST_ROW else line[: LONGEST_ROW - 1] + "…"


def _tree_choices(tree: Tree) -> tuple[list[Choice], str]:
    """Messages, summaries and labels in the order of the tree, and the current one.

    A branch is indented where it leaves its siblings.
    """
    rows: list[tuple[TreeNode, str]] = []
    parents: dict[str, str | None] = {}
    waiting: list[tuple[TreeNode, int]] = [(node, 0) for node in reversed(tree.tree)]
    while waiting:
        node, depth = waiting.pop()
        parents[node.entry.id] = node.entry.parent_id
        if text := _entry_text(node):
            rows.append((node, f"{'  ' * min(depth, DEEPEST)}{_to_one_line(text)}"))
        deeper = depth + (len(node.children) > 1)
        waiting += [(child, deeper) for child in reversed(node.children)]
    listed = {node.entry.id for node, _ in rows}
    here = tree.leaf_id
    while here is not None and here not in listed:
        here = parents.get(here)
    marks = {node.entry.id: value_or_default(node.label, "") for node, _ in rows}
    if here is not None:
        marks[here] = ", ".join(mark for mark in (marks[here], "you are here") if mark)
    return [Choice(node.entry.id, text, hint=marks[node.entry.id]) for node, text in rows], here or ""


def _entry_text(node: TreeNode) -> str:
    entry = node.entry
    if isinstance(entry, MessageEntry):
        message = entry.message
        if isinstance(message, UserMessage):
            return f"you: {text_of(message.content)}"
        if isinstance(message, AssistantMessage):
            return text_of(message.content)
    if isinstance(entry, CompactionEntry):
        return "compacted here"
    if isinstance(entry, BranchSummaryEntry):
        return "summary of another branch"
    return ""
