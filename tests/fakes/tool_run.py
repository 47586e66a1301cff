"""A tool call without an agent: its own scope, its updates kept, its outcome or failure handed back."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fakes.agent_loop import AnyTool
from pigeon.agent.interfaces import (
    NO_HOST,
    ArgumentSubject,
    CommandSubject,
    PathSubject,
    PreparedCall,
    Subject,
)
from pigeon.agent.scope import Scope
from pigeon.session.jobs import Jobs
from pigeon.system.paths import PathResolver
from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import plain_environment
from pigeon.system.shell.artifacts import Artifacts
from pigeon.system.shell.shell import Shell, Workplace
from pigeon.tools.agent_tools import make_path_resolver
from pigeon.tools.base import BaseTool, ToolParts
from pigeon.tools.bash import BashTool
from pigeon.tools.file_access import FileAccess
from pigeon.tools.images.resizing import Fitted, Profile, fit_image
from pigeon.wire.content import ImageContent, TextContent, ToolCall
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome
from pigeon.workspaces.local import LocalParts, LocalWorkspace

BASH = Shell("/bin/bash")


class FakeRun:
    def __init__(self, on_update: Callable[[ToolOutcome], None] | None = None) -> None:
        self.call_id = "call-1"
        self.scope = Scope()
        self.updates: list[ToolOutcome] = []
        self.subject: Subject = ArgumentSubject({})
        self.conceals: Callable[[str], bool] = lambda place: False
        self._on_update = on_update

    async def update(self, progress: ToolOutcome) -> None:
        self.updates.append(progress)
        if self._on_update is not None:
            self._on_update(progress)


def paths_in(folder: object, home: str = "/nowhere") -> PathResolver:
    """How tools resolve paths that work in a folder."""
    return PathResolver(str(folder), home)


def local_workspace(processes: ProcessOwner, home: str = "/nowhere", folder: object = "/") -> LocalWorkspace:
    """A folder of this machine as an agent reaches it."""
    return LocalWorkspace(str(folder), LocalParts(processes, lambda: plain_environment(os.environ), home))


def files_of(processes: ProcessOwner) -> FileAccess:
    """How tools reach files, and search."""
    return FileAccess(workspace=local_workspace(processes))


def workplace(
    folder: object,
    processes: ProcessOwner,
    *,
    shell: Shell = BASH,
    artifacts: Callable[[], str | None] | None = None,
    environment: Callable[[], Mapping[str, str]] = lambda: os.environ,
) -> Workplace:
    """Where commands run; long outputs go to the folder `artifacts` in it, or where the function says."""
    beside = os.path.join(str(folder), "artifacts")
    kept = Artifacts(artifacts or (lambda: beside), temporary=str(folder))
    return Workplace(str(folder), shell, environment, kept, processes, BashTool.name)


def tool_parts(place: Workplace, home: str = "/nowhere", **more: Any) -> ToolParts:
    """What built-in tools are made from, for an agent without a plan."""
    sandbox = more.get("sandbox", lambda: None)
    parts: dict[str, Any] = {
        "paths": make_path_resolver(place.cwd, home, sandbox),
        "files": FileAccess(
            workspace=LocalWorkspace(
                place.cwd, LocalParts(place.processes, lambda: plain_environment(place.environment()), home)
            )
        ),
        "fitter": PlainFitter(),
        "resize_images": lambda: True,
        "declared": False,
        "host": NO_HOST,
        "plan": None,
        "sandbox": sandbox,
        "jobs": Jobs(lambda event: None),
    }
    return ToolParts(place=place, **{**parts, **more})


def subject_of(tool: str, arguments: dict[str, Any], paths: PathResolver) -> Subject:
    """What a call is about, as the tool of that name says."""
    if tool == "bash":
        return CommandSubject(arguments["command"])
    if tool in ("read", "grep", "find", "ls"):
        return PathSubject(paths.hold_path(arguments.get("path") or "."), "read" if tool == "read" else "search")
    if tool in ("write", "edit"):
        return PathSubject(paths.hold_path(arguments["path"], for_reading=False), "write")
    return ArgumentSubject(arguments)


async def prepare_call(
    name: str, arguments: dict[str, Any], paths: PathResolver | None = None, **properties: Any
) -> PreparedCall:
    """A call as gates see it, of a tool that does nothing; `properties` are those of its schema."""
    where = paths or paths_in("/nowhere")

    class Idle(AnyTool):
        def resolve_subject(self, arguments: dict[str, Any]) -> Any:
            return subject_of(name, arguments, where)

    call = PreparedCall(ToolCall(id="c1", name=name, arguments=arguments), Idle(name, **properties), Scope())
    await call.replace_arguments(arguments)
    return call


async def call_tool(tool: BaseTool, run: FakeRun | None = None, **arguments: Any) -> ToolOutcome:
    """What the loop does: older forms rewritten, arguments checked, the subject held while it is executed."""
    return await (await begin_call(tool, run, **arguments))


async def begin_call(tool: BaseTool, run: FakeRun | None = None, **arguments: Any) -> Coroutine[Any, Any, ToolOutcome]:
    """The same up to the point where calls of one answer may run side by side."""
    run = run or FakeRun()
    prepared = PreparedCall(ToolCall(id=run.call_id, name=tool.name, arguments=arguments), tool, run.scope)
    await prepared.replace_arguments(arguments)
    run.subject = prepared.subject

    async def execute() -> ToolOutcome:
        try:
            return await tool.execute(prepared.arguments, run)
        finally:
            prepared.close()

    return execute()


async def call_for_text(tool: BaseTool, run: FakeRun | None = None, **arguments: Any) -> str:
    return text_of(await call_tool(tool, run, **arguments))


async def call_for_failure(tool: BaseTool, run: FakeRun | None = None, **arguments: Any) -> ToolFailed:
    try:
        outcome = await call_tool(tool, run, **arguments)
    except ToolFailed as error:
        return error
    raise AssertionError(f"did not fail: {text_of(outcome)!r}")


def text_of(outcome: ToolOutcome) -> str:
    return "".join(block.text for block in outcome.content if isinstance(block, TextContent))


def images_of(outcome: ToolOutcome) -> list[ImageContent]:
    return [block for block in outcome.content if isinstance(block, ImageContent)]


class PlainFitter:
    """Decodes images in the test's own process, however large."""

    async def fit_image(self, data: bytes, mime: str, profile: Profile | None) -> Fitted:
        return fit_image(data, mime, profile)
