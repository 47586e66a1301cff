"""The files of oh-my-pi and xcsh, `models.yml` and `config.yml`, as `models.json` and `settings.json` would say it.

Only what means something here is taken over. Values of a provider are texts, names of variables or `!command`, and not
templates as in `models.json`. Only imported where there is such a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pigeon.config.json_file import LARGEST
from pigeon.config.yaml_reading import decode_yaml
from pigeon.system.files import read_whole
from pigeon.wire.errors import BadRecord
from pigeon.wire.model import LEVELS

# What is sent to a server that needs no key.
NO_KEY = "N/A"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What can only be meant as a variable, whether it is set or not.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")

# Settings that mean the same here, with those of a group in its place.
_SAME: dict[str, tuple[str, ...]] = {
    "": ("steeringMode", "followUpMode", "interruptMode", "shellPath", "thinkingBudgets"),
    "compaction": ("enabled", "reserveTokens", "keepRecentTokens"),
    "retry": ("enabled", "maxRetries", "baseDelayMs"),
    "images": ("autoResize", "blockImages"),
    "tasks": ("todoClearDelay",),
    "tools": ("approvalMode",),
    "skills": ("customDirectories",),
}
_VERDICTS = {"allow": "allow", "deny": "deny", "prompt": "ask"}


def convert_providers(value: Any, variables: Mapping[str, str], report: Callable[[str], None]) -> Any:
    """The contents of `models.yml` as those of `models.json`; what has the wrong form is left for its checks."""
    providers = value.get("providers") if isinstance(value, dict) else value
    if value is None or (isinstance(value, dict) and providers is None):
        return {}
    if not isinstance(value, dict) or not isinstance(providers, dict):
        return value
    converted = {}
    for name, entry in providers.items():
        converted[name] = _convert_provider(entry, variables) if isinstance(entry, dict) else entry
        if isinstance(entry, dict) and entry.get("discovery") and not entry.get("models"):
            report(
                f'provider "{name}": its models are not looked up on its server ("discovery"); list them under "models"'
            )
    return {"providers": converted}


def _convert_provider(entry: dict[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = _convert_model(entry, variables)
    if isinstance(entry.get("apiKey"), str):
        made["apiKey"] = to_template(entry["apiKey"], variables)
    elif entry.get("auth") == "none":
        made["apiKey"] = NO_KEY
    if entry.get("disableStrictTools") is True and isinstance(made.get("compat", {}), dict):
        made["compat"] = {**made.get("compat", {}), "supportsStrictMode": False}
    if isinstance(entry.get("models"), list):
        made["models"] = [_convert_model(one, variables) for one in entry["models"]]
    if isinstance(entry.get("modelOverrides"), dict):
        made["modelOverrides"] = {id: _convert_model(one, variables) for id, one in entry["modelOverrides"].items()}
    return made


def _convert_model(entry: Any, variables: Mapping[str, str]) -> Any:
    if not isinstance(entry, dict):
        return entry
    made = dict(entry)
    headers, thinking = entry.get("headers"), entry.get("thinking")
    if isinstance(headers, dict):
        made["headers"] = {
            name: to_template(text, variables) if isinstance(text, str) else text for name, text in headers.items()
        }
    if isinstance(thinking, dict) and "thinkingLevelMap" not in entry:
        made["thinkingLevelMap"] = _map_levels(thinking)
    return made


def _map_levels(thinking: dict[str, Any]) -> dict[str, str | None]:
    """The levels of a model: those that it has with what its API calls them, and the others as not supported."""
    levels: list[str] = [level for level in LEVELS if level != "off"]
    named = thinking.get("efforts", thinking.get("levels"))
    if isinstance(named, list):
        efforts = [level for level in levels if level in named]
    else:
        first, last = (thinking.get(key) for key in ("minLevel", "maxLevel"))
        if first not in levels or last not in levels:
            raise BadRecord('"thinking" needs "efforts", or both "minLevel" and "maxLevel"')
        efforts = levels[levels.index(first) : levels.index(last) + 1]
    renamed = thinking.get("effortMap")
    words = renamed if isinstance(renamed, dict) else {}
    return {level: str(words.get(level, level)) if level in efforts else None for level in levels}


def to_template(text: str, variables: Mapping[str, str]) -> str:
    """A key or header of oh-my-pi, which names a variable by its bare name, in the form of `models.json`."""
    if text.startswith("!"):
        return text
    if _VARIABLE.fullmatch(text) or (_NAME.fullmatch(text) and variables.get(text)):
        return f"${text}"
    return to_literal(text)


def to_literal(text: str) -> str:
    """The form of `models.json` and `auth.json` for a text that means nothing but itself."""
    plain = text.replace("$", "$$")
    return f"${plain}" if plain.startswith("!") else plain


def read_settings(path: str, report: Callable[[str], None], doubt: Callable[[str], None]) -> dict[str, Any] | None:
    """The settings in a `config.yml`; None if it cannot be used, which is a doubt, too."""
    try:
        value = decode_yaml(read_whole(path, LARGEST))
        return convert_settings(
            value, lambda problem: report(f"{path}: {problem}"), lambda problem: doubt(f"{path}: {problem}")
        )
    except OSError as error:
        doubt(f"{path} cannot be read: {error.strerror or error}")
    except BadRecord as error:
        doubt(f"{path} is ignored: {error}")
    return None


def convert_settings(value: Any, report: Callable[[str], None], doubt: Callable[[str], None]) -> dict[str, Any]:
    """The contents of `config.yml` as those of `settings.json`; `doubt` gets reasons why rules about tools may be
    missing. Raises `BadRecord` if it is not an object."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRecord("it must contain keys and values")
    made: dict[str, Any] = {}
    for group, keys in _SAME.items():
        given = value.get(group) if group else value
        if isinstance(given, dict):
            same = {key: given[key] for key in keys if given.get(key) is not None}
            if same:
                made |= {group: same} if group else same
    level = value.get("defaultThinkingLevel")
    if level in LEVELS:
        made["defaultThinkingLevel"] = level
    models = value.get("enabledModels")
    if isinstance(models, list) and (patterns := [one for one in models if isinstance(one, str)]):
        made["enabledModels"] = patterns
    default = _find_default_model(value.get("modelRoles"), report)
    if default:
        made["defaultModel"] = default
    rules = _convert_approval(value.get("tools"), doubt)
    if rules:
        made["permissions"] = rules
    return made


def _find_default_model(roles: Any, report: Callable[[str], None]) -> str:
    """The model of the role `default`, which may be that of another role, with its thinking level."""
    if roles is None:
        return ""
    if not isinstance(roles, dict):
        report("modelRoles is ignored: it must be an object of roles with their models")
        return ""
    name, level, seen = "default", "", set[str]()
    while name not in seen:
        seen.add(name)
        listed = [text.strip() for text in _to_texts(roles.get(name)) if text.strip()]
        if len(listed) > 1:
            report(f"modelRoles.{name} lists several models; the first one, {listed[0]}, is used")
        model, colon, last = (listed[0] if listed else "").rpartition(":")
        if not colon or last not in (*LEVELS, "auto"):
            model, last = (listed[0] if listed else ""), ""
        level = level or last
        alias = re.fullmatch(r"(?:@|pi/)([\w-]+)", model)
        if alias is None or alias[1] not in roles:
            return f"{model}:{level}" if model and level not in ("", "auto") else model
        name = alias[1]
    report(f"modelRoles.{name} is ignored: it stands for itself")
    return ""


def _to_texts(value: Any) -> Iterator[str]:
    """The models of a role: a text with commas, or a list of such texts."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str):
            yield from one.split(",")


def _convert_approval(tools: Any, doubt: Callable[[str], None]) -> dict[str, list[str]]:
    """The policies of single tools as permission rules."""
    policies = tools.get("approval") if isinstance(tools, dict) else None
    if policies is None:
        return {}
    if not isinstance(policies, dict):
        doubt("tools.approval must be an object of tools with allow, deny or prompt")
        return {}
    rules: dict[str, list[str]] = {}
    for tool, policy in policies.items():
        verdict = _VERDICTS.get(policy.strip().lower()) if isinstance(policy, str) else None
        if verdict is None:
            doubt(f"tools.approval.{tool} must be allow, deny or prompt")
        else:
            rules.setdefault(verdict, []).append(tool)
    return rules
