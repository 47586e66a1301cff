"""Trouble with files, told to the host as a notice; held back until there is a host."""

from __future__ import annotations

from collections.abc import Callable

from pigeon.system import ids
from pigeon.wire.dialogs import NotifyRequest
from pigeon.wire.events import ExtensionError, Outbound


class Reports:
    """Call it with a text."""

    def __init__(self) -> None:
        self._early: list[str] = []
        self._post: Callable[[Outbound], None] | None = None

    def __call__(self, text: str) -> None:
        """Tell it, or keep it for later."""
        if self._post is None:
            self._early.append(text)
        else:
            self._post(NotifyRequest(id=ids.dialog_id(), message=text, notify_type="warning"))

    def skill_failed(self, path: str, why: str) -> None:
        """A skill that was asked for cannot be read."""
        if self._post is not None:
            self._post(ExtensionError(extension_path=path, event="skill_expansion", error=why))

    def to(self, post: Callable[[Outbound], None]) -> None:
        """From here on there is somebody to tell."""
        self._post = post
        early, self._early = self._early, []
        for text in early:
            self(text)
