"""Prompt templates: `/name arguments` stands for the text of `name.md`."""

from __future__ import annotations

import os
import re
from typing import Literal

from pigeon.resources.front_matter import split_front_matter
from pigeon.wire.answers import SlashCommand, SourceInfo
from pigeon.wire.base import ABSENT

Scope = Literal["user", "project"]
DESCRIPTION_LIMIT = 60
_SUBSTITUTION = re.compile(
    r"\$(?:(\d+)|(@|ARGUMENTS\b)|\{(\d+):-([^}]*)\}|\{(?:@|ARGUMENTS):-([^}]*)\}|\{@:(\d+)(?::(\d+))?\})"
)


class PromptTemplate:
    """One template file."""

    def __init__(self, path: str, scope: Scope, text: str) -> None:
        head, body = split_front_matter(text)
        self.name = os.path.basename(path).removesuffix(".md")
        self.path = path
        self.scope: Scope = scope
        self.body = body
        described = head.get("description")
        self.description = described if isinstance(described, str) and described else _first_line(body)

    def listed(self) -> SlashCommand:
        """The entry of `get_commands`."""
        info = SourceInfo(
            path=self.path, source="auto", scope=self.scope, origin="top-level", base_dir=os.path.dirname(self.path)
        )
        return SlashCommand(
            name=self.name,
            description=self.description or ABSENT,
            source="prompt",
            location=self.scope,
            path=self.path,
            source_info=info,
        )


class Templates:
    """The templates of a set of folders, first name wins; read when first needed."""

    def __init__(self, folders: list[tuple[str, Scope]]) -> None:
        self._folders = folders
        self._loaded: dict[str, PromptTemplate] | None = None

    def expand(self, text: str) -> str:
        """The template's text with its arguments in place; other text unchanged."""
        if not text.startswith("/"):
            return text
        name = text[1:].split(None, 1)[0] if text[1:].strip() else ""
        rest = text[1 + len(name) :]
        template = self._templates().get(name)
        return text if template is None else substituted(template.body, split_arguments(rest))

    def commands(self) -> list[SlashCommand]:
        """All templates, as `get_commands` lists them."""
        return [template.listed() for template in self._templates().values()]

    def _templates(self) -> dict[str, PromptTemplate]:
        if self._loaded is None:
            self._loaded = {}
            for folder, scope in self._folders:
                for template in _read_folder(folder, scope):
                    self._loaded.setdefault(template.name, template)
        return self._loaded


def _read_folder(folder: str, scope: Scope) -> list[PromptTemplate]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".md"))
    except OSError:
        return []
    templates = []
    for name in names:
        path = os.path.join(folder, name)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                templates.append(PromptTemplate(path, scope, file.read()))
        except OSError:
            continue
    return templates


def split_arguments(text: str) -> list[str]:
    """Words, with single and double quotes grouping; there are no escapes."""
    words: list[str] = []
    current, quote, started = "", "", False
    for char in text:
        if quote:
            if char == quote:
                quote = ""
            else:
                current += char
        elif char in "'\"":
            quote, started = char, True
        elif char.isspace():
            if started or current:
                words.append(current)
            current, started = "", False
        else:
            current += char
    if started or current:
        words.append(current)
    return words


def substituted(body: str, arguments: list[str]) -> str:
    """The body with `$1`, `$@`, `${1:-default}`, `${@:2:1}` and their like filled in, in one pass."""

    def fill(found: re.Match[str]) -> str:
        number, everything, defaulted, default, all_default, start, length = found.groups()
        if number is not None:
            return _argument(arguments, int(number))
        if everything is not None:
            return " ".join(arguments)
        if defaulted is not None:
            return _argument(arguments, int(defaulted)) or default
        if all_default is not None:
            return " ".join(arguments) or all_default
        first = max(int(start), 1) - 1
        return " ".join(arguments[first : first + int(length)] if length else arguments[first:])

    return _SUBSTITUTION.sub(fill, body)


def _argument(arguments: list[str], number: int) -> str:
    return arguments[number - 1] if 1 <= number <= len(arguments) else ""


def _first_line(body: str) -> str:
    line = next((line.strip() for line in body.split("\n") if line.strip()), "")
    return line if len(line) <= DESCRIPTION_LIMIT else line[:DESCRIPTION_LIMIT] + "..."
