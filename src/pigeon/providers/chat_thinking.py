"""How much to think, in the words of each kind of chat server."""

from __future__ import annotations

from typing import Any

from pigeon.providers.access import mapped_level
from pigeon.providers.compat import ChatCompat
from pigeon.providers.limits import thinking_budget
from pigeon.wire.inference import ModelRequest


def thinking_fields(request: ModelRequest, compat: ChatCompat, budgets: dict[str, int]) -> dict[str, Any]:
    """The fields to add to the body; none for a model that does not reason."""
    model = request.model
    if not model.reasoning:
        return {}
    on = request.thinking != "off"
    fields = _by_format(request, compat, budgets, on)
    if on and compat.thinking_token_budget_field:
        fields[compat.thinking_token_budget_field] = thinking_budget(request.thinking, budgets)
    return fields


def _by_format(request: ModelRequest, compat: ChatCompat, budgets: dict[str, int], on: bool) -> dict[str, Any]:
    model = request.model
    # Off has a word only where the model's map gives it one.
    effort = mapped_level(model, request.thinking, request.thinking if on else None)
    style = compat.thinking_format
    if style == "openrouter":
        if not on and mapped_level(model, "off", "none") is None:
            return {}
        return {"reasoning": {"effort": (effort or "none") if on else mapped_level(model, "off", "none")}}
    if style == "deepseek":
        fields: dict[str, Any] = {"thinking": {"type": "enabled" if on else "disabled"}}
        if on and effort and compat.supports_reasoning_effort:
            fields["reasoning_effort"] = effort
        return fields
    if style == "zai":
        return {"thinking": {"type": "enabled" if on else "disabled", "clear_thinking": False}}
    if style == "qwen":
        return {"enable_thinking": on}
    if style == "qwen-chat-template":
        return {"chat_template_kwargs": {"enable_thinking": on, "preserve_thinking": True}}
    if style == "together":
        return {"reasoning": {"enabled": on}}
    if style == "string-thinking":
        return {"thinking": effort} if effort else {}
    if style in ("chat-template", "baseten"):
        name = "chat_template_args" if style == "baseten" else "chat_template_kwargs"
        wanted = compat.chat_template_args if style == "baseten" else compat.chat_template_kwargs
        filled = _filled(wanted, on, effort, thinking_budget(request.thinking, budgets))
        return {name: filled} if filled else {}
    if style == "ant-ling":
        mapped = mapped_level(model, request.thinking, None)
        return {"reasoning_effort": mapped} if mapped else {}
    return {"reasoning_effort": effort} if effort and compat.supports_reasoning_effort else {}


def _filled(wanted: dict[str, Any], on: bool, effort: str | None, budget: int) -> dict[str, Any]:
    """Template arguments with their variables put in."""
    variables = {"thinking.enabled": on, "thinking.effort": effort, "thinking.budget": budget if on else 0}
    out: dict[str, Any] = {}
    for name, value in wanted.items():
        if not isinstance(value, dict):
            out[name] = value
        elif on or not value.get("omitWhenOff"):
            filled = variables.get(value.get("$var", ""))
            if filled is not None:
                out[name] = filled
    return out
