"""The system prompt of a conversation: depends on its working directory and the language of its user."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pigeon.agent.tool_facts import ToolFacts
from pigeon.session.context.transcript import Transcript
from pigeon.session.toolset import Toolset

# The prompt for a working directory, the name, one line and facts of each tool, and the advice of their authors.
PromptComposer = Callable[[str, Sequence[tuple[str, str, ToolFacts]], Sequence[str]], str]
LOCALE = "The user's locale is {}. Answer in its language unless you are asked for another one."


class SystemPrompt:
    """Makes the system prompt of each request, for the tools that are active then."""

    def __init__(self, compose: PromptComposer, toolset: Toolset, transcript: Transcript) -> None:
        self._compose = compose
        self._toolset = toolset
        self._transcript = transcript
        self._locale = ""

    def set_locale(self, locale: str) -> None:
        """Set the language of the user from the next request on; empty for none."""
        self._locale = locale.strip()

    def text(self) -> str:
        """The system prompt of the next request, unless its run has one."""
        prompt = self._compose(self._transcript.journal.cwd, *self._toolset.describe_tools())
        return f"{prompt}\n\n{LOCALE.format(self._locale)}" if self._locale else prompt
