"""Chunks of the Gemini API, as deltas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from pigeon.agent.inference import BlockClosed, BlockGrew, BlockKind, Delta, Failure, Finished
from pigeon.providers.errors import StreamBroken, from_event, truncated_stream_error
from pigeon.providers.stream_translator import StreamTranslator, decode_event, make_metered_delta
from pigeon.system.ids import RANDOM_IDS
from pigeon.wire import codec
from pigeon.wire.base import ABSENT

_REFUSALS = {"SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "IMAGE_SAFETY"}


class _FunctionCall(Struct):
    needed: ClassVar = ("name", "args")
    name: str = ""
    args: dict[str, Any] | None = None
    id: str | None = None


class _ContentPart(Struct, rename="camel"):
    needed: ClassVar = ("text", "function_call")
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None


class _CandidateContent(Struct):
    needed: ClassVar = ("parts",)
    parts: list[_ContentPart] | None = None


class _Candidate(Struct, rename="camel"):
    needed: ClassVar = ("content",)
    content: _CandidateContent | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _UsageMetadata(Struct, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    cached_content_token_count: int | None = None
    thoughts_token_count: int | None = None


class _PromptFeedback(Struct, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _GeminiChunk(Struct, rename="camel"):
    needed: ClassVar = ("candidates",)
    candidates: list[_Candidate] | None = None
    usage_metadata: _UsageMetadata | None = None
    prompt_feedback: _PromptFeedback | None = None
    response_id: str | None = None
    model_version: str | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_GeminiChunk)


class GoogleStream(StreamTranslator):
    """Translates one answer; a block ends where a part of another kind begins."""

    def __init__(self, model_id: str, new_id: Callable[[], str] = RANDOM_IDS.request_id) -> None:
        """`new_id` is for calls without an id."""
        super().__init__()
        self._model = model_id
        self._new_id = new_id
        self._kind: BlockKind | None = None
        self._index = -1
        self._signature = ""
        self._call_ids: set[str] = set()
        self._reason: str | None = None
        self._why = ""

    def translate_event(self, name: bytes, data: bytes, out: list[Delta]) -> None:
        chunk = decode_event(_decoder, _GeminiChunk, data, "A chunk of the answer")
        if chunk.error:
            raise StreamBroken(_failure_of_error(chunk.error, data))
        self.report_id_and_model(out, chunk.response_id, chunk.model_version, self._model)
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            feedback = chunk.prompt_feedback
            self._reason, self._why = feedback.block_reason, feedback.block_reason_message or ""
        if chunk.candidates:
            candidate = chunk.candidates[0]
            if candidate.content is not None and candidate.content.parts:
                for part in candidate.content.parts:
                    self._add_part(part, out)
            if candidate.finish_reason:
                self._reason, self._why = candidate.finish_reason, candidate.finish_message or ""
        if chunk.usage_metadata is not None:
            out.append(_usage_delta(chunk.usage_metadata))

    def finish(self, out: list[Delta]) -> Finished:
        """The answer is complete, or ends with the reason for a failure."""
        reason = self._reason
        if reason is None:
            raise truncated_stream_error("a finish reason")
        self._close_block(out)
        self.raw_stop = reason
        if reason == "STOP":
            return self.make_finished_delta("toolUse" if self._call_ids else "stop")
        if reason == "MAX_TOKENS":
            return self.make_finished_delta("length")
        return self.make_finished_delta("error", _failure_of_stop(reason, self._why))

    def _add_part(self, part: _ContentPart, out: list[Delta]) -> None:
        if part.function_call is not None:
            self._close_block(out)
            self._add_call(part.function_call, part.thought_signature, out)
            return
        if part.text is None:
            return
        kind: BlockKind = "thinking" if part.thought else "text"
        if not part.text and not (part.thought_signature and kind == "text") and kind != self._kind:
            return
        if kind != self._kind:
            self._close_block(out)
            self._kind = kind
            self._index = self.open_block(out, kind)
        if part.text:
            out.append(BlockGrew(self._index, part.text))
        if part.thought_signature:
            self._signature = part.thought_signature

    def _add_call(self, call: _FunctionCall, signature: str | None, out: list[Delta]) -> None:
        call_id = call.id or ""
        if not call_id or call_id in self._call_ids:
            call_id = f"{call.name}_{self._new_id()}"
        self._call_ids.add(call_id)
        index = self.open_block(out, "toolCall", call_id, call.name)
        out.append(BlockGrew(index, codec.encode(call.args or {}).decode()))
        out.append(BlockClosed(index, signature or ABSENT))

    def _close_block(self, out: list[Delta]) -> None:
        if self._kind is not None:
            out.append(BlockClosed(self._index, self._signature or ABSENT))
            self._kind = None
            self._signature = ""


def _usage_delta(usage: _UsageMetadata) -> Delta:
    cached = usage.cached_content_token_count or 0
    thought = usage.thoughts_token_count or 0
    return make_metered_delta(
        sent=(usage.prompt_token_count or 0) - cached,
        output=(usage.candidates_token_count or 0) + thought,
        cache_read=cached,
        reasoning=thought,
    )


def _failure_of_error(error: Any, data: bytes) -> Failure:
    said = error.get("message") if isinstance(error, dict) else None
    return from_event(error, said if isinstance(said, str) and said else data.decode("utf-8", "replace"))


def _failure_of_stop(reason: str, why: str) -> Failure:
    detail = f": {why}" if why else ""
    if reason in _REFUSALS:
        return Failure(message=f"The model refused to complete the request ({reason}){detail}", code=reason)
    if reason in ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"):
        return Failure(message=f"The model made a tool call that cannot be read ({reason}){detail}", code=reason)
    return Failure(message=f"The model stopped early ({reason}){detail}", code=reason)
