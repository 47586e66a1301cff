"""Settings in two layers: the user's, and over it the project's if the project is trusted.

Objects merge key by key, everything else is replaced. Keys that decide about trust or the network are the user's alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from pigeon.config.settings import Settings, fitting, read_settings_file
from pigeon.wire import codec
from pigeon.wire.base import merged

USERS_ONLY = ("defaultProjectTrust", "httpProxy", "keepProviderKeys", "permissions")


class Layers:
    """The user's settings at once; the project's when it is trusted. `report` gets what is wrong with a file, once."""

    def __init__(self, agent_dir: str, report: Callable[[str], None]) -> None:
        self._report = report
        self._reported: set[str] = set()
        self._path = os.path.join(agent_dir, "settings.json")
        self._user = read_settings_file(self._path, report)
        self.project_permissions: Any = None
        self.settings = self._checked([(self._path, self._user)])

    @property
    def user_permissions(self) -> Any:
        """The permission rules of the user, as they stand in the file."""
        return self._user.get("permissions")

    def add_project(self, folders: Sequence[str]) -> Settings:
        """Read the project's settings too, the first folder's on top; only for a project that is trusted."""
        layers = [(self._path, self._user)]
        for folder in reversed(folders):
            path = os.path.join(folder, "settings.json")
            raw = read_settings_file(path, self._report)
            if raw:
                self.project_permissions = _joined(self.project_permissions, raw.get("permissions"))
                layers.append((path, {key: value for key, value in raw.items() if key not in USERS_ONLY}))
        self.settings = self._checked(layers)
        return self.settings

    def _checked(self, layers: list[tuple[str, dict[str, Any]]]) -> Settings:
        together: dict[str, Any] = {}
        for path, raw in layers:
            wrong: list[str] = []
            together = merged(together, fitting(raw, wrong.append))
            for problem in (f"{path}: {text}" for text in wrong):
                if problem not in self._reported:
                    self._reported.add(problem)
                    self._report(problem)
        return codec.convert(together, Settings)


def _joined(one: Any, other: Any) -> Any:
    """Permission rules of two files together: lists are put behind each other, so that no rule gets lost."""
    if one is None or other is None:
        return one if other is None else other
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one if isinstance(one, dict) else other
    joined = dict(one)
    for key, value in other.items():
        both = isinstance(joined.get(key), list) and isinstance(value, list)
        joined[key] = [*joined[key], *value] if both else value
    return joined
