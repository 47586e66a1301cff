"""One expander for everything that a message may begin with: skills first, then templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pigeon.wire.answers import SlashCommand

if TYPE_CHECKING:
    from pigeon.resources.prompt_templates import Templates
    from pigeon.resources.skills import Skills

SKILL_PREFIX = "/skill:"


class Expander:
    """What sessions ask; it always speaks of the folder that the session is in now."""

    def __init__(self, templates: Callable[[], Templates], skills: Callable[[], Skills]) -> None:
        self._templates = templates
        self._skills = skills

    def expand(self, text: str) -> str:
        """The text that goes to the model; nothing is read for a text that begins with no slash."""
        if text.startswith(SKILL_PREFIX):
            text = self._skills().expand(text)
        return self._templates().expand(text) if text.startswith("/") else text

    def commands(self) -> list[SlashCommand]:
        """Templates, then skills."""
        return [*self._templates().commands(), *self._skills().commands()]
