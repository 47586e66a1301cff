"""Notices about files and failures of extensions, for the host; held back until there is one."""

from __future__ import annotations

from collections.abc import Callable

from pigeon.system import ids
from pigeon.wire.dialogs import NotifyRequest
from pigeon.wire.events import ExtensionError, Outbound

MOST_HELD = 200


class Reports:
    """Call it with a text to show that as a notice; `post` takes any record."""

    def __init__(self) -> None:
        self._held: list[Outbound] = []
        self._post: Callable[[Outbound], None] | None = None

    def __call__(self, text: str) -> None:
        """Show a warning."""
        self.post(NotifyRequest(id=ids.dialog_id(), message=text, notify_type="warning"))

    def post(self, record: Outbound) -> None:
        """Send a record, or keep it for later; of a flood of them only the first are kept."""
        if self._post is not None:
            self._post(record)
        elif len(self._held) < MOST_HELD:
            self._held.append(record)

    def skill_failed(self, path: str, why: str) -> None:
        """A skill that was asked for cannot be read."""
        self.post(ExtensionError(extension_path=path, event="skill_expansion", error=why))

    def to(self, post: Callable[[Outbound], None]) -> None:
        """From here on there is a host."""
        self._post = post
        held, self._held = self._held, []
        for record in held:
            post(record)
