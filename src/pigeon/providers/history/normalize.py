"""History in a form that the next model accepts, whichever model wrote it.

Every adapter gets its messages through here (`history/cache` calls it per chunk). Thinking of another model becomes
plain text and its signatures go; call ids are rewritten to what the API takes, and no two calls share one; names that
no API takes are rewritten too; every call has exactly one result right behind it; failed answers stay out; and there is
always something to answer. At the end stand the texts for tool results without text, which adapters share.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from pigeon.agent.inference import ModelMessage
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import (
    AssistantBlock,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    UserBlock,
    has_images,
)
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage
from pigeon.wire.model import Model

NO_RESULT = "No result provided"
USER_IMAGE = "[An image was attached here; this model cannot see images]"
TOOL_IMAGE = "[The tool returned an image; this model cannot see images]"
EMPTY_MESSAGE = "(empty message)"
UNNAMED_TOOL = "unknown"
MAX_NAME_CHARS = 64

CallIdForm = Callable[[str], str]  # any text as a call id that the API takes
_is_legal = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_CHARS}}}").fullmatch
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


def normalized(messages: list[ModelMessage], model: Model, ids: CallIds) -> list[ModelMessage]:
    """The messages as the model may get them; the given ones are not changed."""
    sees_images = "image" in model.input
    out: list[ModelMessage] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if isinstance(message, UserMessage):
            out.append(_user(message, sees_images))
        elif isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
            end = _turn_end(messages, at)
            out.extend(_turn(message, messages[at:end], model, ids))
            at = end
    if not sees_images:
        out = [
            _without_result_images(message) if isinstance(message, ToolResultMessage) else message for message in out
        ]
    _fill_blank_turns(out)
    return out


def becomes_items(message: ModelMessage) -> bool:
    """True for an answer that becomes at least one item in every API."""
    if not isinstance(message, AssistantMessage) or message.stop_reason in ("error", "aborted"):
        return False
    return any(
        isinstance(block, ToolCall) or (isinstance(block, TextContent) and bool(block.text.strip()))
        for block in message.content
    )


def _fill_blank_turns(messages: list[ModelMessage]) -> None:
    """Give a text to a blank message of the user where the model would otherwise have nothing to answer.

    Adapters leave blank messages out. Between two answers, or at the end, something must be left.
    """
    blank: int | None = None
    said = False
    for at, message in enumerate(messages):
        if becomes_items(message):
            _fill(messages, None if said else blank)
            blank, said = None, False
        elif isinstance(message, UserMessage) and _is_blank(message):
            blank = at
        elif not isinstance(message, AssistantMessage):
            said = True
    _fill(messages, None if said else blank)


def _fill(messages: list[ModelMessage], at: int | None) -> None:
    if at is not None:
        messages[at] = UserMessage(content=EMPTY_MESSAGE, timestamp=messages[at].timestamp)


def _is_blank(message: UserMessage) -> bool:
    content = message.content
    if isinstance(content, str):
        return not content or content.isspace()
    return all(isinstance(block, TextContent) and (not block.text or block.text.isspace()) for block in content)


def _turn_end(messages: list[ModelMessage], at: int) -> int:
    """Where the next answer begins: results may come late, behind a user's interjection."""
    while at < len(messages) and not isinstance(messages[at], AssistantMessage):
        at += 1
    return at


def _turn(answer: AssistantMessage, following: list[ModelMessage], model: Model, ids: CallIds) -> list[ModelMessage]:
    same = is_same_model(answer, model)
    renamed: dict[str, str] = {}
    blocks = [block for block in (_block(block, same, ids, renamed) for block in answer.content) if block is not None]
    results: dict[str, ToolResultMessage] = {}
    rest: list[ModelMessage] = []
    sees_images = "image" in model.input
    for message in following:
        if isinstance(message, UserMessage):
            rest.append(_user(message, sees_images))
        elif isinstance(message, ToolResultMessage) and message.tool_call_id in renamed:
            results.setdefault(message.tool_call_id, message)
    paired: list[ModelMessage] = [
        _renamed(results[old], new) if old in results else _missing_result(call, answer.timestamp)
        for (old, new), call in zip(renamed.items(), _calls(blocks), strict=True)
    ]
    unchanged = len(blocks) == len(answer.content) and all(map(operator.is_, blocks, answer.content))
    return [answer if unchanged else _with_blocks(answer, blocks), *paired, *rest]


def is_same_model(message: AssistantMessage, model: Model) -> bool:
    """True if the answer came from exactly this model."""
    return (message.provider, message.api, message.model) == (model.provider, model.api, model.id)


def has_tool_traffic(messages: list[ModelMessage]) -> bool:
    """True if the history has a call that is sent."""
    return any(
        isinstance(message, AssistantMessage)
        and message.stop_reason not in ("error", "aborted")
        and bool(_calls(message.content))
        for message in messages
    )


def _block(block: AssistantBlock, same: bool, ids: CallIds, renamed: dict[str, str]) -> AssistantBlock | None:
    if isinstance(block, ThinkingContent):
        return _thinking(block, same)
    if isinstance(block, TextContent):
        return block if same or isinstance(block.text_signature, Absent) else TextContent(text=block.text)
    if block.id in renamed:
        return None
    new = ids.new(block.id, same)
    renamed[block.id] = new
    name = tool_name(block.name)
    if same and new == block.id and name is block.name:
        return block
    signature = block.thought_signature if same else ABSENT
    return ToolCall(id=new, name=name, arguments=block.arguments, thought_signature=signature)


def tool_name(name: str) -> str:
    """The very same name if every API takes it; else one that they take, for a tool that a model made up."""
    return name if _is_legal(name) else _ILLEGAL.sub("_", name)[:MAX_NAME_CHARS] or UNNAMED_TOOL


def _thinking(block: ThinkingContent, same: bool) -> AssistantBlock | None:
    if block.redacted is True:
        return block if same else None
    if same and not isinstance(block.thinking_signature, Absent) and block.thinking_signature:
        return block
    if not block.thinking.strip():
        return None
    return block if same else TextContent(text=block.thinking)


class CallIds:
    """New ids for calls; the same history always gets the same ones, so that caches hold."""

    def __init__(self, call_id_form: CallIdForm) -> None:
        self._form = call_id_form
        self._used: set[str] = set()
        self._fresh: list[str] = []

    def taken(self) -> list[str]:
        """The keys of the ids that were given since the last call of this."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def give_back(self, keys: list[str]) -> None:
        """Free these ids: their calls are dropped from the cache and will be converted again."""
        self._used.difference_update(keys)

    def new(self, old: str, same: bool) -> str:
        """An id that no other call has; of the same model, the old one if it is free."""
        candidate = old if same and old else self._form(old or "call")
        number = 2
        while self._key(candidate) in self._used:
            candidate = self._form(f"{number}_{old}")
            number += 1
        key = self._key(candidate)
        self._used.add(key)
        self._fresh.append(key)
        return candidate

    @staticmethod
    def _key(candidate: str) -> str:
        # The Responses API has ids of two halves, `call|item`; the first one is what calls and results share.
        return candidate.split("|", maxsplit=1)[0]


def _calls(blocks: list[AssistantBlock]) -> list[ToolCall]:
    return [block for block in blocks if isinstance(block, ToolCall)]


def _with_blocks(answer: AssistantMessage, blocks: list[AssistantBlock]) -> AssistantMessage:
    return AssistantMessage(
        content=blocks,
        api=answer.api,
        provider=answer.provider,
        model=answer.model,
        usage=answer.usage,
        stop_reason=answer.stop_reason,
        timestamp=answer.timestamp,
    )


def _renamed(result: ToolResultMessage, call_id: str) -> ToolResultMessage:
    name = tool_name(result.tool_name)
    if result.tool_call_id == call_id and name is result.tool_name:
        return result
    return ToolResultMessage(
        tool_call_id=call_id,
        tool_name=name,
        content=result.content,
        is_error=result.is_error,
        timestamp=result.timestamp,
    )


def _missing_result(call: ToolCall, timestamp: int) -> ToolResultMessage:
    return ToolResultMessage(
        tool_call_id=call.id,
        tool_name=call.name,
        content=[TextContent(text=NO_RESULT)],
        is_error=True,
        timestamp=timestamp,
    )


def _user(message: UserMessage, sees_images: bool) -> UserMessage:
    if sees_images or isinstance(message.content, str) or not has_images(message.content):
        return message
    return UserMessage(content=_with_image_notes(message.content, USER_IMAGE), timestamp=message.timestamp)


def _without_result_images(result: ToolResultMessage) -> ToolResultMessage:
    if not has_images(result.content):
        return result
    return ToolResultMessage(
        tool_call_id=result.tool_call_id,
        tool_name=result.tool_name,
        content=_with_image_notes(result.content, TOOL_IMAGE),
        is_error=result.is_error,
        timestamp=result.timestamp,
    )


def _with_image_notes(blocks: list[UserBlock], note: str) -> list[UserBlock]:
    out: list[UserBlock] = []
    for block in blocks:
        shown = TextContent(text=note) if isinstance(block, ImageContent) else block
        if isinstance(block, ImageContent) and out and isinstance(out[-1], TextContent) and out[-1].text == note:
            continue
        out.append(shown)
    return out


NO_OUTPUT = "(no output)"
IMAGE_NOTE = "(see attached image)"
IMAGES_LEAD = "Images returned by the tools above:"


def not_blank(blocks: list[UserBlock]) -> list[UserBlock]:
    """The images, and the texts that are not blank: no API takes an empty text."""
    return [block for block in blocks if isinstance(block, ImageContent) or block.text.strip()]


def result_text(blocks: list[UserBlock]) -> str:
    """The texts of a tool result, each on lines of its own."""
    return "\n".join(block.text for block in blocks if isinstance(block, TextContent) and block.text)
