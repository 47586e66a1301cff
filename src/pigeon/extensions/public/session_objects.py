"""The session in an extension's hands: the conversation, the tools, the models. Every call may come from any thread."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any, Literal

from pigeon.extensions.public.results import Note, to_plain_json, validate_record
from pigeon.extensions.runtime.session_access import SessionAccess
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.content import UserBlock
from pigeon.wire.messages import CustomMessage, Message, UserMessage
from pigeon.wire.model import LEVELS, Model, ThinkingLevel

if TYPE_CHECKING:
    from pigeon.extensions.adapters.session_port import SessionFacts, SessionPort
    from pigeon.session.prompting import DeliverAs


def to_custom_message(note: Note | str) -> CustomMessage:
    """A note as a message of the conversation; raises `TypeError` for an invalid one."""
    if isinstance(note, str):
        note = Note(note)
    message = CustomMessage(
        custom_type=note.custom_type,
        content=note.content,
        display=note.display,
        details=ABSENT if note.details is None else note.details,
        timestamp=time.time_ns() // 1_000_000,
    )
    return validate_record(message)


class ConversationHandle:
    """The conversation: read it, add to it."""

    def __init__(self, access: SessionAccess) -> None:
        self._access = access

    @property
    def id(self) -> str:
        """The id of the session in this conversation."""
        return self._facts().session_id

    @property
    def file(self) -> str | None:
        """The path of the session file, or None if the session is not saved."""
        return self._facts().file

    @property
    def name(self) -> str | None:
        """The display name of the session; None if it has none."""
        return self._facts().name

    @property
    def leaf_id(self) -> str | None:
        """The id of the last entry of the active branch."""
        return self._facts().leaf_id

    def entries(self) -> list[dict[str, Json]]:
        """All entries, as in the session file."""
        return self._access.call(None, lambda port: port.conversation.entries(False))

    def branch(self) -> list[dict[str, Json]]:
        """The entries of the active branch, oldest first."""
        return self._access.call(None, lambda port: port.conversation.entries(True))

    def messages(self) -> list[Message]:
        """A copy of the messages that the model would see now."""
        return copy.deepcopy(self._access.call(None, lambda port: list(port.conversation.messages())))

    def send(self, note: Note | str, *, trigger_turn: bool | None = None, deliver_as: DeliverAs = "steer") -> None:
        """Add a message to the conversation. In a run it is queued, or added after it if `trigger_turn` is false; when
        idle it is added at once, and starts a run if `trigger_turn` is true. `nextTurn` waits for a prompt."""
        if deliver_as not in ("steer", "followUp", "nextTurn"):
            raise ValueError(f"deliver_as must be steer, followUp or nextTurn, not {deliver_as!r}")
        message = to_custom_message(note)

        def send_message(port: SessionPort) -> None:
            turn = not port.control.is_idle() if trigger_turn is None else bool(trigger_turn)
            port.conversation.send_message(message, turn, deliver_as)

        self._access.call("messages", send_message)

    def prompt(self, content: str | list[UserBlock], *, deliver_as: Literal["steer", "followUp"] | None = None) -> None:
        """Send a message as the user; while a run is active, `deliver_as` must state how to queue it."""
        said = validate_record(UserMessage(content=content, timestamp=0)).content
        self._access.call("messages", lambda port: port.conversation.send_user_message(said, deliver_as))

    def append_entry(self, custom_type: str, data: Json = None) -> str:
        """Store data in the session file that the model does not see; returns the entry's id."""
        kept = to_plain_json(data, "the data of an entry")
        return self._access.call("entries", lambda port: port.conversation.append_entry(str(custom_type), kept))

    def rename(self, name: str) -> None:
        """Set the display name of the session."""
        self._access.call("sessions", lambda port: port.conversation.set_name(str(name)))

    def label(self, entry_id: str, label: str | None) -> None:
        """Set a bookmark on an entry; None removes it."""
        self._access.call("entries", lambda port: port.conversation.set_label(str(entry_id), label))

    def _facts(self) -> SessionFacts:
        return self._access.call(None, lambda port: port.conversation.facts())


class ToolsHandle:
    """The tools of the session, and which of them are active."""

    def __init__(self, access: SessionAccess) -> None:
        self._access = access

    def active(self) -> list[str]:
        """The names of the active tools."""
        return self._access.call(None, lambda port: port.tools.active())

    def all(self) -> dict[str, str]:
        """Every tool, with its description."""
        return dict(self._access.call(None, lambda port: port.tools.describe_all()))

    def activate(self, names: list[str]) -> None:
        """Set the active tools from the next turn on; unknown names are left out."""
        wanted = [str(name) for name in names]
        self._access.call("tools", lambda port: port.tools.activate(wanted))


class ModelsHandle:
    """The models of the session, and which of them is selected."""

    def __init__(self, access: SessionAccess) -> None:
        self._access = access

    @property
    def current(self) -> Model | None:
        """A copy of the selected model."""
        return copy.deepcopy(self._access.call(None, lambda port: port.models.current()))

    @property
    def thinking(self) -> ThinkingLevel:
        """The thinking level that is set for the model."""
        return self._access.call(None, lambda port: port.models.thinking())

    def available(self) -> list[Model]:
        """Copies of the models that can be chosen."""
        return copy.deepcopy(self._access.call(None, lambda port: list(port.models.available())))

    def use(self, provider: str, model_id: str) -> bool:
        """Select a model; returns False if it cannot be used."""
        return self._access.call("models", lambda port: port.models.select_model(str(provider), str(model_id)))

    def think(self, level: ThinkingLevel) -> None:
        """Set the thinking level, as far as the model supports it."""
        if level not in LEVELS:
            raise ValueError(f"there is no thinking level {level!r}; choose one of {', '.join(LEVELS)}")
        self._access.call("models", lambda port: port.models.set_thinking(level))


class StateHandle:
    """A value that belongs to the active branch: going back in the conversation restores its older value."""

    def __init__(self, conversation: ConversationHandle, custom_type: str) -> None:
        self._conversation = conversation
        self._type = custom_type

    def get(self, default: Any = None) -> Any:
        """The value on this branch, or the default."""
        for entry in reversed(self._conversation.branch()):
            if entry.get("type") == "custom" and entry.get("customType") == self._type:
                return entry.get("data", default)
        return default

    def set(self, value: Json) -> None:
        """Change the value, if it differs."""
        if self.get() != value:
            self._conversation.append_entry(self._type, value)
