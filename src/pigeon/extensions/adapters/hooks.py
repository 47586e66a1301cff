"""The session's hooks, answered by extensions: each asks the handlers of one event, and runs slash commands.

Whatever goes wrong in a handler is reported by the dispatcher and changes nothing here. The events are declared in
`public/events.py`; what a handler may return is checked against its declaration before it gets here.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from pigeon.extensions.public import events as e
from pigeon.extensions.public import results as r
from pigeon.extensions.public.api import CommandDef
from pigeon.extensions.public.failures import ExtensionFailed, text_of_error
from pigeon.extensions.public.results import checked, plain
from pigeon.extensions.public.session_objects import custom_message
from pigeon.extensions.runtime.dispatcher import Answer, Dispatcher
from pigeon.extensions.runtime.loaded_extension import LoadedExtension
from pigeon.extensions.runtime.pausable_timeout import PausableTimeout
from pigeon.session import hooks as h
from pigeon.wire import codec
from pigeon.wire.answers import BashResult, SlashCommand, SourceInfo
from pigeon.wire.base import ABSENT
from pigeon.wire.content import ImageContent
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import CustomMessage, Message
from pigeon.wire.model import Model

MOST_CONTINUATIONS = 25
QUIT_SECONDS = 0.5
LEAVE_SECONDS = 5.0
REMEMBERED_MESSAGES = 16


class ExtensionHooks:
    """The `Hooks` of a session, and those of its provider, on behalf of all extensions."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._commands = ExtensionCommands(dispatcher)
        self._continued = 0
        self._asked_about: list[Message] = []

    def commands(self) -> list[SlashCommand]:
        """The extensions' slash commands."""
        return self._commands.listed()

    def has_command(self, text: str) -> bool:
        """True if `command` would handle this text."""
        return self._commands.has(text)

    async def command(self, text: str) -> bool:
        """Run a slash command."""
        return await self._commands.run(text)

    async def input(self, said: h.PromptInput) -> h.PromptInput | None:
        """What to go on with; none when an extension handled it."""
        self._continued = 0
        current: h.PromptInput | None = said

        def make() -> e.Event:
            assert current is not None
            return e.Input(current.text, copy.deepcopy(current.images), current.source, current.behavior)

        def take(answer: Answer) -> bool:
            nonlocal current
            value = answer.value
            if isinstance(value, r.Handled):
                current = None
            elif isinstance(value, r.Transform) and current is not None:
                images = current.images if value.images is None else list(value.images)
                changed = msgspec.structs.replace(current, text=value.text, images=images)
                current = self._checked(answer, changed, current)
            return current is None

        await self._dispatcher.ask(e.Input, make, take)
        return current

    async def before_agent_start(
        self, prompt: str, images: list[ImageContent], system_prompt: Callable[[], str]
    ) -> h.PromptAdditions:
        """Notes beside the prompt, and a system prompt for this run."""
        messages: list[CustomMessage] = []
        forced: str | None = None

        def take(answer: Answer) -> bool:
            nonlocal forced
            value = answer.value
            if isinstance(value, r.Begin):
                messages.extend(self._notes(answer, value.note))
                if isinstance(value.system_prompt, str):
                    forced = value.system_prompt
            return False

        def make() -> e.Event:
            return e.BeforeAgentStart(prompt, copy.deepcopy(images), system_prompt() if forced is None else forced)

        await self._dispatcher.ask(e.BeforeAgentStart, make, take)
        return h.PromptAdditions(messages, forced)

    async def context(self, messages: list[Message]) -> list[Message]:
        """The messages for one request."""
        current = messages

        def take(answer: Answer) -> bool:
            nonlocal current
            given = answer.value.messages if isinstance(answer.value, r.Messages) else answer.event.messages
            if answer.failure is None and given != current:
                current = self._checked_messages(answer, given, current)
            return False

        await self._dispatcher.ask(e.ModelContext, lambda: e.ModelContext(copy.deepcopy(current)), take)
        return current

    async def message_end(self, message: Message) -> Message:
        """The message to put on record."""
        current = message

        def take(answer: Answer) -> bool:
            nonlocal current
            if isinstance(answer.value, r.Replace):
                if type(answer.value.value) is type(current):
                    current = self._checked(answer, answer.value.value, current)
                else:
                    self._report(answer, "message_end can only be answered with a message of the same role")
            return False

        await self._dispatcher.ask(e.MessageEnd, lambda: e.MessageEnd(copy.deepcopy(current)), take)
        self._asked_about = [*self._asked_about[1 - REMEMBERED_MESSAGES :], current]
        return current

    def was_asked_about(self, message: Message) -> bool:
        """True if this very object came out of `message_end`, so that its handlers need not be told of it again."""
        return any(message is one for one in self._asked_about)

    async def user_bash(self, command: str, excluded: bool, cwd: str) -> BashResult | None:
        """A result instead of a run; raises a `Refusal` when an extension blocks the command."""
        result: list[BashResult] = []

        def take(answer: Answer) -> bool:
            if answer.failure is not None:
                raise Refusal(answer.failure)
            if isinstance(answer.value, r.Block):
                raise Refusal(str(answer.value.reason))
            if isinstance(answer.value, r.BashOutput):
                result.append(bash_result(answer.value))
            return bool(result)

        await self._dispatcher.ask(e.UserBash, lambda: e.UserBash(command, excluded, cwd), take)
        return result[0] if result else None

    async def before_compact(self, prepared: h.CompactionPreparation) -> h.ExtensionSummary | bool:
        """The last verdict counts; a cancellation ends the asking."""
        verdict: h.ExtensionSummary | bool = True

        def take(answer: Answer) -> bool:
            nonlocal verdict
            value = answer.value
            if isinstance(value, r.Cancel):
                verdict = False
            elif isinstance(value, r.Summary):
                own = h.ExtensionSummary(value.summary, value.first_kept_entry_id, value.tokens_before, value.details)
                verdict = self._checked(answer, own, verdict)
            return verdict is False

        def make() -> e.Event:
            return e.SessionBeforeCompact(
                prepared.reason,
                prepared.first_kept_entry_id,
                prepared.tokens_before,
                copy.deepcopy(prepared.messages),
                copy.deepcopy(prepared.kept_messages),
                prepared.instructions,
                prepared.previous_summary,
                prepared.will_retry,
            )

        await self._dispatcher.ask(e.SessionBeforeCompact, make, take)
        return verdict

    async def before_settle(self, outcome: h.RunOutcome) -> list[CustomMessage]:
        """Notes that start one more run, as long as that was not done too often."""
        notes: list[CustomMessage] = []

        def take(answer: Answer) -> bool:
            if isinstance(answer.value, r.GoOn):
                if self._continued >= MOST_CONTINUATIONS:
                    self._report(answer, f"the run has already been continued {MOST_CONTINUATIONS} times; it ends here")
                else:
                    notes.extend(self._notes(answer, answer.value.note))
            return False

        await self._dispatcher.ask(e.AgentBeforeSettle, lambda: e.AgentBeforeSettle(outcome), take)
        self._continued += bool(notes)
        return notes

    async def provider_request(self, body: bytes) -> bytes:
        """The body to send; it is decoded only where an extension handles the event."""
        replaced: list[Any] = []

        def make() -> e.Event:
            return e.BeforeProviderRequest(copy.deepcopy(replaced[-1]) if replaced else codec.decode(body))

        def take(answer: Answer) -> bool:
            if isinstance(answer.value, r.Replace):
                try:
                    replaced.append(plain(answer.value.value, "the payload"))
                except TypeError as error:
                    self._report(answer, str(error))
            return False

        await self._dispatcher.ask(e.BeforeProviderRequest, make, take)
        return codec.encode(replaced[-1]) if replaced else body

    async def provider_headers(self, headers: dict[str, str]) -> dict[str, str]:
        """The headers to send."""
        current = headers

        def take(answer: Answer) -> bool:
            nonlocal current
            if answer.failure is None:
                kept = {name: value for name, value in answer.event.headers.items() if value is not None}
                if all(isinstance(item, str) for pair in kept.items() for item in pair):
                    current = kept
                else:
                    self._report(answer, "names and values of headers must be strings")
            return False

        await self._dispatcher.ask(e.BeforeProviderHeaders, lambda: e.BeforeProviderHeaders(dict(current)), take)
        return current

    def provider_responded(self, status: int, headers: Mapping[str, str]) -> None:
        """A provider began to answer."""
        if self._dispatcher.listens(e.AfterProviderResponse):
            self._dispatcher.tell(e.AfterProviderResponse(status, dict(headers)))

    def model_selected(self, model: Model, previous: Model | None, source: h.ModelSelectSource) -> None:
        """Another model is in force."""
        if self._dispatcher.listens(e.ModelSelect):
            self._dispatcher.tell(e.ModelSelect(copy.deepcopy(model), copy.deepcopy(previous), source))

    async def resources(self, cwd: str) -> h.ResourcePaths:
        """Further skills and prompts."""
        found = h.ResourcePaths([], [])

        def take(answer: Answer) -> bool:
            if isinstance(answer.value, r.Resources):
                found.skills.extend(str(path) for path in answer.value.skills)
                found.prompts.extend(str(path) for path in answer.value.prompts)
            return False

        await self._dispatcher.ask(e.ResourcesDiscover, lambda: e.ResourcesDiscover(cwd), take)
        return found

    async def session_started(self, reason: h.StartReason, previous: str | None = None) -> None:
        """A conversation is open."""
        self._dispatcher.tell(e.SessionStart(reason, previous))

    async def session_ending(self, reason: h.EndReason, target: str | None = None) -> None:
        """A conversation is about to be left; extensions get a moment for it."""
        await self._dispatcher.ask_all(
            e.SessionShutdown(reason, target), QUIT_SECONDS if reason == "quit" else LEAVE_SECONDS
        )

    async def before_switch(self, reason: Literal["new", "resume"], target: str | None) -> bool:
        """True to refuse a new or another conversation; the first extension that says no is heard."""
        return await self._cancelled(e.SessionBeforeSwitch, lambda: e.SessionBeforeSwitch(reason, target))

    async def before_fork(self, entry_id: str, position: Literal["before", "at"]) -> bool:
        """True to refuse a fork or a copy."""
        return await self._cancelled(e.SessionBeforeFork, lambda: e.SessionBeforeFork(entry_id, position))

    async def _cancelled(self, kind: type[e.Event], make: Callable[[], e.Event]) -> bool:
        cancelled: list[bool] = []

        def take(answer: Answer) -> bool:
            if isinstance(answer.value, r.Cancel):
                cancelled.append(True)
            return bool(cancelled)

        await self._dispatcher.ask(kind, make, take)
        return bool(cancelled)

    def _notes(self, answer: Answer, note: r.Note | str | None) -> list[CustomMessage]:
        try:
            return [] if note is None else [custom_message(note)]
        except (TypeError, AttributeError) as error:
            self._report(answer, str(error))
            return []

    def _checked(self, answer: Answer, value: Any, otherwise: Any) -> Any:
        try:
            return checked(value)
        except TypeError as error:
            self._report(answer, str(error))
            return otherwise

    def _checked_messages(self, answer: Answer, value: Any, otherwise: list[Message]) -> list[Message]:
        try:
            codec.prepare(list[Message])
            return msgspec.convert(plain(value, "messages"), list[Message])
        except (TypeError, msgspec.ValidationError) as error:
            self._report(answer, f"messages: {error}")
            return otherwise

    def _report(self, answer: Answer, text: str) -> None:
        self._dispatcher.reports(answer.loaded.source.path, answer.event.name, text)


def bash_result(given: r.BashOutput) -> BashResult:
    """An extension's output as the answer of `bash`."""
    output = str(given.output)
    lines = output.count("\n") + 1 if output else 0
    size = len(output.encode("utf-8", "replace"))
    return BashResult(
        output=output,
        exit_code=ABSENT if given.exit_code is None else int(given.exit_code),
        cancelled=False,
        truncated=False,
        total_lines=lines,
        total_bytes=size,
        output_lines=lines,
        output_bytes=size,
    )


class ExtensionCommands:
    """All commands, by name; where several extensions want one name, each gets a number behind it."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._version = (-1, -1)
        self._named: dict[str, tuple[LoadedExtension, CommandDef]] = {}

    def listed(self) -> list[SlashCommand]:
        """As `get_commands` shows them."""
        return [_row(name, loaded, command) for name, (loaded, command) in self._commands().items()]

    def has(self, text: str) -> bool:
        """True if a text calls one of them."""
        return text.startswith("/") and _split(text)[0] in self._commands()

    async def run(self, text: str) -> bool:
        """Run the command that a text calls; true if there was one, also when it failed."""
        if not text.startswith("/"):
            return False
        name, arguments = _split(text)
        found = self._commands().get(name)
        if found is None:
            return False
        loaded, command = found
        await self._dispatcher.caught_up(loaded)
        try:
            await loaded.run_command(command.function, arguments, PausableTimeout(command.timeout))
        except ExtensionFailed as error:
            self._dispatcher.reports(f"command:{name}", "command", text_of_error(error))
        return True

    def _commands(self) -> dict[str, tuple[LoadedExtension, CommandDef]]:
        extensions = self._dispatcher.extensions
        version = (len(extensions), sum(loaded.extension.registered.changes for loaded in extensions))
        if version != self._version:
            self._version = version
            registered = [
                (one, command) for one in extensions for command in one.extension.registered.commands.values()
            ]
            self._named = _named(registered)
        return self._named


def _split(text: str) -> tuple[str, str]:
    """The name between the slash and the first space, and everything after that space."""
    name, _, arguments = text[1:].partition(" ")
    return name, arguments


def _named(commands: list[tuple[LoadedExtension, CommandDef]]) -> dict[str, tuple[LoadedExtension, CommandDef]]:
    names = [command.name for _, command in commands]
    named: dict[str, tuple[LoadedExtension, CommandDef]] = {}
    for index, (loaded, command) in enumerate(commands):
        again = names.count(command.name) > 1
        name = f"{command.name}:{names[: index + 1].count(command.name)}" if again else command.name
        named.setdefault(name, (loaded, command))
    return named


def _row(name: str, loaded: LoadedExtension, command: CommandDef) -> SlashCommand:
    source = loaded.source
    info = SourceInfo(
        path=source.path,
        source=source.origin,
        scope=source.scope,
        origin="package" if source.origin == "package" else "top-level",
        base_dir=os.path.dirname(source.path) or ABSENT,
    )
    return SlashCommand(
        name=name, description=command.help or ABSENT, source="extension", path=source.path, source_info=info
    )
