"""Blocks to deltas: what makes a prepared answer stream like a real one, always in the same pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from pigeon.agent.inference import BlockClosed, BlockGrew, BlockKind, BlockOpened, Delta, ModelRequest
from pigeon.providers.scripted.script import Block, CallBlock, ChunkSize, DelayBlock, ThinkingBlock
from pigeon.wire import codec
from pigeon.wire.base import ABSENT
from pigeon.wire.tokens import characters_of, estimated_tokens


class PieceCutter:
    """Cuts texts into pieces of pseudo-random sizes that only depend on the seed."""

    def __init__(self, size: ChunkSize, seed: int) -> None:
        self._low, self._high = size if isinstance(size, list) else (size, size)
        self._state = seed & 0xFFFFFFFF

    def of(self, text: str) -> Iterator[str]:
        """The text in pieces; joined they give it back."""
        at = 0
        while at < len(text):
            self._state = (self._state * 1_664_525 + 1_013_904_223) & 0xFFFFFFFF
            size = self._low + (self._state >> 16) % (self._high - self._low + 1)
            yield text[at : at + size]
            at += size


async def streamed_blocks(
    blocks: list[Block], pieces: PieceCutter, pace_ms: float = 0, call_prefix: str = "call"
) -> AsyncIterator[Delta]:
    """The deltas of the blocks; between two pieces the loop gets a chance to stop."""
    index = 0
    for block in blocks:
        if isinstance(block, DelayBlock):
            await asyncio.sleep(block.ms / 1000)
            continue
        kind, text = _streamed(block)
        if isinstance(block, CallBlock):
            yield BlockOpened(index=index, kind=kind, call_id=block.id or f"{call_prefix}_{index}", name=block.name)
        else:
            yield BlockOpened(index=index, kind=kind)
        for piece in pieces.of(text):
            await asyncio.sleep(pace_ms / 1000)
            yield BlockGrew(index=index, text=piece)
        yield _end(index, block)
        index += 1


def _streamed(block: Block) -> tuple[BlockKind, str]:
    if isinstance(block, CallBlock):
        return "toolCall", block.raw if block.raw is not None else codec.encode(block.arguments).decode()
    if isinstance(block, ThinkingBlock):
        return "thinking", block.thinking * block.repeat
    assert not isinstance(block, DelayBlock)
    return "text", block.text * block.repeat


def _end(index: int, block: Block) -> BlockClosed:
    if isinstance(block, ThinkingBlock):
        signature = ABSENT if block.signature is None else block.signature
        return BlockClosed(index=index, signature=signature, redacted=block.redacted)
    return BlockClosed(index=index)


def tokens_of_request(request: ModelRequest) -> int:
    """The estimate of what the model was sent, without its tools."""
    return estimated_tokens(len(request.system_prompt) + sum(map(characters_of, request.messages)))


def tokens_of_answer(blocks: list[Block]) -> int:
    """The estimate of what the model said."""
    return estimated_tokens(sum(len(_streamed(block)[1]) for block in blocks if not isinstance(block, DelayBlock)))
