"""The protocol as JSON Schema, made from the records; `pigeon schema` prints it.

The document describes every line of every dialect. Its root leads to all definitions, because code generators leave out
what nothing refers to: `HostLine` is what a host may send, `AgentLine` what Pigeon sends, with one response for each
command and its answer in it, `SessionFileLine` a line of a session file. A record, a union and a set of words that has
a name in these modules has the same name in the schema. A union names the member that distinguishes its records:
`discriminator` is not a keyword of JSON Schema but of OpenAPI, and makes generated Python code seventy times faster.

What Pigeon sends has all members but those that may be absent. In what a host sends, members with a default are
optional, and in a command null counts as absent. No record is closed: each side ignores members that it does not know.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import msgspec

from pigeon.wire import agents, answers, commands, content, dialogs, entries, events, messages, model, steering
from pigeon.wire.base import Absent, Record, intended_hint
from pigeon.wire.commands import Command

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MODULES: tuple[ModuleType, ...] = (
    agents, answers, commands, content, dialogs, entries, events, messages, model, steering,
)  # fmt: skip
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_UNIONS = (Union, UnionType)
Shape = dict[str, Any]


def protocol_schema() -> Shape:
    """One document for every line that a host may send, that Pigeon sends, and of a session file."""
    made = _Definitions()
    of_session = [made.define_shape(entries.SessionHeader), made.define_shape(entries.Entry)]
    roots = [
        made.define_union("HostLine", "A line on stdin of Pigeon.", [_define_commands(made), _define_reports(made)]),
        made.define_union("AgentLine", "A line on stdout of Pigeon.", _define_agent_lines(made)),
        made.define_union("SessionFileLine", "A line of a session file; the first one is the header.", of_session),
    ]
    return {
        "$schema": DIALECT,
        "title": "ProtocolLine",
        "description": "One JSON object on a line: what a host sends, what Pigeon sends, or what a session file has.",
        "oneOf": roots,
        **_discriminator_of("type"),
        "$defs": made.by_name,
    }


def _define_commands(made: _Definitions) -> Shape:
    answered = [made.define_shape(kind) for kind in commands.ALL if not kind.silent]
    older = [made.define_older_name(old, new) for old, new in commands.OLD_NAMES.items()]
    return made.define_union("Command", "What a host asks for; each is answered by one response.", [*answered, *older])


def _define_reports(made: _Definitions) -> Shape:
    silent = [made.define_shape(kind) for kind in commands.ALL if kind.silent]
    return made.define_union("HostReport", "What a host answers to a question of Pigeon; not answered itself.", silent)


def _define_agent_lines(made: _Definitions) -> list[Shape]:
    done = [made.define_response(kind) for kind in commands.ALL if not kind.silent and kind.answer is not NoReturn]
    success = made.define_union("SuccessResponse", "A command was carried out or accepted.", done, "command")
    return [
        made.define_union(
            "Response", "The answer to a command, found by its `id`.", [success, made.define_failure()], None
        ),
        made.define_union(
            "Event", "What is told without being asked for.", [made.define_shape(kind) for kind in events.ALL]
        ),
        made.define_shape(dialogs.DialogRequest),
    ]


class _Definitions:
    """The `$defs`, each created when it is first referred to."""

    def __init__(self) -> None:
        self.by_name: dict[str, Shape] = {}
        self._names = _names_of_unions()
        self._given = set(_records_within(commands.ALL))

    def define_union(self, name: str, about: str, members: Sequence[Shape], key: str | None = "type") -> Shape:
        """A union under a name; its members exclude each other by the value of `key`."""
        described = {"description": about} if about else {}
        self.by_name[name] = {"title": name, **described, "oneOf": list(members), **_discriminator_of(key)}
        return _reference(name)

    def define_older_name(self, old: str, new: str) -> Shape:
        """A command under a name that it had before."""
        name = "".join(word.capitalize() for word in old.split("_"))
        self._define_object(name, f"`{new}` under its older name.", {"type": {"const": old}})
        now = self._define_members(commands.BY_NAME[new])
        self.by_name[name]["properties"] |= {key: shape for key, shape in now["properties"].items() if key != "type"}
        self.by_name[name]["required"] = now["required"]
        return _reference(name)

    def define_response(self, kind: type[Command]) -> Shape:
        """The response to a successful command."""
        command = commands.NAMES[kind]
        members = self._define_members(answers.Response)["properties"]
        shapes = {"id": members["id"], "type": members["type"], "command": {"const": command}}
        shapes["success"] = {"const": True}
        optional = ["id"]
        if kind.answer is not None:
            hint = kind.answer if kind.shown is None else Union[kind.answer, kind.shown]  # noqa: UP007
            shapes["data"] = self.define_shape(hint)
            optional += ["data"] if _may_be_absent(hint) else []
        name = f"{kind.__name__}Response"
        self._define_object(name, f"`{command}` was carried out or accepted.", shapes, optional)
        return _reference(name)

    def define_failure(self) -> Shape:
        """The response to a refused line; the name of the command may be any text that a host sent."""
        members = self._define_members(answers.Response)["properties"]
        shapes = {key: members[key] for key in ("id", "type", "command")}
        shapes |= {"success": {"const": False}, "error": members["error"], "code": members["code"]}
        about = "A command was refused, or a line was none (`command` is `parse`)."
        self._define_object("FailedResponse", about, shapes, ["id", "code"])
        return _reference("FailedResponse")

    def define_shape(self, hint: Any) -> Shape:
        """A type as a schema; a named record or union is defined once and referred to."""
        if hint is Any:
            return {}
        if hint in _PLAIN:
            return {"type": _PLAIN[hint]}
        if isinstance(hint, type) and issubclass(hint, Record):
            return self._define_record(hint)
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Annotated:
            limits = {"minimum": inner[1].ge, "maximum": inner[1].le}
            return {**self.define_shape(inner[0]), **{key: limit for key, limit in limits.items() if limit is not None}}
        if origin is list:
            return {"type": "array", "items": self.define_shape(inner[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.define_shape(inner[1]) or True}
        if origin is Literal:
            return {"const": inner[0]} if len(inner) == 1 else self._define_words(hint)
        if origin in _UNIONS:
            return self._define_alternatives(inner)
        raise TypeError(f"there is no schema for {hint}")

    def _define_alternatives(self, kinds: Sequence[Any]) -> Shape:
        present = [kind for kind in kinds if kind is not Absent]
        if int in present and float in present:
            present.remove(int)
        if len(present) == 1:
            return self.define_shape(present[0])
        without_null = frozenset(present) - {NoneType}
        name = self._names.get(without_null)
        if name is None:
            return {"anyOf": [self.define_shape(kind) for kind in present]}
        if name not in self.by_name:
            self.by_name[name] = {}
            self._define_named_union(name, [kind for kind in present if kind is not NoneType])
        return _with_null(_reference(name)) if NoneType in present else _reference(name)

    def _define_named_union(self, name: str, kinds: Sequence[type[Record]]) -> None:
        keys = {kind.__struct_config__.tag_field for kind in kinds}
        if None not in keys:
            self.define_union(name, "", [self.define_shape(kind) for kind in kinds], *keys)
            return
        known = tuple(kind for kind in kinds if kind.__struct_config__.tag_field)
        others = [self.define_shape(kind) for kind in kinds if kind not in known]
        self.by_name[name] = {"title": name, "anyOf": [self._define_alternatives(known), *others]}

    def _define_words(self, hint: Any) -> Shape:
        words = get_args(hint)
        name = self._names.get(frozenset(words))
        if name is None:
            raise TypeError(f"give {hint} a name in its module: classes are generated from it")
        self.by_name[name] = {"title": name, "type": "string", "enum": list(words)}
        return _reference(name)

    def _define_record(self, kind: type[Record]) -> Shape:
        name = kind.__name__
        if name not in self.by_name:
            self.by_name[name] = {}
            members = self._define_members(kind)
            about = {"description": _without_example(inspect.cleandoc(kind.__doc__))} if kind.__doc__ else {}
            self.by_name[name] = {"title": name, **about, **members}
        return _reference(name)

    def _define_members(self, kind: type[Record]) -> Shape:
        """`properties` and `required` of a record."""
        hints = get_type_hints(kind, include_extras=True)
        tag_field, tag = kind.__struct_config__.tag_field, kind.__struct_config__.tag
        shapes: dict[str, Shape] = {} if tag_field is None else {tag_field: {"const": tag}}
        required = list(shapes)
        for field in msgspec.structs.fields(kind):
            hint, intended = intended_hint(hints[field.name])
            optional = _may_be_absent(hint) if intended or kind not in self._given else not field.required
            optional = optional or field.name in kind.later_members
            shape = self.define_shape(hint)
            if optional and issubclass(kind, Command) and shape:
                shape = _with_null(shape)
            # Texts are left out: beside a set of words, generators treat them as values of the wrong type.
            if optional and isinstance(field.default, int):
                shape = {**shape, "default": field.default}
            shapes[field.encode_name] = shape
            required += [] if optional else [field.encode_name]
        return {"type": "object", "properties": shapes, "required": required}

    def _define_object(self, name: str, about: str, shapes: dict[str, Shape], optional: Iterable[str] = ()) -> None:
        if name in self.by_name:
            raise TypeError(f"two definitions are called {name}")
        required = [key for key in shapes if key not in optional]
        self.by_name[name] = {
            "title": name,
            "description": about,
            "type": "object",
            "properties": shapes,
            "required": required,
        }


def _reference(name: str) -> Shape:
    return {"$ref": f"#/$defs/{name}"}


def _discriminator_of(key: str | None) -> Shape:
    return {} if key is None else {"discriminator": {"propertyName": key}}


def _with_null(shape: Shape) -> Shape:
    if {"type": "null"} in shape.get("anyOf", ()):
        return shape
    if {"minimum", "maximum"} & shape.keys():
        # Bounds mean nothing to null; within an `anyOf` they would become a type of their own in generated code.
        return {**shape, "type": [shape["type"], "null"]}
    return {"anyOf": [*shape.get("anyOf", [shape]), {"type": "null"}]}


def _may_be_absent(hint: Any) -> bool:
    return Absent in get_args(hint)


def _names_of_unions() -> dict[frozenset[Any], str]:
    """The names of unions and sets of words in their modules, by their members."""
    names: dict[frozenset[Any], str] = {}
    for module in _MODULES:
        for name, value in vars(module).items():
            if get_origin(value) in (Literal, *_UNIONS):
                names.setdefault(frozenset(get_args(value)), name)
    return names


def _records_within(kinds: Iterable[Any]) -> Iterable[type[Record]]:
    """These records and all records that they contain."""
    known: dict[type[Record], None] = {}
    waiting = list(kinds)
    while waiting:
        hint = waiting.pop()
        if not isinstance(hint, type) or not issubclass(hint, Record):
            waiting.extend(get_args(hint))
        elif hint not in known:
            known[hint] = None
            fields = msgspec.structs.fields(hint)
            waiting.extend(field.type for field in fields)
    return known


def _without_example(text: str) -> str:
    """A docstring for hosts, which do not need an example in Python."""
    return text.partition("\n\nExample:\n")[0]
