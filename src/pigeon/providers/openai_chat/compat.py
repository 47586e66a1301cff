"""How an OpenAI-compatible server differs: detected from provider and host, overridden by the user."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from pigeon.providers.request import compat_of
from pigeon.wire import codec
from pigeon.wire.base import Record
from pigeon.wire.errors import BadRecord
from pigeon.wire.model import Model


class ChatCompat(Record, kw_only=True):
    """The flags of `compat` for chat completions, all decided."""

    supports_store: bool = False
    supports_developer_role: bool = False
    supports_reasoning_effort: bool = True
    supports_usage_in_streaming: bool = True
    supports_finish_reason: bool = True
    max_tokens_field: str = "max_completion_tokens"
    requires_tool_result_name: bool = False
    requires_assistant_after_tool_result: bool = False
    requires_thinking_as_text: bool = False
    requires_reasoning_content_on_assistant_messages: bool = False
    thinking_format: str = "openai"
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    chat_template_args: dict[str, Any] = msgspec.field(default_factory=dict)
    open_router_routing: dict[str, Any] = msgspec.field(default_factory=dict)
    vercel_gateway_routing: dict[str, Any] = msgspec.field(default_factory=dict)
    zai_tool_stream: bool = False
    supports_thinking_token_budget: bool = False
    thinking_token_budget_field: str = ""
    supports_strict_mode: bool = False
    cache_control_format: str = ""
    send_session_affinity_headers: bool = False
    session_affinity_format: str = "openai"
    supports_long_cache_retention: bool = True
    vllm_priority: int | None = None
    takes_cache_key: bool = False
    short_call_ids: bool = False
    is_openai: bool = False
    return_token_ids: bool = False
    return_logprobs: bool = False


_TOKENS = {"maxTokensField": "max_tokens"}
_NO_EFFORT = {"supportsReasoningEffort": False}
_OPENAI = {"supportsStore": True, "supportsDeveloperRole": True, "takesCacheKey": True, "isOpenai": True}
# By the end of the host name; a provider with that id matches too.
_HOSTS: dict[str, dict[str, Any]] = {
    "openai.com": _OPENAI,
    "azure.com": _OPENAI,
    "openrouter.ai": {"thinkingFormat": "openrouter", "sessionAffinityFormat": "openrouter"},
    "x.ai": _NO_EFFORT,
    "z.ai": {**_TOKENS, **_NO_EFFORT, "thinkingFormat": "zai"},
    "bigmodel.cn": {**_TOKENS, **_NO_EFFORT, "thinkingFormat": "zai"},
    "deepseek.com": {
        **_TOKENS,
        "thinkingFormat": "deepseek",
        "requiresReasoningContentOnAssistantMessages": True,
    },
    "moonshot.ai": {**_TOKENS, **_NO_EFFORT},
    "moonshot.cn": {**_TOKENS, **_NO_EFFORT},
    "together.ai": {**_TOKENS, **_NO_EFFORT, "thinkingFormat": "together", "supportsLongCacheRetention": False},
    "together.xyz": {**_TOKENS, **_NO_EFFORT, "thinkingFormat": "together", "supportsLongCacheRetention": False},
    "chutes.ai": _TOKENS,
    "nvidia.com": {**_TOKENS, **_NO_EFFORT},
    "ant-ling.com": {**_TOKENS, **_NO_EFFORT, "thinkingFormat": "ant-ling"},
    "gateway.ai.cloudflare.com": {**_TOKENS, **_NO_EFFORT},
    "aliyuncs.com": {**_TOKENS, **_NO_EFFORT, "thinkingFormat": "qwen"},
    "mistral.ai": {
        **_TOKENS,
        "thinkingFormat": "mistral",
        "supportsUsageInStreaming": False,
        "supportsLongCacheRetention": False,
        "sendSessionAffinityHeaders": True,
        "sessionAffinityFormat": "mistral",
        "takesCacheKey": True,
        "shortCallIds": True,
    },
}
_PROVIDER_HOSTS = {
    "openai": "openai.com",
    "openrouter": "openrouter.ai",
    "xai": "x.ai",
    "zai": "z.ai",
    "deepseek": "deepseek.com",
    "moonshotai": "moonshot.ai",
    "together": "together.ai",
    "nvidia": "nvidia.com",
    "mistral": "mistral.ai",
}


def chat_compat_of(model: Model) -> ChatCompat:
    """The flags for a model: those known for its host, then the configured ones; raises `BadRecord` for a wrong one."""
    host = _known_host(model)
    flags = dict(_HOSTS.get(host, {}))
    if host == "openrouter.ai" and model.id.startswith("anthropic/"):
        flags["cacheControlFormat"] = "anthropic"
    known = {name: value for name, value in compat_of(model).items() if value is not None}
    flags.update(known)
    try:
        return msgspec.convert(flags, ChatCompat, strict=False)
    except msgspec.ValidationError:
        try:
            return codec.convert(flags, ChatCompat)  # the same, with an error text that names the wrong flag
        except BadRecord as error:
            raise BadRecord(f"compat in models.json: {error}") from None


def is_openai_host(model: Model) -> bool:
    """True for the servers of OpenAI and Azure themselves."""
    return _known_host(model) in ("openai.com", "azure.com")


def _known_host(model: Model) -> str:
    host = (urlsplit(model.base_url).hostname or "").lower()
    for known in _HOSTS:
        if host == known or host.endswith("." + known):
            return known
    if host in ("", "localhost") or host.replace(".", "").isdigit():
        return ""
    return _PROVIDER_HOSTS.get(model.provider, "")
