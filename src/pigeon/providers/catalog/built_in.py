"""Reads the built-in catalogue, a provider at a time.

The providers that Pigeon ships facts about: their names, their environment variables, their default models.

The order is the order in which a usable default is looked for.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from pigeon.wire import codec
from pigeon.wire.model import Model


class Known(Struct, frozen=True):
    """One provider; the first variable that is set is its key, one of `bearer` goes out as a bearer token."""

    name: str
    keys: tuple[str, ...]
    default: str
    bearer: tuple[str, ...] = ()


KNOWN: dict[str, Known] = {
    "anthropic": Known(
        "Anthropic",
        ("ANTHROPIC_API_KEY",),
        "claude-opus-4-8",
        bearer=("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_OAUTH_TOKEN"),
    ),
    "openai": Known("OpenAI", ("OPENAI_API_KEY",), "gpt-5.5"),
    "azure-openai-responses": Known("Azure OpenAI", ("AZURE_OPENAI_API_KEY",), "gpt-5.4"),
    "google": Known("Google Gemini", ("GEMINI_API_KEY",), "gemini-3.1-pro-preview"),
    "openrouter": Known("OpenRouter", ("OPENROUTER_API_KEY",), "moonshotai/kimi-k2.6"),
    "xai": Known("xAI", ("XAI_API_KEY",), "grok-4.7"),
    "groq": Known("Groq", ("GROQ_API_KEY",), "openai/gpt-oss-120b"),
    "cerebras": Known("Cerebras", ("CEREBRAS_API_KEY",), "gpt-oss-120b"),
    "zai": Known("Z.ai", ("ZAI_API_KEY",), "glm-5.3"),
    "mistral": Known("Mistral", ("MISTRAL_API_KEY",), "devstral-medium-latest"),
    "deepseek": Known("DeepSeek", ("DEEPSEEK_API_KEY",), "deepseek-v4-pro"),
    "minimax": Known("MiniMax", ("MINIMAX_API_KEY",), "MiniMax-M2.7"),
    "moonshotai": Known("Moonshot AI", ("MOONSHOT_API_KEY",), "kimi-k2.6"),
    "kimi-coding": Known("Kimi For Coding", ("KIMI_API_KEY",), "kimi-for-coding"),
    "huggingface": Known("Hugging Face", ("HF_TOKEN",), "moonshotai/Kimi-K2.6"),
    "together": Known("Together AI", ("TOGETHER_API_KEY",), "moonshotai/Kimi-K2.6"),
    "fireworks": Known("Fireworks", ("FIREWORKS_API_KEY",), "accounts/fireworks/models/kimi-k2p6"),
    "nvidia": Known("NVIDIA", ("NVIDIA_API_KEY",), "nvidia/nemotron-3-super-120b-a12b"),
    "baseten": Known("Baseten", ("BASETEN_API_KEY",), "moonshotai/Kimi-K2.6"),
    "vercel-ai-gateway": Known("Vercel AI Gateway", ("AI_GATEWAY_API_KEY",), "zai/glm-5.1"),
    "opencode": Known("OpenCode Zen", ("OPENCODE_API_KEY",), "kimi-k2.6"),
    "meta": Known("Meta", ("META_API_KEY",), "muse-spark-1.3"),
}


@cache
def key_variables() -> frozenset[str]:
    """Every environment variable that may hold a provider's key."""
    return frozenset({name for known in KNOWN.values() for name in (*known.keys, *known.bearer)})


DATA = os.path.join(os.path.dirname(__file__), "data")


class BuiltInCatalog:
    """The facts that come with Pigeon."""

    def __init__(self, folder: str = DATA) -> None:
        self._folder = folder
        self._read: dict[str, list[Model]] = {}

    def providers(self) -> list[str]:
        """All provider ids, in the order of preference."""
        return list(KNOWN)

    def models(self, provider: str) -> list[Model]:
        """The models of one provider; none for an unknown one."""
        if provider not in self._read:
            self._read[provider] = self._load(provider) if provider in KNOWN else []
        return self._read[provider]

    def _load(self, provider: str) -> list[Model]:
        try:
            with open(os.path.join(self._folder, f"{provider}.json"), "rb") as file:
                data: dict[str, Any] = codec.decode(file.read())
        except FileNotFoundError:
            return []
        shared = {"provider": provider, **data.get("shared", {})}
        return [msgspec.convert({**shared, **entry}, Model) for entry in data["models"]]
