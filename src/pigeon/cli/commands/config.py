"""`pigeon config`: settings read and changed from the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from pigeon.config.layers import find_oh_my_pi_settings
from pigeon.config.paths import own_folder
from pigeon.config.settings import Settings, keys_of, select_valid_keys
from pigeon.config.settings_editing import (
    UNSET,
    SettingsFile,
    UnknownSetting,
    declared_settings,
    default_of,
    require_known,
    value_at,
    with_defaults,
)
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import did_you_mean, format_table, print_line, print_to_stderr
from pigeon.transport import exit_codes
from pigeon.wire.base import Json, merge_objects
from pigeon.wire.errors import StartupError, UsageError

INDENT = 2
LONGEST_VALUE = 60
MODEL_SETTINGS = ("defaultModel", "defaultProvider", "enabledModels")


def run_config(call: CommandCall) -> int:
    """Run one of the actions; raises `UsageError` for an invalid key or value."""
    try:
        return _run_action(call, _settings_file_for(call))
    except UnknownSetting as error:
        meant = did_you_mean(error.key, error.known)
        raise UsageError(f"{error}.{meant} `pigeon config` lists them") from None


def _settings_file_for(call: CommandCall) -> SettingsFile:
    environment, of_project = call.environment, call.has_option("project")
    folder = own_folder(environment.cwd) if of_project else environment.agent_dir()
    return SettingsFile(
        os.path.join(folder, "settings.json"), of_project=of_project, checks={"permissions": _find_wrong_rules}
    )


def _find_wrong_rules(given: Json) -> list[str]:
    from pigeon.permissions.rules import describe_wrong_rules

    return describe_wrong_rules(given)


def _run_action(call: CommandCall, file: SettingsFile) -> int:
    if call.action == "path":
        print_line(file.path)
    elif call.action == "get":
        _print_setting(file.read(), _read_settings_below(call), call.words[0], call.has_option("json"))
    elif call.action == "set":
        value = _parse_value(call.words[1])
        file.set(call.words[0], value)
        print_line(f"{call.words[0]} = {_to_short_text(value, call.mask)}")
        if call.words[0] in MODEL_SETTINGS:
            _warn_about_model(call)
    elif call.action == "unset":
        key = call.words[0]
        removed = file.unset(key)
        default = _to_short_text(default_of(key), call.mask)
        print_line(f"{key} is back to its default: {default}" if removed else f"{key} is not set")
    elif call.action == "edit":
        return _edit_file(call, file)
    else:
        _print_all_settings(file, _read_settings_below(call), call.has_option("json"), call.mask)
    return exit_codes.OK


def _warn_about_model(call: CommandCall) -> None:
    """Print why the model that the settings now name cannot be used, if it cannot: nothing else tells before the next
    start."""
    from pigeon.app.models import make_registry, resolve_model_options
    from pigeon.app.options import AgentOptions
    from pigeon.config.layers import Layers

    environment, problems = call.environment, list[str]()
    layers = Layers(environment.agent_dir(), lambda problem: None)
    if call.has_option("project"):
        layers.load_project_settings([own_folder(environment.cwd)])
    registry = make_registry(
        environment.agent_dir(), environment.variables, environment.cwd or "/", None, call.redactor
    )
    try:
        chosen = resolve_model_options(AgentOptions(), environment, layers, registry, problems.append)
    except StartupError as error:
        problems.append(str(error))
    else:
        problems += [chosen.problem] if chosen.problem else []
    for problem in problems:
        print_to_stderr(f"Warning: {problem}")


def _read_settings_below(call: CommandCall) -> dict[str, Any]:
    """The user's settings in oh-my-pi's file, which count below those in Pigeon's."""
    path = None if call.has_option("project") else find_oh_my_pi_settings(call.environment.agent_dir())
    if path is None:
        return {}
    from pigeon.config.oh_my_pi import read_settings

    def warn(problem: str) -> None:
        print_to_stderr(f"Warning: {problem}")

    return read_settings(path, warn, warn) or {}


def _print_all_settings(file: SettingsFile, below: dict[str, Any], as_json: bool, mask: Callable[[str], str]) -> None:
    """Show every declared setting, and every other key of the file."""
    raw = file.read()
    wrong: list[str] = []
    select_valid_keys({key: raw[key] for key in raw if key in keys_of(Settings)}, wrong.append)
    for problem in wrong:
        print_to_stderr(f"Warning: {problem}")
    if as_json:
        print_line(_to_json(with_defaults(merge_objects(below, raw))))
        return
    rows = [("setting", "value", "from")]
    for key, default in declared_settings():
        places = ((value_at(raw, key), "file"), (value_at(below, key), "oh-my-pi"), (default, "default"))
        shown, place = next((value, place) for value, place in places if value is not UNSET)
        rows.append((key, _to_short_text(shown, mask), place))
    unread = [key for key in raw if key not in keys_of(Settings)]
    rows += [(key, _to_short_text(raw[key], mask), "file, not used here") for key in unread]
    print_line(format_table(rows))
    print_line(f"\nThe file: {file.path}")


def _print_setting(raw: dict[str, Any], below: dict[str, Any], key: str, as_json: bool) -> None:
    """Show one value as text or JSON; a group includes the defaults of missing values."""
    given = value_at(with_defaults(merge_objects(below, raw)), key)
    if given is UNSET:
        require_known(key)
        given = default_of(key) or None
    print_line(given if isinstance(given, str) and not as_json else _to_json(given))


def _edit_file(call: CommandCall, file: SettingsFile) -> int:
    """Open the file in an editor, and print the errors in it afterwards."""
    variables = call.environment.variables
    editor = variables.get("VISUAL") or variables.get("EDITOR")
    if not editor:
        raise StartupError(f"Set VISUAL or EDITOR to your editor, or open the file yourself: {file.path}")
    if not os.path.exists(file.path):
        file.create()
    import shlex

    from pigeon.app.models import list_secret_variables
    from pigeon.system.process.foreground import run_in_foreground
    from pigeon.system.process.variables import persons_environment

    try:
        seen = persons_environment(variables, list_secret_variables(call.environment.agent_dir(), variables))
        code = run_in_foreground([*shlex.split(editor), file.path], seen)
    except (OSError, ValueError) as error:
        raise StartupError(f"The editor {editor} cannot be started: {error}") from None
    wrong = file.find_problems()
    for problem in wrong:
        print_to_stderr(f"Warning: {problem}")
    return exit_codes.FAILED if wrong or code else exit_codes.OK


def _parse_value(text: str) -> Json:
    """JSON, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _to_json(value: Any) -> str:
    return json.dumps(value, indent=INDENT, ensure_ascii=False)


def _to_short_text(value: Json, mask: Callable[[str], str]) -> str:
    if value is None:
        return "-"
    text = mask(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
