"""Methods made from the records of commands, so that a command is declared once and no method is written by hand.

Required members are positional in the order of their declaration, the others are keywords, and `None` there means that
the member is not sent. A method is made when it is first used: a program needs few of them. `sdk/commands.py` has the
classes, `sdk/commands.pyi` the same methods for type checkers and editors.
"""

from __future__ import annotations

from types import FunctionType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NoReturn,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import NODEFAULT
from msgspec.structs import FieldInfo, fields

from pigeon.wire.base import ABSENT, Absent, intended_hint
from pigeon.wire.commands import (
    ALL,
    NAMES,
    Command,
    ExtensionUiResponse,
    FollowUp,
    HostToolResult,
    HostToolUpdate,
    Prompt,
    Steer,
)

if TYPE_CHECKING:
    from inspect import Parameter, Signature

# What a conversation does itself: it starts and follows prompts, accepts more forms of images, and answers questions.
BY_HAND = (Prompt, Steer, FollowUp, HostToolUpdate, HostToolResult, ExtensionUiResponse)


def make_methods_class(name: str, *, waits: bool) -> type:
    """A class with a method for each command, which hands the record to the `send` of its subclass.

    If it `waits`, its methods return the answer; otherwise they are coroutines.
    """
    methods = {NAMES[command]: _CommandMethod(command, waits) for command in ALL if command not in BY_HAND}
    return type(name, (), methods)


class _CommandMethod:
    """Replaces a method in its class until it is first used."""

    def __init__(self, command: type[Command], waits: bool) -> None:
        self._command = command
        self._waits = waits
        self._made: FunctionType | None = None

    def __get__(self, instance: object, owner: type) -> Any:
        if self._made is None:
            self._made = _make_method(self._command, self._waits)
        return self._made.__get__(instance, owner)


def _make_method(command: type[Command], waits: bool) -> FunctionType:
    from inspect import cleandoc

    name, signature = NAMES[command], signature_of(command)
    optional = {one.name for one in signature.parameters.values() if one.default is None} - command.nullable
    has_answer = signature.return_annotation != "None"

    def make_command(given: tuple[Any, ...], named: dict[str, Any]) -> Command:
        try:
            bound = signature.bind(*given, **named)
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None
        bound.apply_defaults()
        del bound.arguments["self"]
        members = {key: ABSENT if one is None and key in optional else one for key, one in bound.arguments.items()}
        return command(**members)

    def call_sync(*given: Any, **named: Any) -> Any:
        answer = given[0].send(make_command(given, named))
        return answer if has_answer else None

    async def call_async(*given: Any, **named: Any) -> Any:
        answer = await given[0].send(make_command(given, named))
        return answer if has_answer else None

    method = cast("FunctionType", call_sync if waits else call_async)
    method.__name__ = method.__qualname__ = name
    method.__doc__ = cleandoc(command.__doc__ or "")
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


def signature_of(command: type[Command]) -> Signature:
    """The parameters and the answer of a command's method; types are texts, as in source code."""
    from inspect import Parameter, Signature

    hints = get_type_hints(command, include_extras=True)
    members = [one for one in fields(command) if one.name != "id"]
    required = [one for one in members if _is_required(one, hints[one.name])]
    parameters = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)]
    for one in required:
        hint = _to_source(intended_hint(hints[one.name])[0])
        parameters.append(Parameter(one.name, Parameter.POSITIONAL_OR_KEYWORD, annotation=hint))
    for one in members:
        if one not in required:
            parameters.append(_make_parameter(one, _to_source(intended_hint(hints[one.name])[0])))
    answer = "None" if command.answer in (None, NoReturn) else _to_source(command.answer)
    return Signature(parameters, return_annotation=answer)


def _is_required(member: FieldInfo, hint: Any) -> bool:
    intended, is_declared = intended_hint(hint)
    if is_declared:
        return Absent not in get_args(intended) and intended is not Absent
    return member.default is NODEFAULT and member.default_factory is NODEFAULT


def _make_parameter(member: FieldInfo, hint: str) -> Parameter:
    from inspect import Parameter

    if member.default is NODEFAULT or member.default is None or isinstance(member.default, Absent):
        hint = hint if hint.endswith("| None") else f"{hint} | None"
        return Parameter(member.name, Parameter.KEYWORD_ONLY, annotation=hint, default=None)
    return Parameter(member.name, Parameter.KEYWORD_ONLY, annotation=hint, default=member.default)


def _to_source(hint: Any) -> str:
    """A type as source code, without the marker for absent values."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated or origin is ClassVar:
        return _to_source(parts[0])
    if origin in (Union, UnionType):
        return " | ".join(_to_source(part) for part in parts if part is not Absent)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(_to_source(part) for part in parts)}]"
    if hint is type(None) or hint is None:
        return "None"
    return "Any" if hint is Any else str(hint.__name__)
