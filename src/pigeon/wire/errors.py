"""Failures that are reported to the host. The text of each is the `error` of the response, so it names what to do.

PigeonError
+-- Refusal            a command is answered with success false
|   +-- BadRecord      the line is not a command: bad JSON, not an object, a wrong field
|   +-- UnknownCommand
|   +-- SessionBusy    a run is active and the prompt does not say how to queue
+-- ToolFailed         a tool ends with an error result, details included
|   +-- CallDenied     a gate does not let a tool call run
+-- Aborted            the scope that this work belongs to was cancelled
+-- StartupError       the process cannot start with these arguments or files
    +-- UsageError     the command line itself is wrong
"""

from __future__ import annotations

from typing import Any

from pigeon.wire.base import ABSENT

ENTRY_MISSING = "Entry not found: "
BUSY = "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message."
ABORTED_BEFORE = "The prompt was aborted before it started"


class PigeonError(Exception):
    """Base of every failure that Pigeon raises on purpose; programs may copy and pickle it."""

    def __reduce__(self) -> Any:
        """Restores the error unchanged: the arguments of its class are not those that the text is made of."""
        return _restore_error, (type(self), self.args, self.__dict__)


def _restore_error(kind: type[PigeonError], args: tuple[Any, ...], members: dict[str, Any]) -> PigeonError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(members)
    return error


class Refusal(PigeonError):
    """The command cannot be carried out; nothing changed. Programs distinguish a few of them by their `code`; with an
    `explanation`, the text has the words of a model's server."""

    def __init__(self, text: str, code: str | None = None, explanation: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.explanation = explanation


class BadRecord(Refusal):
    """A line that is not a well-formed command."""


class UnknownCommand(Refusal):
    """The `type` names no command."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Unknown command: {name}")
        self.name = name


class SessionBusy(Refusal):
    """A prompt came while a run is active and does not say how to queue."""

    def __init__(self) -> None:
        super().__init__(BUSY)


class ToolFailed(PigeonError):
    """A tool could not do its job; the text goes to the model, the details to the host. `usage` is what it has used of
    a model all the same."""

    def __init__(self, text: str, details: Any = ABSENT, usage: Any = ABSENT) -> None:
        super().__init__(text)
        self.text = text
        self.details = details
        self.usage = usage


class CallDenied(ToolFailed):
    """A tool call may not run: permission rules, the person at the host or an extension refuse it."""


class Aborted(PigeonError):
    """An operation was cancelled because the host or the user asked for it."""

    def __init__(self, text: str = "Operation aborted") -> None:
        super().__init__(text)


class StartupError(PigeonError):
    """The agent cannot start with these options or files, or cannot be reached."""


class UsageError(StartupError):
    """The command line is wrong: an unknown option or command, or an invalid value; exit code 2."""


UNEXPECTED = "Pigeon failed unexpectedly; the details are on its stderr"
_NO_NAME = "The text contains half of a surrogate pair, which is not allowed in a file name or a command"


def text_for_host(error: BaseException) -> str:
    """The text for hosts and models about a failure: a reason they can act on, never internals of the program."""
    if isinstance(error, PigeonError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        name = error.filename.decode("utf-8", "replace") if isinstance(error.filename, bytes) else error.filename
        return f"{error.strerror}: {name}" if name else error.strerror
    return _NO_NAME if isinstance(error, UnicodeEncodeError) else UNEXPECTED


def to_printable(text: object) -> str:
    """A text for a screen, without characters that could move, hide or recolour other text."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in str(text))
