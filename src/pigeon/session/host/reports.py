"""What is wrong with options, files and extensions: the one collector of an agent, given to its parts as `report`.

There are two ways to the host. What `build` finds in options and settings is listed in `startup`, and the caller prints
it (on stderr) before it serves. Everything else is a record on the wire: a notice, or an `extension_error`. What makes
the guard stricter than the user may expect goes both ways. Records wait until `connect` says where they go.
"""

from __future__ import annotations

from collections.abc import Callable

from pigeon.system.ids import RANDOM_IDS, Ids
from pigeon.wire.dialogs import NotifyRequest
from pigeon.wire.events import ExtensionError, Outbound

MOST_HELD = 200


class Reports:
    """Collects problems; `add_startup_problem` and `notify` are what parts get as their `report`."""

    def __init__(self) -> None:
        self._ids = RANDOM_IDS
        self.startup: list[str] = []
        self._held: list[Outbound] = []
        self._post: Callable[[Outbound], None] | None = None

    def set_ids(self, ids: Ids) -> None:
        """Take the ids of records from these: a recording decides about them, and what opens it may report."""
        self._ids = ids

    def add_startup_problem(self, text: str) -> None:
        """A problem with options or settings, found while the agent is built; the same one is listed once."""
        if text not in self.startup:
            self.startup.append(text)

    def notify(self, text: str) -> None:
        """Show a warning to the person at the host."""
        self.post(NotifyRequest(id=self._ids.dialog_id(), message=text, notify_type="warning"))

    def show_info(self, text: str) -> None:
        """Show what a person may want to know and need not act on."""
        self.post(NotifyRequest(id=self._ids.dialog_id(), message=text, notify_type="info"))

    def report_guard_problem(self, text: str) -> None:
        """A problem for which the guard fails closed."""
        if text not in self.startup:
            self.add_startup_problem(text)
            self.notify(text)

    def report_skill_failure(self, path: str, why: str) -> None:
        """A skill that was asked for cannot be read."""
        self.post(ExtensionError(extension_path=path, event="skill_expansion", error=why))

    def post(self, record: Outbound) -> None:
        """Send a record, or keep it for later; of a flood of them only the first are kept."""
        if self._post is not None:
            self._post(record)
        elif len(self._held) < MOST_HELD:
            self._held.append(record)

    def connect(self, post: Callable[[Outbound], None]) -> None:
        """There is a host: it gets what was kept, and every record from here on."""
        self._post = post
        held, self._held = self._held, []
        for record in held:
            post(record)
