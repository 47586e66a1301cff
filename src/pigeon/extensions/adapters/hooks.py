"""The session's hooks, implemented by extensions: each calls the handlers of one event; and slash commands.

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
from pigeon.extensions.public.results import to_plain_json, validate_record
from pigeon.extensions.public.session_objects import to_custom_message
from pigeon.extensions.runtime.dispatcher import Answer, Dispatcher
from pigeon.extensions.runtime.loaded_extension import LoadedExtension
from pigeon.extensions.runtime.pausable_timeout import PausableTimeout
from pigeon.session import hooks as h
from pigeon.wire import codec
from pigeon.wire.answers import BashResult, SlashCommand, SourceInfo
from pigeon.wire.base import ABSENT
from pigeon.wire.content import ImageContent, text_of
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import CustomMessage, Message, UserMessage
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

    def list_commands(self) -> list[SlashCommand]:
        return self._commands.list_commands()

    def has_command(self, text: str) -> bool:
        """True if `try_run_command` would run a command for this text."""
        return self._commands.has_command(text)

    async def try_run_command(self, text: str) -> bool:
        """Run the slash command in a text; returns False if there is none."""
        return await self._commands.try_run(text)

    async def transform_input(self, said: h.PromptInput) -> h.PromptInput | None:
        """The input to continue with, or None if an extension handled it."""
        self._continued = 0
        current: h.PromptInput | None = said

        def make_input_event() -> e.Event:
            assert current is not None
            return e.Input(current.text, copy.deepcopy(current.images), current.source, current.behavior)

        def apply_input_answer(answer: Answer) -> bool:
            nonlocal current
            value = answer.value
            if isinstance(value, r.Handled):
                current = None
            elif isinstance(value, r.Transform) and current is not None:
                images = current.images if value.images is None else list(value.images)
                changed = msgspec.structs.replace(current, text=value.text, images=images)
                current = self._validate_value(answer, changed, current)
            return current is None

        await self._dispatcher.ask_handlers(e.Input, make_input_event, apply_input_answer)
        return current

    async def collect_prompt_additions(
        self, prompt: UserMessage, system_prompt: Callable[[], str]
    ) -> h.PromptAdditions:
        """Notes beside the prompt, and a system prompt for this run."""
        messages: list[CustomMessage] = []
        forced: str | None = None

        def collect_additions(answer: Answer) -> bool:
            nonlocal forced
            value = answer.value
            if isinstance(value, r.Begin):
                messages.extend(self._to_notes(answer, value.note))
                if isinstance(value.system_prompt, str):
                    forced = value.system_prompt
            return False

        def make_start_event() -> e.Event:
            images = [copy.deepcopy(block) for block in prompt.content if isinstance(block, ImageContent)]
            return e.BeforeAgentStart(text_of(prompt.content), images, system_prompt() if forced is None else forced)

        await self._dispatcher.ask_handlers(e.BeforeAgentStart, make_start_event, collect_additions)
        return h.PromptAdditions(messages, forced)

    async def transform_context(self, messages: list[Message]) -> list[Message]:
        """The messages for one request."""
        current = messages

        def apply_messages_answer(answer: Answer) -> bool:
            nonlocal current
            given = answer.value.messages if isinstance(answer.value, r.Messages) else answer.event.messages
            if answer.failure is None and given != current:
                current = self._validate_messages(answer, given, current)
            return False

        await self._dispatcher.ask_handlers(
            e.ModelContext, lambda: e.ModelContext(copy.deepcopy(current)), apply_messages_answer
        )
        return current

    async def transform_message(self, message: Message) -> Message:
        current = message

        def apply_replacement_answer(answer: Answer) -> bool:
            nonlocal current
            if isinstance(answer.value, r.Replace):
                if type(answer.value.value) is type(current):
                    current = self._validate_value(answer, answer.value.value, current)
                else:
                    self._report(answer, "message_end can only be answered with a message of the same role")
            return False

        await self._dispatcher.ask_handlers(
            e.MessageEnd, lambda: e.MessageEnd(copy.deepcopy(current)), apply_replacement_answer
        )
        self._asked_about = [*self._asked_about[1 - REMEMBERED_MESSAGES :], current]
        return current

    def has_seen_message(self, message: Message) -> bool:
        """True if this very object came out of `transform_message`, so that its handlers are not called again."""
        return any(message is one for one in self._asked_about)

    async def intercept_user_bash(self, command: str, excluded: bool, cwd: str) -> BashResult | None:
        """A result instead of running the command; raises `Refusal` if an extension blocks it."""
        result: list[BashResult] = []

        def keep_result_or_refuse(answer: Answer) -> bool:
            if answer.failure is not None:
                raise Refusal(answer.failure)
            if isinstance(answer.value, r.Block):
                raise Refusal(str(answer.value.reason))
            if isinstance(answer.value, r.BashOutput):
                result.append(to_bash_result(answer.value))
            return bool(result)

        await self._dispatcher.ask_handlers(
            e.UserBash, lambda: e.UserBash(command, excluded, cwd), keep_result_or_refuse
        )
        return result[0] if result else None

    async def decide_compaction(self, prepared: h.CompactionPreparation) -> h.ExtensionSummary | bool:
        """The last verdict of the handlers; a cancellation ends the calls."""
        verdict: h.ExtensionSummary | bool = True

        def keep_verdict(answer: Answer) -> bool:
            nonlocal verdict
            value = answer.value
            if isinstance(value, r.Cancel):
                verdict = False
            elif isinstance(value, r.Summary):
                own = h.ExtensionSummary(value.summary, value.first_kept_entry_id, value.tokens_before, value.details)
                verdict = self._validate_value(answer, own, verdict)
            return verdict is False

        def make_compaction_event() -> e.Event:
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

        await self._dispatcher.ask_handlers(e.SessionBeforeCompact, make_compaction_event, keep_verdict)
        return verdict

    async def collect_continuations(self, outcome: h.RunOutcome) -> list[CustomMessage]:
        """Notes that start one more run, up to a limit per prompt."""
        notes: list[CustomMessage] = []

        def collect_notes(answer: Answer) -> bool:
            if isinstance(answer.value, r.GoOn):
                if self._continued >= MOST_CONTINUATIONS:
                    self._report(answer, f"the run has already been continued {MOST_CONTINUATIONS} times; it ends here")
                else:
                    notes.extend(self._to_notes(answer, answer.value.note))
            return False

        await self._dispatcher.ask_handlers(e.AgentBeforeSettle, lambda: e.AgentBeforeSettle(outcome), collect_notes)
        self._continued += bool(notes)
        return notes

    async def transform_provider_request(self, body: bytes) -> bytes:
        """The body to send; it is decoded only if an extension handles the event."""
        replaced: list[Any] = []

        def make_request_event() -> e.Event:
            return e.BeforeProviderRequest(copy.deepcopy(replaced[-1]) if replaced else codec.decode(body))

        def keep_replaced_body(answer: Answer) -> bool:
            if isinstance(answer.value, r.Replace):
                try:
                    replaced.append(to_plain_json(answer.value.value, "the payload"))
                except TypeError as error:
                    self._report(answer, str(error))
            return False

        await self._dispatcher.ask_handlers(e.BeforeProviderRequest, make_request_event, keep_replaced_body)
        return codec.encode(replaced[-1]) if replaced else body

    async def transform_provider_headers(self, headers: dict[str, str]) -> dict[str, str]:
        current = headers

        def keep_changed_headers(answer: Answer) -> bool:
            nonlocal current
            if answer.failure is None:
                kept = {name: value for name, value in answer.event.headers.items() if value is not None}
                if all(isinstance(item, str) for pair in kept.items() for item in pair):
                    current = kept
                else:
                    self._report(answer, "names and values of headers must be strings")
            return False

        await self._dispatcher.ask_handlers(
            e.BeforeProviderHeaders, lambda: e.BeforeProviderHeaders(dict(current)), keep_changed_headers
        )
        return current

    def on_provider_response(self, status: int, headers: Mapping[str, str]) -> None:
        """Notify extensions that a provider has begun to answer."""
        if self._dispatcher.has_listeners(e.AfterProviderResponse):
            self._dispatcher.post_event(e.AfterProviderResponse(status, dict(headers)))

    def on_model_selected(self, model: Model, previous: Model | None, source: h.ModelSelectSource) -> None:
        if self._dispatcher.has_listeners(e.ModelSelect):
            self._dispatcher.post_event(e.ModelSelect(copy.deepcopy(model), copy.deepcopy(previous), source))

    async def find_resources(self, cwd: str) -> h.ResourcePaths:
        found = h.ResourcePaths([], [])

        def collect_paths(answer: Answer) -> bool:
            if isinstance(answer.value, r.Resources):
                found.skills.extend(str(path) for path in answer.value.skills)
                found.prompts.extend(str(path) for path in answer.value.prompts)
            return False

        await self._dispatcher.ask_handlers(e.ResourcesDiscover, lambda: e.ResourcesDiscover(cwd), collect_paths)
        return found

    async def on_session_started(self, reason: h.StartReason, previous: str | None = None) -> None:
        self._dispatcher.post_event(e.SessionStart(reason, previous))

    async def on_session_ending(self, reason: h.EndReason, target: str | None = None) -> None:
        """Notify extensions that a conversation is about to be left, and give them a moment."""
        await self._dispatcher.notify_all_and_wait(
            e.SessionShutdown(reason, target), QUIT_SECONDS if reason == "quit" else LEAVE_SECONDS
        )

    async def should_refuse_switch(self, reason: Literal["new", "resume"], target: str | None) -> bool:
        """True if any extension refuses a new or another conversation; the first one decides."""
        return await self._is_vetoed(e.SessionBeforeSwitch, lambda: e.SessionBeforeSwitch(reason, target))

    async def should_refuse_fork(self, entry_id: str, position: Literal["before", "at"]) -> bool:
        """True if an extension refuses a fork or a copy."""
        return await self._is_vetoed(e.SessionBeforeFork, lambda: e.SessionBeforeFork(entry_id, position))

    async def _is_vetoed(self, kind: type[e.Event], make: Callable[[], e.Event]) -> bool:
        cancelled: list[bool] = []

        def record_veto(answer: Answer) -> bool:
            if isinstance(answer.value, r.Cancel):
                cancelled.append(True)
            return bool(cancelled)

        await self._dispatcher.ask_handlers(kind, make, record_veto)
        return bool(cancelled)

    def _to_notes(self, answer: Answer, note: r.Note | str | None) -> list[CustomMessage]:
        try:
            return [] if note is None else [to_custom_message(note)]
        except (TypeError, AttributeError) as error:
            self._report(answer, str(error))
            return []

    def _validate_value(self, answer: Answer, value: Any, otherwise: Any) -> Any:
        try:
            return validate_record(value)
        except TypeError as error:
            self._report(answer, str(error))
            return otherwise

    def _validate_messages(self, answer: Answer, value: Any, otherwise: list[Message]) -> list[Message]:
        try:
            codec.prepare_type(list[Message])
            return msgspec.convert(to_plain_json(value, "messages"), list[Message])
        except (TypeError, msgspec.ValidationError) as error:
            self._report(answer, f"messages: {error}")
            return otherwise

    def _report(self, answer: Answer, text: str) -> None:
        self._dispatcher.reports(answer.loaded.source.path, answer.event.name, text)


def to_bash_result(given: r.BashOutput) -> BashResult:
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
    """All commands by name; if several extensions use one name, each gets a number appended."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._version = (-1, -1)
        self._named: dict[str, tuple[LoadedExtension, CommandDef]] = {}

    def list_commands(self) -> list[SlashCommand]:
        """The commands in the form of `get_commands`."""
        return [
            _to_slash_command(name, loaded, command) for name, (loaded, command) in self._commands_by_name().items()
        ]

    def has_command(self, text: str) -> bool:
        """True if a text calls one of them."""
        return text.startswith("/") and _split_command(text)[0] in self._commands_by_name()

    async def try_run(self, text: str) -> bool:
        """Run the command in a text; returns False if there is none, and True even if it failed."""
        if not text.startswith("/"):
            return False
        name, arguments = _split_command(text)
        found = self._commands_by_name().get(name)
        if found is None:
            return False
        loaded, command = found
        await self._dispatcher.wait_until_caught_up(loaded)
        try:
            await loaded.run_command(command.function, arguments, PausableTimeout(command.timeout))
        except ExtensionFailed as error:
            self._dispatcher.reports(f"command:{name}", "command", text_of_error(error))
        return True

    def _commands_by_name(self) -> dict[str, tuple[LoadedExtension, CommandDef]]:
        extensions = self._dispatcher.extensions
        version = (len(extensions), sum(loaded.extension.registered.changes for loaded in extensions))
        if version != self._version:
            self._version = version
            registered = [
                (one, command) for one in extensions for command in one.extension.registered.commands.values()
            ]
            self._named = _assign_command_names(registered)
        return self._named


def _split_command(text: str) -> tuple[str, str]:
    """The name between the slash and the first space, and everything after that space."""
    name, _, arguments = text[1:].partition(" ")
    return name, arguments


def _assign_command_names(
    commands: list[tuple[LoadedExtension, CommandDef]],
) -> dict[str, tuple[LoadedExtension, CommandDef]]:
    names = [command.name for _, command in commands]
    named: dict[str, tuple[LoadedExtension, CommandDef]] = {}
    for index, (loaded, command) in enumerate(commands):
        again = names.count(command.name) > 1
        name = f"{command.name}:{names[: index + 1].count(command.name)}" if again else command.name
        named.setdefault(name, (loaded, command))
    return named


def _to_slash_command(name: str, loaded: LoadedExtension, command: CommandDef) -> SlashCommand:
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
