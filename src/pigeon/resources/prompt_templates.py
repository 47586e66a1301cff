"""Prompt templates: `/name arguments` stands for the text of `name.md`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from pigeon.resources.front_matter import read_front_matter, text_of_key
from pigeon.resources.instruction_files import hold_instruction_file, limit_links_of_root
from pigeon.resources.roots import ResourceRoot
from pigeon.system.files import error_text
from pigeon.wire.answers import SlashCommand

DESCRIPTION_LIMIT = 60
LONGEST_NUMBER = 9
_CALL = re.compile(r"/(\S+)(.*)", re.DOTALL)
_SUBSTITUTION = re.compile(
    r"\$(?:([0-9]+)|(@|ARGUMENTS)|\{([0-9]+):-([^}]*)\}|\{(?:@|ARGUMENTS):-([^}]*)\}|\{@:([0-9]+)(?::([0-9]+))?\})"
)


class PromptTemplate(Struct, frozen=True):
    """One template file, with its front matter read and its body as text."""

    name: str
    path: str
    root: ResourceRoot
    description: str
    argument_hint: str
    body: str

    def to_command(self) -> SlashCommand:
        return self.root.to_command("prompt", self.name, self.description, self.path)


class Templates:
    """The templates of some places; the first of a name wins. Read when first needed."""

    def __init__(self, roots: Callable[[], Sequence[ResourceRoot]], report: Callable[[str], None]) -> None:
        self._roots = roots
        self._report = report
        self._loaded: dict[str, PromptTemplate] | None = None

    def expand(self, text: str) -> str:
        """The template's text with its arguments in place; other text unchanged."""
        found = _CALL.fullmatch(text) if text.startswith("/") else None
        template = self.templates_by_name().get(found[1]) if found else None
        if found is None or template is None:
            return text
        return substitute_arguments(template.body, split_arguments(found[2]))

    def list_commands(self) -> list[SlashCommand]:
        """All templates, as `get_commands` lists them."""
        return [template.to_command() for template in self.templates_by_name().values()]

    def templates_by_name(self) -> dict[str, PromptTemplate]:
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _load(self) -> dict[str, PromptTemplate]:
        templates: dict[str, PromptTemplate] = {}
        for root in self._roots():
            for path in _list_files(root, self._report):
                template = _read_template(path, root, self._report) if root.is_selected(path) else None
                if template is None:
                    continue
                first = templates.setdefault(template.name, template)
                if first.root.base_dir == root.base_dir and root.view.real_path(first.path) != root.view.real_path(
                    path
                ):
                    self._report(f"{path}: template /{template.name} is hidden by the one of that name in {first.path}")
        return templates


def _list_files(root: ResourceRoot, report: Callable[[str], None]) -> list[str]:
    try:
        names = [entry.name for entry in root.view.list_folder(root.path)]
    except NotADirectoryError:
        return [root.path]
    except OSError as error:
        if not isinstance(error, FileNotFoundError) or root.view.lexists(root.path):
            report(f"templates not loaded: {error_text(error, 'scandir', root.path)}")
        return []
    return [os.path.join(root.path, name) for name in names if name.endswith(".md")]


def _read_template(path: str, root: ResourceRoot, report: Callable[[str], None]) -> PromptTemplate | None:
    try:
        with hold_instruction_file(path, limit_links_of_root(root), root.view) as held:
            parts = read_front_matter(root.view.read_text(held))
    except OSError as error:
        report(f"template not loaded: {error_text(error, 'read', path)}")
        return None
    if parts.problem:
        report(f"{path}: {parts.problem}")
    return PromptTemplate(
        name=os.path.basename(path).removesuffix(".md"),
        path=path,
        root=root,
        description=text_of_key(parts.head, "description") or _first_line(parts.body),
        argument_hint=text_of_key(parts.head, "argument-hint"),
        body=parts.body,
    )


def split_arguments(text: str) -> list[str]:
    """Words, with single and double quotes grouping; there are no escapes."""
    words: list[str] = []
    current: list[str] = []
    quote, started = "", False
    for char in text:
        if quote:
            if char == quote:
                quote = ""
            else:
                current.append(char)
        elif char in "'\"":
            quote, started = char, True
        elif char.isspace():
            if started or current:
                words.append("".join(current))
            current, started = [], False
        else:
            current.append(char)
    if started or current:
        words.append("".join(current))
    return words


def substitute_arguments(body: str, arguments: list[str]) -> str:
    """The body with `$1`, `$@`, `${1:-default}`, `${@:2:1}` and the like filled in, in one pass."""

    def replace_placeholder(found: re.Match[str]) -> str:
        number, everything, defaulted, default, all_default, start, length = found.groups()
        if number is not None:
            return _argument_at(arguments, number)
        if everything is not None:
            return " ".join(arguments)
        if defaulted is not None:
            return _argument_at(arguments, defaulted) or default
        if all_default is not None:
            return " ".join(arguments) or all_default
        first = max(_parse_count(start), 1) - 1
        return " ".join(arguments[first : first + _parse_count(length)] if length else arguments[first:])

    return _SUBSTITUTION.sub(replace_placeholder, body)


def _argument_at(arguments: list[str], number: str) -> str:
    place = _parse_count(number)
    return arguments[place - 1] if 1 <= place <= len(arguments) else ""


def _parse_count(digits: str) -> int:
    """The number; unreasonably long digits count as beyond the end."""
    return int(digits[:LONGEST_NUMBER]) if len(digits) <= LONGEST_NUMBER else 10**LONGEST_NUMBER


def _first_line(body: str) -> str:
    line = next((line.strip() for line in body.split("\n") if line.strip()), "")
    return line if len(line) <= DESCRIPTION_LIMIT else line[:DESCRIPTION_LIMIT] + "..."
