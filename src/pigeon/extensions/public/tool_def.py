"""A function as a tool: its schema from the type hints, its description from the docstring, its arguments as Python
values."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pigeon.agent.inference import ToolSpec
from pigeon.wire import codec

_SECTION = re.compile(r"^\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?)\s*:\s*(.*)$")
_ARGUMENT = re.compile(r"^\s*(\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ToolDef:
    """A tool as declared by an extension."""

    spec: ToolSpec
    function: Callable[..., Any]
    hints: dict[str, Any] | None
    context_name: str | None
    reads_only: bool
    snippet: str
    guidelines: tuple[str, ...]

    def bind_call(self, arguments: dict[str, Any], context: Any) -> Callable[[], Any]:
        """The call to make; raises `msgspec.ValidationError` for arguments that do not fit the hints."""
        if self.hints is None:
            values: dict[str, Any] = {}
            positional: tuple[Any, ...] = (arguments,)
        else:
            values = {}
            for name in self.hints.keys() & arguments.keys():
                codec.prepare_type(self.hints[name])
                values[name] = msgspec.convert(arguments[name], self.hints[name])
            positional = ()
        if self.context_name is not None:
            values[self.context_name] = context
        return functools.partial(self.function, *positional, **values)


def build_tool_def(
    function: Callable[..., Any],
    *,
    name: str = "",
    description: str = "",
    schema: dict[str, Any] | None = None,
    snippet: str = "",
    guidelines: Sequence[str] = (),
    reads_only: bool = False,
) -> ToolDef:
    """Build a tool from a function; raises `TypeError` or `ValueError` that names anything unusable."""
    written = _unwrap_partial(function)
    called = name or getattr(written, "__name__", "")
    if not called:
        raise ValueError(f"{function!r:.100} has no name; give one with name=")
    if not _NAME.fullmatch(called):
        raise ValueError(f"{called!r} cannot be the name of a tool: letters, digits, _ and - only, at most 64")
    text, described = split_docstring(inspect.getdoc(written) or "")
    text = description or text
    if not text:
        raise ValueError(f'the tool "{called}" needs a docstring or a description')
    if inspect.isgeneratorfunction(written) or inspect.isasyncgenfunction(written):
        raise TypeError(f'the tool "{called}" must return its result, not yield it')
    parameters = dict(inspect.signature(function).parameters)
    context_name = _find_context_parameter(parameters, positional=schema is not None)
    hints: dict[str, Any] | None = None
    if schema is None:
        hints = _resolve_hints(called, function, parameters, context_name)
        schema = _build_schema(called, parameters, hints, described)
    elif not isinstance(schema, dict) or schema.get("type") != "object":
        raise TypeError(f'the schema of the tool "{called}" must be a JSON Schema of type object')
    return ToolDef(
        spec=ToolSpec(name=called, description=text, parameters=schema),
        function=function,
        hints=hints,
        context_name=context_name,
        reads_only=reads_only,
        snippet=snippet or text.partition("\n")[0],
        guidelines=tuple(guidelines),
    )


def _unwrap_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside a `functools.partial`; any other function is returned unchanged."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _hint_globals_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The namespace in which the function's hints were written, which a decorator's wrapper does not have."""
    written: Any = inspect.unwrap(_unwrap_partial(function))
    if not hasattr(written, "__globals__"):
        kind: Any = written if isinstance(written, type) else type(written)
        written = kind.__init__ if kind is written else kind.__call__
    return getattr(written, "__globals__", {})


def split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, and the text of the `Args:` section for each argument."""
    prose: list[str] = []
    arguments: dict[str, str] = {}
    section, last = "", ""
    for line in text.splitlines():
        heading = _SECTION.match(line)
        if heading:
            section, rest = heading[1], heading[2]
            for part in rest.split(";") if section in ("Args", "Arguments", "Parameters") else ():
                if found := _ARGUMENT.match(part):
                    arguments[found[1]] = found[2].strip().rstrip(".")
            continue
        if not section:
            prose.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            found = _ARGUMENT.match(line)
            if found:
                last = found[1]
                arguments[last] = found[2].strip()
            elif last:
                arguments[last] += " " + line.strip()
    return "\n".join(prose).strip(), arguments


def _find_context_parameter(parameters: dict[str, inspect.Parameter], positional: bool) -> str | None:
    for index, (name, parameter) in enumerate(parameters.items()):
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise TypeError(f"a tool cannot have the parameter *{name}")
        hint = parameter.annotation
        label = hint if isinstance(hint, str) else getattr(hint, "__name__", "")
        if label.rpartition(".")[2] in ("ToolContext", "Context") or (
            name == "ctx" and not (positional and index == 0)
        ):
            return name
    return None


def _resolve_hints(
    tool: str, function: Callable[..., Any], parameters: dict[str, inspect.Parameter], context_name: str | None
) -> dict[str, Any]:
    wanted = [name for name in parameters if name != context_name]
    annotations = {name: parameters[name].annotation for name in wanted}
    bare = next((name for name, hint in annotations.items() if hint is inspect.Parameter.empty), None)
    if bare is not None:
        raise TypeError(f'parameter "{bare}" of the tool "{tool}" needs a type hint')
    nameless = next((name for name in wanted if parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY), None)
    if nameless is not None:
        raise TypeError(f'parameter "{nameless}" of the tool "{tool}" cannot be passed by name; remove the /')
    try:
        # Only the arguments: the hint of the context may name a type that is imported for type checkers only.
        stub = types.SimpleNamespace(__annotations__=annotations)
        found = typing.get_type_hints(stub, _hint_globals_of(function), include_extras=True)
    except NameError as error:
        raise TypeError(f'a type hint of the tool "{tool}" cannot be resolved: {error}') from None
    return {name: found[name] for name in wanted}


def _build_schema(
    tool: str, parameters: dict[str, inspect.Parameter], hints: dict[str, Any], described: dict[str, str]
) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, hint in hints.items():
        default = parameters[name].default
        properties[name] = _build_property(tool, name, hint, optional=default is None)
        if name in described:
            properties[name]["description"] = described[name]
        if default is inspect.Parameter.empty:
            required.append(name)
        elif isinstance(default, (str, int, float, bool)):
            properties[name]["default"] = default
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return schema


def _build_property(tool: str, name: str, hint: Any, optional: bool) -> dict[str, Any]:
    note = ""
    if typing.get_origin(hint) is typing.Annotated:
        note = next((extra for extra in typing.get_args(hint)[1:] if isinstance(extra, str)), "")
    if optional and typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = tuple(one for one in typing.get_args(hint) if one is not type(None))
        hint = typing.Union.__getitem__(rest) if rest else hint
    try:
        (shape,), parts = msgspec.json.schema_components([hint], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise TypeError(f'parameter "{name}" of the tool "{tool}" has a type that cannot be used: {error}') from None
    schema = _inline_references(shape, parts, ())
    return {**schema, "description": note} if note else schema


def _inline_references(shape: Any, parts: dict[str, Any], above: tuple[str, ...]) -> Any:
    """The schema without references; a recursive one is left open at the reference to itself."""
    if isinstance(shape, list):
        return [_inline_references(item, parts, above) for item in shape]
    if not isinstance(shape, dict):
        return shape
    reference = shape.get("$ref")
    if isinstance(reference, str):
        part = reference.rpartition("/")[2]
        return {} if part in above else _inline_references(parts[part], parts, (*above, part))
    return {
        key: {name: _inline_references(one, parts, above) for name, one in value.items()}
        if key == "properties"
        else _inline_references(value, parts, above)
        for key, value in shape.items()
        if key != "title"
    }
