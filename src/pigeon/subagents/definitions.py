"""Agent types: the two that come with Pigeon, those of Markdown files, and those of the program.

A file has a YAML head and the system prompt below it, in the format that Claude Code, oh-my-pi and pi's extensions
share. A file that cannot be used is reported with its path, the field and its value, and left out; the others count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from pigeon.config.tool_selection import WILDCARD, is_match
from pigeon.permissions.rules import describe_wrong_rules
from pigeon.resources.front_matter import read_front_matter, text_of_key
from pigeon.resources.instruction_files import LinkLimit, hold_instruction_file, limit_links
from pigeon.system.file_view import LOCAL_FILES, FileView
from pigeon.tools.catalog import all_facts
from pigeon.tools.find import FindTool
from pigeon.tools.grep import GrepTool
from pigeon.tools.ls import LsTool
from pigeon.tools.read import ReadTool
from pigeon.wire import codec
from pigeon.wire.agents import AgentSource, AgentType
from pigeon.wire.errors import BadRecord
from pigeon.wire.model import LEVELS
from pigeon.wire.steering import WHOLE, Limits, parse_limits

Report = Callable[[str], None]
FOLDER = "agents"
PROJECT_FOLDERS = (".pigeon", ".claude", ".omp", ".pi")
LARGEST = 256 * 1024
LONGEST_DESCRIPTION = 2_000
LONGEST_VALUE = 100
_FIELDS = ("name", "description", "tools", "model", "thinking", "limits", "permissions", "spawns")
# What other programs write for "the model of the agent that starts it".
INHERIT = "inherit"
# The lists of rules that a type may add: it can only tighten.
STRICTER = ("deny", "ask")
GENERAL = AgentType(
    name="general",
    description="Any part of the work that can be done on its own: research, a change, a check of something",
    source="bundled",
)
EXPLORE = AgentType(
    name="explore",
    description="Finds things out without changing anything: where something is, how it works, what would be affected",
    prompt=(
        "You explore code and files for another agent and change nothing. Search broadly first, then read what "
        "matters. Answer exactly what was asked: facts with the paths and lines that show them, what you could not "
        "find, and nothing that you have not seen. Be brief; the answer is read by a program."
    ),
    tools=[ReadTool.name, GrepTool.name, FindTool.name, LsTool.name],
    source="bundled",
)
BUNDLED = (GENERAL, EXPLORE)


def agent_folders(agent_dir: str, cwd: str, trusted: bool) -> list[tuple[str, AgentSource]]:
    """The folders with definitions, the project's before the user's; an untrusted project has none."""
    projects: list[tuple[str, AgentSource]] = [
        (os.path.join(cwd, name, FOLDER), "project") for name in PROJECT_FOLDERS if trusted
    ]
    return [*projects, (os.path.join(agent_dir, FOLDER), "user")]


def read_agent_types(
    folders: Sequence[tuple[str, AgentSource]], report: Report, project: FileView = LOCAL_FILES
) -> list[AgentType]:
    """The types of all files; of several with one name the first counts. `project` shows the machine of the project."""
    found: dict[str, AgentType] = {}
    for folder, source in folders:
        view = project if source == "project" else LOCAL_FILES
        limit = limit_links(os.path.dirname(os.path.dirname(folder)), True, view) if source == "project" else None
        for path in _list_files(folder, report, view):
            known = _read_file(path, source, limit, report, view)
            if known is not None:
                found.setdefault(known.name, known)
    return list(found.values())


def check_programs_types(programs: Sequence[AgentType], report: Report) -> list[AgentType]:
    """The types of the program whose fields can be used, read as those of files are."""
    return [known for given in programs if (known := _check_programs_type(given, report)) is not None]


def _check_programs_type(given: AgentType, report: Report) -> AgentType | None:
    head = {name: value for name in _FIELDS if (value := getattr(given, name)) not in (None, "")}
    place = f"The agent {_show(given.name)}"
    try:
        if not isinstance(given.name, str) or not given.name.strip():
            raise ValueError(f"name must be a text, and is {_show(given.name)}")
        return _make_type(head, str(given.prompt), "program", "", lambda text: report(f"{place}: {text}"))
    except ValueError as error:
        report(f"{place} is ignored: {error}")
        return None


def combine_types(programs: Sequence[AgentType], files: Sequence[AgentType]) -> list[AgentType]:
    """All types by rank: those of the program, of files, and the bundled ones; of each name the first."""
    by_name: dict[str, AgentType] = {}
    for known in (*programs, *files, *BUNDLED):
        by_name.setdefault(known.name, known)
    return list(by_name.values())


def check_types(
    types: Sequence[AgentType],
    tools: Iterable[str],
    can_appear_later: Callable[[str], bool],
    find_model: Callable[[str], object],
    report: Report,
) -> list[AgentType]:
    """The usable types, with the tools that exist or `can_appear_later`; everything else is reported."""
    known_tools, names = list(tools), {known.name for known in types}
    usable: list[AgentType] = []
    for known in types:
        if known.model is not None and find_model(known.model) is None:
            report(f'{_place_of(known)}: model names "{known.model}", which is not usable; the agent is not used')
            continue
        checked = _check_names(known, known_tools, can_appear_later, names, report)
        if checked is not None:
            usable.append(checked)
    cyclic = _find_cyclic_names(usable)
    for known in usable:
        if known.name in cyclic:
            listed = ", ".join(known.spawns or ())
            report(f"{_place_of(known)}: spawns ({listed}) leads back to {known.name} itself; the agent is not used")
    return [known for known in usable if known.name not in cyclic]


def _check_names(
    known: AgentType, tools: list[str], can_appear_later: Callable[[str], bool], names: set[str], report: Report
) -> AgentType | None:
    place = _place_of(known)
    missing = [name for name in known.spawns or () if name not in names]
    if missing:
        report(f"{place}: spawns names {_quote(missing)}, and there is no such agent; it is left out")
        known = replace(known, spawns=[name for name in known.spawns or () if name in names])
    if known.tools is None:
        return known
    unknown = [
        name for name in known.tools if not can_appear_later(name) and not any(is_match(name, tool) for tool in tools)
    ]
    kept = [name for name in known.tools if name not in unknown]
    if unknown:
        report(f"{place}: tools names {_quote(unknown)}, and there is no such tool (known: {', '.join(sorted(tools))})")
    if unknown and not kept:
        report(f"{place}: none of its tools exists; the agent is not used")
        return None
    return replace(known, tools=kept)


def _find_cyclic_names(types: Sequence[AgentType]) -> set[str]:
    """The names of types from which explicit `spawns` lead back to them."""
    edges = {known.name: known.spawns or [] for known in types}

    def reaches_itself(start: str) -> bool:
        seen: set[str] = set()
        waiting = list(edges[start])
        while waiting:
            name = waiting.pop()
            if name == start:
                return True
            if name not in seen:
                seen.add(name)
                waiting.extend(edges.get(name, ()))
        return False

    return {name for name in edges if reaches_itself(name)}


def _place_of(known: AgentType) -> str:
    return known.path or f'The agent "{known.name}"'


def _quote(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _list_files(folder: str, report: Report, view: FileView) -> list[str]:
    try:
        names = [entry.name for entry in view.list_folder(folder)]
    except OSError as error:
        if not isinstance(error, FileNotFoundError) or view.lexists(folder):
            report(f"The agents in {folder} cannot be read: {error.strerror}")
        return []
    return [os.path.join(folder, name) for name in names if name.endswith(".md") and not name.startswith(".")]


def _read_file(
    path: str, source: AgentSource, limit: LinkLimit | None, report: Report, view: FileView
) -> AgentType | None:
    try:
        with hold_instruction_file(path, limit, view) as held:
            text, cut = view.read_beginning(held, LARGEST)
    except OSError as error:
        report(f"The agent {path} cannot be read: {error.strerror or error}")
        return None
    try:
        if cut:
            raise ValueError(f"it is longer than {LARGEST} bytes")
        parts = read_front_matter(text)
        if parts.problem is not None:
            raise ValueError(parts.problem)
        return _make_type(parts.head, parts.body.strip(), source, path, lambda text: report(f"{path}: {text}"))
    except ValueError as error:
        report(f"The agent {path} is ignored: {error}")
        return None


def _make_type(head: dict[str, Any], body: str, source: AgentSource, path: str, report: Report) -> AgentType:
    """The type with these fields; raises `ValueError` that names the field and its value."""
    for key in ("name", "description", "model", "thinking"):
        if not isinstance(head.get(key, ""), str):
            raise ValueError(f"{key} must be a text, and is {_show(head[key])}")
    name = text_of_key(head, "name") or os.path.splitext(os.path.basename(path))[0]
    description = " ".join(text_of_key(head, "description").split())
    if not description:
        raise ValueError("description is missing: say what the agent is for")
    model, thinking = text_of_key(head, "model"), text_of_key(head, "thinking")
    level = next((level for level in LEVELS if level == thinking), None)
    if thinking and level is None:
        raise ValueError(f"thinking is {_show(thinking)}, and must be one of {', '.join(LEVELS)}")
    tools = _parse_names(head, "tools")
    return AgentType(
        name=name,
        description=description[:LONGEST_DESCRIPTION],
        prompt=body,
        tools=None if tools is None else [to_tool_name(tool) for tool in tools],
        model=None if model in ("", INHERIT) else model,
        thinking=level,
        limits=_parse_limits(head.get("limits")),
        permissions=_parse_permissions(head.get("permissions"), report),
        spawns=_parse_names(head, "spawns"),
        source=source,
        path=path,
    )


def to_tool_name(name: str) -> str:
    """Pigeon's name of a tool, however another program spells it."""
    lower = name.lower()
    for known, facts in all_facts().items():
        if lower == known or lower in facts.other_names:
            return known
    return name


def _parse_names(head: dict[str, Any], key: str) -> list[str] | None:
    value = head.get(key)
    if value is None or value == WILDCARD:
        return None
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{key} must be a list of names, or names with commas, and is {_show(value)}")
    return list(dict.fromkeys(item.strip() for item in value if item.strip()))


def _parse_limits(value: Any) -> Limits:
    """Limits whose values are numbers or, as in the head of a file, their texts."""
    if value is None:
        return Limits()
    given = (
        {str(name): _to_number(str(name), item) for name, item in value.items()} if isinstance(value, dict) else value
    )
    try:
        return parse_limits(given)
    except BadRecord as error:
        raise ValueError(f"limits is {_show(value)}: {error}") from None


def _to_number(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return int(value) if name in WHOLE else float(value)
    except ValueError:
        return value


def _parse_permissions(value: Any, report: Report) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"permissions must have the lists {' and '.join(STRICTER)}, and is {_show(value)}")
    for key in (key for key in value if key not in STRICTER):
        report(f"permissions.{key} is ignored ({_show(value[key])}): an agent can only add rules that deny or ask")
    rules = {key: [value[key]] if isinstance(value[key], str) else value[key] for key in STRICTER if key in value}
    if wrong := describe_wrong_rules(rules):
        raise ValueError(f"permissions is {_show(value)}: {'; '.join(wrong)}")
    return rules


def _show(value: Any) -> str:
    """A value as it was written, as far as a line has room for it."""
    try:
        text = codec.encode(value).decode("utf-8", "replace")
    except BadRecord:
        text = repr(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
