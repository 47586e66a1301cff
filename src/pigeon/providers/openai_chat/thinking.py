"""How much to think: the fields of a request, which differ between chat servers (`compat.thinking_format`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from pigeon.agent.inference import ModelRequest
from pigeon.providers.openai_chat.compat import ChatCompat
from pigeon.providers.request import mapped_level, thinking_budget_within
from pigeon.wire.model import Model

BUDGET_FIELD = "thinking_token_budget"


class _ThinkingChoice(Struct, frozen=True):
    """The chosen level, and the tokens for thinking, 0 for no limit."""

    model: Model
    compat: ChatCompat
    level: str
    budget: int

    @property
    def is_on(self) -> bool:
        return self.level != "off"

    @property
    def can_be_off(self) -> bool:
        """False for a model that always thinks."""
        return mapped_level(self.model, "off", "") is not None

    @property
    def effort(self) -> str | None:
        """The model's name of the level; "off" only has a name if the model's map has one."""
        return self.level_name(self.level if self.is_on else None)

    def level_name(self, default: str | None) -> str | None:
        """The name of the level in the model's map, else the default."""
        return mapped_level(self.model, self.level, default)

    def with_effort(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields, with the effort if the server supports it."""
        effort = self.effort if self.compat.supports_reasoning_effort else None
        return {**fields, "reasoning_effort": effort} if effort else fields


def thinking_fields(
    request: ModelRequest, compat: ChatCompat, budgets: Mapping[str, int], cap: int = 0
) -> dict[str, Any]:
    """The fields to add to a body with at most so many output tokens; empty for a model that does not reason."""
    if not request.model.reasoning:
        return {}
    level = request.thinking
    budget = 0 if level == "off" else thinking_budget_within(level, budgets, cap)
    choice = _ThinkingChoice(request.model, compat, level, budget)
    fields = _FORMATS.get(compat.thinking_format, _openai_fields)(choice)
    field = compat.thinking_token_budget_field or (BUDGET_FIELD if compat.supports_thinking_token_budget else "")
    return {**fields, field: budget} if field and budget else fields


def _openai_fields(choice: _ThinkingChoice) -> dict[str, Any]:
    return choice.with_effort({})


def _openrouter_fields(choice: _ThinkingChoice) -> dict[str, Any]:
    if not choice.is_on and not choice.can_be_off:
        return {}
    return {"reasoning": {"effort": choice.effort or "none"}}


def _deepseek_fields(choice: _ThinkingChoice) -> dict[str, Any]:
    if choice.is_on:
        return choice.with_effort({"thinking": {"type": "enabled"}})
    return {"thinking": {"type": "disabled"}} if choice.can_be_off else {}


def _zai_fields(choice: _ThinkingChoice) -> dict[str, Any]:
    if choice.is_on:
        return choice.with_effort({"thinking": {"type": "enabled", "clear_thinking": False}})
    return {"thinking": {"type": "disabled", "clear_thinking": False}} if choice.can_be_off else {}


def _qwen_fields(choice: _ThinkingChoice) -> dict[str, Any]:
    fields = {"enable_thinking": choice.is_on}
    return choice.with_effort(fields) if choice.is_on else fields


def _qwen_template_fields(choice: _ThinkingChoice) -> dict[str, Any]:
    return {"chat_template_kwargs": {"enable_thinking": choice.is_on, "preserve_thinking": True}}


def _together_fields(choice: _ThinkingChoice) -> dict[str, Any]:
    fields: dict[str, Any] = {"reasoning": {"enabled": choice.is_on}}
    return choice.with_effort(fields) if choice.is_on else fields


def _string_fields(choice: _ThinkingChoice) -> dict[str, Any]:
    if not choice.is_on and not choice.can_be_off:
        return {}
    return {"thinking": choice.effort or "none"}


def _template_fields(choice: _ThinkingChoice) -> dict[str, Any]:
    filled = _fill_template_arguments(choice.compat.chat_template_kwargs, choice)
    return {"chat_template_kwargs": filled} if filled else {}


def _baseten_fields(choice: _ThinkingChoice) -> dict[str, Any]:
    filled = _fill_template_arguments(choice.compat.chat_template_args, choice)
    return choice.with_effort({"chat_template_args": filled} if filled else {})


def _ant_ling_fields(choice: _ThinkingChoice) -> dict[str, Any]:
    effort = choice.level_name(None) if choice.is_on else None
    return {"reasoning": {"effort": effort}} if effort else {}


def _mistral_fields(choice: _ThinkingChoice) -> dict[str, Any]:
    if choice.model.id.startswith("magistral"):
        return {"prompt_mode": "reasoning"} if choice.is_on else {}
    # Most of these models only know "high" and "none"; hosted models of other makers may not know "none".
    default = "high" if choice.is_on else "none" if choice.model.id.startswith("mistral-") else None
    effort = choice.level_name(default) if choice.compat.supports_reasoning_effort else None
    return {"reasoning_effort": effort} if effort else {}


def _fill_template_arguments(wanted: dict[str, Any], choice: _ThinkingChoice) -> dict[str, Any]:
    """Template arguments with their variables filled in."""
    budget = choice.budget if choice.budget or not choice.is_on else None
    variables = {"thinking.enabled": choice.is_on, "thinking.effort": choice.effort, "thinking.budget": budget}
    out: dict[str, Any] = {}
    for name, value in wanted.items():
        if not isinstance(value, dict):
            out[name] = value
        elif choice.is_on or not value.get("omitWhenOff"):
            filled = variables.get(value.get("$var", ""))
            if filled is not None:
                out[name] = filled
    return out


_FORMATS: dict[str, Callable[[_ThinkingChoice], dict[str, Any]]] = {
    "ant-ling": _ant_ling_fields,
    "baseten": _baseten_fields,
    "chat-template": _template_fields,
    "deepseek": _deepseek_fields,
    "mistral": _mistral_fields,
    "openrouter": _openrouter_fields,
    "qwen": _qwen_fields,
    "qwen-chat-template": _qwen_template_fields,
    "string-thinking": _string_fields,
    "together": _together_fields,
    "zai": _zai_fields,
}
