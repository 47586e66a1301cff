"""How a started agent ended, and what the call that has waited for it returns."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from pigeon.system.shell.truncation import MAX_BYTES, OutputLimits, truncate_to_head
from pigeon.wire import codec
from pigeon.wire.agents import AgentInfo, AgentStatus
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.content import TextContent
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome

# Room for the lines below the answer.
LARGEST_ANSWER = OutputLimits(lines=1 << 40, bytes=MAX_BYTES - 2048)
MOST_FILES = 20
WHY: dict[AgentStatus, str] = {
    "error": "The agent failed",
    "limit": "The agent was stopped by a limit",
    "aborted": "The agent was stopped",
    "denied": "The agent ended because its tool calls were not allowed",
}


class Worktree(Struct, frozen=True):
    """Where an agent worked that had a copy of the repository: the folder, or None once it is removed, and the branch
    with its changes, or None if there are none."""

    folder: str | None
    branch: str | None


class AgentOutcome(Struct, frozen=True, kw_only=True):
    """How an agent ended: its last answer or its output, and otherwise the reason."""

    info: AgentInfo
    answer: str = ""
    output: Json | Absent = ABSENT
    reason: str = ""
    changed_files: tuple[str, ...] = ()
    worktree: Worktree | None = None

    def to_details(self) -> dict[str, Any]:
        """The details of the call's result."""
        info = self.info
        details: dict[str, Any] = {
            "agentId": info.agent_id,
            "agent": info.agent,
            "sessionId": info.session_id,
            "sessionFile": None if isinstance(info.session_file, Absent) else info.session_file,
            "usage": codec.to_plain(info.usage),
            "ended": info.status,
            "changedFiles": list(self.changed_files),
        }
        if not isinstance(self.output, Absent):
            details["output"] = self.output
        if self.worktree is not None and self.worktree.branch is not None:
            details["branch"] = self.worktree.branch
        if self.worktree is not None and self.worktree.folder is not None:
            details["worktree"] = self.worktree.folder
        return details

    def to_text(self) -> str:
        """What the model reads: the answer, or the reason for its absence, and what can be done with the agent."""
        given = self.answer if isinstance(self.output, Absent) else codec.encode(self.output).decode()
        shown = truncate_to_head(given, LARGEST_ANSWER)
        parts = [shown.text or ("" if self.reason else "(no answer)")]
        if shown.is_truncated:
            parts.append("[The answer is cut here. The session of the agent has all of it.]")
        if self.reason:
            answer = "\n".join(part for part in parts if part)
            parts = [self.reason, f"Its last words:\n{answer}" if answer else ""]
        parts.append(self._describe_agent())
        return "\n\n".join(part for part in parts if part)

    def _describe_agent(self) -> str:
        info, files = self.info, self.changed_files
        lines = [f"Agent: {info.agent}, id {info.agent_id}"]
        if files:
            more = f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else ""
            lines.append(f"Changed files: {', '.join(files[:MOST_FILES])}{more}")
        if self.worktree is not None:
            branch = self.worktree.branch
            lines.append(
                f"Its changes are on the branch {branch}; they are not merged." if branch else "It changed no file."
            )
        return "\n".join(lines)

    def to_outcome(self) -> ToolOutcome:
        """The result of the call; raises `ToolFailed` unless the agent has done what it should."""
        if self.info.status != "done":
            raise ToolFailed(self.to_text(), self.to_details(), self.info.usage)
        return ToolOutcome(content=[TextContent(text=self.to_text())], details=self.to_details(), usage=self.info.usage)


def make_reason(status: AgentStatus, detail: str = "") -> str:
    """The sentence about an agent that did not end as it should; empty for one that did."""
    lead = WHY.get(status, "")
    return f"{lead}: {detail}" if lead and detail else f"{lead}." if lead else ""
