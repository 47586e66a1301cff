"""Wishes to tool calls, and results to words: the two halves of the demo model's answers.

A call only ever names a tool that the request offers; when none fits, `call_for` says so by giving nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from pigeon.agent.inference import ToolSpec
from pigeon.providers.demo.phrases import Doable, ListFiles, ReadFile, Replace, RunCommand, Search, WriteFile
from pigeon.providers.scripted.script import CallBlock
from pigeon.wire.base import Json

SHOWN_ENTRIES = 30
SHOWN_LINES = 20
SHOWN_CHARS = 2_000
NO_OUTPUT = "(no output)"


def call_for(wish: Doable, tools: Mapping[str, ToolSpec]) -> CallBlock | None:
    """The tool call that does it, or None when no offered tool can."""
    if isinstance(wish, ListFiles):
        return _either(tools, "ls", {"path": wish.path}, f"ls -A {_shell(wish.path)}")
    if isinstance(wish, ReadFile):
        return _either(tools, "read", {"path": wish.path}, f"cat {_shell(wish.path)}")
    if isinstance(wish, Search):
        command = f"grep -rn --exclude-dir=.git -- {shlex.quote(wish.text)} {_shell(wish.path)} || true"
        return _either(tools, "grep", {"pattern": re.escape(wish.text), "path": wish.path}, command)
    if isinstance(wish, RunCommand):
        return _either(tools, "", {}, wish.command)
    if isinstance(wish, WriteFile):
        return _only(tools, "write", {"path": wish.path, "content": _with_newline(wish.content)})
    return _only(tools, "edit", _edit_arguments(wish, tools))


def _either(tools: Mapping[str, ToolSpec], name: str, arguments: dict[str, Json], command: str) -> CallBlock | None:
    return _only(tools, name, arguments) or _only(tools, "bash", {"command": command})


def _only(tools: Mapping[str, ToolSpec], name: str, arguments: dict[str, Json]) -> CallBlock | None:
    return CallBlock(name=name, arguments=arguments) if name in tools else None


def _edit_arguments(wish: Replace, tools: Mapping[str, ToolSpec]) -> dict[str, Json]:
    """A list of edits, or the older single edit if that is all that the offered tool knows."""
    spec = tools.get("edit")
    known = spec.parameters.get("properties", {}) if spec else {}
    one = {"oldText": wish.old, "newText": wish.new}
    return (
        {"path": wish.path, **one}
        if "oldText" in known and "edits" not in known
        else {"path": wish.path, "edits": [one]}
    )


def _shell(path: str) -> str:
    """A path as one shell word that is never taken for an option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def _with_newline(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def deed(wish: Doable) -> str:
    """What will be done, as the end of a sentence."""
    if isinstance(wish, ListFiles):
        return f"list what is in {_folder(wish.path)}"
    if isinstance(wish, ReadFile):
        return f"read {wish.path}"
    if isinstance(wish, RunCommand):
        return f"run `{wish.command}`"
    if isinstance(wish, Replace):
        return f'replace "{wish.old}" with "{wish.new}" in {wish.path}'
    if isinstance(wish, WriteFile):
        return f"write {wish.path}"
    return f'search for "{wish.text}" in {_folder(wish.path)}'


def need(wish: Doable) -> str:
    """The tools that could have done it."""
    names = {ListFiles: "ls or bash", ReadFile: "read or bash", Search: "grep or bash", RunCommand: "bash"}
    return names.get(type(wish), "write" if isinstance(wish, WriteFile) else "edit")


def told(wish: Doable, result: str, is_error: bool) -> str:
    """The result in words."""
    result = "" if result.strip() == NO_OUTPUT else result.strip("\n")
    if is_error:
        return f"I could not {deed(wish)}:\n\n{_block(result)}"
    if isinstance(wish, ListFiles):
        return _told_list(wish, result)
    if isinstance(wish, ReadFile):
        return _told_read(wish, result)
    if isinstance(wish, RunCommand):
        return f"I ran `{wish.command}`. It printed:\n\n{_block(result)}" if result else f"I ran `{wish.command}`."
    if isinstance(wish, Replace):
        return f'Done: "{wish.old}" is now "{wish.new}" in {wish.path}.'
    if isinstance(wish, WriteFile):
        return f"Done: I wrote {wish.path} ({len(_with_newline(wish.content))} characters)."
    return (
        f'"{wish.text}" in {_folder(wish.path)}:\n\n{_block(result)}' if result else f'"{wish.text}" is nowhere there.'
    )


def _told_list(wish: ListFiles, result: str) -> str:
    entries = [line.strip() for line in result.splitlines() if line.strip()]
    if not entries or entries[0].startswith("("):
        return f"There is nothing in {_folder(wish.path)}."
    shown = "\n".join(f"- {entry}" for entry in entries[:SHOWN_ENTRIES])
    more = f"\n- and {len(entries) - SHOWN_ENTRIES} more" if len(entries) > SHOWN_ENTRIES else ""
    word = "entry" if len(entries) == 1 else "entries"
    return f"I see {len(entries)} {word} in {_folder(wish.path)}:\n\n{shown}{more}"


def _told_read(wish: ReadFile, result: str) -> str:
    lines = result.splitlines()
    if not lines:
        return f"{wish.path} is empty."
    word = "line" if len(lines) == 1 else "lines"
    start = f"{wish.path} has {len(lines)} {word}" + (". It begins:" if len(lines) > SHOWN_LINES else ":")
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
