"""The declaration of `google-generative-ai`."""

from __future__ import annotations

import re
from typing import Any

from pigeon.providers.api import Api, OutputField, is_served_by, subschemas_of
from pigeon.wire.base import Json
from pigeon.wire.model import Model


def _supports_output_format(model: Model, beside_tools: bool) -> bool:
    """Before the third generation a request may have tools or a schema, not both."""
    found = re.match(r"gemini-(?:(\d+)(?:\.(\d+))?|[a-z-]*\blatest\b)", model.id.lower())
    if found is None or not is_served_by(model, "googleapis.com"):
        return False
    generation = (int(found[1] or 3), int(found[2] or 0))
    return generation >= ((3, 0) if beside_tools else (2, 5))


def _is_accepted_keyword(key: str, value: Json) -> bool:
    if key == "format":
        return value in ("date-time", "date", "time")
    return key in ("minimum", "maximum", "minItems", "maxItems")


def _has_no_empty_object(schema: dict[str, Any]) -> bool:
    is_empty = schema.get("type") == "object" and not schema["properties"]
    return not is_empty and all(map(_has_no_empty_object, subschemas_of(schema)))


GOOGLE_GENERATIVE_AI = Api(
    name="google-generative-ai",
    adapter="pigeon.providers.google.adapter",
    key_header="x-goog-api-key",
    output=OutputField(
        is_known_for=_supports_output_format, takes=_is_accepted_keyword, accepts=_has_no_empty_object, strict=False
    ),
)
