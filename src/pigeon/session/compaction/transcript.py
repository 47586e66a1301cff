"""A conversation as plain text, for whoever has to summarise it, and the files it touched."""

from __future__ import annotations

from collections.abc import Iterable

from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.content import TextContent, ThinkingContent, ToolCall, text_of
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

MOST_OF_A_RESULT = 2000


def paragraphs_of(message: Message) -> list[str]:
    """What one message says, one paragraph per kind of content."""
    if isinstance(message, AssistantMessage):
        return _answer(message)
    if isinstance(message, ToolResultMessage):
        return [f"[Tool result]: {_shortened(text_of(message.content))}"]
    if isinstance(message, BashExecutionMessage):
        return [f"[User ran]: {message.command}\n{_shortened(message.output)}"]
    if isinstance(message, (BranchSummaryMessage, CompactionSummaryMessage)):
        return [f"[Earlier summary]: {message.summary}"]
    assert isinstance(message, (UserMessage, CustomMessage))
    return [f"[User]: {text_of(message.content)}"]


def _answer(message: AssistantMessage) -> list[str]:
    thinking = "\n".join(block.thinking for block in message.content if isinstance(block, ThinkingContent))
    text = "\n".join(block.text for block in message.content if isinstance(block, TextContent))
    calls = "; ".join(_call(block) for block in message.content if isinstance(block, ToolCall))
    labelled = (("[Assistant thinking]", thinking), ("[Assistant]", text), ("[Assistant tool calls]", calls))
    return [f"{label}: {said}" for label, said in labelled if said]


def _call(call: ToolCall) -> str:
    arguments = ", ".join(f"{key}={codec.encode(value).decode()}" for key, value in call.arguments.items())
    return f"{call.name}({arguments})"


def _shortened(text: str) -> str:
    if len(text) <= MOST_OF_A_RESULT:
        return text
    return f"{text[:MOST_OF_A_RESULT]}\n[... {len(text) - MOST_OF_A_RESULT} more characters]"


class TouchedFiles:
    """Files that were read and files that were changed."""

    def __init__(self, earlier: Json = None) -> None:
        known = earlier if isinstance(earlier, dict) else {}
        self._read = {path for path in known.get("readFiles", []) if isinstance(path, str)}
        self._modified = {path for path in known.get("modifiedFiles", []) if isinstance(path, str)}

    def note(self, messages: Iterable[Message]) -> None:
        """Take in the tool calls of these messages."""
        for message in messages:
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, ToolCall):
                        self._note(block)

    def _note(self, call: ToolCall) -> None:
        path = call.arguments.get("path")
        if isinstance(path, str):
            if call.name == "read":
                self._read.add(path)
            elif call.name in ("write", "edit"):
                self._modified.add(path)

    def details(self) -> dict[str, list[str]]:
        """Both lists, sorted; a file that was changed counts as changed only."""
        return {"readFiles": sorted(self._read - self._modified), "modifiedFiles": sorted(self._modified)}

    def appendix(self) -> str:
        """The lists as they stand at the end of a summary."""
        lists = self.details()
        blocks = [("read-files", lists["readFiles"]), ("modified-files", lists["modifiedFiles"])]
        return "".join(f"\n\n<{tag}>\n" + "\n".join(paths) + f"\n</{tag}>" for tag, paths in blocks if paths)
