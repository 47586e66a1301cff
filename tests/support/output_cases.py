"""Types and JSON Schemas that a program may want as the output of a run, each with a value that fits."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypedDict

import msgspec
import pydantic

TEXT = {"type": "string"}


@dataclass
class Place:
    file: str
    line: int = 1


@dataclass
class Finding:
    title: str
    at: Place
    also: list[Place] = field(default_factory=list)


class Verdict(msgspec.Struct):
    passed: bool
    score: float
    note: str | None = None


class Commit(TypedDict):
    sha: str
    files: list[str]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Leaf(pydantic.BaseModel):
    name: str
    size: int = pydantic.Field(ge=0, le=9)
    kind: Literal["file"] = "file"


class Twig(pydantic.BaseModel):
    leaf: Leaf
    below: list[Twig] = []


class Node(msgspec.Struct):
    name: str
    below: list[Node] = []


def nested_schema(levels: int) -> tuple[dict[str, Any], Any]:
    schema, value = {"type": "object", "properties": {"end": TEXT}, "required": ["end"]}, {"end": "x"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"in": schema}, "required": ["in"]}  # type: ignore[dict-item]
        value = {"in": value}  # type: ignore[dict-item]
    return schema, value


DEEP, DEEP_VALUE = nested_schema(12)
CASES: dict[str, tuple[Any, Any]] = {
    "dataclasses": (Finding, {"title": "a", "at": {"file": "b", "line": 2}, "also": [{"file": "c", "line": 3}]}),
    "struct": (Verdict, {"passed": True, "score": 0.5, "note": None}),
    "typed dictionary": (Commit, {"sha": "1", "files": ["a", "b"]}),
    "pydantic": (Leaf, {"name": "a", "size": 3, "kind": "file"}),
    "pydantic, recursive": (Twig, {"leaf": {"name": "a", "size": 1, "kind": "file"}, "below": []}),
    "recursive": (Node, {"name": "a", "below": [{"name": "b", "below": [{"name": "c", "below": []}]}]}),
    "texts": (list[str], ["a", "ü", "\u2028"]),
    "map": (dict[str, int], {"a": 1, "größe": 2}),
    "literal": (Literal["yes", "no"], "yes"),
    "union": (int | str | None, "7"),
    "optional struct": (Verdict | None, None),
    "enum": (list[Colour], ["red", "blue"]),
    "time": (datetime, "2024-05-06T07:08:09Z"),
    "number": (float, 1.5),
    "references": (
        {"$defs": {"p": {"type": "object", "properties": {"x": TEXT}, "required": ["x"]}}, "$ref": "#/$defs/p"},
        {"x": "a"},
    ),
    "closed": (
        {"type": "object", "properties": {"a": TEXT}, "required": ["a"], "additionalProperties": False},
        {"a": "b"},
    ),
    "open": ({"type": "object", "properties": {"a": TEXT}, "additionalProperties": {"type": "integer"}}, {"z": 1}),
    "one of": ({"oneOf": [{"type": "integer"}, {"type": "array", "items": TEXT}]}, ["a"]),
    "any of objects": (
        {"anyOf": [{"type": "object", "properties": {k: TEXT}, "required": [k]} for k in "ab"]},
        {"b": "x"},
    ),
    "bounds": (
        {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 5}}, "required": ["n"]},
        {"n": 5},
    ),
    "pattern": ({"type": "string", "pattern": "^[a-f]{3}$"}, "abc"),
    "empty object": ({"type": "object", "properties": {}, "additionalProperties": False}, {}),
    "deep": (DEEP, DEEP_VALUE),
    "unicode keys": ({"type": "object", "properties": {"größe": TEXT}, "required": ["größe"]}, {"größe": "7"}),
    "named like an envelope": (
        {"type": "object", "properties": {"value": TEXT}, "required": ["value"]},
        {"value": "v"},
    ),
}
