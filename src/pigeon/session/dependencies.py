"""What a session is put together from; the command line makes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from pigeon.agent.interfaces import Gate, ModelProvider
from pigeon.session.context.images import AsGiven, Pictures
from pigeon.session.history.journal import Journal
from pigeon.session.history.repository import SessionRepository
from pigeon.session.hooks import Hooks, NoHooks
from pigeon.session.model_choice import ModelSource, ScopedModel
from pigeon.session.prompting import Expander
from pigeon.session.toolset import Toolset
from pigeon.system.shell.shell import Workplace
from pigeon.wire.model import Model, ThinkingLevel
from pigeon.wire.steering import Rule


def _no_rules(cwd: str) -> list[Rule]:
    return []


class Dependencies(Struct, kw_only=True):
    """Everything from outside that a session needs."""

    repository: SessionRepository
    journal: Journal
    place: Workplace
    moved: Callable[[str], Workplace]
    provider: ModelProvider
    models: ModelSource
    model: Model | None
    thinking: ThinkingLevel
    toolset: Toolset
    expander: Expander
    system_prompt: Callable[[str], str]
    now: Callable[[], int]
    report: Callable[[str], None]
    models_file: str
    write_page: Callable[[str, str, list[bytes], list[bytes]], str]
    rules: Callable[[str], list[Rule]] = _no_rules
    hooks: Hooks = NoHooks()
    pictures: Pictures = AsGiven()
    model_is_explicit: bool = False
    scoped: Sequence[ScopedModel] = ()
    gate: Gate | None = None
