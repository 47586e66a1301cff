"""What the prompts of a call are made of: the words of the command line, files and images named with `@`, text that is
piped in, and the schema of the answer. `-p`, `--mode json` and `pigeon batch` share it."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from pigeon.frontends.call import CommandLine
from pigeon.frontends.printing import print_to_stderr
from pigeon.system.environment import Environment
from pigeon.system.files import read_whole
from pigeon.system.held_paths import resolve_and_hold
from pigeon.wire.base import Json
from pigeon.wire.errors import PigeonError, StartupError, ToolFailed, UsageError

if TYPE_CHECKING:
    from pigeon.app.build import BuiltAgent

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


def has_prompt(line: CommandLine, piped: str, environment: Environment) -> bool:
    """Whether a call says anything. Raises `UsageError` for a file that cannot be read, unless it is on another
    machine."""
    if line.agent.workspace is None:
        return bool(prompts_of(line, piped, environment, as_one=True).texts)
    return bool(piped.strip() or any(word.strip() for word in line.messages))


async def fetch_prompts(
    line: CommandLine,
    piped: str,
    environment: Environment,
    agent: BuiltAgent,
    *,
    as_one: bool,
) -> CallPrompts:
    """The prompts of a call, with files from where the agent works; see `prompts_of`."""
    workspace = agent.session.dependencies.workspace
    if not workspace.is_elsewhere:
        return prompts_of(line, piped, environment, as_one=as_one, why_hidden=agent.why_hidden)
    fetched: dict[str, tuple[str, bytes]] = {}
    for name in _split_words(line)[0]:
        try:
            path, data = await workspace.read_file(name, agent.session.journal.cwd, LARGEST_FILE)
            if len(data) > LARGEST_FILE:
                raise OSError(errno.EFBIG, "file too large")
            fetched[name] = path, data
        except (OSError, ToolFailed) as error:
            raise _make_refusal(name, error, f" (on {workspace.machine})") from None
    return prompts_of(line, piped, environment, as_one=as_one, read_file=fetched.__getitem__)


def prompts_of(
    line: CommandLine,
    piped: str,
    environment: Environment,
    *,
    as_one: bool,
    why_hidden: Callable[[str], str | None] = lambda place: None,
    read_file: Callable[[str], tuple[str, bytes]] | None = None,
) -> CallPrompts:
    """The prompts of a call; `as_one` puts all its words together, as a person writes them without quotes.

    Piped text and files go before the first, with blank lines between. Raises `UsageError` for a file that cannot be
    read, and for one that must not be: `why_hidden` is called with real paths. `read_file` returns the path and the
    content of a file, where it is not read from the disk.
    """
    named, texts = _split_words(line)
    if as_one:
        texts = [" ".join(texts)] if texts else []
    files, images = _read_files(named, read_file or partial(_read_local_file, environment, why_hidden))
    first = "\n\n".join(part for part in (piped, *files, *texts[:1]) if part.strip())
    return CallPrompts(tuple([first, *texts[1:]] if first or images else texts[1:]), tuple(images))


def _split_words(line: CommandLine) -> tuple[list[str], list[str]]:
    """The names of files among the words of a call, and the other words."""
    words = list(line.messages)
    spoken = words[: len(words) - len(line.literal)] if line.literal else words
    named = [word[1:] for word in spoken if word.startswith("@") and len(word) > 1]
    return named, [word for word in spoken if not (word.startswith("@") and len(word) > 1)] + list(line.literal)


def _read_local_file(environment: Environment, why_hidden: Callable[[str], str | None], name: str) -> tuple[str, bytes]:
    path = environment.absolute_path(name)
    try:
        # Held, so that the file that was checked is the one that is read: it may be a link that a command has made.
        with resolve_and_hold(path) as held:
            if (why := why_hidden(held.place)) is not None:
                raise UsageError(f"@{name}: {why}. If the model may see it, pipe it in: pigeon -p ... < FILE")
            return path, read_whole(held, LARGEST_FILE)
    except OSError as error:
        raise _make_refusal(name, error) from None


def _make_refusal(name: str, error: Exception, where: str = "") -> UsageError:
    reason = _reason_of(error) if isinstance(error, OSError) else str(error).rstrip(".")
    return UsageError(
        f"@{name}: {reason}{where}. Words that begin with @ name files; put a prompt that begins with @ after --"
    )


def _read_files(names: list[str], read_file: Callable[[str], tuple[str, bytes]]) -> tuple[list[str], list[bytes]]:
    """The named files: texts with their names, and images."""
    texts: list[str] = []
    images: list[bytes] = []
    for name in names:
        path, data = read_file(name)
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
