"""Plays an answer that is known in advance, from a script or the demo: streamed like a real one, always in the same
pieces.

Recordings are replayed elsewhere (`recording/playback`): they are bytes of a server, which its adapter has to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from msgspec import Struct, field
from msgspec.structs import asdict

from pigeon.agent.inference import (
    BlockClosed,
    BlockGrew,
    BlockKind,
    BlockOpened,
    Delta,
    Failure,
    Finished,
    Metered,
    ModelRequest,
    Named,
)
from pigeon.providers.scripted.script import (
    Block,
    CallBlock,
    ChunkSize,
    DelayBlock,
    ScriptedError,
    ScriptedStop,
    ScriptedUsage,
    ThinkingBlock,
)
from pigeon.wire import codec
from pigeon.wire.base import ABSENT
from pigeon.wire.model import Cost, Usage
from pigeon.wire.tokens import characters_of, estimated_tokens


class PreparedAnswer(Struct, frozen=True, kw_only=True):
    """One answer, the sizes of its pieces, and how it ends."""

    name: str
    call_prefix: str
    blocks: list[Block]
    chunk: ChunkSize
    seed: int
    pace_ms: float = 0
    usage: ScriptedUsage = field(default_factory=ScriptedUsage)
    stop: ScriptedStop | None = None
    error: ScriptedError | None = None
    hang: bool = False


async def play_answer(answer: PreparedAnswer, request: ModelRequest) -> AsyncIterator[Delta]:
    """The deltas of an answer; the same answer and request give the same deltas."""
    usage = _usage(answer, request)
    if answer.blocks or answer.error is None:
        yield Named(answer.name)
        yield Metered(usage=_usage_before_output(usage))
    pieces = PieceCutter(answer.chunk, answer.seed)
    async for delta in stream_blocks(answer.blocks, pieces, answer.pace_ms, answer.call_prefix):
        yield delta
    if answer.hang:
        await asyncio.Event().wait()
    if answer.error is not None:
        yield Finished(stop="error", failure=Failure(**asdict(answer.error)))
        return
    yield Metered(usage=usage)
    calls = any(isinstance(block, CallBlock) for block in answer.blocks)
    yield Finished(stop=answer.stop or ("toolUse" if calls else "stop"))


class PieceCutter:
    """Cuts texts into pieces of pseudo-random sizes that only depend on the seed."""

    def __init__(self, size: ChunkSize, seed: int) -> None:
        self._low, self._high = size if isinstance(size, list) else (size, size)
        self._state = seed & 0xFFFFFFFF

    def cut(self, text: str) -> Iterator[str]:
        at = 0
        while at < len(text):
            self._state = (self._state * 1_664_525 + 1_013_904_223) & 0xFFFFFFFF
            size = self._low + (self._state >> 16) % (self._high - self._low + 1)
            yield text[at : at + size]
            at += size


async def stream_blocks(
    blocks: list[Block], pieces: PieceCutter, pace_ms: float = 0, call_prefix: str = "call"
) -> AsyncIterator[Delta]:
    """The deltas of the blocks; between two pieces the loop can stop."""
    index = 0
    for block in blocks:
        if isinstance(block, DelayBlock):
            await asyncio.sleep(block.ms / 1000)
            continue
        kind, text = _kind_and_text_of(block)
        if isinstance(block, CallBlock):
            yield BlockOpened(index=index, kind=kind, call_id=block.id or f"{call_prefix}_{index}", name=block.name)
        else:
            yield BlockOpened(index=index, kind=kind)
        for piece in pieces.cut(text):
            await asyncio.sleep(pace_ms / 1000)
            yield BlockGrew(index=index, text=piece)
        yield _closing_delta(index, block)
        index += 1


def _kind_and_text_of(block: Block) -> tuple[BlockKind, str]:
    if isinstance(block, CallBlock):
        return "toolCall", block.raw if block.raw is not None else codec.encode(block.arguments).decode()
    if isinstance(block, ThinkingBlock):
        return "thinking", block.thinking * block.repeat
    assert not isinstance(block, DelayBlock)
    return "text", block.text * block.repeat


def _closing_delta(index: int, block: Block) -> BlockClosed:
    if isinstance(block, ThinkingBlock):
        signature = ABSENT if block.signature is None else block.signature
        return BlockClosed(index=index, signature=signature, redacted=block.redacted)
    return BlockClosed(index=index)


def tokens_of_request(request: ModelRequest) -> int:
    """An estimate of the tokens in the request, without its tools."""
    return estimated_tokens(len(request.system_prompt) + sum(map(characters_of, request.messages)))


def tokens_of_answer(blocks: list[Block]) -> int:
    """An estimate of the tokens in the answer."""
    return estimated_tokens(
        sum(len(_kind_and_text_of(block)[1]) for block in blocks if not isinstance(block, DelayBlock))
    )


def _usage(answer: PreparedAnswer, request: ModelRequest) -> Usage:
    given = answer.usage
    prompt = tokens_of_request(request) if given.input is None else given.input
    output = tokens_of_answer(answer.blocks) if given.output is None else given.output
    return Usage(
        input=prompt,
        output=output,
        cache_read=given.cache_read,
        cache_write=given.cache_write,
        total_tokens=prompt + output + given.cache_read + given.cache_write,
        cost=Cost(),
        reasoning=ABSENT if given.reasoning is None else given.reasoning,
    )


def _usage_before_output(usage: Usage) -> Usage:
    return Usage(
        input=usage.input,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        total_tokens=usage.total_tokens - usage.output,
        cost=Cost(),
    )
