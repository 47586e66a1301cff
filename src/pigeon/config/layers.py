"""Settings in two layers: the user's, and over it the project's if the project is trusted. Where the user's folder is
one of oh-my-pi, its `config.yml` is below the user's own.

Objects merge key by key, changes of `defaultTools` are added, the lower of two `limits` counts, `sandbox` is passed to
`sandbox/control.py` unmerged, everything else is replaced. Keys that decide about trust, the network, loops or what a
page shows are the user's alone.

Permission rules fail closed. `doubts` has reasons why rules may be missing: a file that exists and cannot be used,
permissions that are not an object, a key that occurs twice or is similar to `permissions`. While there is one, the
permission gate asks about everything that is not denied.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

from pigeon.config.json_file import LARGEST, find_repeated_key
from pigeon.config.paths import project_dirs
from pigeon.config.settings import Settings, ToolSettings, keys_of, read_settings_file, select_valid_keys
from pigeon.config.tool_selection import join_tool_lists, read_tool_names
from pigeon.system.file_view import LOCAL_FILES, FileView
from pigeon.system.files import read_whole
from pigeon.wire import codec
from pigeon.wire.base import merge_objects
from pigeon.wire.choices import VERDICTS
from pigeon.wire.errors import BadRecord
from pigeon.wire.steering import parse_limits

TOOLS = "defaultTools"
LIMITS = "limits"
OH_MY_PI_NAMES = ("config.yml", "config.yaml")
NO_RULES = f"permissions must be an object with the lists {', '.join(VERDICTS[:-1])} and {VERDICTS[-1]}"
USERS_ONLY = (
    "defaultProjectTrust",
    "export",
    "httpProxy",
    "keepProviderKeys",
    "loopGuard",
    "permissions",
    "sandbox",
    "tools",
    "warm",
)


class Layers:
    """The user's settings at once; the project's when it is trusted.

    `report` is called once for each error in a file; the permission gate reports the `doubts`. `project_view` shows the
    machine that the project is on.
    """

    def __init__(
        self,
        agent_dir: str,
        report: Callable[[str], None],
        project_view: Callable[[], FileView] = lambda: LOCAL_FILES,
    ) -> None:
        self._project_view = project_view
        self._report = report
        self._reported: set[str] = set()
        self._path = os.path.join(agent_dir, "settings.json")
        self._user_doubts: list[str] = []
        self._unusable: list[str] = []
        self._users = self._read_user_layers(agent_dir)
        self._unusable_of_user = tuple(self._unusable)
        self.doubts = list(self._user_doubts)
        self.project_permissions: Any = None
        self.project_sandboxes: list[tuple[str, Any]] = []
        self._places: dict[str, str] = {}
        self.settings = self._merge_layers(self._users)

    def place_of(self, key: str) -> str:
        """The file that a setting is from: the last one that sets it, or the user's."""
        return self._places.get(key, self._path)

    @property
    def user_permissions(self) -> Any:
        """The permission rules of the user, as in the files; None if they are not an object."""
        return reduce(_join_rules, (_rules_in(raw) for _, raw in self._users))

    @property
    def user_sandbox(self) -> Any:
        """The sandbox settings of the user, as in the file."""
        return self._users[-1][1].get("sandbox")

    def find_unusable_sandbox_file(self, with_users: bool) -> str | None:
        """An unusable file that mentions the sandbox, so that its request is unknown; None if there is none."""
        return next((path for path in self._unusable_files(with_users) if _has_sandbox_word(path)), None)

    def has_unreadable_file(self, with_users: bool) -> bool:
        """Whether an existing file cannot be read at all: it may ask for a sandbox or not."""
        return any(_has_sandbox_word(path) is None for path in self._unusable_files(with_users))

    def _unusable_files(self, with_users: bool) -> list[str]:
        return [path for path in self._unusable if with_users or path not in self._unusable_of_user]

    def use_folder(self, cwd: str, trusted: bool, harmless: bool) -> None:
        """Use the settings of the project in this folder, if it is trusted, instead of those of another one."""
        self.load_project_settings(project_dirs(cwd) if trusted else [])

    def read_project(self, cwd: str, trusted: bool) -> None:
        """Read the files of a project without using them, so that they are fetched."""
        for folder in project_dirs(cwd) if trusted else ():
            read_settings_file(os.path.join(folder, "settings.json"), lambda problem: None, self._project_view())

    def load_project_settings(self, folders: Sequence[str]) -> Settings:
        """Read the project's settings too, the first folder's on top; only for a project that is trusted.

        The settings of an earlier project are dropped, even if `folders` is empty.
        """
        layers = list(self._users)
        self.doubts = list(self._user_doubts)
        self.project_permissions = None
        self.project_sandboxes = []
        self._unusable = list(self._unusable_of_user)
        for folder in reversed(folders):
            path = os.path.join(folder, "settings.json")
            raw = self._read_layer(path, self.doubts, self._project_view())
            if raw:
                self.project_permissions = _join_rules(self.project_permissions, _rules_in(raw))
                if "sandbox" in raw:
                    self.project_sandboxes.append((path, raw["sandbox"]))
                layers.append((path, {key: value for key, value in raw.items() if key not in USERS_ONLY}))
        self.settings = self._merge_layers(layers)
        return self.settings

    @property
    def user_files(self) -> list[str]:
        """The files of the user's settings, the one that counts most last; it may not exist."""
        return [path for path, _ in self._users]

    def _read_user_layers(self, agent_dir: str) -> list[tuple[str, dict[str, Any]]]:
        """The user's settings: those of oh-my-pi, if the folder has them, and over them those in `settings.json`."""
        layers = []
        theirs = find_oh_my_pi_settings(agent_dir)
        if theirs is not None:
            from pigeon.config.oh_my_pi import read_settings

            found = read_settings(theirs, self._report, self._user_doubts.append)
            self._unusable += [theirs] if found is None else []
            layers.append((theirs, found or {}))
        return [*layers, (self._path, self._read_layer(self._path, self._user_doubts))]

    def _read_layer(self, path: str, doubts: list[str], view: FileView = LOCAL_FILES) -> dict[str, Any]:
        raw = read_settings_file(path, doubts.append, view)
        if raw is None:
            self._unusable.append(path)
            return {}
        doubts.extend(f"{path}: {doubt}" for doubt in _doubts_of(raw, path))
        return raw

    def _merge_layers(self, layers: list[tuple[str, dict[str, Any]]]) -> Settings:
        together: dict[str, Any] = {}
        self._places = {}
        for path, raw in layers:
            wrong: list[str] = []
            given = dict(raw)
            if TOOLS in raw:
                given[TOOLS] = join_tool_lists(together.get(TOOLS, []), read_tool_names(raw[TOOLS], wrong.append))
            if isinstance(raw.get(LIMITS), dict):
                given[LIMITS] = _lower_limits(together.get(LIMITS, {}), raw[LIMITS], wrong.append)
            valid = select_valid_keys(given, wrong.append)
            self._places |= dict.fromkeys(valid, path)
            if "defaultProvider" in valid:
                # The model of another file is one of another provider.
                together.pop("defaultModel", None)
            together = merge_objects(together, valid)
            for problem in (f"{path}: {text}" for text in wrong):
                if problem not in self._reported:
                    self._reported.add(problem)
                    self._report(problem)
        return codec.convert(together, Settings)


def find_oh_my_pi_settings(agent_dir: str) -> str | None:
    """The file with the settings of oh-my-pi in an agent's folder, if there is one."""
    names = (os.path.join(agent_dir, name) for name in OH_MY_PI_NAMES)
    return next(filter(os.path.lexists, names), None)


def _has_sandbox_word(path: str) -> bool | None:
    """Whether the word is in a file; None if it cannot be read."""
    try:
        return b"sandbox" in read_whole(path, LARGEST).lower()
    except OSError:
        return None


def _lower_limits(known: dict[str, Any], more: dict[str, Any], report: Callable[[str], None]) -> dict[str, Any]:
    """The limits of `more`, none higher than the known ones: a file may lower limits of another file, not raise
    them."""
    found: dict[str, Any] = {}
    for name, value in more.items():
        try:
            parse_limits({name: value})
        except BadRecord as error:
            report(f"{LIMITS}.{name} is ignored: {error}")
        else:
            if value is not None:
                found[name] = min(value, known.get(name, value))
    return found


def _doubts_of(raw: dict[str, Any], path: str) -> Iterator[str]:
    """The reasons in a settings file why permission rules may be missing."""
    rules, tools = raw.get("permissions", {}), raw.get("tools", {})
    if not isinstance(rules, dict):
        yield NO_RULES
    if not isinstance(tools, dict):
        yield "tools must be an object; its approvalMode is ignored"
        tools = {}
    if "permissions" in raw:
        repeated = find_repeated_key(path)
        if repeated is not None:
            yield f"{repeated[:80]!r} appears twice, and only the last one counts"
    known, within = keys_of(Settings), keys_of(ToolSettings)
    if not (raw.keys() <= set(known) and tools.keys() <= set(within)):
        from pigeon.config.known_keys import find_misnamed_rules_key

        hiding = find_misnamed_rules_key(raw, known) or find_misnamed_rules_key(tools, within, "tools")
        if hiding is not None:
            yield f"{hiding[0][:80]!r} is ignored; the key is called {hiding[1]!r}"


def _join_rules(one: Any, other: Any) -> Any:
    """The permission rules of two files together: lists are concatenated, so that no rule gets lost."""
    if one is None or other is None:
        return one if other is None else other
    joined = dict(one)
    for key, value in other.items():
        some = isinstance(joined.get(key), list) or isinstance(value, list)
        joined[key] = [*_to_list(joined.get(key, [])), *_to_list(value)] if some else value
    return joined


def _rules_in(raw: dict[str, Any]) -> Any:
    rules = raw.get("permissions")
    return rules if isinstance(rules, dict) else None


def _to_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
