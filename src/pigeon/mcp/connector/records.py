"""What the agent and the process that holds its connections to tool servers send each other, one record per line.

    from the agent                                    to the agent
    -----------------------------------------------   ----------------------------------------------------------
    OpenServer     its pipes come by a second socket   ConnectorReady, or ConnectorUnusable and the end
    CloseServer                                        ServerOpened, ServerListed, ServerFailed, SignInChanged
    AskServer      a request under an id               CallEnded or CallFailed, once for each id; CallProgress before
    CancelCall
    AnswerQuestion                                     QuestionAsked, under an id; QuestionWithdrawn

Both ends import this module; it needs nothing of the package `mcp`.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import Struct

from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.commands.mcp import McpStep, McpTransport
from pigeon.wire.content import ImageContent, TextContent

# A record may carry the images of a result.
LONGEST_RECORD = 64 * 1024 * 1024


class ConnectorRecord(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """One line of the link; its `type` is the name of the class."""


# Parts of the records


class StoredSignIn(ConnectorRecord, frozen=True, kw_only=True, tag="mcp"):
    """A sign-in as `auth.json` keeps it for the address of a server; the objects are those of OAuth."""

    tokens: dict[str, Json] | None = None
    expires: float | None = None
    client: dict[str, Json] | None = None
    redirect: str | None = None
    metadata: dict[str, Json] | None = None
    resource: dict[str, Json] | None = None


class LinkSignIn(ConnectorRecord, frozen=True, kw_only=True):
    """How to sign in to a server, and what an earlier sign-in left."""

    client_id: str | None = None
    client_secret: str | None = None
    scope: str | None = None
    port: int | None = None
    flow: str | None = None
    client_metadata_url: str | None = None
    # Whether the person's browser probably cannot be redirected to this machine.
    is_remote: bool = False
    stored: StoredSignIn


class LinkConfig(ConnectorRecord, frozen=True, kw_only=True):
    """How to reach a server; without `sign_in` none is attempted."""

    transport: McpTransport
    folder: str
    start_seconds: float
    version: str
    url: str = ""
    headers: dict[str, str] = {}
    is_interactive: bool = False
    sign_in: LinkSignIn | None = None


class OfferedTool(ConnectorRecord, frozen=True, kw_only=True):
    """A tool that a server has listed."""

    name: str
    description: str
    parameters: dict[str, Json]
    reads_only: bool = False


class PromptArgument(ConnectorRecord, frozen=True, kw_only=True):
    """An argument that a prompt of a server accepts."""

    name: str
    required: bool = False


class OfferedPrompt(ConnectorRecord, frozen=True, kw_only=True):
    """A prompt that a server has listed."""

    name: str
    description: str
    arguments: list[PromptArgument] = []


class OfferedResource(ConnectorRecord, frozen=True, kw_only=True):
    """A resource that a server has listed, or a template for the addresses of some."""

    uri: str
    name: str
    description: str = ""
    mime_type: str = ""
    is_template: bool = False


class CallTool(ConnectorRecord, frozen=True, kw_only=True):
    """Call a tool of the server with these arguments."""

    tool: str
    arguments: dict[str, Json]


class GetPrompt(ConnectorRecord, frozen=True, kw_only=True):
    """Fill in a prompt of the server."""

    name: str
    arguments: dict[str, str]


class ReadResource(ConnectorRecord, frozen=True, kw_only=True):
    """Read a resource of the server."""

    uri: str


class CompleteArgument(ConnectorRecord, frozen=True, kw_only=True):
    """Complete the value of an argument of a prompt, or of a variable in the address of a template."""

    prompt: str | None = None
    template: str | None = None
    argument: str
    value: str
    known: dict[str, str] = {}


ServerRequest = CallTool | GetPrompt | ReadResource | CompleteArgument


class ServerResult(ConnectorRecord, frozen=True, kw_only=True):
    """The answer to a `ServerRequest`; a completion has only `values`."""

    content: list[TextContent | ImageContent] = []
    structured: Json = None
    is_error: bool = False
    values: list[str] = []


class ElicitQuestion(ConnectorRecord, frozen=True, kw_only=True):
    """A server asks the person something: to open an address, or to fill in the fields of a schema."""

    message: str
    url: str | None = None
    requested: dict[str, Json] = {}


class SignInQuestion(ConnectorRecord, frozen=True, kw_only=True):
    """The person has to sign in at an address: in a browser that is redirected to us, or by entering a code there."""

    url: str
    code: str | None = None
    # The address that has the code in it.
    complete_url: str | None = None


class StoredQuestion(ConnectorRecord, frozen=True, kw_only=True):
    """Asks for the stored sign-in, which another agent may have renewed."""


Question = ElicitQuestion | SignInQuestion | StoredQuestion
ElicitAction = Literal["accept", "decline", "cancel"]


class ElicitAnswer(ConnectorRecord, frozen=True, kw_only=True):
    """The answer to an `ElicitQuestion`."""

    action: ElicitAction
    content: dict[str, Json] | None = None


class SignInAnswer(ConnectorRecord, frozen=True, kw_only=True):
    """The person agrees to sign in; `redirect` is the address of the redirect, if it was pasted."""

    redirect: str | None = None


# None if the person refused, or if there is no person.
Answer = ElicitAnswer | SignInAnswer | StoredSignIn | None


# Sent by the agent


class OpenServer(ConnectorRecord, frozen=True, kw_only=True):
    """Connect a server, which has this key from now on."""

    server: str
    config: LinkConfig


class CloseServer(ConnectorRecord, frozen=True, kw_only=True):
    """Disconnect a server; nothing more is reported about it."""

    server: str


class AskServer(ConnectorRecord, frozen=True, kw_only=True):
    """Send a request to a server, which has `seconds` for its answer or for each sign of progress."""

    id: int
    server: str
    seconds: float
    request: ServerRequest


class CancelCall(ConnectorRecord, frozen=True, kw_only=True):
    """Give up the request with this id."""

    id: int
    server: str


class AnswerQuestion(ConnectorRecord, frozen=True, kw_only=True):
    """Answer the question with this id."""

    id: int
    answer: Answer = None


ToConnector = OpenServer | CloseServer | AskServer | CancelCall | AnswerQuestion


# Sent by the connector


class ConnectorReady(ConnectorRecord, frozen=True, kw_only=True):
    """The connector has imported its packages and accepts requests."""


class ConnectorUnusable(ConnectorRecord, frozen=True, kw_only=True):
    """No server can be connected; the connector ends."""

    text: str


class ServerOpened(ConnectorRecord, frozen=True, kw_only=True):
    """The handshake with a server is done."""

    server: str
    name: str = ""
    version: str = ""
    protocol: str = ""
    transport: McpTransport | None = None
    instructions: str = ""
    offers: list[str] = []


class ServerListed(ConnectorRecord, frozen=True, kw_only=True):
    """What a server offers; None for the lists that have not changed."""

    server: str
    tools: list[OfferedTool] | None = None
    prompts: list[OfferedPrompt] | None = None
    resources: list[OfferedResource] | None = None
    # About tools that were left out; None if the tools have not changed.
    notes: list[str] | None = None


class ServerFailed(ConnectorRecord, frozen=True, kw_only=True):
    """A server could not be connected, or the connection was lost."""

    server: str
    step: McpStep
    text: str
    stderr: str = ""
    needs_sign_in: bool = False
    is_lost: bool = False


class SignInChanged(ConnectorRecord, frozen=True, kw_only=True):
    """The sign-in data to store for a server."""

    server: str
    stored: StoredSignIn


class CallEnded(ConnectorRecord, frozen=True, kw_only=True):
    """A server has answered a request."""

    id: int
    result: ServerResult


class CallFailed(ConnectorRecord, frozen=True, kw_only=True):
    """A request has no answer; with `is_unsent` it never reached the server."""

    id: int
    text: str
    is_unsent: bool = False


class CallProgress(ConnectorRecord, frozen=True, kw_only=True):
    """A server reports how far it is with a request."""

    id: int
    text: str


class QuestionAsked(ConnectorRecord, frozen=True, kw_only=True):
    """A server, or the sign-in to it, needs an answer."""

    id: int
    server: str
    question: Question


class QuestionWithdrawn(ConnectorRecord, frozen=True, kw_only=True):
    """The answer to this question is not wanted any more."""

    id: int


FromServer = ServerOpened | ServerListed | ServerFailed | SignInChanged
FromCall = CallEnded | CallFailed | CallProgress
FromConnector = ConnectorReady | ConnectorUnusable | FromServer | FromCall | QuestionAsked | QuestionWithdrawn


def encode_line(record: ToConnector | FromConnector) -> bytes:
    return codec.encode(record) + b"\n"


def decode_for_connector(line: bytes) -> ToConnector:
    """A line of the agent; raises `BadRecord`."""
    return cast("ToConnector", codec.convert(codec.decode(line), cast("type[Any]", ToConnector)))


def decode_for_agent(line: bytes) -> FromConnector:
    """A line of the connector; raises `BadRecord`."""
    return cast("FromConnector", codec.convert(codec.decode(line), cast("type[Any]", FromConnector)))
