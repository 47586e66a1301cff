"""What the prompts of a call are made of: the words of the command line, files and images named with `@`, text that is
piped in, and the schema of the answer. `-p`, `--mode json` and `pigeon batch` share it."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Callable

from msgspec import Struct

from pigeon.frontends.call import CommandLine
from pigeon.frontends.printing import print_to_stderr
from pigeon.system.environment import Environment
from pigeon.system.files import read_whole
from pigeon.system.paths import resolve_and_hold
from pigeon.wire.base import Json
from pigeon.wire.errors import PigeonError, StartupError, UsageError

LARGEST_FILE = 20 * 1024 * 1024
TOO_LARGE = f"larger than {LARGEST_FILE // 1024**2} MB"
CHUNK = 1024 * 1024
SILENT_SECONDS = 2.0
STILL_OPEN = "pigeon: waiting for the end of stdin, which becomes part of the prompt. To do without it, add </dev/null"


class CallPrompts(Struct, frozen=True):
    """The texts of the prompts in order, and the images for the first."""

    texts: tuple[str, ...]
    images: tuple[bytes, ...]


def read_piped_text() -> str:
    """The text that is piped in; empty at a terminal. Raises `UsageError` if it is too long or not text."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    try:
        data = _read_stdin()
    except OSError as error:
        raise StartupError(f"stdin cannot be read: {error.strerror or error}") from None
    if len(data) > LARGEST_FILE:
        raise UsageError(f"The piped input is {TOO_LARGE}. Put it into a file and name the file in the prompt")
    if b"\0" in data or _is_image(data):
        raise UsageError("The piped input is not text. To attach an image, use @: pigeon -p @screen.png")
    return _decode_text(data).strip()


def _read_stdin() -> bytes:
    """Read to the end or until it is too much, waiting for pipes that the caller made non-blocking. A person who waits
    for the answer is told that stdin is still open."""
    data = bytearray()
    poller = select.poll()
    poller.register(0, select.POLLIN)
    is_told = False
    while len(data) <= LARGEST_FILE:
        if not is_told and not poller.poll(SILENT_SECONDS * 1000):
            print_to_stderr(STILL_OPEN)
            is_told = True
        try:
            chunk = os.read(0, CHUNK)
        except BlockingIOError:
            poller.poll()
            continue
        if not chunk:
            break
        data += chunk
    return bytes(data)


def prompts_of(
    line: CommandLine,
    piped: str,
    environment: Environment,
    *,
    as_one: bool,
    why_hidden: Callable[[str], str | None] = lambda place: None,
) -> CallPrompts:
    """The prompts of a call; `as_one` puts all its words together, as a person writes them without quotes.

    Piped text and files go before the first, with blank lines between. Raises `UsageError` for a file that cannot be
    read, and for one that must not be: `why_hidden` is called with real paths.
    """
    words = list(line.messages)
    spoken = words[: len(words) - len(line.literal)] if line.literal else words
    named = [word[1:] for word in spoken if word.startswith("@") and len(word) > 1]
    texts = [word for word in spoken if not (word.startswith("@") and len(word) > 1)] + list(line.literal)
    if as_one:
        texts = [" ".join(texts)] if texts else []
    files, images = _read_files(named, environment, why_hidden)
    first = "\n\n".join(part for part in (piped, *files, *texts[:1]) if part.strip())
    return CallPrompts(tuple([first, *texts[1:]] if first or images else texts[1:]), tuple(images))


def _read_files(
    names: list[str], environment: Environment, why_hidden: Callable[[str], str | None]
) -> tuple[list[str], list[bytes]]:
    """The named files: texts with their names, and images."""
    texts: list[str] = []
    images: list[bytes] = []
    for name in names:
        path = environment.absolute_path(name)
        try:
            # Held, so that the file that was checked is the one that is read: it may be a link that a command has made.
            with resolve_and_hold(path) as held:
                if (why := why_hidden(held.place)) is not None:
                    raise UsageError(f"@{name}: {why}. If the model may see it, pipe it in: pigeon -p ... < FILE")
                data = read_whole(held, LARGEST_FILE)
        except OSError as error:
            raise UsageError(
                f"@{name}: {_reason_of(error)}. Words that begin with @ name files; "
                "put a prompt that begins with @ after --"
            ) from None
        if _is_image(data):
            images.append(data)
            texts.append(f'<file name="{path}"></file>')
        elif b"\0" in data:
            raise UsageError(f"@{name} is neither text nor an image (PNG, JPEG, GIF or WebP)")
        else:
            texts.append(f'<file name="{path}">\n{_decode_text(data).rstrip()}\n</file>')
    return texts, images


def _reason_of(error: OSError) -> str:
    known = {errno.EFBIG: TOO_LARGE, errno.EISDIR: "it is a folder"}
    return known.get(error.errno or 0) or (error.strerror or str(error)).lower()


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def _is_image(data: bytes) -> bool:
    from pigeon.tools.images.header import header_of

    return header_of(data) is not None


def read_schema(given: str, environment: Environment) -> dict[str, Json]:
    """The schema of `--output-schema`, given as JSON or as a file name; raises `UsageError`."""
    from pigeon.config.json_file import decode_with_comments, read_json

    try:
        is_json = given.lstrip().startswith("{")
        schema = decode_with_comments(given.encode()) if is_json else read_json(environment.absolute_path(given))
    except OSError as error:
        raise UsageError(f"--output-schema {given}: {error.strerror or error}") from None
    except PigeonError as error:
        raise UsageError(f"--output-schema: {error}") from None
    if not isinstance(schema, dict):
        raise UsageError("--output-schema: a JSON Schema must be an object")
    return schema
