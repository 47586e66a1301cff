"""Which models are asked for JSON of a schema by a field of their API, and how that API takes the schema.

`Gateway.output_format` asks this before each request of a run whose final answer a program reads. Where the answer is
none, `session/policies/final_answer` offers a tool instead, which every model with tools has. A model is asked by its
API's own field if the server is that of the API's maker, the model is known for it, and the schema can be put into the
form that the server takes without saying less. The compat flag `supportsStructuredOutput` decides the first two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from pigeon.agent.inference import OutputFormat, ToolSpec
from pigeon.providers.request import compat_of
from pigeon.providers.strict_schemas import NotStrict, strict_parameters
from pigeon.wire.base import Json
from pigeon.wire.model import Model

FLAG = "supportsStructuredOutput"
DEMO_API = "demo"
MOST_LEVELS = 9
MOST_PROPERTIES = 100
# Before the first models that had it; everything OpenAI has made since has it, too.
_OLD_GPT = re.compile(r"gpt-3|gpt-4(?:$|-)|gpt-4o-2024-05|o1-(?:mini|preview)|chatgpt-")
_GEMINI = re.compile(r"gemini-(?:(\d+)(?:\.(\d+))?|[a-z-]*\blatest\b)")
_REMARKS = {"default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}
_PLAIN = {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "description", "title"}
_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_ASCII_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_KINDS: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
Takes = Callable[[str, Json], bool]  # whether a server takes this keyword with this value


def native_format(model: Model, schema: dict[str, Json], beside_tools: bool) -> OutputFormat | None:
    """The schema of an object as the model's API takes it; none if it is not asked for by a field of the API."""
    if model.api == DEMO_API:
        return OutputFormat(schema)
    takes = _TAKES.get(model.api)
    if takes is None or not _has_formats(model, beside_tools):
        return None
    try:
        sent = _sent(schema, takes, 0)
        if model.api == "google-generative-ai":
            return OutputFormat(sent) if _has_no_empty_object(sent) else None
        if model.api == "anthropic-messages" and not all(map(_ASCII_NAME.fullmatch, _names_in(sent))):
            return None
    except NotStrict:
        return None
    strict = strict_parameters(ToolSpec("", "", sent, strict=True))
    return None if strict is None or len(_names_in(strict)) > MOST_PROPERTIES else OutputFormat(strict)


def _has_formats(model: Model, beside_tools: bool) -> bool:
    said = compat_of(model).get(FLAG)
    if said is not None:
        return said is True  # what is no boolean says nothing good of the server, and a tool is always understood
    host = (urlsplit(model.base_url).hostname or "").lower()
    if model.api == "anthropic-messages":
        # What holds a model to the schema of a tool holds it to that of an answer: both came with the same models.
        return _is_of(host, "anthropic.com") and compat_of(model).get("supportsStrictTools") is True
    if model.api == "google-generative-ai":
        return _is_of(host, "googleapis.com") and _google_has(model.id, beside_tools)
    own = _is_of(host, "openai.com") or _is_of(host, "azure.com") or model.api == "azure-openai-responses"
    return own and _OLD_GPT.match(model.id) is None


def _google_has(model_id: str, beside_tools: bool) -> bool:
    """Before the third generation a request may have tools or a schema, not both."""
    found = _GEMINI.match(model_id.lower())
    if found is None:
        return False
    generation = (int(found[1] or 3), int(found[2] or 0))
    return generation >= ((3, 0) if beside_tools else (2, 5))


def _is_of(host: str, domain: str) -> bool:
    return host == domain or host.endswith("." + domain)


def _sent(schema: Any, takes: Takes, level: int) -> dict[str, Any]:
    """The schema in the words that all of these servers know; raises `NotStrict` if it says more than that."""
    if not isinstance(schema, dict) or level > MOST_LEVELS:
        raise NotStrict
    out = {key: value for key, value in schema.items() if key not in _REMARKS}
    if "const" in out:
        out["enum"] = [out.pop("const")]
    if "enum" in out and "type" not in out:
        out["type"] = _kinds_of(out["enum"])
    if not out.keys() & {"type", "anyOf"} or any(key not in _PLAIN and not takes(key, out[key]) for key in out):
        raise NotStrict
    kinds = out.get("type", [])
    if "object" in kinds:
        if kinds != "object" or out.get("additionalProperties", False) is not False or "properties" not in out:
            raise NotStrict
        out["properties"] = {name: _sent(part, takes, level + 1) for name, part in out["properties"].items()}
    if "array" in kinds:
        if kinds != "array":
            raise NotStrict
        out["items"] = _sent(out.get("items"), takes, level + 1)
    if "anyOf" in out:
        out["anyOf"] = [_sent(part, takes, level + 1) for part in out["anyOf"]]
    return out


def _kinds_of(values: list[Json]) -> str | list[str]:
    if any(type(value) not in _KINDS for value in values):
        raise NotStrict
    kinds = list(dict.fromkeys(_KINDS[type(value)] for value in values))
    return kinds[0] if len(kinds) == 1 else kinds


def _names_in(schema: dict[str, Any]) -> list[str]:
    """The keys of all objects in a schema that `_sent` has made."""
    names = list(schema.get("properties", {}))
    for part in _parts(schema):
        names += _names_in(part)
    return names


def _has_no_empty_object(schema: dict[str, Any]) -> bool:
    is_empty = schema.get("type") == "object" and not schema["properties"]
    return not is_empty and all(map(_has_no_empty_object, _parts(schema)))


def _parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    items = [schema["items"]] if "items" in schema else []
    return [*schema.get("properties", {}).values(), *items, *schema.get("anyOf", [])]


def _by_anthropic(key: str, value: Json) -> bool:
    return (key == "format" and value in _FORMATS | {"uri"}) or (key == "minItems" and value in (0, 1))


def _by_openai(key: str, value: Json) -> bool:
    return key in _NUMBERS or key in ("minItems", "maxItems") or (key == "format" and value in _FORMATS)


def _by_azure(key: str, value: Json) -> bool:
    return False


def _by_google(key: str, value: Json) -> bool:
    if key == "format":
        return value in ("date-time", "date", "time")
    return key in ("minimum", "maximum", "minItems", "maxItems")


_TAKES: dict[str, Takes] = {
    "anthropic-messages": _by_anthropic,
    "openai-completions": _by_openai,
    "openai-responses": _by_openai,
    "azure-openai-responses": _by_azure,
    "google-generative-ai": _by_google,
}
