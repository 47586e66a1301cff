"""Handlers: agreements between a client and Pigeon about their connection."""

from __future__ import annotations

from typing import NoReturn

from pigeon.rpc.router import handles
from pigeon.rpc.session_connection import SessionConnection
from pigeon.session.session import Session
from pigeon.wire.answers import EventFilter, Integrations, ModelReadiness, SubagentSubscription, Welcome
from pigeon.wire.codec import value_text
from pigeon.wire.commands import GetIntegrations, Hello, NegotiateProtocol, SetEventFilter, SetSubagentSubscription
from pigeon.wire.errors import Refusal


@handles(Hello)
def hello(cmd: Hello, connection: SessionConnection) -> Welcome:
    return connection.handle_hello(cmd)


@handles(SetEventFilter)
def set_event_filter(cmd: SetEventFilter, connection: SessionConnection) -> EventFilter:
    """Takes effect at the next event."""
    return connection.set_event_filter(cmd)


@handles(SetSubagentSubscription)
def set_subagent_subscription(cmd: SetSubagentSubscription, connection: SessionConnection) -> SubagentSubscription:
    """Takes effect at the next event."""
    return connection.set_subagent_subscription(cmd)


@handles(NegotiateProtocol)
def negotiate_protocol(cmd: NegotiateProtocol, s: Session) -> NoReturn:
    """Refused in the words of oh-my-pi, so that a client learns at once that it was never offered."""
    raise Refusal(f"Unsupported RPC protocol version: {value_text(cmd.protocol_version)}")


@handles(GetIntegrations)
def get_integrations(cmd: GetIntegrations, connection: SessionConnection) -> Integrations:
    """Never uses the network: a model counts as connected while its provider has credentials."""
    models, version = connection.session.models, connection.dialect.version
    model = models.model
    if model is None:
        return Integrations(version=version, model=ModelReadiness(state="no_provider"), services=[])
    known = any(one.reference == model.reference for one in models.list_available())
    readiness = ModelReadiness(state="connected" if known else "auth_error", provider=model.provider)
    return Integrations(version=version, model=readiness, services=[])
