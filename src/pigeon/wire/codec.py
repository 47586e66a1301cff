"""Bytes to records and back: the only JSON parser and printer.

Strict both ways: NaN and Infinity are neither read nor written, integral floats are printed as integers, U+2028 and
U+2029 are written as escapes because some clients split lines at them. Lone surrogates, huge integers and deep nesting
are either kept or refused with `BadRecord`; nothing else is ever raised. `command_of` and `convert` turn parsed values
into records and name the field that does not fit.
"""

from __future__ import annotations

import re
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pigeon.wire.base import ABSENT, Json
from pigeon.wire.commands import BY_NAME, OLD_NAMES, Command
from pigeon.wire.errors import BadRecord, UnknownCommand

if TYPE_CHECKING:
    from json import JSONDecoder

_T = TypeVar("_T")
MAX_FLOAT_AS_INT = 2**53
# Limits for JSON from outside: all later code copies, checks and prints it, some of it recursively.
MOST_LEVELS = 200
MOST_VALUES = 100_000
ENDED_EARLY = "Unexpected end of JSON input"
_INFINITE = (float("inf"), float("-inf"))
_MOST_DIGITS = 4300
# A text or a whole number that needs no further parsing.
_PLAIN = r'("[^"\\\x00-\x1f]{0,200}"|-?(?:0|[1-9]\d{0,17}))'
_STRING = re.compile(rb'"[^"]*"?')
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _parse_float(text: str) -> int | float:
    value = float(text)
    if value in _INFINITE:
        raise ValueError(f"number out of range: {text[:40]}")
    return int(value) if value.is_integer() and abs(value) < MAX_FLOAT_AS_INT else value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_prepared: set[Any] = set()
_preparing = Lock()
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(float_hook=_parse_float)


@cache
def _tolerant_decoder() -> JSONDecoder:
    """The decoder of the standard library; most agents never need it, so it is imported late."""
    from json import JSONDecoder

    return JSONDecoder(parse_constant=_refuse_constant, parse_float=_parse_float)


@cache
def _stored_decoder() -> JSONDecoder:
    from json import JSONDecoder

    return JSONDecoder(parse_constant=_refuse_constant, parse_float=_number_or_none, parse_int=_number_or_none)


def _number_or_none(text: str) -> int | float | None:
    # No number of so many digits is finite elsewhere, and Python takes long to read one.
    if len(text) > _MOST_DIGITS and text.lstrip("-").isdigit():
        return None
    try:
        return int(text) if text.lstrip("-").isdigit() else _parse_float(text)
    except ValueError:
        return None


def decode(data: bytes | str) -> Any:
    """One JSON value; raises only `BadRecord`."""
    try:
        return _decoder.decode(data)
    except UnicodeDecodeError:
        return decode(bytes(data).decode("utf-8", "replace") if not isinstance(data, str) else data)
    except RecursionError:
        raise BadRecord("the JSON is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        return _decode_tolerantly(data, str(error))


def decode_stored(data: bytes) -> Any:
    """One JSON value of a file that any program may have written: a number that is too large for other programs is
    null, as it is for them. Raises only `BadRecord`."""
    try:
        return decode(data)
    except BadRecord:
        return _decode_with(_stored_decoder(), data.decode("utf-8", "replace"))


def parse_outer_members(beginning: bytes, ending: bytes = b"") -> dict[str, Json]:
    """The known members of an object of which only both ends are available: from the first member on, and from the last
    one back, as far as their values are short texts or whole numbers; the first other value becomes None.

    The last brace closes the object, so the text right before it is its own member and not of something inside.
    """
    first = re.compile(rf'\s*"(\w+)"\s*:\s*(?:{_PLAIN}\s*,)?')
    last = re.compile(rf',\s*"(\w+)"\s*:\s*{_PLAIN}\s*$')
    found: dict[str, Json] = {}
    text = beginning.decode("utf-8", "ignore").lstrip()
    place = 1 if text.startswith("{") else len(text)
    while (read := first.match(text, place)) is not None:
        found[read[1]] = None if read[2] is None else decode(read[2])
        if read[2] is None:
            break
        place = read.end()
    text = ending.decode("utf-8", "ignore").rstrip()
    text = text[:-1] if text.endswith("}") and found else ""
    while (read := last.search(text)) is not None:
        found[read[1]] = decode(read[2])
        text = text[: read.start()]
    return found


def shape_error(data: bytes | str, levels: int = MOST_LEVELS, values: int = MOST_VALUES) -> str | None:
    """Why JSON has too large a structure to be decoded, as the end of a sentence; None if it has not.

    Linear, and nearly free for ordinary texts: they have fewer brackets than the allowed levels. A small text of empty
    lists decodes into twenty times its size, so the number of values is limited too.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    opened = raw.count(b"[") + raw.count(b"{")
    if opened <= levels and opened + raw.count(b",") <= values:
        return None
    many = f"has more than {values} values"
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A value has at most two strings, its key and itself, of two quotes each.
    if plain.count(b'"') > 4 * values:
        return many
    bare = _STRING.sub(b"", plain)
    if bare.count(b"[") + bare.count(b"{") + bare.count(b",") > values:
        return many
    level = 0
    for sign in bare.translate(None, _NOT_BRACKETS):
        level += 1 if sign in b"[{" else -1
        if level > levels:
            return f"is nested more than {levels} levels deep"
    return None


def _decode_tolerantly(data: bytes | str, reason: str) -> Any:
    """Decode with the standard library, which alone accepts lone surrogates."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    if "\\u" not in text:
        raise BadRecord(_without_path_syntax(reason))
    return _decode_with(_tolerant_decoder(), text)


def _decode_with(decoder: JSONDecoder, text: str) -> Any:
    try:
        return decoder.decode(text)
    except RecursionError:
        raise BadRecord("the JSON is nested too deeply") from None
    except ValueError as error:
        raise BadRecord(str(error)) from None


def _without_path_syntax(reason: str) -> str:
    """The parser's reason without its path syntax."""
    reason = re.sub(r" - at `[^`]*`", "", reason)
    return {"Input data was truncated": ENDED_EARLY}.get(reason, reason)


def encode(record: Any) -> bytes:
    """One line of JSON, without LF."""
    try:
        raw = _encoder.encode(record)
    except (UnicodeEncodeError, OverflowError):
        import json

        plain = _nonfinite_to_null(msgspec.to_builtins(record, str_keys=True))
        return json.dumps(plain, separators=(",", ":"), allow_nan=False).encode("ascii")
    return escape_separators(raw)


def _nonfinite_to_null(value: Any) -> Any:
    """NaN and Infinity as null: msgspec writes them so, and the standard library must do the same."""
    from math import isfinite

    if isinstance(value, dict):
        return {key: _nonfinite_to_null(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_nonfinite_to_null(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def escape_separators(raw: bytes) -> bytes:
    """The same JSON with U+2028 and U+2029 as escapes."""
    # One byte is found many times faster than two, and most text does not contain it.
    if b"\xe2" in raw and b"\xe2\x80" in raw:
        return raw.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return raw


def to_pretty_json(value: Any) -> str:
    """Indented JSON for people and models."""
    import json

    return json.dumps(msgspec.to_builtins(value, str_keys=True), indent=2, ensure_ascii=False)


def prepare_type(type: Any) -> None:
    """Let msgspec learn a type before its first use.

    It does so step by step, and another thread that uses a half-prepared type crashes the process. So every type that
    several threads use is prepared by one thread at a time.
    """
    try:
        if type in _prepared:
            return
    except TypeError:  # A type without a hash, which extensions may have, is prepared each time.
        with _preparing:
            msgspec.msgpack.Decoder(type)
        return
    with _preparing:
        msgspec.msgpack.Decoder(type)
        _prepared.add(type)


def convert(value: Any, type: type[_T]) -> _T:
    """A parsed value as a record; raises `BadRecord` that names the field."""
    prepare_type(type)
    try:
        return msgspec.convert(value, type, strict=True)
    except msgspec.ValidationError as error:
        raise BadRecord(_to_sentence(str(error), type)) from None
    except RecursionError:
        raise BadRecord("the value is nested too deeply") from None
    except UnicodeEncodeError:
        # A lone surrogate in a key, or where the field has no text type.
        raise BadRecord("Invalid record: a key or a value has half of a surrogate pair where no text can be") from None


def to_plain(record: Any) -> Any:
    """A record as dicts and lists, absent keys left out."""
    return msgspec.to_builtins(record, str_keys=True)


def _to_sentence(reason: str, type: type[Any]) -> str:
    """The error `Expected ... - at $.x` as a sentence that begins with the field."""
    text, _, place = reason.partition(" - at `")
    path = place.rstrip("`").removeprefix("$").removeprefix(".")
    missing = re.fullmatch(r"Object missing required field `(.+)`", text)
    if missing:
        path = f"{path}.{missing[1]}" if path else missing[1]
        return f'Missing or invalid field "{path}": it is required{_allowed_words(type, path)}'
    if path:
        return f'Missing or invalid field "{path}": {_to_plain_phrase(text)}{_allowed_words(type, path)}'
    return f"Invalid record: {_to_plain_phrase(text)}"


def _allowed_words(type: type[Any], path: str) -> str:
    """The words that a field accepts, if it only accepts some."""
    from msgspec import inspect

    found = [inspect.type_info(type)]
    for step in re.sub(r"\[[^]]*\]", ".[]", path).split("."):
        found = [inner for one in found for inner in _inner_types(one, step)]
    words = [word for one in found for word in (one.values if isinstance(one, inspect.LiteralType) else ())]
    return f" (allowed: {', '.join(encode(word).decode() for word in words)})" if words else ""


def _inner_types(type: Any, step: str) -> list[Any]:
    """The types of a record's field or of a list's items; the members of a union separately."""
    inner = getattr(type, "item_type", None) if step == "[]" else None
    for field in getattr(type, "fields", ()):
        inner = field.type if field.encode_name == step else inner
    return [] if inner is None else list(getattr(inner, "types", (inner,)))


_TYPE_NAMES = {"str": "a string", "int": "an integer", "float": "a number", "bool": "true or false", "null": "null"}


def _to_plain_phrase(text: str) -> str:
    text = re.sub(r"`(\w+)( \|[^`]*)?`", lambda found: _TYPE_NAMES.get(found[1], found[1]), text)
    return text[:1].lower() + text[1:].replace("`", "")


def command_of(value: Any) -> Command:
    """A parsed line as a command; null counts as absent, unknown keys are ignored."""
    if not isinstance(value, dict):
        raise BadRecord(f'expected a JSON object with a "type", got {_kind(value)}')
    name = value.get("type")
    if not isinstance(name, str):
        raise BadRecord('the object has no "type"' if name is None else f'"type" must be a string, got {_kind(name)}')
    name = OLD_NAMES.get(name, name)
    kind = BY_NAME.get(name)
    if kind is None:
        raise UnknownCommand(name)
    cleaned = {key: item for key, item in value.items() if item is not None or key in kind.nullable}
    cleaned["type"] = name
    return convert(cleaned, kind)


def value_text(value: Any) -> str:
    """A value of a client, for an error that repeats it; a text without its quotes."""
    if value is ABSENT:
        return "undefined"
    return value if isinstance(value, str) else encode(value).decode()


def _kind(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string"}
    return names.get(type(value), "an array" if isinstance(value, list) else "an object")
