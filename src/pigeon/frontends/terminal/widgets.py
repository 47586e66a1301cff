"""What extensions show beside the conversation: lines above or below the input, by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pigeon.frontends.cleaning import clean_text
from pigeon.wire.base import value_or_default

if TYPE_CHECKING:
    from pigeon.wire.dialogs import SetWidgetRequest

MOST_LINES = 10


class Widgets:
    """The widgets of one conversation."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[str, list[str]]] = {}

    def set_widget(self, request: SetWidgetRequest) -> None:
        """Show a widget, or remove it if the request has no lines."""
        lines = value_or_default(request.widget_lines, None)
        if lines is None:
            self._shown.pop(request.widget_key, None)
        else:
            self._shown[request.widget_key] = (
                value_or_default(request.widget_placement, "aboveEditor"),
                [clean_text(line) for line in lines[:MOST_LINES]],
            )

    def lines(self, placement: str) -> list[str]:
        """All lines with this placement."""
        return [line for where, lines in self._shown.values() if where == placement for line in lines]
