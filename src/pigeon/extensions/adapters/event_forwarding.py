"""From the session's bus to the extensions that listen: at once, without waiting, at no cost where nobody does."""

from __future__ import annotations

from pigeon.extensions.adapters.hooks import ExtensionHooks
from pigeon.extensions.adapters.observed import Observed
from pigeon.extensions.public.events import MessageEnd
from pigeon.extensions.runtime.dispatcher import Team
from pigeon.wire import events as w


class Ears:
    """Passes events on."""

    def __init__(self, team: Team, hooks: ExtensionHooks) -> None:
        self._team = team
        self._hooks = hooks
        self._observed = Observed()

    def heard(self, event: w.Outbound) -> None:
        """Something happened."""
        kind = self._observed.kind(event)
        if kind is not None and not self._team.listens(kind):
            if self._observed.counts(event):
                self._observed.of(event)
            return
        if isinstance(event, w.MessageEnd) and any(event.message is one for one in self._hooks.ended):
            return  # its handlers were asked already, before it was put on record
        made = self._observed.of(event)
        if made is not None and (kind is MessageEnd or type(made).observed):
            self._team.tell(made)
