"""From the journal to what the model sees: pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from pigeon.wire.base import Absent
from pigeon.wire.content import TextContent, UserBlock
from pigeon.wire.entries import Entry, MessageEntry
from pigeon.wire.inference import ModelMessage
from pigeon.wire.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    ToolResultMessage,
    UserMessage,
)

COMPACTED = "The conversation up to this point was compacted. This is the summary of what came before:"
CAME_BACK = "The conversation returned here from another branch. This is the summary of that branch:"


def context_of(branch: Iterable[Entry]) -> list[Message]:
    """The messages on the path, oldest first."""
    return [entry.message for entry in branch if isinstance(entry, MessageEntry)]


def model_messages(messages: Iterable[Message]) -> list[ModelMessage]:
    """The same conversation in the three roles that models know."""
    converted: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, (UserMessage, AssistantMessage, ToolResultMessage)):
            converted.append(message)
        elif isinstance(message, BashExecutionMessage):
            if message.exclude_from_context is not True:
                converted.append(_said([TextContent(text=bash_text(message))], message.timestamp))
        elif isinstance(message, CustomMessage):
            content = message.content
            converted.append(
                _said([TextContent(text=content)] if isinstance(content, str) else content, message.timestamp)
            )
        elif isinstance(message, CompactionSummaryMessage):
            converted.append(_summary(COMPACTED, message.summary, message.timestamp))
        else:
            assert isinstance(message, BranchSummaryMessage)
            converted.append(_summary(CAME_BACK, message.summary, message.timestamp))
    return converted


def bash_text(message: BashExecutionMessage) -> str:
    """A shell command and its output as the model reads them."""
    shown = f"```\n{message.output}\n```" if message.output else "(no output)"
    text = f"Ran `{message.command}`\n{shown}"
    if message.cancelled:
        text += "\n\n(command cancelled)"
    elif not isinstance(message.exit_code, Absent) and message.exit_code != 0:
        text += f"\n\nCommand exited with code {message.exit_code}"
    if message.truncated and not isinstance(message.full_output_path, Absent):
        text += f"\n\n[Output truncated. Full output: {message.full_output_path}]"
    return text


def _said(content: list[UserBlock], timestamp: int) -> UserMessage:
    return UserMessage(content=content, timestamp=timestamp)


def _summary(lead: str, summary: str, timestamp: int) -> UserMessage:
    return _said([TextContent(text=f"{lead}\n\n<summary>\n{summary}\n</summary>")], timestamp)
