"""What every built-in tool shares: how it describes itself to the model, and the forms of its arguments and results.

`agent/interfaces.py` defines what the loop needs of a tool; `BaseTool` implements it for tools that class attributes
describe.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from msgspec import Struct

from pigeon.agent.inference import ToolSpec
from pigeon.agent.interfaces import Access, ArgumentSubject, HostAccess, PathSubject, Subject, ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.system.held_paths import HeldPath
from pigeon.system.paths import PathResolver
from pigeon.wire.agents import AgentIsolation, AgentType
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.content import TextContent
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome
from pigeon.wire.steering import TodoPhase
from pigeon.workspaces.fact_table import FETCHED_AHEAD, WorkspacePaths

if TYPE_CHECKING:
    from pigeon.sandbox.policy import SandboxPolicy
    from pigeon.session.jobs import Jobs
    from pigeon.system.shell.shell import Workplace
    from pigeon.tools.file_access import FileAccess
    from pigeon.tools.images.fitting import ImageFitter


class Plan(Protocol):
    """Where the plan of the conversation is kept: `session/todos.py`."""

    def current_phases(self) -> list[TodoPhase]:
        """The current plan; not to be changed in place."""
        ...

    def replace_phases(self, phases: list[TodoPhase]) -> None: ...


class AgentRequest(Struct, frozen=True, kw_only=True):
    """What the model, or the program, wants of another agent."""

    prompt: str
    agent: str | None = None
    title: str | None = None
    background: bool = False
    resume: str | None = None
    isolation: AgentIsolation = "none"
    output_schema: Json | Absent = ABSENT


class TaskRunner(Protocol):
    """What starts agents for a call of `task`: `subagents/spawning.py`."""

    def list_types(self) -> list[AgentType]:
        """The types that may be started; empty if this agent may start none."""
        ...

    async def run_task(self, request: AgentRequest, run: ToolRun) -> ToolOutcome:
        """Run an agent to its end, or start it in the background; raises `ToolFailed`."""
        ...


class ToolParts(Struct, frozen=True):
    """The parts of built-in tools, for one working directory.

    `resize_images` is asked anew for each image. With `declared` the model may say of a command that it is
    independent. `host` may have taken over files and commands.
    There is no `plan` where the options leave out built-in tools. `sandbox` returns the policy in force, if any. `jobs`
    has what runs in the background, `agents` starts other agents, if this one may.
    """

    place: Workplace
    paths: PathResolver
    files: FileAccess
    fitter: ImageFitter
    resize_images: Callable[[], bool]
    declared: bool
    host: HostAccess
    plan: Plan | None
    sandbox: Callable[[], SandboxPolicy | None]
    jobs: Jobs
    agents: TaskRunner | None = None


class BaseTool:
    """A built-in tool: class attributes describe it, `create` makes it, `execute` runs it."""

    name: ClassVar[str]
    description: ClassVar[str]
    parameters: ClassVar[dict[str, Json]]
    facts: ClassVar[ToolFacts]
    snippet: ClassVar[str] = ""
    guidelines: ClassVar[tuple[str, ...]] = ()
    reads_only: ClassVar[bool] = False
    strict: ClassVar[bool] = False

    @classmethod
    def create(cls, parts: ToolParts) -> BaseTool | None:
        """The tool for a working directory; None if a required part is missing."""
        raise NotImplementedError

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool's description for the model; made once, because every request needs it."""
        return ToolSpec(self.name, self.description, self.parameters, self.strict)

    @property
    def definition(self) -> ToolSpec | None:
        return self.spec

    def prepare(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """The arguments that the tool knows, in today's form; gates and the tool see no others."""
        known = self.spec.parameters["properties"]
        arguments = self.modernize_arguments(arguments)
        if arguments.keys() <= known.keys():
            return arguments
        return {name: value for name, value in arguments.items() if name in known}

    def modernize_arguments(self, arguments: dict[str, Json]) -> dict[str, Json]:
        return arguments

    def resolve_subject(self, arguments: dict[str, Json]) -> Subject | Awaitable[Subject]:
        """The arguments; a tool that is about a command or a file overrides this."""
        return ArgumentSubject(arguments)

    async def preview(self, arguments: dict[str, Json], subject: Subject) -> str | None:
        """None; a tool that changes files overrides this."""
        return None

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Run the tool; raises `ToolFailed` to fail with details."""
        raise NotImplementedError


async def hold_path_subject(paths: PathResolver, path: str, access: Access) -> PathSubject:
    """Hold the file or folder of a call open; resolved in a thread because a disk may be slow to answer."""
    if isinstance(paths, WorkspacePaths):
        # What a tool lists or searches has no content.
        ahead = 0 if access == "search" else FETCHED_AHEAD
        return PathSubject(await paths.hold_there(path, access != "write", ahead), access)
    resolving = asyncio.ensure_future(asyncio.to_thread(paths.hold_path, path, for_reading=access != "write"))
    try:
        return PathSubject(await asyncio.shield(resolving), access)
    except asyncio.CancelledError:
        # An abort waits only a moment for this (`Scope.wait`), but the descriptor is closed all the same.
        await asyncio.wait({resolving})
        if resolving.exception() is None:
            resolving.result().close()
        raise


def make_concealment_test(run: ToolRun, paths: PathResolver) -> Callable[[str], bool]:
    """A test for real paths that a search must not show: those that gates conceal, and those that a sandbox hides."""
    hides = paths.make_hidden_path_test()
    return lambda place: run.conceals(place) or hides(place)


def held_path(run: ToolRun) -> HeldPath:
    """The file that the call was allowed to use; its arguments are not read again."""
    assert isinstance(run.subject, PathSubject)
    return run.subject.path


def parse_whole_number(arguments: dict[str, Json], name: str, default: int) -> int:
    """A numeric argument that counts something: at least 1, or the default if missing."""
    value = arguments.get(name)
    if value is None:
        return default
    if not math.isfinite(value) or value < 1:
        raise ToolFailed(f"Invalid {name}: {value}. It must be at least 1.")
    return int(value)


def make_text_outcome(text: str, details: Any | Absent = ABSENT) -> ToolOutcome:
    return ToolOutcome(content=[TextContent(text=text)], details=details)
