"""Handlers: models and thinking."""

from __future__ import annotations

from typing import NoReturn

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire import answers, codec
from pigeon.wire.commands import (
    CycleModel,
    CycleThinkingLevel,
    GetAvailableModels,
    GetAvailableThinkingLevels,
    GetLoginProviders,
    Login,
    SetFastMode,
    SetModel,
    SetThinkingLevel,
)
from pigeon.wire.errors import Refusal
from pigeon.wire.model import Model


@handles(SetModel)
def set_model(cmd: SetModel, s: Session) -> Model:
    """Takes effect at the next request."""
    model = s.models.select_model(cmd.provider, cmd.model_id)
    s.announce_selection("set_model")
    return model


@handles(CycleModel)
def cycle_model(cmd: CycleModel, s: Session) -> answers.CycledModel | None:
    """None if there is nothing to cycle."""
    chosen = s.models.cycle()
    if chosen is not None:
        s.announce_selection("cycle_model")
    return chosen


@handles(GetAvailableModels)
def get_available_models(cmd: GetAvailableModels, s: Session) -> answers.Models:
    return answers.Models(models=s.models.list_available())


@handles(SetThinkingLevel)
def set_thinking_level(cmd: SetThinkingLevel, s: Session) -> None:
    """Clamped to what the model supports."""
    s.models.set_level(cmd.level)


@handles(CycleThinkingLevel)
def cycle_thinking_level(cmd: CycleThinkingLevel, s: Session) -> answers.Level | None:
    """None for a model without thinking."""
    level = s.models.cycle_level()
    return None if level is None else answers.Level(level=level)


@handles(GetAvailableThinkingLevels)
def get_available_thinking_levels(cmd: GetAvailableThinkingLevels, s: Session) -> answers.Levels:
    """Returns the levels in ascending order."""
    return answers.Levels(levels=list(s.models.levels()))


@handles(GetLoginProviders)
def get_login_providers(cmd: GetLoginProviders, s: Session) -> answers.LoginProviders:
    """Returns an empty list: keys come from files and variables."""
    return answers.LoginProviders(providers=[])


@handles(Login)
def login(cmd: Login, s: Session) -> NoReturn:
    """Always refused: keys come from files and variables."""
    raise Refusal(f"Unknown OAuth provider: {codec.value_text(cmd.provider_id)}")


@handles(SetFastMode)
def set_fast_mode(cmd: SetFastMode, s: Session) -> answers.FastMode:
    """There is no fast mode, so it can only be switched off."""
    if cmd.enabled:
        raise Refusal("Fast mode is unavailable for the current model.")
    return answers.FastMode(enabled=False, active=False)
