"""The model in use and its thinking level: chosen by commands, restored from a session, recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from pigeon.session.context.transcript import Transcript
from pigeon.session.history.entry_line import EntryLine
from pigeon.session.hooks import Hooks
from pigeon.wire.answers import CycledModel
from pigeon.wire.entries import ModelChange, ThinkingLevelChange
from pigeon.wire.errors import Refusal
from pigeon.wire.events import Outbound, ThinkingLevelChanged
from pigeon.wire.messages import AssistantMessage
from pigeon.wire.model import LEVELS, Model, ThinkingLevel, clamp_level, levels_of


class ModelSource(Protocol):
    def list_available(self) -> list[Model]: ...

    def find_usable(self, provider: str, model_id: str) -> Model | None: ...


class ScopedModel(Struct, frozen=True):
    """A model that cycling includes, with its own thinking level if it has one."""

    model: Model
    level: ThinkingLevel | None = None


class ModelOptions(Struct, frozen=True, kw_only=True):
    """The models to choose from and the initial choice; `explicit` if the model was named at the start,
    `explicit_level` if the level was. `problem` is why the model of the settings cannot be used, if it cannot."""

    source: ModelSource
    model: Model | None
    thinking: ThinkingLevel
    scoped: Sequence[ScopedModel] = ()
    explicit: bool = False
    explicit_level: bool = False
    problem: str = ""


class ModelChoice:
    """The current model and level. The level that was requested last is remembered while a model does not
    support it."""

    def __init__(
        self,
        options: ModelOptions,
        transcript: Transcript,
        hooks: Hooks,
        post: Callable[[Outbound], None],
        report: Callable[[str], None],
    ) -> None:
        """`report` shows a warning to the person."""
        self._source = options.source
        self._hooks = hooks
        self._transcript = transcript
        self._post = post
        self._report = report
        self._problem = options.problem
        self._scoped = list(options.scoped)
        self._explicit = options.explicit
        self._explicit_level = options.explicit_level
        self._wanted: ThinkingLevel = options.thinking
        self.model = options.model
        self.level: ThinkingLevel = clamp_level(options.thinking, options.model)

    @property
    def problem(self) -> str:
        """Why the model of the settings cannot be used; empty if it can, or if another one was chosen."""
        if self._problem and self.model is not None and self._source.find_usable(self.model.provider, self.model.id):
            self._problem = ""  # its key has been added meanwhile
        return self._problem

    def record_choice(self) -> None:
        """Record the choice at the beginning of a conversation."""
        if self.model is not None:
            self._record_model(self.model)
        self._transcript.journal.append(ThinkingLevelChange, thinking_level=self.level)

    def restore(self, branch: Sequence[EntryLine]) -> None:
        """Restore the model and level that a conversation used last, unless one was named at the start."""
        reference, level = find_last_choice(branch)
        if not self._explicit and reference is not None:
            previous = self.model
            restored = self._source.find_usable(*reference)
            self.model = restored or self.model
            if restored is not None:
                self._problem = ""
            if restored is None and (previous is None or (previous.provider, previous.id) != reference):
                self._report(_describe_replacement("/".join(reference), previous))
            if self.model is not None and self.model is not previous:
                self._hooks.on_model_selected(self.model, previous, "restore")
        if level is not None and not self._explicit_level:
            self._wanted = level
        before, self.level = self.level, clamp_level(self._wanted, self.model)
        if level is None and not self._transcript.journal.is_read_only:
            self._transcript.journal.append(ThinkingLevelChange, thinking_level=self.level)
        if self.level != before:
            self._post(ThinkingLevelChanged(level=self.level, thinking_level=self.level))

    def list_available(self) -> list[Model]:
        return self._source.list_available()

    def select_model(self, provider: str, model_id: str) -> Model:
        """Raises if no available model has that name."""
        model = self._source.find_usable(provider, model_id)
        if model is None and self.model is not None and (self.model.provider, self.model.id) == (provider, model_id):
            model = self.model
        if model is None:
            raise Refusal(f"Model not found: {provider}/{model_id}")
        self._apply_model(model, "set")
        return model

    def cycle(self) -> CycledModel | None:
        """Choose the next model, wrapping around; returns None if there is nothing to cycle."""
        candidates = self._candidates()
        if len(candidates) <= 1:
            return None
        models = [(candidate.model.provider, candidate.model.id) for candidate in candidates]
        current = (self.model.provider, self.model.id) if self.model else None
        at = models.index(current) if current in models else -1
        chosen = candidates[(at + 1) % len(candidates)]
        self._transcript.journal.claim_and_reload_file()
        if chosen.level is not None:
            self._wanted = chosen.level
        self._apply_model(chosen.model, "cycle")
        return CycledModel(model=chosen.model, thinking_level=self.level, is_scoped=bool(self._scoped))

    def levels(self) -> list[ThinkingLevel]:
        """The levels of the current model."""
        return levels_of(self.model)

    def set_level(self, level: ThinkingLevel) -> None:
        """Request this level, clamped to what the model supports."""
        if clamp_level(level, self.model) != self.level:
            self._transcript.journal.claim_and_reload_file()
        self._wanted = level
        self._apply_level()

    def cycle_level(self) -> ThinkingLevel | None:
        """The next level, wrapping around; None for a model without thinking."""
        if self.model is None or not self.model.reasoning:
            return None
        levels = self.levels()
        self.set_level(levels[(levels.index(self.level) + 1) % len(levels)])
        return self.level

    def _candidates(self) -> list[ScopedModel]:
        available = self._source.list_available()
        if not self._scoped:
            return [ScopedModel(model) for model in available]
        known = {(model.provider, model.id) for model in available}
        return [scoped for scoped in self._scoped if (scoped.model.provider, scoped.model.id) in known]

    def _apply_model(self, model: Model, how: Literal["set", "cycle"]) -> None:
        previous = self.model
        if previous is not None and previous.reference == model.reference and self._transcript.journal.is_read_only:
            return
        self._transcript.journal.claim_and_reload_file()
        self.model = model
        self._problem = ""
        self._record_model(model)
        self._apply_level()
        self._hooks.on_model_selected(model, previous, how)

    def _record_model(self, model: Model) -> None:
        self._transcript.journal.append(ModelChange, provider=model.provider, model_id=model.id)

    def _apply_level(self) -> None:
        level = clamp_level(self._wanted, self.model)
        if level == self.level:
            return
        self.level = level
        self._transcript.journal.append(ThinkingLevelChange, thinking_level=level)
        self._post(ThinkingLevelChanged(level=level, thinking_level=level))


def find_last_choice(branch: Sequence[EntryLine]) -> tuple[tuple[str, str] | None, ThinkingLevel | None]:
    """The model and the thinking level at the end of a path, None for each that it does not have."""
    reference: tuple[str, str] | None = None
    level: str | None = None
    for line in reversed(branch):
        if reference is not None and level is not None:
            break
        if reference is None and line.type == "model_change":
            entry = line.entry
            reference = (entry.provider, entry.model_id) if isinstance(entry, ModelChange) else None
        elif reference is None and line.role == "assistant":
            message = line.message
            reference = (message.provider, message.model) if isinstance(message, AssistantMessage) else None
        elif level is None and line.type == "thinking_level_change":
            entry = line.entry
            level = entry.thinking_level if isinstance(entry, ThinkingLevelChange) else None
    return reference, level if level in LEVELS else None


def _describe_replacement(reference: str, model: Model | None) -> str:
    why = f"This conversation used {reference}, which has no key here or does not exist any more"
    return f"{why}: choose another model" if model is None else f"{why}; it continues with {model.reference}"
