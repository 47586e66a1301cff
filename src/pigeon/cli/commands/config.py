"""`pigeon config`: settings read and changed from the command line.

A change is checked against the declaration of the settings before it is written. The file keeps its other keys, their
order and its indentation; one with comments is not written, because they would be lost.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from pigeon.config.json_file import has_comments
from pigeon.config.layers import USERS_ONLY
from pigeon.config.paths import own_folder
from pigeon.config.settings import GROUPS, Settings, fitting, keys_of, read_settings_file
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import complain, did_you_mean, say, table
from pigeon.system.append_file import make_private_folder
from pigeon.system.files import read_text, replace_file
from pigeon.transport import exit_codes
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.errors import BadRecord, StartupError, UsageError

INDENT = 2
LONGEST_VALUE = 60


def run_config(call: CommandCall) -> int:
    """Do one of the actions; raises `UsageError` for a key or a value that cannot be."""
    config = _Config(call)
    if call.action == "path":
        say(config.path)
    elif call.action == "get":
        config.show_one(call.words[0])
    elif call.action == "set":
        config.set(call.words[0], _value(call.words[1]))
    elif call.action == "unset":
        config.unset(call.words[0])
    elif call.action == "edit":
        return config.edit()
    else:
        config.show_all()
    return exit_codes.OK


class _Config:
    """The settings file of one call."""

    def __init__(self, call: CommandCall) -> None:
        self._call = call
        environment = call.environment
        self._project = call.has("project")
        folder = own_folder(environment.cwd) if self._project else environment.agent_dir()
        self.path = os.path.join(folder, "settings.json")

    def show_all(self) -> None:
        """Every setting that is declared, and every key that the file has besides."""
        raw = self._read()
        wrong: list[str] = []
        fitting({key: raw[key] for key in raw if key in keys_of(Settings)}, wrong.append)
        for problem in wrong:
            complain(f"Warning: {problem}")
        if self._call.has("json"):
            say(json.dumps(_effective(raw), indent=2, ensure_ascii=False))
            return
        rows = [("setting", "value", "from")]
        for key, default in _declared():
            given = _at(raw, key)
            rows.append((key, _shown(default if given is _NONE else given), "default" if given is _NONE else "file"))
        others = [key for key in raw if key not in keys_of(Settings)]
        rows += [(key, _shown(raw[key]), "file, not used here") for key in others]
        say(table(rows))
        say(f"\nThe file: {self.path}")

    def show_one(self, key: str) -> None:
        """One value, as text or JSON; a group with the defaults of what the file does not say."""
        given = _at(_effective(self._read()), key)
        if given is _NONE:
            _check_known(key)
            given = _default(key) or None
        plain = isinstance(given, str) and not self._call.has("json")
        say(str(given) if plain else json.dumps(given, indent=INDENT, ensure_ascii=False))

    def set(self, key: str, value: Json) -> None:
        """Change one value."""
        _check_known(key)
        if self._project and key.partition(".")[0] in USERS_ONLY:
            raise UsageError(f"{key} is a personal setting: it cannot be set for a project")
        raw = self._read()
        changed = _with(raw, key.split("."), value)
        top = key.partition(".")[0]
        wrong: list[str] = []
        fitting({top: changed[top]}, wrong.append)
        if top == "permissions":
            wrong += _wrong_rules(changed[top])
        if top == "limits" and not wrong:
            _check_limits(changed[top])
        if wrong:
            reason = re.sub(r'Missing or invalid field "[^"]*": ', "", wrong[0].replace(" is ignored", ""))
            raise UsageError(f"{reason}. Nothing was changed")
        self._change(lambda raw: _with(raw, key.split("."), value))
        say(f"{key} = {_shown(value)}")

    def unset(self, key: str) -> None:
        """Take one value out of the file."""
        raw = self._read()
        if _at(raw, key) is _NONE:
            _check_known(key)
            say(f"{key} is not set")
            return
        self._change(lambda raw: raw if _at(raw, key) is _NONE else _without(raw, key.split(".")))
        say(f"{key} is back to its default: {_shown(_default(key))}")

    def edit(self) -> int:
        """Open the file in an editor, and say what is wrong with it afterwards."""
        variables = self._call.environment.variables
        editor = variables.get("VISUAL") or variables.get("EDITOR")
        if not editor:
            raise StartupError(f"Set VISUAL or EDITOR to your editor, or open the file yourself: {self.path}")
        if not os.path.exists(self.path):
            self._change(lambda raw: raw)
        import shlex

        from pigeon.system.process.foreground import run_in_foreground

        try:
            code = run_in_foreground([*shlex.split(editor), self.path], variables)
        except (OSError, ValueError) as error:
            raise StartupError(f"The editor {editor} cannot be started: {error}") from None
        wrong: list[str] = []
        raw = read_settings_file(self.path, wrong.append)
        if raw is not None:
            fitting(raw, wrong.append)
        for problem in wrong:
            complain(f"Warning: {problem}")
        return exit_codes.FAILED if wrong or code else exit_codes.OK

    def _read(self) -> dict[str, Any]:
        """The file as it is; raises `StartupError` for one that cannot be used, which is not to be written over."""
        wrong: list[str] = []
        raw = read_settings_file(self.path, wrong.append)
        if raw is None:
            raise StartupError(f"{wrong[0]}. Fix the file first: pigeon config edit")
        return raw

    def _change(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Read, change and write the file while no other call of this command does."""
        change_file(self.path, lambda: change(self._read()), "Change it with: pigeon config edit")


_NONE = object()


def _value(text: str) -> Json:
    """JSON, or the text itself where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _declared(kind: type[Struct] = Settings, where: str = "") -> list[tuple[str, Any]]:
    """Every setting with its default, those of groups by their whole names."""
    empty = codec.to_plain(kind())
    found: list[tuple[str, Any]] = []
    for key in keys_of(kind):
        name = f"{where}.{key}" if where else key
        group = GROUPS.get(name)
        found += [(name, empty.get(key))] if group is None else _declared(group, name)
    return found


def _default(key: str) -> Json:
    for name, default in _declared():
        if name == key:
            return default
    return {name.removeprefix(f"{key}."): one for name, one in _declared() if name.startswith(f"{key}.")}


def _check_known(key: str) -> None:
    """Raise for a key that no part of the settings declares; below a setting that is an object any key goes."""
    names = [name for name, _ in _declared()]
    groups = list(GROUPS)
    parts = key.split(".")
    above = {".".join(parts[: count + 1]) for count in range(len(parts))}
    objects = {name for name, _ in _declared() if _takes_object(name)}
    if key in names or key in groups or above & objects:
        return
    raise UsageError(f"There is no setting {key}.{did_you_mean(key, [*names, *groups])} `pigeon config` lists them")


def _takes_object(name: str) -> bool:
    if "." in name:
        group, _, last = name.rpartition(".")
        kind: type[Struct] = GROUPS[group]
    else:
        kind, last = Settings, name
    try:
        codec.convert({last: {}}, kind)
    except BadRecord:
        return False
    return True


def _wrong_rules(given: Json) -> list[str]:
    from pigeon.permissions.rules import parsed_rules

    wrong: list[str] = []
    parsed_rules(given, "yolo", wrong)
    return wrong


def _check_limits(given: Json) -> None:
    from pigeon.wire.steering import limits_of

    try:
        limits_of(given)
    except BadRecord as error:
        raise UsageError(f"{error}. Nothing was changed") from None


def _at(raw: dict[str, Any], key: str) -> Any:
    found: Any = raw
    for part in key.split("."):
        if not isinstance(found, dict) or part not in found:
            return _NONE
        found = found[part]
    return found


def _with(raw: dict[str, Any], parts: list[str], value: Json) -> dict[str, Any]:
    first, *rest = parts
    inner = raw.get(first)
    return {**raw, first: _with(inner if isinstance(inner, dict) else {}, rest, value) if rest else value}


def _without(raw: dict[str, Any], parts: list[str]) -> dict[str, Any]:
    first, *rest = parts
    if not rest:
        return {key: value for key, value in raw.items() if key != first}
    inner = _without(raw[first], rest)
    return {**raw, first: inner} if inner else {key: value for key, value in raw.items() if key != first}


def _effective(raw: dict[str, Any]) -> dict[str, Any]:
    """The file with the defaults of what it does not say."""
    made = dict(raw)
    for key, default in _declared():
        if _at(made, key) is _NONE and default is not None:
            made = _with(made, key.split("."), default)
    return made


def _shown(value: Json) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


# --- files, which `pigeon mcp` changes the same way ---


def change_file(path: str, changed: Callable[[], dict[str, Any]], instead: str) -> None:
    """Write what `changed` makes of the file, which it reads, while no other call of such a command does.

    `instead` says how else a file can be changed that cannot be written here. Raises `StartupError`.
    """
    try:
        make_private_folder(os.path.dirname(path))
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StartupError(f"{path} cannot be written: {error.strerror or error}") from None
    try:
        # Where the file system has no locks, two changes at the same moment remain a risk.
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        _write(path, changed(), instead)
    finally:
        os.close(folder)


def _write(path: str, raw: dict[str, Any], instead: str) -> None:
    try:
        if os.path.exists(path) and has_comments(path):
            raise StartupError(f"{path} has comments or trailing commas, which would be lost. {instead}")
        replace_file(path, _file_bytes(raw, _indent(path)))
    except OSError as error:
        raise StartupError(f"{path} cannot be written: {error.strerror or error}") from None


def _indent(path: str) -> int | str:
    """As the file is indented by now."""
    try:
        found = re.search(r'^([ \t]+)"', read_text(path), re.MULTILINE)
    except OSError:
        return INDENT
    return found[1] if found else INDENT


def _file_bytes(raw: dict[str, Any], indent: int | str) -> bytes:
    """The file's content. Halves of surrogate pairs are escaped, and then everything that is not ASCII."""
    try:
        return f"{json.dumps(raw, indent=indent, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(raw, indent=indent)}\n".encode()
