"""The declarations of `openai-responses`, and of the same API as served by Azure."""

from __future__ import annotations

from pigeon.providers.api import Api, OutputField
from pigeon.providers.openai_chat.api import OPENAI_OUTPUT, has_structured_output

ADAPTER = "pigeon.providers.openai_responses.adapter"
OPENAI_RESPONSES = Api(name="openai-responses", adapter=ADAPTER, output=OPENAI_OUTPUT)
AZURE_OPENAI_RESPONSES = Api(
    name="azure-openai-responses",
    adapter=ADAPTER,
    key_header="api-key",
    output=OutputField(is_known_for=lambda model, _: has_structured_output(model), takes=lambda *_: False),
)
