"""The types of agents that one conversation has: read when they are first needed, and again for another folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pigeon.system.file_view import FileView
from pigeon.tools.server_tools import PREFIX
from pigeon.wire.agents import AgentType
from pigeon.wire.model import Model

FindModel = Callable[[str], Model | None]


class AgentTypes:
    """All usable types, by rank. `find_model` returns the model that a type names, `known_tools` all tools."""

    def __init__(
        self,
        agent_dir: str,
        programs: Sequence[AgentType],
        known_tools: Callable[[], Iterable[str]],
        find_model: FindModel,
        report: Callable[[str], None],
        project_view: Callable[[], FileView],
    ) -> None:
        self._project_view = project_view
        self._agent_dir = agent_dir
        self._programs = programs
        self._find_model = find_model
        self._report = report
        self._known_tools = known_tools
        self._folder: tuple[str, bool] | None = None
        self._types: list[AgentType] | None = None

    def use_folder(self, cwd: str, trusted: bool) -> None:
        """Use the types of this folder, if it is trusted, instead of those of another one."""
        if self._folder != (cwd, trusted):
            self._folder, self._types = (cwd, trusted), None

    def list_types(self) -> list[AgentType]:
        """The same list each time, until there are others."""
        if self._types is None:
            self._types = self._read_types()
        return self._types

    def _read_types(self) -> list[AgentType]:
        from pigeon.subagents.definitions import (
            agent_folders,
            check_programs_types,
            check_types,
            combine_types,
            read_agent_types,
        )

        cwd, trusted = self._folder or ("", False)
        folders = agent_folders(self._agent_dir, cwd, trusted)
        files = read_agent_types(folders, self._report, self._project_view())
        every = combine_types(check_programs_types(self._programs, self._report), files)
        return check_types(every, self._known_tools(), self._can_appear_later, self._find_model, self._report)

    @staticmethod
    def _can_appear_later(tool: str) -> bool:
        """Tools of servers come when these are connected."""
        return tool.startswith(PREFIX)
