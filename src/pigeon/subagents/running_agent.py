"""One started agent from its start to its end: its session, its place among those that run, and what it is doing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from pigeon.agent.inference import report_failure
from pigeon.agent.scope import Scope
from pigeon.session.prompting import HostMessage, make_final_answer
from pigeon.session.session import Session
from pigeon.subagents.progress import AgentProgress
from pigeon.subagents.results import AgentOutcome, make_reason
from pigeon.subagents.slots import Place
from pigeon.wire.agents import AgentInfo, AgentSource, AgentStatus, AgentWork
from pigeon.wire.answers import Accepted
from pigeon.wire.base import ABSENT, Absent, Json, value_or_default
from pigeon.wire.content import TextContent
from pigeon.wire.errors import Aborted, Refusal
from pigeon.wire.events import AgentSettled, EndReason, Outbound
from pigeon.wire.model import Usage, sum_usage
from pigeon.wire.steering import describe_limit

_STATUS: dict[EndReason, AgentStatus] = {
    "done": "done", "aborted": "aborted", "error": "error", "limit": "limit", "denied": "denied"
}  # fmt: skip
Changed = Callable[["RunningAgent"], None]


class Assignment(Struct, frozen=True):
    """The prompt of an agent, its place among those that the same one has started, and where its type comes from."""

    task: str
    index: int
    source: AgentSource


class RunningAgent:
    """An agent that waits for its place, works, or is about to end. `on_changed` is called when there is something new
    to show of it."""

    def __init__(
        self,
        info: AgentInfo,
        assignment: Assignment,
        session: Session,
        place: Place,
        scope: Scope,
        on_changed: Changed,
        spent_by_own: Callable[[], Usage],
    ) -> None:
        """`spent_by_own` is what those that it has started itself have used."""
        self.info = info
        self._assignment = assignment
        self.session = session
        self.place = place
        self.scope = scope
        self._on_changed = on_changed
        self._spent_by_own = spent_by_own
        self.progress = AgentProgress(session.toolset.facts_of, session.dependencies.now)
        self._settled: asyncio.Future[AgentSettled] = asyncio.get_running_loop().create_future()
        self.end: AgentOutcome | None = None
        self._over = asyncio.Event()
        # Set when there is something new to show.
        self.changed = asyncio.Event()
        session.bus.add_announcer(self._on_settled, kind=AgentSettled)

    @property
    def settled(self) -> AgentSettled | None:
        """The end of its run, if that has begun and ended."""
        return self._settled.result() if self._settled.done() else None

    def describe_work(self) -> AgentWork:
        """What it has done and is doing."""
        given = self._assignment
        return self.progress.to_work(given.index, given.source, given.task, self.session.models.model, self.usage)

    @property
    def usage(self) -> Usage:
        """What it has used, with those that it has started, once they have ended."""
        return sum_usage(self.progress.usage, self._spent_by_own())

    async def work(self, output_schema: Json | Absent) -> AgentOutcome:
        """Wait for a place, send the prompt, and return how the run has ended; never raises because of the agent."""
        forget = self.scope.add_cancel_callback(self.session.engine.abort)
        try:
            await self.scope.wait(self.place.acquire())
            self._show("running")
            message = HostMessage(self._assignment.task, final_answer=make_final_answer(output_schema))
            accepted = self.session.prompting.prompt(message)
            if not isinstance(accepted, Accepted):
                await accepted
            return self._make_end(await self._settled)
        except Aborted:
            return self._fail("aborted")
        except Refusal as refusal:
            return self._fail("limit" if refusal.code == "limit" else "error", str(refusal))
        except asyncio.CancelledError:
            return self._fail("aborted")
        except Exception as error:
            # Whatever it is, this agent has failed, and the one that waits for it goes on.
            return self._fail("error", report_failure(error).message)
        finally:
            forget()
            self.place.release()

    def finish(self, end: AgentOutcome) -> None:
        """Show how it has ended; its session is closed."""
        self.info, self.end = end.info, end
        try:
            self._on_changed(self)
        finally:
            self.scope.close()
            self._over.set()

    async def wait_until_over(self) -> None:
        await self._over.wait()

    async def steer(self, text: str) -> None:
        """Queue a message for its next break; raises `Refusal`."""
        accepted = self.session.prompting.queue_message(HostMessage(text), "steering")
        if not isinstance(accepted, Accepted):
            await accepted

    def on_event(self, event: Outbound) -> None:
        """Show what an event of the session means for the agent's progress."""
        if self.progress.on_event(event):
            self._show(self.info.status)

    def _show(self, status: AgentStatus) -> None:
        self.info = self._describe(status)
        self.changed.set()
        self._on_changed(self)

    def _describe(self, status: AgentStatus) -> AgentInfo:
        activity = self.progress.activity
        return replace(self.info, status=status, usage=self.usage, activity=activity or ABSENT)

    def _on_settled(self, event: Outbound) -> None:
        if isinstance(event, AgentSettled) and not self._settled.done():
            self._settled.set_result(event)

    def _make_end(self, settled: AgentSettled) -> AgentOutcome:
        status = _STATUS[settled.reason]
        if not isinstance(settled.limit, Absent):
            return self._fail(status, describe_limit(settled.limit))
        if status != "done":
            last = self.progress.last_answer
            told = value_or_default(settled.error_message, "")
            return self._fail(status, told or (value_or_default(last.error_message, "") if last else ""))
        return AgentOutcome(
            info=replace(self._describe("done"), activity=ABSENT),
            answer=self._last_text(),
            output=settled.output,
            changed_files=tuple(self.progress.changed_files),
        )

    def _fail(self, status: AgentStatus, detail: str = "") -> AgentOutcome:
        return AgentOutcome(
            info=replace(self._describe(status), activity=ABSENT),
            answer=self._last_text(),
            reason=make_reason(status, detail),
            changed_files=tuple(self.progress.changed_files),
        )

    def _last_text(self) -> str:
        last = self.progress.last_answer
        if last is None:
            return ""
        return "".join(block.text for block in last.content if isinstance(block, TextContent)).strip()
