"""Slash commands of extensions: how they are called, listed and run."""

from __future__ import annotations

import os

from pigeon.extensions.public.api import CommandDef
from pigeon.extensions.public.failures import ExtensionFailed, text_of_error
from pigeon.extensions.runtime.dispatcher import Dispatcher
from pigeon.extensions.runtime.loaded_extension import LoadedExtension, takes
from pigeon.extensions.runtime.pausable_timeout import PausableTimeout
from pigeon.wire.answers import SlashCommand, SourceInfo
from pigeon.wire.base import ABSENT


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
        return text.startswith("/") and split(text)[0] in self._commands()

    async def run(self, text: str) -> bool:
        """Run the command that a text calls; true if there was one, also when it failed."""
        if not text.startswith("/"):
            return False
        name, arguments = split(text)
        found = self._commands().get(name)
        if found is None:
            return False
        loaded, command = found
        timeout = PausableTimeout(command.timeout)
        context = loaded.command_context(timeout)
        wanted = (arguments, context)[: min(2, takes(command.function))]
        try:
            await loaded.thread.call(command.function, wanted, timeout)
        except ExtensionFailed as error:
            self._dispatcher.reports(f"command:{name}", "command", text_of_error(error))
        return True

    def _commands(self) -> dict[str, tuple[LoadedExtension, CommandDef]]:
        extensions = self._dispatcher.extensions
        version = (len(extensions), sum(loaded.extension.registry.changes for loaded in extensions))
        if version != self._version:
            self._version = version
            self._named = _named([(one, command) for one in extensions for command in _of(one)])
        return self._named


def split(text: str) -> tuple[str, str]:
    """The name between the slash and the first space, and everything after that space."""
    name, _, arguments = text[1:].partition(" ")
    return name, arguments


def _of(loaded: LoadedExtension) -> list[CommandDef]:
    return list(loaded.extension.registry.commands.values())


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
