"""The values that handlers may return: small records, each for the events that name it in `returns`. None means:
continue.

`pigeon.extensions` exports every record that is defined here. Values of an extension are checked and copied by
`validate_record` and `to_plain_json` before the session sees it: right types, plain JSON, no cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from msgspec import Struct

from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.content import ImageContent, TextContent, UserBlock
from pigeon.wire.errors import BadRecord
from pigeon.wire.messages import Message
from pigeon.wire.model import Usage

_R = TypeVar("_R", bound=Struct)
Placement = Literal["aboveEditor", "belowEditor"]


@dataclass(frozen=True, slots=True)
class Block:
    """`tool_call`, `user_bash`: do not run it; the model or the host gets the reason."""

    reason: str = "Blocked by an extension"
    terminate: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """`session_before_switch`, `_fork`, `_compact`: leave everything as it is."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Handled:
    """`input`: the extension handled it; nothing goes to the model."""


@dataclass(frozen=True, slots=True)
class Transform:
    """`input`: continue with this text, and with these images if they are given."""

    text: str
    images: Sequence[ImageContent] | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A message of an extension that the model reads; `display` decides whether people see it."""

    content: str | list[UserBlock]
    custom_type: str = "note"
    display: bool = True
    details: Json = None


@dataclass(frozen=True, slots=True)
class Begin:
    """`before_agent_start`: add a message beside the prompt, or use another system prompt for this run."""

    note: Note | str | None = None
    system_prompt: str | None = None


@dataclass(frozen=True, slots=True)
class GoOn:
    """`agent_before_settle`: do not stop yet; the note starts one more run."""

    note: Note | str


@dataclass(frozen=True, slots=True)
class Replace:
    """`message_end`, `before_provider_request`: use this message or this payload instead."""

    value: Any


@dataclass(frozen=True, slots=True)
class Messages:
    """`context`: send these messages with this one request."""

    messages: list[Message]


@dataclass(frozen=True, slots=True)
class Override:
    """`tool_result`: replace the given members, keep the rest."""

    content: str | list[UserBlock] | None = None
    details: Any = ABSENT
    is_error: bool | None = None
    usage: Usage | Absent = ABSENT


@dataclass(frozen=True, slots=True)
class Summary:
    """`session_before_compact`: use this summary instead of asking a model."""

    summary: str
    first_kept_entry_id: str | None = None
    tokens_before: int | None = None
    details: Json = None


@dataclass(frozen=True, slots=True)
class BashOutput:
    """`user_bash`: use this result; the command does not run."""

    output: str
    exit_code: int | None = 0


@dataclass(frozen=True, slots=True)
class Trust:
    """`project_trust`: yes or no; the first answer counts."""

    trusted: bool
    remember: bool = False


@dataclass(frozen=True, slots=True)
class Resources:
    """`resources_discover`: further files and folders."""

    skills: Sequence[str] = ()
    prompts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The result of a tool: text for the model, details for the host."""

    text: str = ""
    details: Any = ABSENT
    images: Sequence[ImageContent] = field(default=())
    terminate: bool = False

    def content(self) -> list[UserBlock]:
        """The text and the images as content blocks."""
        blocks: list[UserBlock] = [TextContent(text=self.text)] if self.text or not self.images else []
        return [*blocks, *self.images]


def to_plain_json(value: Any, what: str) -> Any:
    """A copy of the value as plain JSON; raises `TypeError` with `what` if that is impossible."""
    try:
        return codec.decode(codec.encode(value))
    except (TypeError, ValueError, RecursionError, BadRecord) as error:
        raise TypeError(f"{what} cannot be written as JSON: {error}") from None


def validate_record(record: _R) -> _R:
    """The record with every field checked and converted to its type; raises `TypeError` that names a wrong field."""
    kind = type(record)
    what = kind.__name__
    try:
        return codec.convert(to_plain_json(record, what), kind)
    except BadRecord as error:
        raise TypeError(f"{what}: {error}") from None
