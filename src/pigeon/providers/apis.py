"""All APIs by name. A new one is a folder with a declaration and an adapter, and a line here."""

from __future__ import annotations

from pigeon.providers.anthropic.api import ANTHROPIC_MESSAGES
from pigeon.providers.api import Api
from pigeon.providers.demo.api import DEMO
from pigeon.providers.google.api import GOOGLE_GENERATIVE_AI
from pigeon.providers.openai_chat.api import OPENAI_COMPLETIONS
from pigeon.providers.openai_responses.api import AZURE_OPENAI_RESPONSES, OPENAI_RESPONSES
from pigeon.providers.scripted.api import SCRIPTED

APIS = {
    api.name: api
    for api in (
        ANTHROPIC_MESSAGES,
        OPENAI_COMPLETIONS,
        OPENAI_RESPONSES,
        AZURE_OPENAI_RESPONSES,
        GOOGLE_GENERATIVE_AI,
        DEMO,
        SCRIPTED,
    )
}
# The headers in which a key may be sent, in lower case.
KEY_HEADERS = frozenset({"authorization", *(api.key_header for api in APIS.values() if api.key_header)})


def find_api(name: str) -> Api:
    return APIS.get(name) or Api(name=name)
