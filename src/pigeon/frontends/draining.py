"""Whether a run that is under way is finished after its host has gone."""

from __future__ import annotations

from pigeon.app.build import BuiltAgent
from pigeon.providers.demo.api import DEMO


def should_drain(agent: BuiltAgent, asked: bool) -> bool:
    """True if `--drain` asks for it; also with the demo, because that is tried out with piped input."""
    model = agent.session.models.model
    return asked or (model is not None and model.provider == DEMO.name)
