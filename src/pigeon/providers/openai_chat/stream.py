"""Chunks of a chat completion, as deltas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from pigeon.agent.inference import BlockClosed, BlockGrew, Delta, Failure, Finished, Sampled
from pigeon.providers.errors import StreamBroken, from_event, message_of, truncated_stream_error, unknown_stop_failure
from pigeon.providers.openai_chat.call_matching import CallMatcher, CallPiece, PendingCall
from pigeon.providers.stream_translator import StreamTranslator, decode_event, make_metered_delta
from pigeon.system.ids import RANDOM_IDS
from pigeon.wire import codec
from pigeon.wire.base import ABSENT
from pigeon.wire.messages import StopReason

MOST_TOKENS = 1_000_000
_STOPS: dict[str, StopReason] = {
    "stop": "stop",
    "end": "stop",
    "eos": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
}


class _PromptDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CompletionDetails(Struct):
    reasoning_tokens: int | None = None


class _ChatUsage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _ChatDelta(Struct):
    needed: ClassVar = ("refusal", "tool_calls")
    content: Any = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | None = None


class _TokenLogprob(Struct):
    logprob: float | None = None


class _Logprobs(Struct):
    content: list[_TokenLogprob] | None = None


class _ChatChoice(Struct):
    needed: ClassVar = ("delta", "message")
    delta: _ChatDelta | None = None
    message: _ChatDelta | None = None
    finish_reason: str | None = None
    usage: _ChatUsage | None = None
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None


class _ChatChunk(Struct):
    needed: ClassVar = ("choices",)
    id: str | None = None
    model: str | None = None
    choices: list[_ChatChoice] | None = None
    usage: _ChatUsage | None = None
    prompt_token_ids: list[int] | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_ChatChunk)


class ChatStream(StreamTranslator):
    """Translates one answer; blocks stay open to the end, because servers interleave them."""

    def __init__(
        self, model_id: str, new_id: Callable[[], str] = RANDOM_IDS.request_id, *, needs_finish: bool = True
    ) -> None:
        """`new_id` is for calls without an id."""
        super().__init__()
        self._model = model_id
        self._needs_finish = needs_finish
        self._text = -1
        self._thinking = -1
        self._field = ""
        self._details: list[_Detail] = []
        self._calls = CallMatcher(self.count_held_characters, new_id)
        self._reason: str | None = None
        self._sampled = Sampled([], [], [])

    def translate_event(self, name: bytes, data: bytes, out: list[Delta]) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        chunk = decode_event(_decoder, _ChatChunk, data, "A chunk of the answer")
        if chunk.error or name == b"error":
            raise StreamBroken(_failure_of_error(chunk.error, data))
        self.report_id_and_model(out, chunk.id, chunk.model, self._model)
        usage = chunk.usage
        if chunk.choices:
            choice = chunk.choices[0]
            change = choice.delta or choice.message
            if change is not None:
                self._add_delta(change, out)
            if choice.finish_reason:
                self._reason = choice.finish_reason
                self.raw_stop = choice.finish_reason
            usage = usage or choice.usage
            if choice.token_ids or choice.logprobs:
                self._keep_sampled_tokens(choice)
        if chunk.prompt_token_ids:
            self._extend_within_limit(self._sampled.prompt_token_ids, chunk.prompt_token_ids)
        if usage is not None:
            out.append(_usage_delta(usage))

    def finish(self, out: list[Delta]) -> Finished:
        """The answer is complete, or ends with the reason for a failure."""
        if self._reason is None and self._needs_finish:
            raise truncated_stream_error("a finish reason")
        if self._thinking >= 0:
            details = [detail.to_dict() for detail in self._details]
            signature = codec.encode(details).decode() if details else self._field
            out.append(BlockClosed(self._thinking, signature or ABSENT))
        if self._text >= 0:
            out.append(BlockClosed(self._text))
        for call in self._calls.all:
            if call.index < 0:
                self._announce_call(call, call.name, out)
            out.append(BlockClosed(call.index))
        sampled = self._sampled
        if sampled.prompt_token_ids or sampled.token_ids or sampled.logprobs:
            out.append(sampled)
        reason = self._reason
        if reason is None:
            return self.make_finished_delta("toolUse" if self._calls.all else "stop")
        if reason not in _STOPS:
            return self.make_finished_delta("error", _failure_of_stop(reason))
        stop = _STOPS[reason]
        return self.make_finished_delta("toolUse" if stop == "stop" and self._calls.all else stop)

    def _add_delta(self, change: _ChatDelta, out: list[Delta]) -> None:
        if change.reasoning_content or change.reasoning or change.reasoning_text or change.reasoning_details:
            self._add_reasoning(change, out)
        content = change.content
        if content:
            if type(content) is not str:
                self._add_parts(content, out)
            elif self._text < 0:
                self._add_text(content, out)
            else:
                out.append(BlockGrew(self._text, content))
        if change.refusal:
            self._add_text(change.refusal, out)
        if change.tool_calls:
            pieces = change.tool_calls
            if len(pieces) == 1:
                self._add_call_piece(self._calls.match_piece(pieces[0]), pieces[0], out)
            else:
                taken: list[PendingCall] = []
                for place, piece in enumerate(pieces):
                    taken.append(self._calls.match_piece(piece, place, taken))
                    self._add_call_piece(taken[-1], piece, out)

    def _keep_sampled_tokens(self, choice: _ChatChoice) -> None:
        self._extend_within_limit(self._sampled.token_ids, choice.token_ids or [])
        told = choice.logprobs.content if choice.logprobs else None
        self._extend_within_limit(
            self._sampled.logprobs, [one.logprob for one in told or [] if one.logprob is not None]
        )

    def _extend_within_limit(self, held: list[Any], more: list[Any]) -> None:
        """Keep tokens that a program may train with, up to a limit that no real answer reaches."""
        if len(held) + len(more) <= MOST_TOKENS:
            held += more

    def _add_text(self, text: str, out: list[Delta]) -> None:
        if self._text < 0:
            self._text = self.open_block(out, "text")
        out.append(BlockGrew(self._text, text))

    def _add_thinking(self, text: str, field: str, out: list[Delta]) -> None:
        if self._thinking < 0:
            self._thinking = self.open_block(out, "thinking")
            self._field = field
        if text:
            out.append(BlockGrew(self._thinking, text))

    def _add_parts(self, content: Any, out: list[Delta]) -> None:
        """Add content in parts, as Mistral's models send it when they think."""
        for part in content if isinstance(content, list) else [content]:
            thoughts = part.get("thinking") if isinstance(part, dict) and part.get("type") == "thinking" else None
            if thoughts:
                thought = thoughts if isinstance(thoughts, str) else _text_in(thoughts)
                if thought:
                    self._add_thinking(thought, "content", out)
                continue
            text = part if isinstance(part, str) else _text_in([part])
            if text:
                self._add_text(text, out)

    def _add_reasoning(self, change: _ChatDelta, out: list[Delta]) -> None:
        text, name = change.reasoning_content, "reasoning_content"
        if not text:
            text, name = change.reasoning, "reasoning"
        if not text:
            text, name = change.reasoning_text, "reasoning_text"
        for detail in change.reasoning_details or ():
            self.count_held_characters(len(codec.encode(detail)))
            _merge_detail(self._details, detail)
        if not text:
            text, name = _text_in(change.reasoning_details or []), "reasoning_details"
        if self._thinking < 0 or not text:
            self._add_thinking(text, name, out)
        else:
            out.append(BlockGrew(self._thinking, text))

    def _add_call_piece(self, call: PendingCall, piece: CallPiece, out: list[Delta]) -> None:
        function = piece.function
        if function is None:
            return
        if function.name and call.index < 0:
            self._announce_call(call, function.name, out)
        arguments = function.arguments
        if arguments:
            text = arguments if type(arguments) is str else codec.encode(arguments).decode()
            if call.try_pass_arguments(text):
                out.append(BlockGrew(call.index, text))
            else:
                self.count_held_characters(len(text))

    def _announce_call(self, call: PendingCall, name: str, out: list[Delta]) -> None:
        held = call.mark_announced_and_pop_held(name, self.open_block(out, "toolCall", call.call_id, name))
        if held:
            out.append(BlockGrew(call.index, held))


def _usage_delta(usage: _ChatUsage) -> Delta:
    prompt = usage.prompt_tokens_details or _PromptDetails()
    cached = prompt.cached_tokens or usage.prompt_cache_hit_tokens or usage.cached_tokens or 0
    written = prompt.cache_write_tokens or 0
    details = usage.completion_tokens_details
    return make_metered_delta(
        sent=(usage.prompt_tokens or 0) - cached - written,
        output=usage.completion_tokens or 0,
        cache_read=cached,
        cache_write=written,
        reasoning=(details.reasoning_tokens if details else 0) or 0,
    )


def _text_in(parts: Any) -> str:
    """The text of a list of parts, which some servers send as content."""
    if not isinstance(parts, list):
        return ""
    texts = (part.get("text") or part.get("summary") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


class _Detail:
    """One reasoning detail, joined from its pieces; it is sent back as it came."""

    def __init__(self, first: dict[str, Any]) -> None:
        self._fields = dict(first)
        self._more: dict[str, list[str]] = {}

    def try_add_piece(self, piece: dict[str, Any]) -> bool:
        """Add a piece; returns False if it belongs to another detail."""
        if any(self._fields.get(key) != piece.get(key) for key in ("type", "index")):
            return False
        for key, value in piece.items():
            if key in ("text", "summary", "data") and isinstance(value, str):
                self._more.setdefault(key, [self._fields.get(key) or ""]).append(value)
            elif value is not None:
                self._fields[key] = value
        return True

    def to_dict(self) -> dict[str, Any]:
        """The detail with everything that its pieces added."""
        return {**self._fields, **{key: "".join(parts) for key, parts in self._more.items()}}


def _merge_detail(details: list[_Detail], piece: dict[str, Any]) -> None:
    if not details or not details[-1].try_add_piece(piece):
        details.append(_Detail(piece))


def _failure_of_error(error: Any, data: bytes) -> Failure:
    return from_event(error, message_of(error) or data.decode("utf-8", "replace"))


def _failure_of_stop(reason: str) -> Failure:
    if reason == "content_filter":
        return Failure(message="The answer was stopped by the provider's content filter", code=reason)
    if reason in ("network_error", "error"):
        return Failure(message=f"The provider failed while answering: {reason}", code=reason, retryable=True)
    return unknown_stop_failure(reason)
