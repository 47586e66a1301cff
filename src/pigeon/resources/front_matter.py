"""The YAML head of a Markdown file.

Values are texts, booleans (`true` and `false` only), null, lists and mappings; numbers stay the texts they are.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

LONGEST_HEAD = 65_536
_HEAD = re.compile(r"\A---[ \t]*\n(?:(.*?)\n)?---[ \t]*(?:\n|\Z)", re.DOTALL)


class FrontMatter(Struct, frozen=True):
    """A file in its two parts; `problem` is the error if the head is invalid."""

    head: dict[str, Any]
    body: str
    problem: str | None = None


def read_front_matter(text: str) -> FrontMatter:
    """Head and body; a text without a head is all body, and a head that is not valid YAML counts as empty."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    found = _HEAD.match(text)
    if found is None:
        return FrontMatter({}, text)
    head, problem = _parse_head(found[1] or "")
    return FrontMatter(head, text[found.end() :], problem)


def text_of_key(head: dict[str, Any], key: str) -> str:
    """The text of a key, trimmed; empty if missing."""
    value = head.get(key)
    return value.strip() if isinstance(value, str) else ""


def _parse_head(head: str) -> tuple[dict[str, Any], str | None]:
    if not head.strip():
        return {}, None
    if len(head) > LONGEST_HEAD:
        return {}, f"the front matter is longer than {LONGEST_HEAD} characters"
    from pigeon.config.yaml_reading import YamlError, load_yaml

    try:
        value = load_yaml(head, numbers=False)
    except YamlError as error:
        # The head begins in the second line.
        where = f" in line {error.line + 1}: {error.reason} (quote the value?)" if error.line else f": {error.reason}"
        return {}, f"the front matter is not valid YAML{where}"
    if value is None:
        return {}, None
    if not isinstance(value, dict):
        return {}, "the front matter must be a list of keys and values"
    return {str(key): item for key, item in value.items()}, None
