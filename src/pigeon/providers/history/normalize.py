"""History in a form that the next model accepts, whichever model wrote it.

Every adapter gets its messages through here (`history/cache` calls it per chunk). Content that a provider refuses would
fail every later request too, so none of it may pass. Thinking of another model is removed, with its signatures; call
ids are rewritten to what the API accepts, and no two calls share one; names that no API accepts are rewritten too;
every call has exactly one result right behind it, and a result is never empty; images that no API reads become words;
failed and blank answers are left out; the first message is the user's, and there is always something to answer. At the
end of the module are the texts for tool results without text, which adapters share. `tests/fakes/api_rules.py` has the
rules of each API.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable

from pigeon.agent.inference import ModelMessage
from pigeon.providers.catalog.built_in import to_current_provider_name
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import (
    AssistantBlock,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    UserBlock,
)
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage
from pigeon.wire.model import Model

NO_RESULT = "No result provided"
USER_IMAGE = "[An image was attached here; this model cannot see images]"
TOOL_IMAGE = "[The tool returned an image; this model cannot see images]"
BAD_IMAGE = "[An image was here in a form that models do not read]"
EMPTY_MESSAGE = "(empty message)"
CONTINUE = "(go on)"
NO_OUTPUT = "(no output)"
READABLE_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
UNNAMED_TOOL = "unknown"
MAX_NAME_CHARS = 64

_OTHER_NAMES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
# Converts any text to a call id that the API accepts; the flag tells whether it comes from the requested model itself.
CallIdForm = Callable[[str, bool], str]
_is_legal = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{MAX_NAME_CHARS - 1}}}").fullmatch
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


# The same objects each time, because the cache compares messages by identity.
_OPENING = UserMessage(content=EMPTY_MESSAGE, timestamp=0)
_CLOSING = UserMessage(content=CONTINUE, timestamp=0)


def frame_with_user_turns(messages: list[ModelMessage]) -> list[ModelMessage]:
    """The messages with a user message before the first answer and after the last, where there is none."""
    before = itertools.takewhile(lambda message: not is_sent_as_item(message), messages)
    if not any(isinstance(message, UserMessage) for message in before):
        messages = [_OPENING, *messages]
    for message in reversed(messages):
        if isinstance(message, UserMessage) or _has_sent_call(message):
            break
        if is_sent_as_item(message):
            return [*messages, _CLOSING]
    return messages


def normalize_messages(messages: list[ModelMessage], model: Model, ids: CallIds) -> list[ModelMessage]:
    """The messages as the model may receive them; the given ones are not changed."""
    sees_images = "image" in model.input
    out: list[ModelMessage] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if isinstance(message, UserMessage):
            out.append(_normalize_user(message, sees_images))
        elif isinstance(message, AssistantMessage) and is_sent_as_item(message):
            end = _find_turn_end(messages, at)
            out.extend(_normalize_turn(message, messages[at:end], model, ids))
            at = end
    _fill_blank_turns(out)
    return out


def is_sent_as_item(message: ModelMessage) -> bool:
    """True for an answer that becomes at least one item in every API."""
    if not isinstance(message, AssistantMessage) or message.stop_reason in ("error", "aborted"):
        return False
    # Called several times for each message of a long history: no generator, and no copy of a long text.
    for block in message.content:
        if isinstance(block, ToolCall):
            return True
        if isinstance(block, TextContent) and block.text and not block.text.isspace():
            return True
    return False


def _fill_blank_turns(messages: list[ModelMessage]) -> None:
    """Fill in a blank message of the user if the model would otherwise have nothing to answer.

    Adapters leave blank messages out. Between two answers, or at the end, something must be left.
    """
    blank: int | None = None
    said = False
    for at, message in enumerate(messages):
        if is_sent_as_item(message):
            _fill_blank_turn(messages, None if said else blank)
            blank, said = None, False
        elif isinstance(message, UserMessage) and _is_blank(message):
            blank = at
        elif not isinstance(message, AssistantMessage):
            said = True
    _fill_blank_turn(messages, None if said else blank)


def _fill_blank_turn(messages: list[ModelMessage], at: int | None) -> None:
    if at is not None:
        messages[at] = UserMessage(content=EMPTY_MESSAGE, timestamp=messages[at].timestamp)


def _is_blank(message: UserMessage) -> bool:
    content = message.content
    if isinstance(content, str):
        return not content or content.isspace()
    return all(isinstance(block, TextContent) and (not block.text or block.text.isspace()) for block in content)


def _find_turn_end(messages: list[ModelMessage], at: int) -> int:
    """The start of the next answer: results may come late, behind an interjection or an omitted answer."""
    while at < len(messages) and not is_sent_as_item(messages[at]):
        at += 1
    return at


def _normalize_turn(
    answer: AssistantMessage, following: list[ModelMessage], model: Model, ids: CallIds
) -> list[ModelMessage]:
    same = is_same_model(answer, model)
    renamed: dict[str, str] = {}
    blocks = [
        block
        for block in (_normalize_block(block, same, ids, renamed) for block in answer.content)
        if block is not None
    ]
    results: dict[str, ToolResultMessage] = {}
    rest: list[ModelMessage] = []
    sees_images = "image" in model.input
    for message in following:
        if isinstance(message, UserMessage):
            rest.append(_normalize_user(message, sees_images))
        elif isinstance(message, ToolResultMessage) and message.tool_call_id in renamed:
            results.setdefault(message.tool_call_id, message)
    paired: list[ModelMessage] = [
        _normalize_result(results[old], call, sees_images)
        if old in results
        else _make_missing_result(call, answer.timestamp)
        for old, call in zip(renamed, _calls(blocks), strict=True)
    ]
    unchanged = len(blocks) == len(answer.content) and all(map(operator.is_, blocks, answer.content))
    return [answer if unchanged else _with_blocks(answer, blocks), *paired, *rest]


def is_same_model(message: AssistantMessage, model: Model) -> bool:
    """True if the answer came from exactly this model."""
    if (message.api, message.model) != (model.api, model.id):
        return False
    return message.provider == model.provider or to_current_provider_name(message.provider) == model.provider


def has_sent_tool_calls(messages: list[ModelMessage]) -> bool:
    """True if the history has a call that is sent."""
    return any(_has_sent_call(message) for message in messages)


def _has_sent_call(message: ModelMessage) -> bool:
    if not isinstance(message, AssistantMessage) or message.stop_reason in ("error", "aborted"):
        return False
    return bool(_calls(message.content))


def _normalize_block(block: AssistantBlock, same: bool, ids: CallIds, renamed: dict[str, str]) -> AssistantBlock | None:
    if isinstance(block, ThinkingContent):
        return _normalize_thinking(block, same)
    if isinstance(block, TextContent):
        return block if same or isinstance(block.text_signature, Absent) else TextContent(text=block.text)
    if block.id in renamed:
        return None
    new = ids.assign_id(block.id, same)
    renamed[block.id] = new
    name = to_valid_tool_name(block.name)
    if same and new == block.id and name is block.name:
        return block
    signature = block.thought_signature if same else ABSENT
    return ToolCall(id=new, name=name, arguments=block.arguments, thought_signature=signature)


def to_valid_tool_name(name: str) -> str:
    """The same name if every API accepts it; else a valid one, for a tool that a model made up."""
    if _is_legal(name):
        return name
    legal = _ILLEGAL.sub("_", name) or UNNAMED_TOOL
    return (legal if _is_legal(legal[0]) else f"_{legal}")[:MAX_NAME_CHARS]


def _normalize_thinking(block: ThinkingContent, same: bool) -> ThinkingContent | None:
    """Thoughts of another model are left out: as text, the next model would read them as part of the conversation."""
    if not same:
        return None
    signed = not isinstance(block.thinking_signature, Absent) and bool(block.thinking_signature)
    return block if signed or block.redacted is True or block.thinking.strip() else None


class CallIds:
    """New ids for calls; the same history always gets the same ids, so that caches stay valid."""

    def __init__(self, call_id_form: CallIdForm) -> None:
        self._form = call_id_form
        self._used: set[str] = set()
        self._fresh: list[str] = []

    def pop_new_keys(self) -> list[str]:
        """Returns the keys of the ids that were assigned since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def release_keys(self, keys: list[str]) -> None:
        """Free these ids: their calls are dropped from the cache and will be converted again."""
        self._used.difference_update(keys)

    def assign_id(self, old: str, same: bool) -> str:
        """An id that no other call has; for the same model, the old id if it is free and valid for the API."""
        candidate = self._form(old or "call", same)
        number = 2
        while self._key_of(candidate) in self._used:
            candidate = self._form(f"{number}_{old}", False)
            number += 1
        key = self._key_of(candidate)
        self._used.add(key)
        self._fresh.append(key)
        return candidate

    @staticmethod
    def _key_of(candidate: str) -> str:
        # The Responses API has ids of two halves, `call|item`; calls and results share the first one.
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


def _normalize_result(result: ToolResultMessage, call: ToolCall, sees_images: bool) -> ToolResultMessage:
    content = _normalize_result_blocks(result.content, TOOL_IMAGE, sees_images)
    if content is result.content and result.tool_call_id == call.id and result.tool_name == call.name:
        return result
    return ToolResultMessage(
        tool_call_id=call.id,
        tool_name=call.name,
        content=content,
        is_error=result.is_error,
        timestamp=result.timestamp,
    )


def _normalize_result_blocks(blocks: list[UserBlock], note: str, sees_images: bool) -> list[UserBlock]:
    """A result is never blank: several APIs refuse that."""
    shown = _with_image_notes(blocks, note, sees_images)
    if all(isinstance(block, ImageContent) or (block.text and not block.text.isspace()) for block in shown) and shown:
        return shown
    return without_blank_texts(shown) or [TextContent(text=NO_OUTPUT)]


def _make_missing_result(call: ToolCall, timestamp: int) -> ToolResultMessage:
    return ToolResultMessage(
        tool_call_id=call.id,
        tool_name=call.name,
        content=[TextContent(text=NO_RESULT)],
        is_error=True,
        timestamp=timestamp,
    )


def _normalize_user(message: UserMessage, sees_images: bool) -> UserMessage:
    if isinstance(message.content, str):
        return message
    content = _with_image_notes(message.content, USER_IMAGE, sees_images)
    return message if content is message.content else UserMessage(content=content, timestamp=message.timestamp)


def _with_image_notes(blocks: list[UserBlock], unseen: str, sees_images: bool) -> list[UserBlock]:
    """The same blocks if the model accepts every image; else with a note for each group of unseen images."""
    if all(isinstance(block, TextContent) or (sees_images and _is_readable(block)) for block in blocks):
        return blocks
    out: list[UserBlock] = []
    for block in blocks:
        if isinstance(block, TextContent) or (sees_images and _is_readable(block)):
            out.append(block)
            continue
        if sees_images and block.mime_type in _OTHER_NAMES and block.data:
            out.append(ImageContent(data=block.data, mime_type=_OTHER_NAMES[block.mime_type]))
            continue
        note = BAD_IMAGE if sees_images else unseen
        last = out[-1] if out else None
        if not (isinstance(last, TextContent) and last.text == note):
            out.append(TextContent(text=note))
    return out


def _is_readable(image: ImageContent) -> bool:
    return image.mime_type in READABLE_IMAGES and bool(image.data)


IMAGE_NOTE = "(see attached image)"
IMAGES_LEAD = "Images returned by the tools above:"


def without_blank_texts(blocks: list[UserBlock]) -> list[UserBlock]:
    """The images, and the texts that are not blank: no API accepts an empty text."""
    return [block for block in blocks if isinstance(block, ImageContent) or block.text.strip()]


def result_text(blocks: list[UserBlock]) -> str:
    """The texts of a tool result, each on lines of its own."""
    return "\n".join(block.text for block in blocks if isinstance(block, TextContent) and block.text)
