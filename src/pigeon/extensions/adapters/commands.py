"""Slash commands of extensions: how they are called, listed and run."""

from __future__ import annotations

import os

from pigeon.extensions.public.api import CommandDef
from pigeon.extensions.public.failures import ExtensionFailed, text_of_error
from pigeon.extensions.runtime.dispatcher import Team
from pigeon.extensions.runtime.loaded_extension import Member, takes
from pigeon.extensions.runtime.pausable_timeout import Patience
from pigeon.wire.answers import SlashCommand, SourceInfo
from pigeon.wire.base import ABSENT


class ExtensionCommands:
    """All commands, by name; where several extensions want one name, each gets a number behind it."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._version = (-1, -1)
        self._named: dict[str, tuple[Member, CommandDef]] = {}

    def listed(self) -> list[SlashCommand]:
        """As `get_commands` shows them."""
        return [_row(name, member, command) for name, (member, command) in self._commands().items()]

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
        member, command = found
        patience = Patience(command.timeout)
        context = member.command_context(patience)
        wanted = (arguments, context)[: min(2, takes(command.function))]
        try:
            await member.workshop.call(command.function, wanted, patience)
        except ExtensionFailed as error:
            self._team.reports(f"command:{name}", "command", text_of_error(error))
        return True

    def _commands(self) -> dict[str, tuple[Member, CommandDef]]:
        members = self._team.members
        version = (len(members), sum(member.extension.registry.changes for member in members))
        if version != self._version:
            self._version = version
            self._named = _named([(one, command) for one in members for command in _of(one)])
        return self._named


def split(text: str) -> tuple[str, str]:
    """The name between the slash and the first space, and everything after that space."""
    name, _, arguments = text[1:].partition(" ")
    return name, arguments


def _of(member: Member) -> list[CommandDef]:
    return list(member.extension.registry.commands.values())


def _named(commands: list[tuple[Member, CommandDef]]) -> dict[str, tuple[Member, CommandDef]]:
    names = [command.name for _, command in commands]
    named: dict[str, tuple[Member, CommandDef]] = {}
    for index, (member, command) in enumerate(commands):
        again = names.count(command.name) > 1
        name = f"{command.name}:{names[: index + 1].count(command.name)}" if again else command.name
        named.setdefault(name, (member, command))
    return named


def _row(name: str, member: Member, command: CommandDef) -> SlashCommand:
    source = member.source
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
