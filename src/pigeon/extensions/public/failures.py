"""How extensions fail: each way has a type, and a text that can be shown."""

from __future__ import annotations

import sys

LONGEST_TEXT = 4000
NO_SESSION = "There is no session yet: act in a handler, for example of session_start"


class ExtensionFailed(Exception):
    """An extension did not do what was required; the text tells why."""


class TookTooLong(ExtensionFailed):
    """A handler was stopped because its time was up."""


class Unresponsive(ExtensionFailed):
    """The extension's thread is blocked by its own code, so nothing can be called in it now."""


class Interrupted(BaseException):
    """Raised inside an extension's thread to end code that does not return. Not an `Exception`, so that a broad
    `except` does not catch it."""


class NotBound(RuntimeError):
    """The session was used before there was one, or after it had ended."""


def text_of_error(error: BaseException) -> str:
    """A text for any exception, even one whose own text fails."""
    if isinstance(error, ExtensionFailed):
        return str(error)
    kind = type(error).__name__
    try:
        text = str(error)
    except BaseException:
        text = ""
    if isinstance(error, SystemExit):
        text = f"it tried to end the process (exit code {text or 0})"
    elif isinstance(error, KeyboardInterrupt):
        text = "it raised KeyboardInterrupt"
    elif not text or isinstance(error, (KeyError, IndexError, AssertionError, AttributeError, NameError, TypeError)):
        text = f"{kind}: {text}" if text else kind
    return text[:LONGEST_TEXT]


def print_traceback(error: BaseException) -> None:
    """Print the place of an exception on stderr, for authors; not for exceptions of Pigeon itself."""
    if not isinstance(error, (ExtensionFailed, Interrupted)):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
