"""Which events one client is sent, by its last `set_event_filter`: the one implementation of it.

Every `Connection` (`rpc/connection.py`) filters with it, and so does the client of a served conversation, because a new
connection begins without a filter (`sdk/remote/received_lines.py`).
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from pigeon.wire import events
from pigeon.wire.base import Outgoing
from pigeon.wire.commands import SetEventFilter
from pigeon.wire.dialogs import REQUEST
from pigeon.wire.errors import Refusal

BAD_FILTER = "events must be null or an array of non-empty event type strings"
_ALWAYS_SENT = frozenset(
    (REQUEST, *(kind.__struct_config__.tag for kind in events.ALL if issubclass(kind, Outgoing) and kind.always_sent))
)


class _Kind(Struct):
    type: str = ""


_kind_decoder = msgspec.json.Decoder(_Kind)


class TypeFilter:
    """Lets the events of some types through; without a command all of them."""

    def __init__(self, command: SetEventFilter | None = None) -> None:
        """Raises `Refusal` for a command that is malformed."""
        kinds = None if command is None else command.events
        if kinds is not None and not (isinstance(kinds, list) and all(isinstance(one, str) and one for one in kinds)):
            raise Refusal(BAD_FILTER)
        # As they were given; None lets everything through.
        self.kinds: list[str] | None = kinds
        self._kinds = None if kinds is None else frozenset(kinds)

    @property
    def is_open(self) -> bool:
        """Whether it lets everything through."""
        return self._kinds is None

    def should_send_kind(self, kind: str) -> bool:
        """Whether events of this type are sent; the type is empty for what is always sent."""
        return self._kinds is None or not kind or kind in self._kinds

    def should_send_line(self, line: bytes) -> bool:
        """Whether an event is sent that is encoded already."""
        if self._kinds is None:
            return True
        kind = _kind_decoder.decode(line).type
        return kind in self._kinds or kind in _ALWAYS_SENT
