"""The records that Pigeon and its helper exchange. `helper/serving.py` reads and writes the same ones as plain JSON.

A frame is four numbers of 32 bits (its own number, the last one that was received, the lengths of record and body),
the record and the body. Numbered frames are repeated on a new connection until they have been received; number 0 is for
records about the connection itself. Paths are bytes, in base64, because they need not be text.
"""

from __future__ import annotations

from msgspec import Struct, json

from pigeon.wire.choices import FileKind

FRAME_HEADER_SIZE = 16
LONGEST_RECORD = 64 << 20
LONGEST_BODY = 1 << 20
# What a numbered frame may carry at most, so that others are not kept waiting.
PART = 256 * 1024


class HelperRecord(Struct, frozen=True, rename="camel", tag_field="type", omit_defaults=True):
    """One record; `type` says which."""


# About the connection, without a number


class Resume(Struct, frozen=True):
    """The helper that served an earlier connection, and what was received from it."""

    address: str
    received: int


class HelperHello(HelperRecord, frozen=True, tag="hello"):
    """The first record: the secret by which a later connection shows that it belongs to the same Pigeon."""

    secret: str
    resume: Resume | None = None


class Ping(HelperRecord, frozen=True, tag="ping"):
    pass


class Goodbye(HelperRecord, frozen=True, tag="goodbye"):
    """End the helper at once, with everything that it has started."""


class HelperWelcome(HelperRecord, frozen=True, tag="welcome"):
    """The answer to `Hello`: whether the earlier helper goes on, or what there is to know of the machine."""

    resumed: bool
    received: int = 0
    home: bytes = b"/"
    cwd: bytes = b"/"
    address: str = ""
    shell: bytes = b"/bin/sh"
    ripgrep: bool = False
    python: str = ""
    system: str = ""


class Pong(HelperRecord, frozen=True, tag="pong"):
    pass


class Received(HelperRecord, frozen=True, tag="received"):
    """Nothing but the number in its frame."""


# Requests


class Request(HelperRecord, frozen=True, kw_only=True):
    id: int


class SentLook(Struct, frozen=True, rename="camel"):
    """A path of `LookAt`; `held` means that no link may be followed."""

    path: bytes
    held: bool
    content: int
    entries: bool


class LookAt(Request, frozen=True, kw_only=True, tag="look"):
    wanted: list[SentLook]


class Read(Request, frozen=True, kw_only=True, tag="read"):
    path: bytes
    held: bool
    start: int
    size: int | None
    at_most: int


class Part(Request, frozen=True, kw_only=True, tag="part"):
    """A part of what the next `Write` with this id writes, in the body."""


class Write(Request, frozen=True, kw_only=True, tag="write"):
    path: bytes
    held: bool
    unchanged: str | None


class List(Request, frozen=True, kw_only=True, tag="list"):
    path: bytes
    held: bool


class Search(Request, frozen=True, kw_only=True, tag="search"):
    """`options` are those of ripgrep; the other members say the same to a search without it."""

    path: bytes
    held: bool
    what: str
    options: list[str]
    pattern: str
    literal: bool
    ignore_case: bool
    names: str
    context: int
    ripgrep: bool = True


class RunCommand(Request, frozen=True, kw_only=True, tag="run"):
    argv: list[bytes]
    cwd: bytes
    variables: dict[str, str]
    input: bool


class MoreInput(Request, frozen=True, kw_only=True, tag="input"):
    """More for the stdin of a command, in the body."""

    ends: bool


class Credit(Request, frozen=True, kw_only=True, tag="credit"):
    """So many bytes of output were consumed: more may come."""

    bytes: int


class KillCommand(Request, frozen=True, kw_only=True, tag="kill"):
    pass


class Cancel(Request, frozen=True, kw_only=True, tag="cancel"):
    """The answer to a request is not needed any more."""


# Answers


class SentStat(Struct, frozen=True, rename="camel"):
    kind: FileKind
    size: int = 0
    mode: int = 0
    mtime_ms: int = 0
    version: str = ""
    place: bytes = b""
    target: bytes | None = None
    identity: str = ""


class SentEntry(SentStat, frozen=True, kw_only=True, rename="camel"):
    name: bytes
    leads_to: FileKind


class SentSeen(Struct, frozen=True, rename="camel"):
    stat: SentStat
    followed: SentStat
    content: bytes | None = None
    entries: list[SentEntry] | None = None
    error: str = ""


class RequestDone(Request, frozen=True, kw_only=True, tag="result"):
    """The last answer to a request; which member there is depends on the request."""

    stat: SentStat | None = None
    entries: list[SentEntry] = []
    seen: list[SentSeen] = []


class RequestFailed(Request, frozen=True, kw_only=True, tag="failed"):
    """The request failed with an error of the system, such as `ENOENT`, or with one that `code` names."""

    error: str
    code: str
    text: str


class Data(Request, frozen=True, kw_only=True, tag="data"):
    """A part of a file, in the body; a `Result` follows the last one."""


class Output(Request, frozen=True, kw_only=True, tag="output"):
    """A part of the output of a command, in the body."""


class Taken(Request, frozen=True, kw_only=True, tag="taken"):
    """The command has read so many bytes of its input."""

    bytes: int


class CommandEnded(Request, frozen=True, kw_only=True, tag="ended"):
    """The command has ended, and all of its output was sent."""

    exit_code: int


class Gone(Request, frozen=True, kw_only=True, tag="gone"):
    """Nothing is left of what the command has started."""


Answer = RequestDone | RequestFailed | Data | Output | Taken | CommandEnded | Gone
FromHelper = HelperWelcome | Pong | Received | Answer

encode_record = json.Encoder().encode
decode_received = json.Decoder(FromHelper).decode
