"""Handlers: commands that only hosts of pi's forks send."""

from __future__ import annotations

from pigeon.rpc.host_connection import HostConnection
from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire.answers import Commands, Integrations, ModelReadiness
from pigeon.wire.commands import GetAvailableCommands, GetIntegrations, SetLocale


@handles(SetLocale)
def set_locale(cmd: SetLocale, s: Session) -> None:
    """In force at the next request to a model."""
    s.system_prompt.set_locale(cmd.locale)


@handles(GetIntegrations)
def get_integrations(cmd: GetIntegrations, connection: HostConnection) -> Integrations:
    """Never asks the network: a model counts as connected while its provider has credentials."""
    models, version = connection.session.models, connection.form.dialect.version
    model = models.model
    if model is None:
        return Integrations(version=version, model=ModelReadiness(state="no_provider"), services=[])
    known = any(one.reference == model.reference for one in models.available())
    readiness = ModelReadiness(state="connected" if known else "auth_error", provider=model.provider)
    return Integrations(version=version, model=readiness, services=[])


@handles(GetAvailableCommands)
def get_available_commands(cmd: GetAvailableCommands, s: Session) -> Commands:
    """`get_commands` under its other name."""
    return Commands(commands=s.prompting.commands())
