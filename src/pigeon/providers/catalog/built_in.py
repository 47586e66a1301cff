"""The built-in catalogue: the providers that Pigeon knows, and their models from `data/`, read a provider at a time.

The order of `KNOWN` is the order in which a usable default model is searched. `scripts/make_catalog.py` writes the
data; `secrets` keeps the variables of `list_key_variables` away from commands.
"""

from __future__ import annotations

import os
from functools import cache, lru_cache
from typing import Any

from msgspec import Struct

from pigeon.wire import codec
from pigeon.wire.model import Model

DATA = os.path.join(os.path.dirname(__file__), "data")


class KnownProvider(Struct, frozen=True):
    """One provider; the first variable that is set is its key, one of `bearer` goes out as a bearer token.

    Its `earlier` name still occurs in settings, keys, models files and sessions, and people still type it.
    """

    name: str
    keys: tuple[str, ...]
    default: str
    bearer: tuple[str, ...] = ()
    earlier: str = ""


KNOWN: dict[str, KnownProvider] = {
    "anthropic": KnownProvider(
        "Anthropic",
        ("ANTHROPIC_API_KEY",),
        "claude-opus-4-8",
        bearer=("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_OAUTH_TOKEN"),
    ),
    "openai": KnownProvider("OpenAI", ("OPENAI_API_KEY",), "gpt-6.1-sol"),
    "azure": KnownProvider("Azure OpenAI", ("AZURE_OPENAI_API_KEY",), "gpt-5.4", earlier="azure-openai-responses"),
    "google": KnownProvider("Google Gemini", ("GEMINI_API_KEY",), "gemini-3.1-pro-preview"),
    "openrouter": KnownProvider("OpenRouter", ("OPENROUTER_API_KEY",), "moonshotai/kimi-k2.6"),
    "xai": KnownProvider("xAI", ("XAI_API_KEY",), "grok-4.7"),
    "groq": KnownProvider("Groq", ("GROQ_API_KEY",), "openai/gpt-oss-120b"),
    "cerebras": KnownProvider("Cerebras", ("CEREBRAS_API_KEY",), "gpt-oss-120b"),
    "zai": KnownProvider("Z.ai", ("ZAI_API_KEY",), "glm-5.3"),
    "mistral": KnownProvider("Mistral", ("MISTRAL_API_KEY",), "devstral-medium-latest"),
    "deepseek": KnownProvider("DeepSeek", ("DEEPSEEK_API_KEY",), "deepseek-v4-pro"),
    "minimax": KnownProvider("MiniMax", ("MINIMAX_API_KEY",), "MiniMax-M2.7"),
    "moonshotai": KnownProvider("Moonshot AI", ("MOONSHOT_API_KEY",), "kimi-k2.6"),
    "kimi-coding": KnownProvider("Kimi For Coding", ("KIMI_API_KEY",), "kimi-for-coding"),
    "huggingface": KnownProvider("Hugging Face", ("HF_TOKEN",), "moonshotai/Kimi-K2.6"),
    "together": KnownProvider("Together AI", ("TOGETHER_API_KEY",), "moonshotai/Kimi-K3"),
    "fireworks": KnownProvider("Fireworks", ("FIREWORKS_API_KEY",), "accounts/fireworks/models/kimi-k3"),
    "nvidia": KnownProvider("NVIDIA", ("NVIDIA_API_KEY",), "nvidia/nemotron-3.5-super-vl-120b-a12b"),
    "baseten": KnownProvider("Baseten", ("BASETEN_API_KEY",), "zai-org/GLM-5.2"),
    "vercel-ai-gateway": KnownProvider("Vercel AI Gateway", ("AI_GATEWAY_API_KEY",), "zai/glm-5.1"),
    "opencode": KnownProvider("OpenCode Zen", ("OPENCODE_API_KEY",), "kimi-k2.6"),
    "meta": KnownProvider("Meta", ("META_API_KEY",), "muse-spark-1.3"),
    "opencode-go": KnownProvider("OpenCode Go", ("OPENCODE_API_KEY",), "kimi-k3"),
    "moonshotai-cn": KnownProvider("Moonshot AI (China)", ("MOONSHOT_API_KEY",), "kimi-k2.6"),
    "minimax-cn": KnownProvider("MiniMax (China)", ("MINIMAX_CN_API_KEY",), "MiniMax-M2.7"),
    "zai-coding-cn": KnownProvider("Z.ai Coding Plan (China)", ("ZAI_CODING_CN_API_KEY",), "glm-5.3"),
    "ant-ling": KnownProvider("Ant Ling", ("ANT_LING_API_KEY",), "Ring-2.6-1T"),
    "qwen-token-plan": KnownProvider("Qwen Token Plan", ("QWEN_TOKEN_PLAN_API_KEY",), "qwen3.7-max"),
    "qwen-token-plan-cn": KnownProvider("Qwen Token Plan (China)", ("QWEN_TOKEN_PLAN_CN_API_KEY",), "qwen3.7-max"),
    "xiaomi": KnownProvider("Xiaomi MiMo", ("XIAOMI_API_KEY",), "mimo-v2.6-pro"),
}
_CURRENT = {known.earlier: name for name, known in KNOWN.items() if known.earlier}


def to_current_provider_name(provider: str) -> str:
    """The current name of a provider."""
    return _CURRENT.get(provider.lower(), provider)


def to_current_reference(text: str) -> str:
    """A reference `provider/…` with the current name of its provider."""
    head, slash, rest = text.partition("/")
    return f"{to_current_provider_name(head)}/{rest}" if slash else text


@cache
def list_key_variables() -> frozenset[str]:
    """Every environment variable that may hold a provider's key."""
    return frozenset({name for known in KNOWN.values() for name in (*known.keys, *known.bearer)})


class BuiltInCatalog:
    def __init__(self, folder: str = DATA) -> None:
        self._folder = folder

    def providers(self) -> list[str]:
        return list(KNOWN)

    def models(self, provider: str) -> list[Model]:
        """The models of one provider; empty for an unknown one."""
        return list(_load_models(self._folder, provider)) if provider in KNOWN else []


# The data belong to the program and never change, so all agents of a process share them.
@lru_cache(2 * len(KNOWN))
def _load_models(folder: str, provider: str) -> tuple[Model, ...]:
    try:
        with open(os.path.join(folder, f"{provider}.json"), "rb") as file:
            data: dict[str, Any] = codec.decode(file.read())
    except FileNotFoundError:
        return ()
    shared = {"provider": provider, **data.get("shared", {})}
    return tuple(codec.convert({**shared, **entry}, Model) for entry in data["models"])
