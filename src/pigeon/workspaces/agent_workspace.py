"""The workspace of one agent: what its parts ask to know where files are and where commands run.

Without a workspace, or with a `LocalWorkspace`, that is this machine, and everything is as if there were none. With any
other, tools and rules reach files by its operations, and code that cannot wait reads a table of what was fetched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol, TypeVar

from pigeon.system.file_view import LOCAL_FILES, FileView
from pigeon.system.paths import PathResolver
from pigeon.wire.answers import WorkspaceState
from pigeon.wire.base import ABSENT, Absent
from pigeon.workspaces.local import LocalParts, LocalWorkspace
from pigeon.workspaces.records import Look
from pigeon.workspaces.workspace import Workspace

_T = TypeVar("_T")
LARGEST = 256 * 1024
READ_WITHIN = 30.0
# What is looked at first in the folder of a project, so that one round trip has most of it.
PROJECT_NAMES = (
    *("AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD", ".git", ".mcp.json"),
    *(".agents/skills", ".pigeon", ".pi", ".omp", ".pi/settings.json", ".pigeon/settings.json", ".pi/SYSTEM.md"),
    *(".pi/APPEND_SYSTEM.md", ".pi/skills", ".pi/prompts", ".pi/rules", ".pi/agents"),
)


# Reads what a project says, without using it: called with its folder, and whether it is trusted.
ProjectReader = Callable[[str, bool], None]


class FolderUser(Protocol):
    """A part of the agent that works with the files of the conversation's folder."""

    def use_folder(self, cwd: str, trusted: bool, harmless: bool) -> None:
        """Switch to this folder. If it is not trusted but `harmless`, nothing in it needed trust."""
        ...


class _OwnFolderUser:
    def __init__(self, user: FolderUser, folder: str) -> None:
        self._user = user
        self._folder = folder

    def use_folder(self, cwd: str, trusted: bool, harmless: bool) -> None:
        self._user.use_folder(self._folder, False, False)


class AgentWorkspace:
    """Where the files of an agent are and its commands run: here, until another workspace is opened. `home` is the one
    of this machine."""

    def __init__(self, home: str, own_folder: str = "/") -> None:
        """`own_folder` is the one of this machine that the agent was started in."""
        self._own_folder = own_folder
        self.chosen: Workspace | None = None
        self._home = home
        self.view: FileView = LOCAL_FILES
        self._has_files = False
        self.runs_commands = False
        self._project_readers: list[ProjectReader] = []
        self._reading: asyncio.Future[None] | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is another machine."""
        return self.chosen is not None and not isinstance(self.chosen, LocalWorkspace)

    @property
    def home(self) -> str:
        """What `~` means in paths of the workspace."""
        return self.chosen.home if self.chosen is not None and self.is_elsewhere else self._home

    @property
    def machine(self) -> str | None:
        """The name of the other machine; None for this one."""
        return self.chosen.name if self.chosen is not None and self.is_elsewhere else None

    async def open(self, workspace: Workspace) -> None:
        """Connect to a workspace, and use it; raises `WorkspaceUnusable`."""
        await workspace.open()
        self.chosen = workspace
        here = workspace if isinstance(workspace, LocalWorkspace) else None
        self._has_files = here is None or here.overrides("read", "stat", "list", "look")
        self.runs_commands = here is None or here.overrides("run")
        if self._has_files:
            from pigeon.workspaces.fact_table import FactTable

            self.view = FactTable(workspace)

    async def close(self) -> None:
        if self.chosen is not None:
            await self.chosen.close()

    async def ask(self, question: Callable[[], _T], ahead: Sequence[Look] = ()) -> _T:
        """The answer to a question that reads `view`, asked again until what it needs has been fetched."""
        if not self._has_files:
            return question()
        from pigeon.workspaces.fact_table import FactTable

        assert isinstance(self.view, FactTable)
        return await self.view.answer(question, ahead)

    def make_path_resolver(
        self, cwd: str, find_output_folders: Callable[[], Sequence[str]] = lambda: ()
    ) -> PathResolver:
        """How paths are resolved that models write; the folders are those of outputs that are kept on this machine."""
        if self.chosen is None or not self._has_files:
            return PathResolver(cwd, self._home)
        from pigeon.workspaces.fact_table import WorkspacePaths

        return WorkspacePaths(cwd, self.home, self.chosen, find_output_folders)

    async def read_file(self, path: str, cwd: str, at_most: int) -> tuple[str, bytes]:
        """A file there that a person has named: its path, and its content, cut one byte after the limit; raises
        `OSError` and `ToolFailed`."""
        from pigeon.workspaces.fact_table import SeenPath, WorkspacePaths

        assert self.chosen is not None
        resolver = self.make_path_resolver(cwd)
        assert isinstance(resolver, WorkspacePaths)
        with await resolver.hold_there(path, True) as held:
            content = held.fresh_content if isinstance(held, SeenPath) else None
            data = content if content is not None else await self.chosen.read(held, 0, at_most + 1)
            return held.place, data

    def for_tools(self, cwd: str, parts: LocalParts) -> Workspace:
        """The workspace of tools, which on this machine start programs like the agent."""
        if self.chosen is None:
            return LocalWorkspace(cwd, parts)
        if isinstance(self.chosen, LocalWorkspace):
            self.chosen.use_parts(parts)
        return self.chosen

    def add_project_readers(self, *readers: ProjectReader) -> None:
        self._project_readers += readers

    async def read_project(self, cwd: str, trusted: bool) -> None:
        """Fetch what is needed to know a project: what the readers read, called as long as something is missing."""
        if not self._has_files:
            return

        def read() -> None:
            for reader in self._project_readers:
                reader(cwd, trusted)

        await self.ask(read, [Look(f"{cwd}/{name}", LARGEST, entries=True) for name in PROJECT_NAMES])

    def is_of_host(self) -> bool:
        """Whether the host of the agent is the workspace."""
        return self.chosen is not None and self.chosen.kind == "host"

    def use_host(self, services: object) -> None:
        """Ask these services of the host, if it is the workspace."""
        connect = getattr(self.chosen, "use_services", None)
        if connect is not None:
            connect(services)

    def begin_reading(self, reading: Coroutine[None, None, None]) -> None:
        """Read the project again, in the background: the workspace is another one now."""
        if isinstance(self.view, FileView) and not self.view.is_local:
            self.view.forget()
        self._reading = asyncio.ensure_future(reading)

    async def wait_until_read(self) -> None:
        """Wait until what the project says is known."""
        if self._reading is not None and not self._reading.done():
            await asyncio.wait({self._reading}, timeout=READ_WITHIN)

    def current_view(self) -> FileView:
        """How code that cannot wait sees the files of the workspace."""
        return self.view

    def find_own_folder(self) -> str:
        """The folder of this machine in which programs run that belong to the agent and not to the project."""
        return self._own_folder

    def keep_here(self, user: FolderUser) -> FolderUser:
        """A part of the agent that stays on this machine, where no project decides what it does."""
        return _OwnFolderUser(user, self._own_folder) if self.is_elsewhere else user

    @property
    def url(self) -> str | None:
        """What reopens another machine: its URL; None for this one."""
        if self.chosen is None or not self.is_elsewhere:
            return None
        return self.chosen.url or f"object:{self.chosen.name}#{self.chosen.folder}"

    def state(self) -> WorkspaceState | Absent:
        """What `get_state` says of it; absent if none was chosen."""
        if self.chosen is None:
            return ABSENT
        url = ABSENT if self.chosen.url is None else self.chosen.url
        return WorkspaceState(kind=self.chosen.kind, name=self.chosen.name, path=self.chosen.folder, url=url)

    def key_of(self, cwd: str) -> str | None:
        """What distinguishes a folder there from the same path here; None for one of this machine."""
        if self.chosen is None or not self.is_elsewhere:
            return None
        return f"{self.chosen.url or self.chosen.name} {cwd}"
