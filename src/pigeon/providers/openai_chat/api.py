"""The declaration of `openai-completions`, and what OpenAI's other API shares with it."""

from __future__ import annotations

import re

from pigeon.providers.api import STRING_FORMATS, Api, OutputField, is_served_by
from pigeon.wire.base import Json
from pigeon.wire.model import Model

# Models older than structured output; everything that OpenAI has made since supports it.
_OLD_MODELS = r"gpt-3|gpt-4(?:$|-)|gpt-4o-2024-05|o1-(?:mini|preview)|chatgpt-"
_LIMITS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"}


def has_structured_output(model: Model) -> bool:
    """Whether a model of OpenAI supports structured output."""
    return re.match(_OLD_MODELS, model.id) is None


def _supports_output_format(model: Model, _: bool) -> bool:
    return (is_served_by(model, "openai.com") or is_served_by(model, "azure.com")) and has_structured_output(model)


def _is_accepted_keyword(key: str, value: Json) -> bool:
    return key in _LIMITS or (key == "format" and value in STRING_FORMATS)


OPENAI_OUTPUT = OutputField(is_known_for=_supports_output_format, takes=_is_accepted_keyword)
OPENAI_COMPLETIONS = Api(
    name="openai-completions", adapter="pigeon.providers.openai_chat.adapter", output=OPENAI_OUTPUT
)
