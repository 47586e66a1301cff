"""All loaded extensions together: who listens, asking them one after another, telling them without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pigeon.extensions.public.api import Handler
from pigeon.extensions.public.events import Event
from pigeon.extensions.public.failures import ExtensionFailed, text_of_error
from pigeon.extensions.runtime.event_queue import Mailbox
from pigeon.extensions.runtime.loaded_extension import Member
from pigeon.extensions.runtime.pausable_timeout import INTERCEPTOR_SECONDS, Patience
from pigeon.wire.events import ExtensionError, Outbound

CATCH_UP_SECONDS = 1.0
MOST_HELD_REPORTS = 200
TOLD_EACH_TIME = 10
Take = Callable[["Answer"], bool]


class Reports:
    """Tells the host what went wrong in an extension; held back until there is a host.

    What goes wrong again and again, as with every delta, is told ten times and then at each power of ten.
    """

    def __init__(self) -> None:
        self._held: list[ExtensionError] = []
        self._post: Callable[[Outbound], None] | None = None
        self._told: dict[tuple[str, str], int] = {}

    def __call__(self, path: str, event: str, error: str) -> None:
        """Tell it, or keep it for later."""
        count = self._told[path, event] = self._told.get((path, event), 0) + 1
        if count > TOLD_EACH_TIME:
            if str(count).strip("0") != "1":
                return
            error = f"{error} (for the {count}th time)"
        report = ExtensionError(extension_path=path, event=event, error=error)
        if self._post is not None:
            self._post(report)
        elif len(self._held) < MOST_HELD_REPORTS:
            self._held.append(report)

    def to(self, post: Callable[[Outbound], None]) -> None:
        """From here on there is somebody to tell."""
        self._post = post
        held, self._held = self._held, []
        for report in held:
            post(report)


class Answer:
    """What one handler came to: a value, or the text of a failure that was reported already."""

    __slots__ = ("event", "failure", "member", "value")

    def __init__(self, member: Member, event: Any, value: Any, failure: str | None) -> None:
        self.member = member
        self.event = event
        self.value = value
        self.failure = failure


class Team:
    """The extensions in the order in which they are asked."""

    def __init__(self, reports: Reports) -> None:
        self.reports = reports
        self.members: list[Member] = []
        self._mailboxes: dict[int, Mailbox] = {}

    def join(self, member: Member) -> None:
        """Take an extension in; those of a lower rank come first."""
        self.members.append(member)
        self.members.sort(key=lambda one: one.source.rank)

    def listens(self, kind: type[Event]) -> bool:
        """True if anybody has a handler for the event."""
        return any(member.handlers(kind) for member in self.members)

    async def ask(
        self,
        kind: type[Event],
        make: Callable[[], Event],
        take: Take,
        allowed: tuple[type, ...] = (),
        members: list[Member] | None = None,
    ) -> None:
        """Ask each handler with a fresh event and hand over what it came to, until `take` says that it is enough."""
        for member in list(self.members) if members is None else members:
            for handler in list(member.handlers(kind)):
                event = make()
                if not handler.wants(event):
                    continue
                await self._mailbox(member).drained(CATCH_UP_SECONDS)
                if take(await self._asked(member, handler, event, allowed)):
                    return

    def tell(self, event: Event) -> None:
        """Let everybody who listens know, without waiting."""
        for member in self.members:
            if member.handlers(type(event)):
                self._mailbox(member).put(event)

    async def ask_all(self, event: Event, seconds: float) -> None:
        """Ask everybody at once, each for at most this long; what they return does not matter."""

        async def one(member: Member) -> None:
            await self._mailbox(member).drained(seconds / 2)
            for handler in list(member.handlers(type(event))):
                await self._asked(member, handler, event, (), seconds)

        listening = [member for member in self.members if member.handlers(type(event))]
        await asyncio.gather(*(one(member) for member in listening))

    def close(self) -> None:
        """Deliver nothing more and let the threads end."""
        for mailbox in self._mailboxes.values():
            mailbox.close()
        for member in self.members:
            member.workshop.close()

    def _mailbox(self, member: Member) -> Mailbox:
        mailbox = self._mailboxes.get(id(member))
        if mailbox is None:

            async def deliver(event: Event, patience: Patience) -> None:
                for handler in list(member.handlers(type(event))):
                    if handler.wants(event):
                        await self._one(member, handler, event, patience)

            def lost(count: int) -> None:
                self.reports(member.source.path, "queue", f"it was too slow: {count} events were not delivered to it")

            mailbox = Mailbox(deliver, lost, INTERCEPTOR_SECONDS)
            self._mailboxes[id(member)] = mailbox
        return mailbox

    async def _asked(
        self, member: Member, handler: Handler, event: Event, allowed: tuple[type, ...], seconds: float | None = None
    ) -> Answer:
        patience = Patience(handler.timeout if seconds is None else seconds)
        answer = await self._one(member, handler, event, patience)
        if answer.failure is None and answer.value is not None and allowed and not isinstance(answer.value, allowed):
            may = ", ".join(kind.__name__ for kind in allowed)
            text = f"a handler returned {type(answer.value).__name__}; it may return {may} or nothing"
            self.reports(member.source.path, event.name, text)
            answer.value, answer.failure = None, text
        return answer

    async def _one(self, member: Member, handler: Handler, event: Event, patience: Patience) -> Answer:
        try:
            return Answer(member, event, await member.ask(handler, event, patience), None)
        except ExtensionFailed as error:
            text = text_of_error(error)
            self.reports(member.source.path, event.name, text)
            return Answer(member, event, None, text)
