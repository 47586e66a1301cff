"""Failures between a program and its agent, as exceptions; refusals of an agent are a `Refusal` of the wire."""

from __future__ import annotations

from pigeon.wire.errors import PigeonError


class ConversationClosed(PigeonError):
    """The conversation is not open: it was never opened, or has been closed."""

    def __init__(self, text: str = "The conversation is closed; open it with `async with`") -> None:
        super().__init__(text)


class AnswerTimeout(PigeonError, TimeoutError):
    """No answer to a command came in time; the command may still be carried out."""

    def __init__(self, command: str, seconds: float) -> None:
        super().__init__(f'No answer to "{command}" within {seconds:g} s')
        self.command = command
        self.seconds = seconds


class ConnectionLost(PigeonError):
    """The connection was lost before a command was answered; it is not known whether it was carried out."""


class ReaderTooSlow(PigeonError):
    """A reader of events has left so many unread that it gets no more; the run continues without it."""

    def __init__(self, unread: int) -> None:
        super().__init__(f"{unread} events were left unread, so no more were kept for this reader; start a new one")
        self.unread = unread


class RunOver(PigeonError):
    """A message was sent again under its id, and the run that it started ended too long ago to be repeated.

    `get_messages` shows the result.
    """

    def __init__(self, message_id: str, run_id: str) -> None:
        super().__init__(f'The message "{message_id}" was sent before, and its run {run_id} is over; see get_messages')
        self.message_id = message_id
        self.run_id = run_id


class ProcessDied(PigeonError):
    """The agent's process has ended, or its connection broke, while it was needed.

    `exit_code` is negative for a signal, and `None` behind a socket; `last_words` are the last lines of its stderr.
    """

    def __init__(self, what: str, exit_code: int | None = None, last_words: str = "") -> None:
        code = "" if exit_code is None else f" with exit code {exit_code}" if exit_code >= 0 else ""
        signal = f" by signal {-exit_code}" if exit_code is not None and exit_code < 0 else ""
        super().__init__(f"{what}{code}{signal}" + (f": {last_words}" if last_words else ""))
        self.exit_code = exit_code
        self.last_words = last_words
