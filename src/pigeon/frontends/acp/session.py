"""One session of an editor: its conversation, its unfinished prompts, and the updates that it sends.

One task reads all events of the conversation and sends the updates for them, so that everything from a run is sent
before its prompt is answered. A prompt ends in exactly one way:

    begun -> accepted -> settled            the stop reason says why, an error if the run failed
      |         |
      +---------+-> cancelled               whatever the run does meanwhile, the answer is `cancelled`
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from pigeon.frontends.acp.client_services import ClientServices
from pigeon.frontends.acp.editions.auth_methods import NO_KEY
from pigeon.frontends.acp.editions.edition import (
    CommandView,
    ConfigOption,
    Edition,
    PlanTask,
    PromptEnd,
    SessionStart,
    StopWord,
    TokenSum,
    Update,
)
from pigeon.frontends.acp.options import SessionOptions
from pigeon.frontends.acp.prompt_blocks import PromptGiven
from pigeon.frontends.acp.replay import replay
from pigeon.frontends.acp.rpc_errors import AUTH_REQUIRED, INTERNAL_ERROR, INVALID_REQUEST, RpcError, bad_params
from pigeon.frontends.acp.rpc_peer import RpcPeer
from pigeon.frontends.acp.translation import EventTranslator
from pigeon.sdk.conversation import Conversation
from pigeon.sdk.errors import ConversationClosed
from pigeon.system import clock
from pigeon.system.ids import RANDOM_IDS
from pigeon.tools.catalog import plan_tools
from pigeon.wire.answers import Accepted
from pigeon.wire.base import Absent, Json, or_else
from pigeon.wire.commands import Prompt
from pigeon.wire.dialogs import NotifyRequest
from pigeon.wire.entries import ModelChange
from pigeon.wire.errors import PigeonError, Refusal
from pigeon.wire.events import (
    AgentSettled,
    AgentStart,
    EntryAppended,
    MessageEnd,
    MessageStart,
    SessionInfoChanged,
    ThinkingLevelChanged,
    TodoAutoClear,
    ToolExecutionEnd,
)
from pigeon.wire.messages import AssistantMessage, UserMessage
from pigeon.wire.steering import TodoPhase

MOST_ENDS = 64
LONGEST_TITLE = 80
NOT_TRUSTED = (
    "The project {cwd} is not trusted, so these of its files are not used: {names}. To use them, start `pigeon` there "
    "in a terminal, enter /trust, answer that it is always trusted, and open the session again"
)
PLAN_STATUS = {"abandoned": "cancelled"}


class PromptTurn:
    """A prompt that has not been answered.

    The future `taken` is done when its message is part of the conversation (`inserted`) or never will be, `ended` when
    the prompt is over.
    """

    def __init__(self, given: PromptGiven) -> None:
        self.given = given
        self.message_id = RANDOM_IDS.session_id(clock.now_ms())
        self.inserted = False
        self._cancelled = False
        self._run_id: str | None = None
        loop = asyncio.get_running_loop()
        self.taken: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[PromptEnd] = loop.create_future()

    @property
    def run_id(self) -> str | None:
        """The run that the prompt is part of, once known."""
        return self._run_id

    def join(self, run_id: str) -> None:
        """Note the run that the prompt is part of."""
        self._run_id = run_id

    def is_cancelled(self) -> bool:
        """True if it ends as `cancelled`, whatever the run does."""
        return self._cancelled

    def cancel(self) -> None:
        """Make it end as `cancelled`, whatever the run does."""
        self._cancelled = True

    def insert(self) -> bool:
        """Note that its message is part of the conversation; false if that was known."""
        if self.taken.done():
            return False
        self.inserted = True
        self.taken.set_result(None)
        return True

    def end(self, end: PromptEnd) -> None:
        """End it; only the first end counts."""
        if not self.ended.done():
            self.ended.set_result(replace(end, stop="cancelled", error=None) if self._cancelled else end)
        if not self.taken.done():
            self.taken.set_result(None)


class EditorSession:
    """One open session. `gone` is called if the conversation ends on its own."""

    def __init__(
        self,
        session_id: str,
        conversation: Conversation,
        edition: Edition,
        peer: RpcPeer,
        cwd: str,
        home: str,
        gone: Callable[[], None],
    ) -> None:
        self.id = session_id
        self.cwd = cwd
        self.conversation = conversation
        self._edition = edition
        self._peer = peer
        self._gone = gone
        self._home = home
        self.options = SessionOptions(conversation)
        self.translator = EventTranslator(edition, cwd, home, self.send)
        self._turns: dict[str, PromptTurn] = {}
        self._ends: OrderedDict[str, PromptEnd] = OrderedDict()
        self._failure: AssistantMessage | None = None
        self._spent = TokenSum()
        # Whether the client was told that the session is working, and whether a run is active.
        self._busy = False
        self._in_run = False
        self._title: str | None = None
        self._plan: list[PlanTask] = []
        self._commands: list[CommandView] = []
        self._aborting: set[asyncio.Task[None]] = set()
        self._has_servers = False
        self._events = conversation.events()
        self._reading = asyncio.ensure_future(self._read())

    def send(self, update: Update) -> None:
        """Send an update."""
        kind = update["sessionUpdate"]
        self._peer.notify("session/update", {"sessionId": self.id, "update": update}, can_wait=kind.endswith("_chunk"))

    def _send_all(self, updates: list[Update]) -> None:
        for update in updates:
            self.send(update)

    # Opening and closing

    async def start(self, new: bool) -> SessionStart:
        """What the client is told when the session is opened; a new one has its id in it."""
        options, self._commands = await self.options.read(), await self._read_commands()
        state = await self.conversation.get_state()
        # One that was named, or in which something was said, has its title.
        self._title = or_else(state.session_name, "" if state.message_count else None)
        return SessionStart(options, self._commands, self.id if new else None)

    async def use_client(self, roots: Sequence[str]) -> None:
        """Use the files and terminals that the client offers for tools; `roots` are the folders of the workspace."""
        served = ClientServices(self._peer, self.id, self.translator.show_terminal)
        await self.conversation.serve_host(served, replace(self._edition.services(), roots=list(roots)))

    async def use_servers(self, servers: Mapping[str, Json]) -> None:
        """Add the tools of these servers, which are connected in the background; one that fails is reported then."""
        if servers or self._has_servers:
            try:
                await self.conversation.set_mcp_servers(dict(servers))
            except Refusal as refusal:
                raise bad_params(f'"mcpServers": {refusal}') from None
            self._has_servers = bool(servers)

    async def tell_opened(self) -> None:
        """Send the updates that follow the answer to opening a session."""
        self._send_all(self._edition.commands(self._commands))
        await self._tell_plan()
        await self._tell_usage()
        if self._busy:
            self._send_all(self._edition.state("running"))
        await self._tell_trust()

    async def replay(self) -> None:
        """Send the whole conversation as updates."""
        entries = await self.conversation.get_entries()
        for updates in replay(entries, self._edition, self.cwd, self._home, self.translator.status_of):
            self._send_all(updates)
            if self._peer.full:
                await self._peer.room()

    async def close(self) -> None:
        """Cancel the run, answer its prompts, and end the conversation."""
        self.cancel()
        for turn in list(self._turns.values()):
            await asyncio.wait({turn.ended})
        self._reading.cancel()
        await asyncio.wait({self._reading, *self._aborting})
        await self.conversation.close()

    # Prompts

    @property
    def runs(self) -> bool:
        """True while a run or a prompt has not ended."""
        return self._busy

    def begin(self, given: PromptGiven) -> PromptTurn:
        """Register a prompt; from now on `cancel` reaches it."""
        turn = PromptTurn(given)
        self._turns[turn.message_id] = turn
        return turn

    async def run(self, turn: PromptTurn) -> PromptEnd:
        """Send the prompt and wait for its end; cancelling this call cancels the prompt and still waits for its end."""
        try:
            submitting = asyncio.ensure_future(self._submit(turn))
            while not turn.ended.done():
                try:
                    await asyncio.wait({turn.ended})
                except asyncio.CancelledError:
                    self.cancel()
            await submitting
            return turn.ended.result()
        finally:
            self._turns.pop(turn.message_id, None)

    async def _submit(self, turn: PromptTurn) -> None:
        given = turn.given
        prompt = Prompt(
            message=given.text,
            images=given.images,
            client_message_id=turn.message_id,
            streaming_behavior="steer",
        )
        if turn.is_cancelled():
            turn.end(PromptEnd("cancelled"))
            return
        try:
            accepted: Accepted = await self.conversation.send(prompt)
        except PigeonError as error:
            turn.end(PromptEnd("end_turn", await self._refused(error)))
            return
        if accepted.disposition == "handled":
            self._taken(turn)
            end = PromptEnd("end_turn")
            if not self._in_run:
                self._tell_idle(PromptEnd("cancelled") if turn.is_cancelled() else end)
            turn.end(end)
            return
        run_id = or_else(accepted.run_id, "")
        turn.join(run_id)
        if run_id in self._ends:
            turn.end(self._ends[run_id])
        elif turn.is_cancelled():
            self._abort()

    async def _refused(self, error: PigeonError) -> RpcError:
        with suppress(PigeonError):
            if not (await self.conversation.get_available_models()).models:
                return RpcError(AUTH_REQUIRED, NO_KEY)
        return RpcError(INVALID_REQUEST if isinstance(error, Refusal) else INTERNAL_ERROR, str(error))

    def cancel(self) -> None:
        """Abort the run: every unfinished prompt ends as `cancelled`."""
        for turn in self._turns.values():
            turn.cancel()
        if self._turns:
            self._abort()

    def _abort(self) -> None:
        task = asyncio.ensure_future(self._aborted())
        self._aborting.add(task)
        task.add_done_callback(self._aborting.discard)

    async def _aborted(self) -> None:
        with suppress(PigeonError):
            if any(turn.run_id for turn in self._turns.values()) and len(self._turns) > 1:
                await self.conversation.clear_queue()
            await self.conversation.abort()

    async def cancel_call(self, call_id: str) -> bool:
        """Stop one tool call; false if it is not running."""
        call = self.translator.call(call_id)
        if call is None or not call.runs:
            return False
        task = asyncio.ensure_future(self._abort_call(call_id))
        self._aborting.add(task)
        task.add_done_callback(self._aborting.discard)
        return True

    async def _abort_call(self, call_id: str) -> None:
        with suppress(PigeonError):
            await self.conversation.abort(tool_call_id=call_id)

    # Events

    async def _read(self) -> None:
        try:
            await self._read_all(self._events)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # The reader was too slow, or an event is broken: the run can no longer be reported.
            self._fail_turns(error)
            await self.conversation.close()
        self._fail_turns(ConversationClosed())
        self._gone()

    def _fail_turns(self, error: Exception) -> None:
        for turn in self._turns.values():
            turn.end(PromptEnd("end_turn", RpcError(INTERNAL_ERROR, str(error) or type(error).__name__)))

    async def _read_all(self, events: AsyncIterator[object]) -> None:
        async for event in events:
            if isinstance(event, AgentSettled):
                await self._settled(event)
                continue
            self.translator.take(event)
            await self._take(event)
            if self._peer.full:
                await self._peer.room()

    async def _take(self, event: object) -> None:
        if isinstance(event, MessageStart) and isinstance(event.message, UserMessage):
            turn = self._turns.get(or_else(event.message.client_message_id, ""))
            if turn is not None:
                self._taken(turn)
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            self._failure = event.message
            self._spent = self._spent.plus(event.message.usage)
        elif isinstance(event, AgentStart):
            # Also of a run that no prompt began.
            self._in_run = True
            self._tell_busy()
        elif isinstance(event, ToolExecutionEnd):
            if event.tool_name in plan_tools():
                await self._tell_plan()
        elif isinstance(event, TodoAutoClear):
            await self._tell_plan()
        elif isinstance(event, SessionInfoChanged):
            self._title = or_else(event.name, None)
            self._send_all(self._edition.info(self._title))
        elif isinstance(event, ThinkingLevelChanged) or (
            isinstance(event, EntryAppended) and isinstance(event.entry, ModelChange)
        ):
            await self._tell_options()
        elif isinstance(event, NotifyRequest):
            self.translator.notice(or_else(event.notify_type, "info"), event.message)

    def _taken(self, turn: PromptTurn) -> None:
        """The message has its place in the conversation."""
        if not turn.insert():
            return
        self._send_all(self._edition.said(turn.message_id, turn.given.blocks))
        self._tell_busy()
        if self._title is None:
            self._title = _title_of(turn.given.text)
            self._send_all(self._edition.info(self._title, clock.iso(clock.now_ms())))

    def _tell_busy(self) -> None:
        if not self._busy:
            self._busy = True
            self._send_all(self._edition.state("running"))

    def _tell_idle(self, end: PromptEnd) -> None:
        self._busy = False
        self._send_all(self._edition.idle(end))

    async def _settled(self, event: AgentSettled) -> None:
        self._in_run = False
        self.translator.stop_calls()
        with suppress(PigeonError):
            await self._tell_plan()
            await self._tell_usage()
            await self._tell_commands()
        end = replace(self._end_of(event), usage=self._spent)
        self._spent = TokenSum()
        run_id = or_else(event.run_id, "")
        self._ends[run_id] = end
        while len(self._ends) > MOST_ENDS:
            self._ends.popitem(last=False)
        ending = [turn for turn in self._turns.values() if turn.run_id == run_id]
        stopped = any(turn.is_cancelled() for turn in self._turns.values())
        self._tell_idle(replace(end, stop="cancelled", error=None) if stopped else end)
        for turn in ending:
            turn.end(end)
            # Tokens are told once: clients add them up.
            end = replace(end, usage=None)

    def _end_of(self, event: AgentSettled) -> PromptEnd:
        last, self._failure = self._failure, None
        if event.reason == "aborted" or event.aborted:
            return PromptEnd("cancelled")
        if event.reason == "error":
            text = or_else(event.error_message, "") or (or_else(last.error_message, "") if last else "")
            return PromptEnd("end_turn", RpcError(INTERNAL_ERROR, text or "The run failed"))
        if event.reason == "limit":
            tokens = not isinstance(event.limit, Absent) and event.limit.name == "tokens"
            return PromptEnd("max_tokens" if tokens else "max_turn_requests")
        stop: StopWord = "max_tokens" if last is not None and last.stop_reason == "length" else "end_turn"
        if last is not None and last.raw_stop_reason == "refusal":
            stop = "refusal"
        return PromptEnd(stop)

    # What is told besides

    async def _tell_plan(self) -> None:
        tasks = _tasks((await self.conversation.get_state()).todo_phases)
        if tasks != self._plan:
            self._plan = tasks
            self._send_all(self._edition.plan(tasks))

    async def _tell_trust(self) -> None:
        """Say that files of the project wait for a decision about it, which is not made here."""
        trust = await self.conversation.get_trust()
        if trust.waiting and trust.decided_by is None:
            names = ", ".join(path.removeprefix(f"{trust.cwd}/") for path in trust.waiting)
            self.translator.notice("warning", NOT_TRUSTED.format(cwd=trust.cwd, names=names))

    async def _tell_usage(self) -> None:
        stats = await self.conversation.get_session_stats()
        usage = stats.context_usage
        if not isinstance(usage, Absent) and usage.tokens is not None:
            self._send_all(self._edition.usage(usage.tokens, usage.context_window, float(stats.cost)))

    async def _tell_commands(self) -> None:
        commands = await self._read_commands()
        if commands != self._commands:
            self._commands = commands
            self._send_all(self._edition.commands(commands))

    async def _tell_options(self) -> None:
        changed = await self.options.changes()
        if changed is not None:
            self._send_all(self._edition.options_changed(*changed))

    async def set_option(self, id: str, value: object) -> list[ConfigOption]:
        """Choose a value of an option, and tell it as an update, too: other parts of the client may show it."""
        before = await self.options.read()
        options = await self.options.set(id, value)
        if options != before:
            mode = [option.current for option in options[:1]] != [option.current for option in before[:1]]
            self._send_all(self._edition.options_changed(options, mode))
        return options

    async def _read_commands(self) -> list[CommandView]:
        found = (await self.conversation.get_commands()).commands
        return [
            CommandView(one.name, or_else(one.description, "") or one.source, "arguments")
            for one in sorted(found, key=lambda one: one.name)
        ]


def _tasks(phases: list[TodoPhase]) -> list[PlanTask]:
    many = len(phases) > 1
    return [
        PlanTask(f"{phase.name}: {task.content}" if many else task.content, PLAN_STATUS.get(task.status, task.status))  # type: ignore[arg-type]
        for phase in phases
        for task in phase.tasks
    ]


def _title_of(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= LONGEST_TITLE else f"{line[: LONGEST_TITLE - 1]}…"
