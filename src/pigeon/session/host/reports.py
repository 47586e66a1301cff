"""Problems with options, files and extensions: the one collector of an agent, passed to its parts as `report`.

There are two ways to the host. Problems that `build` finds in options and settings are listed in `startup`, and the
caller prints them (on stderr) before it serves. Everything else is a record on the wire: a notice, or an
`extension_error`. Problems that make the permission gate stricter or the model another than the user may expect go both
ways. Records wait until `connect` gets a destination.
"""

from __future__ import annotations

from collections.abc import Callable

from pigeon.system.ids import RANDOM_IDS, Ids
from pigeon.wire.dialogs import NotifyRequest
from pigeon.wire.events import ExtensionError, Outbound

MOST_HELD = 200


class Reports:
    """Collects problems; parts get `add_startup_problem` or `notify` as their `report`."""

    def __init__(self) -> None:
        self._ids = RANDOM_IDS
        self.startup: list[str] = []
        self._held: list[Outbound] = []
        self._post: Callable[[Outbound], None] | None = None

    def set_ids(self, ids: Ids) -> None:
        """Replace the source of record ids: a recording determines them, and opening it may already report problems."""
        self._ids = ids

    def add_startup_problem(self, text: str) -> None:
        """Add a problem with options or settings found while the agent is built; duplicates are listed once."""
        if text not in self.startup:
            self.startup.append(text)

    def show_warning(self, text: str) -> None:
        """Show a warning to the person at the host."""
        self.post(NotifyRequest(id=self._ids.dialog_id(), message=text, notify_type="warning"))

    def show_info(self, text: str) -> None:
        """Show information that requires no action."""
        self.post(NotifyRequest(id=self._ids.dialog_id(), message=text, notify_type="info"))

    def add_startup_warning(self, text: str) -> None:
        """Add a problem that the person at the host must know as well: a stricter permission gate, another model."""
        if text not in self.startup:
            self.add_startup_problem(text)
            self.show_warning(text)

    def report_skill_failure(self, path: str, why: str) -> None:
        """Report a skill that was requested and cannot be read."""
        self.post(ExtensionError(extension_path=path, event="skill_expansion", error=why))

    def post(self, record: Outbound) -> None:
        """Send a record, or keep it for later; only the first ones of many are kept."""
        if self._post is not None:
            self._post(record)
        elif len(self._held) < MOST_HELD:
            self._held.append(record)

    def start_posting(self, post: Callable[[Outbound], None]) -> None:
        """Connect the host: it gets the kept records, and every record from here on."""
        self._post = post
        held, self._held = self._held, []
        for record in held:
            post(record)
