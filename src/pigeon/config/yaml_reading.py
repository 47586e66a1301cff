"""Reading YAML, the one way for heads of Markdown files and for the files of oh-my-pi. PyYAML is imported on first use.

Plain words are what YAML 1.2 says: `yes`, dates and versions are texts, `012` is twelve. Heads know no numbers at all,
because names and descriptions are made of such things.
"""

from __future__ import annotations

import re
from functools import cache
from math import isinf
from typing import Any

from pigeon.wire.errors import BadRecord

DEEPEST = 1_000
MOST_VALUES = 100_000
_TYPES = (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"^(?:~|null|Null|NULL)$", "~nN"),
    ("null", r"^$", ""),
)
_NUMBERS = (
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
    ("merge", r"^<<$", "<"),
)


class YamlError(BadRecord):
    """A text that is not valid YAML, with the line in which that was noticed, from 1; 0 if it is not known."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(f"not valid YAML{f' in line {line}' if line else ''}: {reason}")
        self.reason = reason
        self.line = line


def load_yaml(text: str, *, numbers: bool) -> Any:
    """The value of one document; raises `YamlError`."""
    import yaml

    try:
        return yaml.load(text, Loader=_make_loader_class(_is_shallow_enough(text), numbers))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(error.problem or error.context or "", mark.line + 1 if mark else 0) from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise YamlError(" ".join(str(error).split())[:200]) from None


def decode_yaml(data: bytes) -> Any:
    """The value of a file as JSON would have it: the keys of mappings are texts. Raises `BadRecord`."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise YamlError("it is not UTF-8", data.count(b"\n", 0, error.start) + 1) from None
    value = load_yaml(text, numbers=True)
    try:
        _count_values(value, {})
        return _to_json(value)
    except RecursionError:
        raise YamlError("it is nested too deeply") from None


def _count_values(value: Any, counted: dict[int, int]) -> int:
    """How many values this is with all aliases filled in; raises `YamlError` for too many."""
    if not isinstance(value, (dict, list)):
        return 1
    known = counted.get(id(value))
    if known == 0:
        raise YamlError("an alias stands for something that contains the alias")
    if known is None:
        counted[id(value)] = 0
        inner = value.values() if isinstance(value, dict) else value
        known = counted[id(value)] = 1 + sum(_count_values(one, counted) for one in inner)
        if known > MOST_VALUES:
            raise YamlError(f"its aliases stand for more than {MOST_VALUES} values")
    return known


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {_to_key(key): _to_json(one) for key, one in value.items()}
    return [_to_json(one) for one in value] if isinstance(value, list) else value


def _to_key(key: Any) -> str:
    words: dict[Any, str] = {None: "null", True: "true", False: "false"}
    return key if isinstance(key, str) else words[key] if key is None or isinstance(key, bool) else str(key)


def _is_shallow_enough(text: str) -> bool:
    """False for a text that might be nested deeply: the C parser has no guard and would crash the process. A level
    takes a column or a bracket."""
    return text.count("[") + text.count("{") <= DEEPEST and all(len(line) <= 2 * DEEPEST for line in text.split("\n"))


@cache
def _make_loader_class(fast: bool, numbers: bool) -> Any:
    """The safe loader with few types, in C if possible."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if fast else yaml.SafeLoader
    loader: Any = type("FewTypesLoader", (base,), {"yaml_implicit_resolvers": {}})
    for kind, pattern, beginnings in (*_TYPES, *(_NUMBERS if numbers else ())):
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(pattern), list(beginnings) or [""])
    loader.add_constructor("tag:yaml.org,2002:int", lambda self, node: _parse_int(node.value))
    loader.add_constructor("tag:yaml.org,2002:float", lambda self, node: _parse_float(node.value))
    return loader


def _parse_int(text: str) -> int:
    bases = {"0o": 8, "0x": 16}
    return int(text, bases.get(text[:2], 10))


def _parse_float(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"the number {text} is too large")
    return number
