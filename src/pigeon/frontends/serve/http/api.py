"""The HTTP API as data: every operation with its scope, parameters, body and answers.

`application.py` creates the routes and checks requests from this list, and `/api/openapi.json` shows the
same list as OpenAPI 3.1, so that the two cannot differ.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from pigeon import __version__
from pigeon.frontends.serve.http.entrance import COOKIE, PAGE_KEY, HttpRefusal
from pigeon.frontends.serve.served_worker import ConversationState
from pigeon.wire.answers import QueueItem
from pigeon.wire.base import ABSENT, Absent, Json, Record
from pigeon.wire.commands import Scope

MOST_LISTED = 200
LISTED = 50
REF = "#/components/schemas/{name}"
JSON_TYPE, HTML_TYPE = "application/json", "text/html"
SessionId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?(?!\n)$")]
Text = Annotated[str, Meta(min_length=1, max_length=2048)]


class ServedNow(Record, kw_only=True):
    """What is known about every conversation."""

    id: str
    cwd: str
    state: ConversationState
    running: bool
    questions: int
    clients: int


class ServedSession(ServedNow, kw_only=True):
    """A session in a list. Members that come from its file are absent while it has none."""

    path: str | Absent = ABSENT
    created: str | Absent = ABSENT
    modified: str | Absent = ABSENT
    name: str | Absent = ABSENT
    first_message: str | Absent = ABSENT
    parent_session: str | Absent = ABSENT


class ServedSessions(Record, kw_only=True):
    """A page of sessions, newest first; `nextCursor` is absent on the last. `scope` is that of the request's token."""

    sessions: list[ServedSession]
    scope: Scope
    next_cursor: str | Absent = ABSENT


class SessionDetails(ServedNow, kw_only=True):
    """One conversation: `seq` is the number of its last event; all open work began after event `openSeq`.

    `askedAgo` says how many seconds each open question has been waiting, by its id, where that is known. `queue` has
    the queued messages of the last `queue_update`.
    """

    seq: int
    pid: int | None
    open_seq: int | None
    asked_ago: dict[str, float]
    queue: list[QueueItem]


class SessionRequest(Record, kw_only=True, forbid_unknown_fields=True):
    """A request for a conversation: a new one in a folder or in a workspace elsewhere, or the one with this id. `plans`
    and `agents` say that these will be shown, so that the model has the tools for them."""

    cwd: Text | None = None
    workspace: Text | None = None
    model: Text | None = None
    plans: bool = False
    agents: bool = False
    session_id: SessionId | None = None


class FolderAnswer(Record, kw_only=True):
    """A folder below the roots, and the folders in it."""

    path: str
    parent: str | None
    folders: list[str]
    roots: list[str]


class LinkRequest(Record, kw_only=True, forbid_unknown_fields=True):
    """A request for a link that grants this scope."""

    scope: Scope = "admin"


class LinkAnswer(Record, kw_only=True):
    """A link that lets a browser in once: its path, and how long it is valid."""

    path: str
    seconds: int


class ErrorAnswer(Record, kw_only=True):
    """Why a request was refused, in words for a person."""

    error: str


class Parameter(Struct, frozen=True, kw_only=True):
    """A value in the query of an address."""

    name: str
    help: str
    whole: bool = False
    least: int = 0
    most: int = 2048


class Operation(Struct, frozen=True, kw_only=True):
    """One operation. If `needed` is None, it needs no token."""

    id: str
    method: str
    path: str
    summary: str
    needed: Scope | None
    status: int = 200
    answer: Any = None
    media: str = JSON_TYPE
    parameters: tuple[Parameter, ...] = ()
    body: Any = None
    # Further successful statuses, and failures that only this operation has.
    also: tuple[int, ...] = ()


CWD = Parameter(name="cwd", help="Only sessions that work in this folder.")
QUERY = Parameter(name="query", help="Only sessions with this text in their name, first message, folder or id.")
LIMIT = Parameter(name="limit", help="At most so many.", whole=True, least=1, most=MOST_LISTED)
CURSOR = Parameter(name="cursor", help="The nextCursor of the previous page.")
PATH = Parameter(name="path", help="The folder (default: the first root).")

OPERATIONS = (
    Operation(
        id="listSessions", method="GET", path="/api/sessions", summary="The sessions, newest first, a page at a time.",
        needed="read", answer=ServedSessions, parameters=(CWD, QUERY, LIMIT, CURSOR), also=(404,),
    ),
    Operation(
        id="openSession", method="POST", path="/api/sessions", needed="talk", status=201, answer=SessionDetails,
        summary="Start a conversation in a folder, or wake the one with this id (200).", body=SessionRequest,
        also=(200, 404, 409, 503),
    ),
    Operation(
        id="showSession", method="GET", path="/api/sessions/{id}", summary="One conversation.", needed="read",
        answer=SessionDetails, also=(404,),
    ),
    Operation(
        id="deleteSession", method="DELETE", path="/api/sessions/{id}", needed="admin", status=204, also=(404, 409),
        summary="End a conversation and move its session to the trash: `pigeon sessions undelete` restores it.",
    ),
    Operation(
        id="exportSession", method="GET", path="/api/sessions/{id}/export", summary="A conversation as an HTML page.",
        needed="read", media=HTML_TYPE, also=(404, 409, 503),
    ),
    Operation(
        id="listFolders", method="GET", path="/api/folders", summary="The folders in a folder that may be opened.",
        needed="talk", answer=FolderAnswer, parameters=(PATH,), also=(404,),
    ),
    Operation(
        id="makeLink", method="POST", path="/api/links", summary="A link that lets a browser in once.",
        needed="admin", status=201, answer=LinkAnswer, body=LinkRequest,
    ),
    Operation(
        id="openapi", method="GET", path="/api/openapi.json", summary="This document.", needed=None,
        answer=dict[str, Json],
    ),
    Operation(
        id="health", method="GET", path="/healthz", summary="Whether the server is running.", needed=None,
        media="text/plain",
    ),
    Operation(
        id="metrics", method="GET", path="/metrics", summary="Figures for Prometheus.", needed="read",
        media="text/plain",
    ),
)  # fmt: skip


def parse_parameters(operation: Operation, given: list[tuple[str, str]]) -> dict[str, str | int]:
    """The parameters of a request, without unknown ones; raises `HttpRefusal`."""
    found: dict[str, str | int] = {}
    known = {one.name: one for one in operation.parameters}
    for name, text in given:
        parameter = known.get(name)
        if parameter is None:
            continue
        if name in found:
            raise HttpRefusal(400, "bad_request", f'"{name}" appears twice')
        found[name] = _parse_whole_number(parameter, text) if parameter.whole else _parse_short_text(parameter, text)
    return found


def _parse_whole_number(parameter: Parameter, text: str) -> int:
    least, most = parameter.least, parameter.most
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not least <= int(text) <= most:
        raise HttpRefusal(400, "bad_request", f'"{parameter.name}" must be a whole number from {least} to {most}')
    return int(text)


def _parse_short_text(parameter: Parameter, text: str) -> str:
    if len(text) > parameter.most:
        raise HttpRefusal(400, "bad_request", f'"{parameter.name}" is longer than {parameter.most} characters')
    return text


def make_openapi_document() -> dict[str, Json]:
    """All operations as a document of OpenAPI 3.1."""
    types = [one for operation in OPERATIONS for one in (operation.answer, operation.body) if _is_record(one)]
    _, schemas = msgspec.json.schema_components([*types, ErrorAnswer], ref_template=REF)
    # One of the three is required, which types cannot express.
    schemas["SessionRequest"]["anyOf"] = [
        {"required": [name], "properties": {name: {"type": "string"}}} for name in ("cwd", "workspace", "sessionId")
    ]
    paths: dict[str, dict[str, Json]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe_operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pigeon serve",
            "version": __version__,
            "description": "Conversations as JSON. The conversation itself is spoken over a WebSocket at "
            "`/api/sessions/{id}/rpc?after=SEQ`, a record of `pigeon --mode rpc` in each text frame.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": COOKIE},
                "pageKey": {"type": "apiKey", "in": "header", "name": PAGE_KEY},
            },
        },
    }


def _describe_operation(operation: Operation) -> dict[str, Json]:
    described: dict[str, Json] = {"operationId": operation.id, "summary": operation.summary}
    parameters: list[Json] = [_describe_parameter(one) for one in operation.parameters]
    if "{id}" in operation.path:
        schema = {"type": "string", "minLength": 1}
        parameters.append({"name": "id", "in": "path", "required": True, "schema": schema})
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _describe_content(operation.body, JSON_TYPE)}
    described["security"] = [{"token": []}, {"cookie": [], "pageKey": []}] if operation.needed else []
    if operation.needed:
        described["description"] = f"Needs the scope `{operation.needed}`."
    described["responses"] = _describe_answers(operation)
    return described


def _describe_answers(operation: Operation) -> dict[str, Json]:
    content = {"content": _describe_content(operation.answer, operation.media)} if operation.status != 204 else {}
    done: dict[str, Json] = {"description": "Done.", **content}
    answers: dict[str, Json] = {str(operation.status): done}
    failures = {*operation.also}
    if operation.needed is not None:
        failures |= {400, 401, 403, 429}
    if operation.body is not None:
        failures |= {413}
    for status in sorted(failures):
        failed = {"description": "Refused.", "content": _describe_content(ErrorAnswer, JSON_TYPE)}
        answers[str(status)] = done if status < 300 else failed
    answers["default"] = {"description": "Refused.", "content": _describe_content(ErrorAnswer, JSON_TYPE)}
    return answers


def _describe_content(kind: Any, media: str) -> dict[str, Json]:
    if _is_record(kind):
        return {media: {"schema": {"$ref": REF.format(name=kind.__name__)}}}
    return {media: {"schema": {"type": "object"} if media == JSON_TYPE else {"type": "string"}}}


def _describe_parameter(one: Parameter) -> dict[str, Json]:
    text: dict[str, Json] = {"type": "string", "maxLength": one.most}
    number: dict[str, Json] = {"type": "integer", "minimum": one.least, "maximum": one.most}
    return {"name": one.name, "in": "query", "description": one.help, "schema": number if one.whole else text}


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)
