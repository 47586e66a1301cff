"""The YAML head of a Markdown file.

Values are texts, booleans (`true` and `false` only), null, lists and mappings. Numbers, dates, versions, `yes` and `no`
stay the texts they are, because names and descriptions are made of such things.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from msgspec import Struct

LONGEST_HEAD = 65_536
DEEPEST = 1_000
_TYPES = (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"^(?:~|null|Null|NULL)$", "~nN"),
    ("null", r"^$", ""),
)
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
    import yaml

    try:
        value = yaml.load(head, Loader=_make_yaml_loader_class(_is_shallow_enough(head)))
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 2}" if error.problem_mark else ""
        return {}, f"the front matter is not valid YAML{line}: {error.problem or error.context} (quote the value?)"
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        return {}, "the front matter is not valid YAML: " + " ".join(str(error).split())[:200]
    if value is None:
        return {}, None
    if not isinstance(value, dict):
        return {}, "the front matter must be a list of keys and values"
    return {str(key): item for key, item in value.items()}, None


def _is_shallow_enough(head: str) -> bool:
    """False for a head that might be nested deeply: the C parser has no guard and would crash the process. A level
    takes a column or a bracket."""
    return head.count("[") + head.count("{") <= DEEPEST and all(len(line) <= 2 * DEEPEST for line in head.split("\n"))


@cache
def _make_yaml_loader_class(fast: bool) -> Any:
    """The safe loader with the few types that a head needs, in C if possible."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if fast else yaml.SafeLoader
    loader: Any = type("HeadLoader", (base,), {"yaml_implicit_resolvers": {}})
    for kind, pattern, beginnings in _TYPES:
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(pattern), list(beginnings) or [""])
    return loader
