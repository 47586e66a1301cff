"""What every tool shares: how it describes itself, and how it hands back text."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Protocol, TypeVar

from pigeon.agent.inference import ToolSpec
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.content import TextContent
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome

_T = TypeVar("_T")


class Stop(Protocol):
    """The scope of a running call."""

    @property
    def cancelled(self) -> bool:
        """True once the call must stop."""
        ...

    def check(self) -> None:
        """Raise `Aborted` if the call must stop."""
        ...

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back once at cancellation; the returned function takes that back."""
        ...

    async def wait(self, awaitable: Awaitable[_T]) -> _T:
        """Await something, or raise `Aborted` as soon as the call must stop."""
        ...


class Running(Protocol):
    """What a tool knows of its own call."""

    @property
    def call_id(self) -> str:
        """The model's id of this call."""
        ...

    @property
    def scope(self) -> Stop:
        """Cancelled when the call must stop."""
        ...

    async def update(self, progress: ToolOutcome) -> None:
        """Show everything there is so far."""
        ...


class BaseTool:
    """A built-in tool: class attributes describe it, `execute` does it."""

    name: ClassVar[str]
    label: ClassVar[str]
    description: ClassVar[str]
    parameters: ClassVar[dict[str, Json]]
    snippet: ClassVar[str] = ""
    guidelines: ClassVar[tuple[str, ...]] = ()
    reads_only: ClassVar[bool] = False

    @property
    def spec(self) -> ToolSpec:
        """How the model sees the tool."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)

    def prepare(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """Arguments as they are; a tool with older argument forms overrides this."""
        return arguments

    async def execute(self, arguments: dict[str, Json], run: Running) -> ToolOutcome:
        """Do it; raise `ToolFailed` to fail with details."""
        raise NotImplementedError


def whole_number(arguments: dict[str, Json], name: str, default: int) -> int:
    """A numeric argument that counts something: at least 1, the default if it is not given."""
    value = arguments.get(name)
    if value is None:
        return default
    if not math.isfinite(value) or value < 1:
        raise ToolFailed(f"Invalid {name}: {value}. It must be at least 1.")
    return int(value)


def text_outcome(text: str, details: Any | Absent = ABSENT) -> ToolOutcome:
    """A result that is one text block."""
    return ToolOutcome(content=[TextContent(text=text)], details=details)
