"""The commands of the protocol as methods, for code with an event loop and for code without one.

Type checkers and editors read `commands.pyi` instead, which `make sdk` writes from the same records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from pigeon.sdk.command_methods import make_methods_class
from pigeon.wire.commands import Command


class CommandMethods(make_methods_class("Methods", waits=False), ABC):
    """Every command of the protocol as an async method."""

    @abstractmethod
    async def send(self, command: Command) -> Any:
        """Send a command; returns its answer, raises `Refusal` if it is refused."""


class SyncCommandMethods(make_methods_class("SyncMethods", waits=True), ABC):
    """Every command as a method that waits for its answer."""

    @abstractmethod
    def send(self, command: Command) -> Any:
        """Send a command; returns its answer, raises `Refusal` if it is refused."""
