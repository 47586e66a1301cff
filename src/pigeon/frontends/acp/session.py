"""One session of an editor: its conversation, its unfinished prompts, and the updates that it sends.

One task reads all events of the conversation and sends the updates for them, so that everything from a run is sent
before its prompt is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from pigeon.frontends.acp.client_services import ClientServices
from pigeon.frontends.acp.editions.auth_methods import NO_KEY
from pigeon.frontends.acp.editions.edition import (
    ConfigOption,
    Edition,
    PromptEnd,
    SessionStart,
    Update,
)
from pigeon.frontends.acp.editions.tool_views import text_block
from pigeon.frontends.acp.prompt_blocks import PromptGiven
from pigeon.frontends.acp.prompt_turns import PromptTurn, PromptTurns
from pigeon.frontends.acp.replay import replay
from pigeon.frontends.acp.rpc_errors import AUTH_REQUIRED, INTERNAL_ERROR, INVALID_REQUEST, RpcError, bad_params_error
from pigeon.frontends.acp.rpc_peer import RpcPeer
from pigeon.frontends.acp.run_progress import RunProgress
from pigeon.frontends.acp.session_reports import SessionReports
from pigeon.frontends.acp.translation import EventTranslator
from pigeon.frontends.acp.undo_prompts import is_undo_prompt, run_undo_prompt
from pigeon.sdk.conversation import Conversation
from pigeon.sdk.errors import ConversationClosed
from pigeon.system import clock
from pigeon.system.ids import RANDOM_IDS
from pigeon.tools.catalog import list_plan_tool_names
from pigeon.wire.answers import Accepted
from pigeon.wire.base import Json, value_or_default
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


class EditorSession:
    """One open session. `gone` is called if the conversation ends unexpectedly."""

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
        self._translator = EventTranslator(edition, cwd, home, self.send)
        self._reports = SessionReports(conversation, edition, self._send_all)
        self._progress = RunProgress(edition, self._send_all)
        self._turns = PromptTurns()
        self._aborting: set[asyncio.Task[None]] = set()
        self._has_servers = False
        self._reading = asyncio.ensure_future(self._follow_events(conversation.events()))

    def send(self, update: Update) -> None:
        kind = update["sessionUpdate"]
        self._peer.notify("session/update", {"sessionId": self.id, "update": update}, can_wait=kind.endswith("_chunk"))

    def _send_all(self, updates: list[Update]) -> None:
        for update in updates:
            self.send(update)

    # Opening and closing

    async def read_start_details(self, new: bool) -> SessionStart:
        """Reads options, commands and title for the answer that opens the session; a new one has its id in it."""
        options, commands = await self._reports.read_options_and_commands()
        return SessionStart(options, commands, self.id if new else None)

    async def use_client_services(self, roots: Sequence[str]) -> None:
        """Use the files and terminals that the client offers for tools; `roots` are the folders of the workspace."""
        served = ClientServices(self._peer, self.id, self._translator.show_terminal)
        await self.conversation.serve_host(served, replace(self._edition.host_services(), roots=list(roots)))

    async def use_mcp_servers(self, servers: Mapping[str, Json]) -> None:
        """Add the tools of these servers, which are connected in the background; one that fails is reported then."""
        if servers or self._has_servers:
            try:
                await self.conversation.set_mcp_servers(dict(servers))
            except Refusal as refusal:
                raise bad_params_error(f'"mcpServers": {refusal}') from None
            self._has_servers = bool(servers)

    async def send_opening_updates(self) -> None:
        """Send what the answer to opening a session does not contain: commands, plan, usage, state, notices."""
        reports = self._reports
        reports.send_known_commands()
        await reports.send_plan()
        await reports.send_usage()
        self._progress.send_state_if_busy()
        notice = await reports.describe_pending_trust()
        if notice is not None:
            self._translator.send_notice("warning", notice)

    async def replay(self) -> None:
        """Send the whole conversation as updates."""
        entries = await self.conversation.get_entries()
        for updates in replay(entries, self._edition, self.cwd, self._home, self._translator.status_of):
            self._send_all(updates)
            if self._peer.is_full:
                await self._peer.wait_for_room()

    async def close(self) -> None:
        """Cancel the run, answer its prompts, and end the conversation."""
        self.cancel()
        await self._turns.wait_until_ended()
        self._reading.cancel()
        await asyncio.wait({self._reading, *self._aborting})
        await self.conversation.close()

    # Prompts

    @property
    def is_running(self) -> bool:
        return self._progress.is_busy

    def register_prompt(self, given: PromptGiven) -> PromptTurn:
        return self._turns.add(given)

    async def run_prompt(self, turn: PromptTurn) -> PromptEnd:
        """Send the prompt and wait for its end; cancelling this call cancels the prompt and still waits for its end."""
        try:
            submitting = asyncio.ensure_future(self._submit_prompt(turn))
            while not turn.ended.done():
                try:
                    await asyncio.wait({turn.ended})
                except asyncio.CancelledError:
                    self.cancel()
            await submitting
            return turn.ended.result()
        finally:
            self._turns.remove(turn)

    async def _submit_prompt(self, turn: PromptTurn) -> None:
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
        if is_undo_prompt(given.text) and not given.images:
            await self._run_undo(turn)
            return
        try:
            accepted: Accepted = await self.conversation.send(prompt)
        except PigeonError as error:
            turn.end(PromptEnd("end_turn", await self._to_rpc_error(error)))
            return
        if accepted.disposition == "handled":
            self._end_without_run(turn)
            return
        if self._turns.join_run(turn, value_or_default(accepted.run_id, "")) and turn.is_cancelled():
            self._start_abort()

    async def _run_undo(self, turn: PromptTurn) -> None:
        """Answer as the agent does: not every client shows notices."""
        text = await run_undo_prompt(self.conversation, turn.given.text)
        self._send_all(self._edition.chunk_updates("agent", RANDOM_IDS.session_id(clock.now_ms()), text_block(text)))
        self._end_without_run(turn)

    def _end_without_run(self, turn: PromptTurn) -> None:
        self._on_prompt_inserted(turn)
        end = PromptEnd("end_turn")
        if not self._progress.in_run:
            self._progress.send_idle(PromptEnd("cancelled") if turn.is_cancelled() else end)
        turn.end(end)

    async def _to_rpc_error(self, error: PigeonError) -> RpcError:
        with suppress(PigeonError):
            if not (await self.conversation.get_available_models()).models:
                return RpcError(AUTH_REQUIRED, NO_KEY)
        return RpcError(INVALID_REQUEST if isinstance(error, Refusal) else INTERNAL_ERROR, str(error))

    def cancel(self) -> None:
        """Abort the run: every unfinished prompt ends as `cancelled`."""
        self._turns.cancel_all()
        if self._turns:
            self._start_abort()

    async def set_option(self, id: str, value: object) -> list[ConfigOption]:
        """Choose a value of an option; returns all options."""
        return await self._reports.set_option(id, value)

    def _start_abort(self) -> None:
        self._abort_in_background(self._abort_run())

    def _abort_in_background(self, aborting: Coroutine[None, None, None]) -> None:
        """Abort something in the background; `close` waits for it."""
        task = asyncio.ensure_future(aborting)
        self._aborting.add(task)
        task.add_done_callback(self._aborting.discard)

    async def _abort_run(self) -> None:
        with suppress(PigeonError):
            if self._turns.has_joined and len(self._turns) > 1:
                await self.conversation.clear_queue()
            await self.conversation.abort()

    async def cancel_call(self, call_id: str) -> bool:
        """Stop one tool call; returns False if it is not running."""
        call = self._translator.find_call(call_id)
        if call is None or not call.runs:
            return False
        self._abort_in_background(self._abort_call(call_id))
        return True

    async def _abort_call(self, call_id: str) -> None:
        with suppress(PigeonError):
            await self.conversation.abort(tool_call_id=call_id)

    # Events

    def find_plan_call(self, plan: str) -> str | None:
        """The id of the call that submits this plan."""
        return self._translator.find_running_call("plan", plan)

    async def _follow_events(self, events: AsyncIterator[object]) -> None:
        try:
            await self._handle_events(events)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # The reader was too slow, or an event is broken: the run can no longer be reported.
            self._turns.fail_all(error)
            await self.conversation.close()
        self._turns.fail_all(ConversationClosed())
        self._gone()

    async def _handle_events(self, events: AsyncIterator[object]) -> None:
        async for event in events:
            if isinstance(event, AgentSettled):
                await self._on_settled(event)
                continue
            self._translator.translate_and_send(event)
            await self._handle_event(event)
            if self._peer.is_full:
                await self._peer.wait_for_room()

    async def _handle_event(self, event: object) -> None:
        reports = self._reports
        if isinstance(event, MessageStart) and isinstance(event.message, UserMessage):
            turn = self._turns.find(value_or_default(event.message.client_message_id, ""))
            if turn is not None:
                self._on_prompt_inserted(turn)
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            self._progress.record_answer(event.message, value_or_default(event.explanation, ""))
        elif isinstance(event, AgentStart):
            # Runs that no prompt began are reported too.
            self._progress.on_run_start()
        elif isinstance(event, ToolExecutionEnd):
            if event.tool_name in list_plan_tool_names():
                await reports.send_plan()
            elif _has_decided_plan(event):
                await reports.send_options()
        elif isinstance(event, TodoAutoClear):
            await reports.send_plan()
        elif isinstance(event, SessionInfoChanged):
            reports.report_title(value_or_default(event.name, None))
        elif isinstance(event, ThinkingLevelChanged) or (
            isinstance(event, EntryAppended) and isinstance(event.entry, ModelChange)
        ):
            await reports.send_options()
        elif isinstance(event, NotifyRequest):
            self._translator.send_notice(value_or_default(event.notify_type, "info"), event.message)

    def _on_prompt_inserted(self, turn: PromptTurn) -> None:
        if not turn.mark_inserted():
            return
        self._send_all(self._edition.user_message_updates(turn.message_id, turn.given.blocks))
        self._progress.send_busy()
        self._reports.set_title_from_prompt(turn.given.text)

    async def _on_settled(self, event: AgentSettled) -> None:
        end = self._progress.finish_run(event)
        self._translator.end_unfinished_calls()
        with suppress(PigeonError):
            await self._reports.send_plan()
            await self._reports.send_usage()
            await self._reports.send_commands()
        ending = self._turns.record_run_end(value_or_default(event.run_id, ""), end)
        self._progress.send_idle(replace(end, stop="cancelled", error=None) if self._turns.has_cancelled else end)
        for turn in ending:
            turn.end(end)
            # Usage is sent only once: clients add it up.
            end = replace(end, usage=None)


def _has_decided_plan(event: ToolExecutionEnd) -> bool:
    """Whether a person has decided about a plan, after which another mode may be in force."""
    return isinstance(event.result.details, dict) and "decision" in event.result.details
