"""The chat itself: input of the person becomes commands of the conversation, and its events become blocks.

It uses `pigeon.Conversation` and `View`, and does not know where the agent lives or how the chat is drawn.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from pigeon.frontends.terminal.attachments import Attachments
from pigeon.frontends.terminal.blocks import Block, ChatHead, Notice, ShellCard
from pigeon.frontends.terminal.clipboard import Clipboard
from pigeon.frontends.terminal.commands.slash_commands import SlashCommands
from pigeon.frontends.terminal.footer import FooterFacts
from pigeon.frontends.terminal.inputs import Input, InputKind, Inputs
from pigeon.frontends.terminal.transcript import ChatTranscript
from pigeon.frontends.terminal.view import Choice, ChoiceQuestion, View
from pigeon.frontends.terminal.widgets import Widgets
from pigeon.providers.demo.api import DEMO, GUIDE
from pigeon.sdk.conversation import Conversation
from pigeon.sdk.errors import ConversationClosed, ProcessDied, ReaderTooSlow
from pigeon.sdk.results import ConversationEvent
from pigeon.wire import dialogs, events
from pigeon.wire.answers import QueueItem
from pigeon.wire.base import ABSENT, value_or_default
from pigeon.wire.commands import Prompt, StreamingBehavior
from pigeon.wire.content import ImageInput
from pigeon.wire.errors import PigeonError

# How often the footer follows what agents cost.
REFRESH_SECONDS = 0.5
HINTS = "/ commands, @ files, ! shell, Esc stops, Ctrl-D leaves"
NO_MODEL = """No model is available: no provider has a key.
Set a provider's key, for example ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, and start Pigeon again.
The demo model needs no key and shows how everything works."""


class Chat:
    """One conversation of a person with an agent. `restart` starts a new agent after one has died; `trusting` does so
    with the files of a folder that is now trusted, and returns whether it can."""

    def __init__(  # noqa: PLR0913 - the parts of a chat
        self,
        *,
        conversation: Conversation,
        transcript: ChatTranscript,
        view: View,
        inputs: Inputs,
        facts: FooterFacts,
        widgets: Widgets,
        attachments: Attachments,
        clipboard: Clipboard,
        names: dict[str, str],
        arguments: dict[str, list[str]],
        restart: Callable[[], Awaitable[None]],
        trusting: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._conversation = conversation
        self._transcript = transcript
        self._view = view
        self._inputs = inputs
        self._facts = facts
        self._widgets = widgets
        self._attachments = attachments
        self._clipboard = clipboard
        self._restart = restart
        self._trusting = trusting
        self._commands = SlashCommands(
            conversation=conversation,
            view=view,
            facts=facts,
            update_facts=self.refresh_footer,
            attach=self._attach_image,
            names=names,
            arguments=arguments,
            clipboard=clipboard,
            renew=self._restart_in_folder,
            running_command=lambda: transcript.running_command,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._opened = asyncio.Event()
        self._dead = False
        self._sent_images: dict[str, list[ImageInput]] = {}

    async def run(self, version: str, first: str = "", choose_session: bool = False) -> None:
        """Talk until the person leaves. The conversation is open."""
        self._start_task(self._listen_to_events())
        # Done before the footer shows that all is ready: Tab must know every command then.
        with suppress(PigeonError, ConversationClosed):
            await self._commands.load_commands()
        await self.refresh_footer()
        self._view.show(ChatHead(version, self._facts.model or None, self._facts.cwd, [HINTS]))
        self._start_task(self._run_showing_errors(self._begin_chat(first, choose_session)))
        try:
            while (given := await self._inputs.get()).kind != "leave":
                self._start_task(self._run_showing_errors(self._handle_input(given)))
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _begin_chat(self, first: str, choose_session: bool) -> None:
        """Show and do what comes before the first message: earlier messages, and decisions of the person."""
        try:
            await self._prepare_session(choose_session)
        finally:
            self._opened.set()
        if first:
            await self._handle_input(Input("send", first))

    async def _prepare_session(self, choose_session: bool) -> None:
        if choose_session:
            await self._commands.choose_and_resume()
        else:
            await self._join_conversation()
        trust = await self._conversation.get_trust()
        if trust.waiting and trust.decided_by is None:
            await self._commands.ask_trust(trust.cwd, trust.waiting)
            await self._commands.load_commands()
        if not self._facts.model and not (await self._conversation.get_available_models()).models:
            await self._offer_demo()

    async def _join_conversation(self) -> None:
        """Show what was said before, and what is under way, as in a conversation of `pigeon serve`."""
        works = (await self._conversation.get_state()).is_streaming
        if works:
            self._transcript.join_run()
        if not await self._commands.show_recent_messages(self._transcript.add_open_call if works else None):
            return
        jobs = (await self._conversation.get_jobs()).jobs
        self._transcript.agents.add_known((await self._conversation.get_agents()).agents, jobs)
        self._facts.show_background(self._transcript.agents.job_count)
        self._facts.end_waiting()
        self._view.refresh()

    async def _offer_demo(self) -> None:
        self._view.show(Notice(NO_MODEL, "warning"))
        choices = (Choice(DEMO.name, "Try the demo model"), Choice("no", "Not now"))
        if await self._view.ask(ChoiceQuestion("Without a key?", choices)) == DEMO.name:
            await self._conversation.set_model(DEMO.name, GUIDE)
            await self.refresh_footer()
            self._view.show(Notice('The demo model understands a few plain sentences. Try "list the files".'))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Input of the person

    async def _run_showing_errors(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it; a failure is shown, and the chat continues."""
        try:
            await work
        except ProcessDied as death:
            self._on_agent_died(death)
        except (PigeonError, OSError) as error:
            if not self._transcript.has_explained(str(error)):
                self._show(Notice(str(error) or type(error).__name__, "error"))

    async def _handle_input(self, given: Input) -> None:
        text = given.text
        if given.kind in ("send", "queue"):
            await self._wait_until_ready()
        match given.kind:
            case "reply":
                await self._reply(text)
            case "stop":
                await self._stop_all()
            case "background":
                await self._commands.agents.send_to_background("")
            case "recall_queued":
                await self._recall_queued_message()
            case "cycle_model" | "cycle_thinking":
                await self._cycle_setting(given.kind)
            case "paste_image":
                await self._paste_image()
            case "attach":
                self._attach_image(text.strip())
            case "show_output":
                self._show(Notice(self._transcript.last_output or "No tool has run yet", "faint"))
            case _ if text.startswith("!"):
                await self._run_shell_line(text)
            case _ if text.startswith("/") and await self._commands.try_run(text):
                pass
            case _:
                await self._send_prompt(text, given.kind == "queue")

    async def _send_prompt(self, text: str, queue: bool) -> None:
        """Send a prompt: at once, at the next break of the run, or after the run."""
        named = self._attachments.load_named_images(text)
        attached = self._attachments.pop_all()
        # The agent decides which applies: a run may end while this is on its way.
        behavior: StreamingBehavior = "followUp" if queue else "steer"
        prompt = Prompt(message=text, images=[*attached, *named] or ABSENT, streaming_behavior=behavior)
        if attached:
            # Under this id the images are found again if the message is taken back.
            self._sent_images[id := os.urandom(8).hex()] = attached
            prompt = replace(prompt, client_message_id=id)
        try:
            await self._conversation.send(prompt)
        except PigeonError:
            self._attachments.restore(attached)
            if self._facts.model or (await self._conversation.get_available_models()).models:
                raise
            self._view.prepend_input(text)
            self._start_task(self._run_showing_errors(self._offer_demo()))

    async def _reply(self, text: str) -> None:
        """Send a message in place of an answer, then decline the question: so the model reads it with the refusal."""
        try:
            await self._send_prompt(text, queue=False)
        finally:
            self._view.decline()

    async def _wait_until_ready(self) -> None:
        """Wait until earlier messages are shown and an agent is running."""
        await self._opened.wait()
        if self._dead:
            await self._restart_agent()

    async def _cycle_setting(self, kind: InputKind) -> None:
        if kind == "cycle_model":
            if await self._conversation.cycle_model() is None:
                self._show(Notice("There is only one model to choose from", "faint"))
        elif await self._conversation.cycle_thinking_level() is None:
            self._show(Notice("This model has no thinking levels", "faint"))
        await self.refresh_footer()

    async def _stop_all(self) -> None:
        """Stop whatever runs. Queued messages are returned to the input, because they were meant for work that has
        ended."""
        if self._transcript.is_in_shell:
            await self._conversation.abort_bash()
        if not self._transcript.is_busy:
            return
        items = self._transcript.queued_items
        waiting = await self._conversation.clear_queue()
        if texts := [*waiting.steering, *waiting.follow_up]:
            self._return_unsent(texts, items)
        await self._conversation.abort()

    async def _recall_queued_message(self) -> None:
        """Return the last queued message to the input."""
        items = self._transcript.queued_items
        if not items:
            self._show(Notice("No message is queued", "faint"))
        else:
            item = await self._conversation.remove_queued(items[-1].id)
            self._return_unsent([item.text], [item])

    def _return_unsent(self, texts: list[str], items: Sequence[QueueItem]) -> None:
        """Return texts that were not sent to the input, with the images of those messages among `items`."""
        self._view.prepend_input("\n\n".join(texts))
        back = [image for item in items if item.text in texts for image in self._pop_images_of(item)]
        if back:
            self._attachments.restore(back)
            self._show_image_count()

    def _pop_images_of(self, item: QueueItem) -> list[ImageInput]:
        return self._sent_images.pop(value_or_default(item.client_message_id, ""), [])

    async def _run_shell_line(self, line: str) -> None:
        """`!command` runs it and shows the model the result, `!!command` runs it for the person alone."""
        for_model = not line.startswith("!!")
        command = line.lstrip("!").strip()
        if not command:
            return
        card = self._transcript.add_shell_card(command)
        self._view.refresh()
        try:
            result = await self._conversation.bash(command, exclude_from_context=not for_model)
            self._transcript.finish_shell_card(card, result.output)
            self._show(ShellCard(command, result.output, value_or_default(result.exit_code, None), for_model=for_model))
            if result.cancelled:
                self._show(Notice("Stopped", "warning"))
        finally:
            self._transcript.finish_shell_card(card, "")
            self._view.refresh()

    def _attach_image(self, image: str | bytes) -> None:
        self._attachments.add(image)
        self._show_image_count()

    def _show_image_count(self) -> None:
        count = self._attachments.count
        self._show(Notice(f"{count} image{'s' if count > 1 else ''} for the next message", "faint"))

    async def _paste_image(self) -> None:
        image = await self._clipboard.read_image()
        if image is None:
            self._show(
                Notice(
                    "There is no image in the clipboard, or no program to read it (wl-paste, xclip, pngpaste)",
                    "warning",
                )
            )
        else:
            self._attach_image(image)

    # Events of the agent

    async def _listen_to_events(self) -> None:
        while True:
            try:
                async for event in self._conversation.events():
                    self._on_event(event)
            except ReaderTooSlow as error:
                self._show(Notice(str(error), "warning"))
                continue
            except ProcessDied as death:
                self._on_agent_died(death)
            except ConversationClosed:
                pass
            return

    def _on_agent_died(self, death: ProcessDied) -> None:
        if not self._dead:
            self._dead = True
            code = death.exit_code
            how = "" if code is None else f" by signal {-code}" if code < 0 else f" with exit code {code}"
            words = f"The agent has ended{how}.\nYour next message restarts it and continues this conversation."
            if items := self._transcript.queued_items:
                self._return_unsent([item.text for item in items], items)
            self._show(*self._transcript.finish_live_blocks(), Notice(words, "error"))
            self._view.refresh()

    async def _restart_agent(self) -> None:
        await self._restart()
        self._dead = False
        self._start_task(self._listen_to_events())
        await self.refresh_footer()

    async def _restart_in_folder(self, folder: str) -> bool:
        """Restart the agent with the files of this folder, unless it is busy; returns whether they are in use now."""
        if self._transcript.activity or not await self._trusting(folder):
            return False
        self._start_task(self._listen_to_events())
        await self._commands.load_commands()
        await self.refresh_footer()
        return True

    def _on_event(self, event: ConversationEvent) -> None:
        self._show(*self._transcript.handle_event(event))
        match event:
            case dialogs.NotifyRequest():
                self._show(Notice(event.message, value_or_default(event.notify_type, "info")))
            case dialogs.SetStatusRequest():
                self._facts.set_status(event)
            case dialogs.SetWidgetRequest():
                self._widgets.set_widget(event)
            case dialogs.SetTitleRequest():
                self._view.set_title(event.title)
            case dialogs.SetEditorTextRequest():
                self._view.set_input(event.text)
            case events.TrustRequired():
                self._start_task(self._run_showing_errors(self._commands.ask_trust(event.cwd, event.waiting)))
            case events.AgentSettled():
                # Nothing waits any more that could be taken back.
                self._sent_images.clear()
                self._start_task(self.refresh_footer())
            case events.TurnEnd() | events.CompactionEnd() | events.ThinkingLevelChanged():
                self._start_task(self.refresh_footer())
            case events.AgentChanged() | events.JobChanged():
                if self._facts.show_background(self._transcript.agents.job_count):
                    self._start_task(self._refresh_footer_soon())
        self._view.refresh()

    def _show(self, *blocks: Block) -> None:
        for block in blocks:
            self._view.show(block)

    async def _refresh_footer_soon(self) -> None:
        """Agents have news many times a second, and each may have cost something."""
        await asyncio.sleep(REFRESH_SECONDS)
        self._facts.end_waiting()
        await self.refresh_footer()

    async def refresh_footer(self) -> None:
        """Update the data of the footer."""
        with suppress(PigeonError, ConversationClosed):
            self._facts.update_from(
                await self._conversation.get_state(),
                await self._conversation.get_session_stats(),
                await self._conversation.get_permissions(),
            )
        self._view.refresh()
