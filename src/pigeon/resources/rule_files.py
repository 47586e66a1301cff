"""Rule files: Markdown with a YAML head that defines when the text is given to the model.

A file that cannot be read or is invalid is reported with its path and left out; the others still count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, get_args

from pigeon.resources.front_matter import read_front_matter
from pigeon.resources.instruction_files import LinkLimit, hold_instruction_file, limit_links
from pigeon.system.file_view import LOCAL_FILES, FileView
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.steering import Rule, RuleInterrupt, RuleLevel, RuleSource

Report = Callable[[str], None]
PROJECT_FOLDERS = (".pigeon", ".pi", ".omp")
ENDINGS = (".md", ".mdc")
LARGEST = 256 * 1024
AFTER_GAP = 10
_MODES = get_args(RuleInterrupt)


def rule_folders(agent_dir: str, cwd: str, trusted: bool) -> list[tuple[str, RuleLevel]]:
    """The rule folders, the project's before the user's own; an untrusted project has none."""
    folders: list[tuple[str, RuleLevel]] = []
    if trusted:
        folders.extend((os.path.join(cwd, name, "rules"), "project") for name in PROJECT_FOLDERS)
    folders.append((os.path.join(agent_dir, "rules"), "user"))
    return folders


def read_rules(folders: Sequence[tuple[str, RuleLevel]], report: Report, project: FileView = LOCAL_FILES) -> list[Rule]:
    """All rules that watch the stream; if two have one name, the first counts. `project` shows the machine of the
    project."""
    found: dict[str, Rule] = {}
    for folder, level in folders:
        # The folder of the project is the one that has `.pigeon` or the like.
        view = project if level == "project" else LOCAL_FILES
        limit = limit_links(os.path.dirname(os.path.dirname(folder)), True, view) if level == "project" else None
        for path in _list_files(folder, report, view):
            rule = _read_rule(path, level, limit, report, view)
            if rule is not None and rule.condition:
                found.setdefault(rule.name, rule)
    return list(found.values())


def _list_files(folder: str, report: Report, view: FileView) -> list[str]:
    try:
        names = [entry.name for entry in view.list_folder(folder)]
    except OSError as error:
        if not isinstance(error, FileNotFoundError) or view.lexists(folder):
            report(f"The rules in {folder} cannot be read: {error.strerror}")
        return []
    return [os.path.join(folder, name) for name in names if name.endswith(ENDINGS) and not name.startswith(".")]


def _read_rule(path: str, level: RuleLevel, limit: LinkLimit | None, report: Report, view: FileView) -> Rule | None:
    try:
        with hold_instruction_file(path, limit, view) as held:
            text, cut = view.read_beginning(held, LARGEST)
    except OSError as error:
        report(f"The rule {path} cannot be read: {error.strerror or error}")
        return None
    if cut:
        report(f"The rule {path} is ignored: it is longer than {LARGEST} bytes")
        return None
    parts = read_front_matter(text)
    try:
        if parts.problem is not None:
            raise ValueError(parts.problem)
        return _make_rule(path, level, parts.head, parts.body.strip())
    except ValueError as error:
        report(f"The rule {path} is ignored: {error}")
        return None


def _make_rule(path: str, level: RuleLevel, head: dict[str, Any], body: str) -> Rule:
    name = head.get("name")
    described = head.get("description")
    always = head.get("alwaysApply")
    mode = head.get("interruptMode")
    if mode is not None and mode not in _MODES:
        raise ValueError(f"interruptMode must be one of {', '.join(_MODES)}")
    return Rule(
        name=name.strip() if isinstance(name, str) and name.strip() else os.path.splitext(os.path.basename(path))[0],
        path=path,
        content=body,
        description=described if isinstance(described, str) else ABSENT,
        globs=_parse_strings(head, "globs", splits=True),
        always_apply=always if isinstance(always, bool) else ABSENT,
        condition=_parse_strings(head, "condition", splits=False),
        scope=_parse_strings(head, "scope", splits=True),
        interrupt_mode=ABSENT if mode is None else mode,
        repeat=_parse_repeat(head),
        source=RuleSource(provider="native", provider_name="Pigeon", path=path, level=level),
    )


def _parse_strings(head: dict[str, Any], key: str, splits: bool) -> list[str] | Absent:
    """A list of strings, or one string, which may be a list with commas."""
    value = head.get(key)
    if value is None:
        return ABSENT
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")] if splits else [value]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{key} must be a string or a list of strings")
    return [item for item in value if item] or ABSENT


def _parse_repeat(head: dict[str, Any]) -> int | Absent:
    """How many messages must lie between two times; absent for a rule that is given once."""
    repeat, once = head.get("repeat"), head.get("once")
    if isinstance(once, bool) and repeat is None:
        return ABSENT if once else 1
    if repeat is None or repeat is False or repeat == "once":
        return ABSENT
    if repeat is True or repeat == "always":
        return 1
    if repeat == "after-gap":
        return AFTER_GAP
    if isinstance(repeat, str) and repeat.isdecimal() and int(repeat) > 0:
        return int(repeat)
    raise ValueError("repeat must be once, always, after-gap, or a number of messages")
