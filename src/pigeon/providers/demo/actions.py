"""Actions to tool calls, and tool results to sentences: the two halves of the demo model's answers.

A call only ever names a tool that the request offers; `call_for` is None where none of them fits.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from pigeon.agent.inference import ToolSpec
from pigeon.providers.demo.phrases import Action, ListFiles, ReadFile, ReplaceText, RunCommand, SearchText, WriteFile
from pigeon.providers.scripted.script import CallBlock
from pigeon.wire.base import Json

SHOWN_ENTRIES = 30
SHOWN_LINES = 20
SHOWN_CHARS = 2_000
NO_OUTPUT = "(no output)"


def call_for(action: Action, tools: Mapping[str, ToolSpec]) -> CallBlock | None:
    """The tool call that does it, or None when no offered tool can."""
    if isinstance(action, ListFiles):
        return _either(tools, "ls", {"path": action.path}, f"ls -A {_shell(action.path)}")
    if isinstance(action, ReadFile):
        return _either(tools, "read", {"path": action.path}, f"cat {_shell(action.path)}")
    if isinstance(action, SearchText):
        command = f"grep -rn --exclude-dir=.git -- {shlex.quote(action.text)} {_shell(action.path)} || true"
        return _either(tools, "grep", {"pattern": re.escape(action.text), "path": action.path}, command)
    if isinstance(action, RunCommand):
        return _either(tools, "", {}, action.command)
    if isinstance(action, WriteFile):
        return _only(tools, "write", {"path": action.path, "content": _with_newline(action.content)})
    return _only(tools, "edit", _edit_arguments(action, tools))


def _either(tools: Mapping[str, ToolSpec], name: str, arguments: dict[str, Json], command: str) -> CallBlock | None:
    return _only(tools, name, arguments) or _only(tools, "bash", {"command": command})


def _only(tools: Mapping[str, ToolSpec], name: str, arguments: dict[str, Json]) -> CallBlock | None:
    return CallBlock(name=name, arguments=arguments) if name in tools else None


def _edit_arguments(action: ReplaceText, tools: Mapping[str, ToolSpec]) -> dict[str, Json]:
    """A list of edits, or the older single edit if that is all that the offered tool knows."""
    spec = tools.get("edit")
    known = spec.parameters.get("properties", {}) if spec else {}
    one = {"oldText": action.old, "newText": action.new}
    return (
        {"path": action.path, **one}
        if "oldText" in known and "edits" not in known
        else {"path": action.path, "edits": [one]}
    )


def _shell(path: str) -> str:
    """A path as one shell word that is never taken for an option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def _with_newline(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def action_text(action: Action) -> str:
    """The action as the end of a sentence: "I will ..."."""
    if isinstance(action, ListFiles):
        return f"list what is in {_folder(action.path)}"
    if isinstance(action, ReadFile):
        return f"read {action.path}"
    if isinstance(action, RunCommand):
        return f"run `{action.command}`"
    if isinstance(action, ReplaceText):
        return f'replace "{action.old}" with "{action.new}" in {action.path}'
    if isinstance(action, WriteFile):
        return f"write {action.path}"
    return f'search for "{action.text}" in {_folder(action.path)}'


def tools_for(action: Action) -> str:
    """The names of the tools that can do it, for a sentence."""
    names = {ListFiles: "ls or bash", ReadFile: "read or bash", SearchText: "grep or bash", RunCommand: "bash"}
    return names.get(type(action), "write" if isinstance(action, WriteFile) else "edit")


def result_text(action: Action, result: str, is_error: bool) -> str:
    """The result in sentences."""
    result = "" if result.strip() == NO_OUTPUT else result.strip("\n")
    if is_error:
        return f"I could not {action_text(action)}:\n\n{_block(result)}"
    if isinstance(action, ListFiles):
        return _list_text(action, result)
    if isinstance(action, ReadFile):
        return _read_text(action, result)
    if isinstance(action, RunCommand):
        return f"I ran `{action.command}`. It printed:\n\n{_block(result)}" if result else f"I ran `{action.command}`."
    if isinstance(action, ReplaceText):
        return f'Done: "{action.old}" is now "{action.new}" in {action.path}.'
    if isinstance(action, WriteFile):
        return f"Done: I wrote {action.path} ({len(_with_newline(action.content))} characters)."
    return (
        f'"{action.text}" in {_folder(action.path)}:\n\n{_block(result)}'
        if result
        else f'"{action.text}" is nowhere there.'
    )


def is_listing(name: str, arguments: Mapping[str, Json]) -> bool:
    """True for a call that `call_for` makes to list a folder."""
    return name == "ls" or (name == "bash" and str(arguments.get("command", "")).startswith("ls -A "))


def entries_of(result: str) -> list[str]:
    """The names in the result of such a call; none of an empty folder."""
    entries = [line.strip() for line in result.splitlines() if line.strip()]
    return [] if entries and entries[0].startswith("(") else entries


def _list_text(action: ListFiles, result: str) -> str:
    entries = entries_of(result)
    if not entries:
        return f"There is nothing in {_folder(action.path)}."
    shown = "\n".join(f"- {entry}" for entry in entries[:SHOWN_ENTRIES])
    more = f"\n- and {len(entries) - SHOWN_ENTRIES} more" if len(entries) > SHOWN_ENTRIES else ""
    word = "entry" if len(entries) == 1 else "entries"
    return f"I see {len(entries)} {word} in {_folder(action.path)}:\n\n{shown}{more}"


def _read_text(action: ReadFile, result: str) -> str:
    lines = result.splitlines()
    if not lines:
        return f"{action.path} is empty."
    word = "line" if len(lines) == 1 else "lines"
    start = f"{action.path} has {len(lines)} {word}" + (". It begins:" if len(lines) > SHOWN_LINES else ":")
    return f"{start}\n\n{_block(result)}"


def _block(text: str) -> str:
    """The beginning of a text in a code fence that the text itself cannot close."""
    lines = text[:SHOWN_CHARS].splitlines()[:SHOWN_LINES]
    runs = [len(run) for run in re.findall(r"`{3,}", "\n".join(lines))]
    fence = "`" * (max(runs, default=2) + 1)
    body = "\n".join(lines)
    cut = "\n…" if len(body) < len(text.rstrip()) else ""
    return f"{fence}\n{body}{cut}\n{fence}"


def _folder(path: str) -> str:
    return "this folder" if path in (".", "./") else path
