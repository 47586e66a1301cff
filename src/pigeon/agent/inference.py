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

    A `strict` tool is better off where the server holds the model to its schema.
    """

    name: str
    description: str
    parameters: dict[str, Json]
    strict: bool = False


class OutputFormat(Struct, frozen=True):
    """The JSON Schema of an object that the server shall hold the text of the answer to, in the form its API takes."""

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
    """Why an answer failed, as data: nothing downstream has to match texts."""

    message: str
    status: int | None = None
    code: str | None = None
    retryable: bool = False
    overflow: bool = False
    retry_after_ms: int | None = None


def failure_from_error(error: Exception) -> Failure:
    """What is told of an exception in a run: a text for hosts; the details of a defect of ours are on stderr."""
    if not isinstance(error, PigeonError):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    return Failure(message=text_for_host(error))


class Named(Struct):
    """What the provider calls this answer, and the model that gives it where that is not the one asked for."""

    response_id: str | Absent = ABSENT
    response_model: str | Absent = ABSENT


class BlockOpened(Struct):
    """A content block begins; a tool call knows its id and name here."""

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
    """Token counts so far; the loop fills in prices, times `rate` where the provider served at another."""

    usage: Usage
    rate: float = 1


class Sampled(Struct):
    """The tokens of a prompt and of its answer by their ids, and how probable each of the answer was (its logarithm);
    where the server tells them."""

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
    """Says when a request may be sent, where many agents share what providers allow; asked by the gateway."""

    async def wait_for_turn(self, provider: str, tokens: int) -> None:
        """Wait until a request of about so many tokens may be sent."""
        ...

    def on_request_end(self, provider: str, tokens: int, used: int, failure: Failure | None) -> None:
        """A request has ended that so many tokens were expected of, and it used so many."""
        ...

    def should_resend(self, failure: Failure, times: int) -> bool:
        """Whether a request that has failed so often, and this way, is to be sent again when its turn comes."""
        ...


class ProviderHooks(Protocol):
    """Where extensions look at requests to HTTP providers; called by the gateway."""

    async def transform_provider_request(self, body: bytes) -> bytes:
        """The JSON body to send; the very same bytes if it stays as it is."""
        ...

    async def transform_provider_headers(self, headers: dict[str, str]) -> dict[str, str]:
        """The headers to send; the given ones may be changed."""
        ...

    def on_provider_response(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of an answer has come, also of one that refuses the request."""
        ...
