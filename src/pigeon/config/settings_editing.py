"""One settings file, read and changed setting by setting; a change is checked against the declaration first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from pigeon.config.file_editing import change_file
from pigeon.config.layers import USERS_ONLY
from pigeon.config.settings import GROUPS, Settings, keys_of, read_settings_file, select_valid_keys
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.errors import BadRecord, StartupError, UsageError

UNSET = object()


class UnknownSetting(UsageError):
    """No part of the settings declares this key; `known` are the declared ones."""

    def __init__(self, key: str, known: list[str]) -> None:
        super().__init__(f"There is no setting {key}")
        self.key = key
        self.known = known


class SettingsFile:
    """The settings file of the user, or of a project. `checks` find errors in single settings, by key."""

    def __init__(
        self, path: str, *, of_project: bool = False, checks: Mapping[str, Callable[[Json], list[str]]] | None = None
    ) -> None:
        self.path = path
        self._of_project = of_project
        self._checks = checks or {}

    def read(self) -> dict[str, Any]:
        """The file's content; raises `StartupError` for an unusable file, which must not be overwritten."""
        wrong: list[str] = []
        raw = read_settings_file(self.path, wrong.append)
        if raw is None:
            raise StartupError(f"{wrong[0]}. Fix the file first: pigeon config edit")
        return raw

    def find_problems(self) -> list[str]:
        """The errors of the file and of its settings."""
        wrong: list[str] = []
        raw = read_settings_file(self.path, wrong.append)
        if raw is not None:
            select_valid_keys(raw, wrong.append)
        return wrong

    def create(self) -> None:
        """Write the file unchanged, so that there is one to edit."""
        self._apply_change(lambda raw: raw)

    def set(self, key: str, value: Json) -> None:
        """Change one value; raises `UsageError` for an invalid key or value."""
        require_known(key)
        top = key.partition(".")[0]
        if self._of_project and top in USERS_ONLY:
            raise UsageError(f"{key} is a personal setting: it cannot be set for a project")
        changed = _with_value(self.read(), key.split("."), value)
        wrong: list[str] = []
        select_valid_keys({top: changed[top]}, wrong.append)
        if top in self._checks:
            wrong += self._checks[top](changed[top])
        if top == "limits" and not wrong:
            _check_limits(changed[top])
        if wrong:
            reason = re.sub(r'Missing or invalid field "[^"]*": ', "", wrong[0].replace(" is ignored", ""))
            raise UsageError(f"{reason}. Nothing was changed")
        self._apply_change(lambda raw: _with_value(raw, key.split("."), value))

    def unset(self, key: str) -> bool:
        """Remove one value from the file; returns False if it is missing. Raises `UnknownSetting`."""
        if value_at(self.read(), key) is UNSET:
            require_known(key)
            return False
        self._apply_change(lambda raw: raw if value_at(raw, key) is UNSET else _without_key(raw, key.split(".")))
        return True

    def _apply_change(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        change_file(self.path, lambda: change(self.read()), "Change it with: pigeon config edit")


def declared_settings(kind: type[Struct] = Settings, where: str = "") -> list[tuple[str, Any]]:
    """Every setting with its default; settings of groups have their full names."""
    empty = codec.to_plain(kind())
    found: list[tuple[str, Any]] = []
    for key in keys_of(kind):
        name = f"{where}.{key}" if where else key
        group = GROUPS.get(name)
        found += [(name, empty.get(key))] if group is None else declared_settings(group, name)
    return found


def default_of(key: str) -> Json:
    """The default of a setting; for a group, those of its settings."""
    for name, default in declared_settings():
        if name == key:
            return default
    return {name.removeprefix(f"{key}."): one for name, one in declared_settings() if name.startswith(f"{key}.")}


def require_known(key: str) -> None:
    """Raise `UnknownSetting` for an undeclared key; inside a setting that is an object, any key is allowed."""
    names = [name for name, _ in declared_settings()]
    parts = key.split(".")
    above = {".".join(parts[: count + 1]) for count in range(len(parts))}
    in_object = any(name in above and _is_object_setting(name) for name in names)
    if key not in names and key not in GROUPS and not in_object:
        raise UnknownSetting(key, [*names, *GROUPS])


def value_at(raw: dict[str, Any], key: str) -> Any:
    """The value of a key, or `UNSET`."""
    found: Any = raw
    for part in key.split("."):
        if not isinstance(found, dict) or part not in found:
            return UNSET
        found = found[part]
    return found


def with_defaults(raw: dict[str, Any]) -> dict[str, Any]:
    """The file with defaults for missing values."""
    made = dict(raw)
    for key, default in declared_settings():
        if value_at(made, key) is UNSET and default is not None:
            made = _with_value(made, key.split("."), default)
    return made


def _is_object_setting(name: str) -> bool:
    group, _, last = name.rpartition(".")
    try:
        codec.convert({last: {}}, GROUPS[group] if group else Settings)
    except BadRecord:
        return False
    return True


def _check_limits(given: Json) -> None:
    from pigeon.wire.steering import parse_limits

    try:
        parse_limits(given)
    except BadRecord as error:
        raise UsageError(f"{error}. Nothing was changed") from None


def _with_value(raw: dict[str, Any], parts: list[str], value: Json) -> dict[str, Any]:
    first, *rest = parts
    inner = raw.get(first)
    return {**raw, first: _with_value(inner if isinstance(inner, dict) else {}, rest, value) if rest else value}


def _without_key(raw: dict[str, Any], parts: list[str]) -> dict[str, Any]:
    first, *rest = parts
    if not rest:
        return {key: value for key, value in raw.items() if key != first}
    inner = _without_key(raw[first], rest)
    return {**raw, first: inner} if inner else {key: value for key, value in raw.items() if key != first}
