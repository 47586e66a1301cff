"""The system prompt of a conversation: that of its working directory, and the language of its user."""

from __future__ import annotations

from collections.abc import Callable

from pigeon.session.context.transcript import Transcript

LOCALE = "The user's locale is {}. Answer in its language unless you are asked for another one."


class SystemPrompt:
    """Makes the system prompt of each request; `prompt_of` makes that of a working directory."""

    def __init__(self, prompt_of: Callable[[str], str], transcript: Transcript) -> None:
        self._prompt_of = prompt_of
        self._transcript = transcript
        self._locale = ""

    def set_locale(self, locale: str) -> None:
        """The language of the user, from the next request on; empty for none."""
        self._locale = locale.strip()

    def text(self) -> str:
        """The system prompt of the next request, unless its run has one of its own."""
        prompt = self._prompt_of(self._transcript.journal.cwd)
        return f"{prompt}\n\n{LOCALE.format(self._locale)}" if self._locale else prompt
