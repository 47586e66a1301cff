"""The declaration of `anthropic-messages`."""

from __future__ import annotations

import re
from typing import Any

from pigeon.providers.api import STRING_FORMATS, Api, OutputField, is_served_by, property_names_in
from pigeon.wire.base import Absent, Json
from pigeon.wire.model import Model


def _supports_output_format(model: Model, _: bool) -> bool:
    """Models that support strict tools also support an answer schema: both came with the same models."""
    compat = {} if isinstance(model.compat, Absent) else model.compat
    return is_served_by(model, "anthropic.com") and compat.get("supportsStrictTools") is True


def _is_accepted_keyword(key: str, value: Json) -> bool:
    return (key == "format" and value in STRING_FORMATS | {"uri"}) or (key == "minItems" and value in (0, 1))


def _has_plain_names(schema: dict[str, Any]) -> bool:
    return all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) for name in property_names_in(schema))


ANTHROPIC_MESSAGES = Api(
    name="anthropic-messages",
    adapter="pigeon.providers.anthropic.adapter",
    headers={"anthropic-version": "2023-06-01"},
    key_header="x-api-key",
    models_path=lambda address: "/models" if address.endswith("/v1") else "/v1/models",
    output=OutputField(is_known_for=_supports_output_format, takes=_is_accepted_keyword, accepts=_has_plain_names),
)
