"""Everything a session is built from. `app` makes it; the classes of this room take it, or the parts they need of it.

The protocols here are what the session needs of rooms that it must not import: `resources` expands prompts, `app` lists
models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from pigeon.agent.interfaces import Gate, ImagePreparer, ModelProvider
from pigeon.session.bus import Bus
from pigeon.session.history.journal import Journal
from pigeon.session.history.repository import SessionRepository
from pigeon.session.hooks import Hooks
from pigeon.session.settings import SessionSettings
from pigeon.session.steering.todos import Todos
from pigeon.session.toolset import Toolset
from pigeon.system.shell.shell import Workplace
from pigeon.wire.answers import SlashCommand
from pigeon.wire.model import Model, ThinkingLevel
from pigeon.wire.steering import Rule


class ModelSource(Protocol):
    """The models that a host can choose."""

    def available(self) -> list[Model]:
        """Models with configured credentials."""
        ...

    def find(self, provider: str, model_id: str) -> Model | None:
        """One of the available models."""
        ...


class PromptExpander(Protocol):
    """Turns `/name arguments` into the text it stands for."""

    def expand(self, text: str) -> str:
        """The text that goes to the model; unknown names stay as they are."""
        ...

    def commands(self) -> list[SlashCommand]:
        """What can be expanded."""
        ...


class ScopedModel(Struct, frozen=True):
    """A model that cycling goes through, with a thinking level of its own if it has one."""

    model: Model
    level: ThinkingLevel | None = None


class ModelOptions(Struct, frozen=True, kw_only=True):
    """What there is to choose from, and what to begin with; `explicit` if the model was named at the start."""

    source: ModelSource
    model: Model | None
    thinking: ThinkingLevel
    scoped: Sequence[ScopedModel] = ()
    explicit: bool = False


class Dependencies(Struct, frozen=True, kw_only=True):
    """Everything from outside that a session needs."""

    settings: SessionSettings
    bus: Bus
    repository: SessionRepository
    journal: Journal
    workplace: Workplace
    move_to: Callable[[str], Workplace]  # the working directory changes: tools and resources of another folder
    provider: ModelProvider
    models: ModelOptions
    models_file: str
    toolset: Toolset
    todos: Todos
    images: ImagePreparer
    expander: PromptExpander
    system_prompt: Callable[[str], str]
    rules: Callable[[str], list[Rule]]
    hooks: Hooks
    gate: Gate | None
    run_started: Callable[[], None]  # called beside each run's first request, to warm up what tools will need
    write_page: Callable[[str, str, list[bytes], list[bytes]], str]
    now: Callable[[], int]
    report: Callable[[str], None]
