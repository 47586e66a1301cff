"""One request to a model, the deltas that come back, and the hooks around it.

A provider adapter turns its own stream into these few records and nothing else; folding them into a message, pricing
and announcing is done once, in the loop. Rules: a block is opened before it grows and closed once; indices count up
from 0 in the order of opening; exactly one `Finished` comes last, also after a failure.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct

from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.errors import PigeonError, text_for_host
from pigeon.wire.messages import AssistantMessage, StopReason, ToolResultMessage, UserMessage
from pigeon.wire.model import Model, ThinkingLevel, Usage

BlockKind = Literal["text", "thinking", "toolCall"]
ModelMessage = UserMessage | AssistantMessage | ToolResultMessage
CacheRetention = Literal["none", "short", "long"]


class ToolSpec(Struct, frozen=True):
    """A tool as models see it; `parameters` is a JSON Schema object.

    A `strict` tool benefits from a server that enforces its schema.
    """

    name: str
    description: str
    parameters: dict[str, Json]
    strict: bool = False


class OutputFormat(Struct, frozen=True):
    """The JSON Schema of an object that the server enforces for the text of the answer, in the form of its API."""

    schema: dict[str, Json]


class ModelRequest(Struct):
    """Everything a provider needs for one answer; with `output` its last text is JSON."""

    model: Model
    system_prompt: str
    messages: list[ModelMessage]
    tools: list[ToolSpec]
    thinking: ThinkingLevel = "off"
    max_tokens: int | None = None
    session_id: str = ""
    cache: CacheRetention = "short"
    output: OutputFormat | None = None


class Failure(Struct, frozen=True):
    """Why an answer failed, as data, so that no later code has to match texts.

    `message` has the words of the server, as hosts and session files have them; `explanation` is a sentence for people,
    empty if `message` is one.
    """

    message: str
    status: int | None = None
    code: str | None = None
    retryable: bool = False
    overflow: bool = False
    retry_after_ms: int | None = None
    explanation: str = ""


def report_failure(error: Exception) -> Failure:
    """The failure for an exception in a run, with a text for hosts; details of our own defects go to stderr."""
    if not isinstance(error, PigeonError):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    return Failure(message=text_for_host(error))


class Named(Struct):
    """The provider's id of this answer, and its model if that is not the requested one."""

    response_id: str | Absent = ABSENT
    response_model: str | Absent = ABSENT


class BlockOpened(Struct):
    """A content block begins; a tool call already has its id and name."""

    index: int
    kind: BlockKind
    call_id: str = ""
    name: str = ""


class BlockGrew(Struct):
    """More text, thinking, or raw JSON of tool arguments."""

    index: int
    text: str


class BlockClosed(Struct):
    """The block is complete; signatures are opaque replay data."""

    index: int
    signature: str | Absent = ABSENT
    redacted: bool = False


class Metered(Struct):
    """Token counts so far; the loop fills in prices, multiplied by `rate` if the provider used another service tier."""

    usage: Usage
    rate: float = 1


class Sampled(Struct):
    """The token ids of a prompt and of its answer, with the log probability of each token of the answer; if the server
    reports them."""

    prompt_token_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]


class Finished(Struct):
    """The last delta of a stream: how the answer ended."""

    stop: StopReason
    failure: Failure | None = None
    raw_stop: str | Absent = ABSENT


Delta = Named | BlockOpened | BlockGrew | BlockClosed | Metered | Sampled | Finished


class Pacing(Protocol):
    """Decides when a request may be sent if many agents share the limits of providers; called by the gateway."""

    async def wait_for_turn(self, provider: str, tokens: int) -> None:
        """Wait until a request of about so many tokens may be sent."""
        ...

    def on_request_end(self, provider: str, tokens: int, used: int, failure: Failure | None) -> None:
        """Report the end of a request: the expected and the used tokens, and the failure if there was one."""
        ...

    def should_resend(self, failure: Failure, times: int) -> bool:
        """Whether to resend a request that has failed so often and in this way."""
        ...


class ProviderHooks(Protocol):
    """Lets extensions change requests to HTTP providers; called by the gateway."""

    async def transform_provider_request(self, body: bytes) -> bytes:
        """The JSON body to send; the same bytes object if it is unchanged."""
        ...

    async def transform_provider_headers(self, headers: dict[str, str]) -> dict[str, str]:
        """The headers to send; the given dict may be changed."""
        ...

    def on_provider_response(self, status: int, headers: Mapping[str, str]) -> None:
        """Called when the head of a response has arrived, even of a refusal."""
        ...
