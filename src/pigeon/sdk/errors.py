"""What goes wrong between a program and its agent, as exceptions; what an agent refuses is a `Refusal` of the wire."""

from __future__ import annotations

from pigeon.wire.errors import PigeonError


class ConversationClosed(PigeonError):
    """The conversation is not open: it was never opened, or it was closed meanwhile."""

    def __init__(self, text: str = "The conversation is closed; open it with `async with`") -> None:
        super().__init__(text)


class AnswerTimeout(PigeonError, TimeoutError):
    """No answer to a command came in time; the command may still be carried out."""

    def __init__(self, command: str, seconds: float) -> None:
        super().__init__(f'No answer to "{command}" within {seconds:g} s')
        self.command = command
        self.seconds = seconds


class ProcessDied(PigeonError):
    """The agent's process has ended, or its connection broke, while it was needed.

    `exit_code` is negative for a signal, and none behind a socket; `last_words` are the last lines of its stderr.
    """

    def __init__(self, what: str, exit_code: int | None = None, last_words: str = "") -> None:
        code = "" if exit_code is None else f" with exit code {exit_code}" if exit_code >= 0 else ""
        signal = f" by signal {-exit_code}" if exit_code is not None and exit_code < 0 else ""
        super().__init__(f"{what}{code}{signal}" + (f": {last_words}" if last_words else ""))
        self.exit_code = exit_code
        self.last_words = last_words
