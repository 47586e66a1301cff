"""`scripted/<file>`: a model that answers from a script, so that hosts can be tested without a key or a network.

Each request gets the first rule that holds, else the next reply of the list, else the default. The same script and the
same requests give the same deltas. A script that cannot be used is a failed answer that names the file and the field.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pigeon.agent.inference import Delta, Failure, Finished, Metered, ModelRequest, Named
from pigeon.providers.scripted.api import SCRIPTED
from pigeon.providers.scripted.playback import PieceCutter, streamed_blocks, tokens_of_answer, tokens_of_request
from pigeon.providers.scripted.script import (
    Block,
    CallBlock,
    Locate,
    RuleCondition,
    Script,
    ScriptedError,
    ScriptedReply,
    ScriptedUsage,
    ScriptError,
    TextBlock,
    ThinkingBlock,
    as_reply,
    read_script,
)
from pigeon.wire.base import ABSENT
from pigeon.wire.content import text_of
from pigeon.wire.messages import StopReason, ToolResultMessage, UserMessage
from pigeon.wire.model import Cost, Model, Usage


class ScriptedModel:
    """Plays scripts; how far each one has come is kept for the life of the agent."""

    def __init__(self, absolute: Locate) -> None:
        self._absolute = absolute
        self._scripts: dict[str, _ScriptProgress] = {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Answer from the script that `request.model.id` names."""
        path = request.model.id
        try:
            progress = self._scripts.get(path) or _ScriptProgress(read_script(path, self._absolute))
            self._scripts[path] = progress
        except ScriptError as error:
            yield Finished(stop="error", failure=Failure(message=str(error), code="bad_script"))
            return
        reply = progress.next_reply(request)
        if reply is None:
            yield Finished(stop="error", failure=_exhausted(path, progress.served))
            return
        async for delta in _answer(reply, progress, request):
            yield delta


def scripted_model(path: str, absolute: Locate) -> Model:
    """The model record of a script; what the file says of itself if it can be read, else the defaults."""
    try:
        script = read_script(path, absolute)
    except ScriptError:
        script = Script()
    return Model(
        id=path,
        name=script.name or f"Script {path}",
        api=SCRIPTED.name,
        provider=SCRIPTED.name,
        base_url="",
        reasoning=script.reasoning,
        input=list(script.input),
        cost=script.cost,
        context_window=script.context_window,
        max_tokens=script.max_tokens,
    )


class _ScriptProgress:
    """One script and how far it has come."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.served = 0
        self._next = 0
        self._left = [rule.times for rule in script.rules]

    def next_reply(self, request: ModelRequest) -> ScriptedReply | None:
        """The answer to this request, or None when the script has nothing left to say."""
        reply = self._chosen(request)
        if reply is not None:
            self.served += 1
        return reply

    def _chosen(self, request: ModelRequest) -> ScriptedReply | None:
        for at, rule in enumerate(self.script.rules):
            left = self._left[at]
            if left != 0 and _holds(rule.when, request):
                self._left[at] = None if left is None else left - 1
                return as_reply(rule.reply)
        if self._next < len(self.script.replies):
            self._next += 1
            return as_reply(self.script.replies[self._next - 1])
        return None if self.script.default is None else as_reply(self.script.default)


async def _answer(reply: ScriptedReply, progress: _ScriptProgress, request: ModelRequest) -> AsyncIterator[Delta]:
    script = progress.script
    await asyncio.sleep(reply.delay_ms / 1000)
    blocks = [_filled(block, request) for block in reply.parts()]
    sizes = script.chunk if reply.chunk is None else reply.chunk
    pace = script.chunk_delay_ms if reply.chunk_delay_ms is None else reply.chunk_delay_ms
    usage = _usage(reply.usage or ScriptedUsage(), blocks, request)
    if blocks or reply.error is None:
        yield Named(f"scripted_{progress.served}")
        yield Metered(usage=_before_output(usage))
    async for delta in streamed_blocks(
        blocks, PieceCutter(sizes, script.seed + progress.served), pace, f"call_{progress.served}"
    ):
        yield delta
    if reply.hang:
        await asyncio.Event().wait()
    if reply.error is not None:
        yield Finished(stop="error", failure=_failure(reply.error))
        return
    yield Metered(usage=usage)
    calls = any(isinstance(block, CallBlock) for block in blocks)
    stop: StopReason = reply.stop or ("toolUse" if calls else "stop")
    yield Finished(stop=stop)


def _filled(block: Block, request: ModelRequest) -> Block:
    """The block with `${user}` and `${toolResult}` replaced in what is said."""
    if isinstance(block, TextBlock):
        return TextBlock(text=_fill(block.text, request), repeat=block.repeat)
    if isinstance(block, ThinkingBlock):
        return ThinkingBlock(
            thinking=_fill(block.thinking, request),
            repeat=block.repeat,
            signature=block.signature,
            redacted=block.redacted,
        )
    return block


def _fill(text: str, request: ModelRequest) -> str:
    if "${" not in text:
        return text
    return text.replace("${user}", _last_user(request)).replace("${toolResult}", _last_result(request))


def _holds(when: RuleCondition, request: ModelRequest) -> bool:
    return (
        _within(when.user, _last_user(request))
        and _within(when.tool_result, _last_result(request))
        and _within(when.system, request.system_prompt)
        and (when.anywhere is None or any(_within(when.anywhere, text_of(m.content)) for m in request.messages))
        and (when.tool is None or any(tool.name == when.tool for tool in request.tools))
    )


def _within(wanted: str | None, text: str) -> bool:
    return wanted is None or wanted.casefold() in text.casefold()


def _last_user(request: ModelRequest) -> str:
    said = (m for m in reversed(request.messages) if isinstance(m, UserMessage))
    last = next(said, None)
    return "" if last is None else text_of(last.content)


def _last_result(request: ModelRequest) -> str:
    """The text of the newest tool result, unless the user has spoken since."""
    last = request.messages[-1] if request.messages else None
    return text_of(last.content) if isinstance(last, ToolResultMessage) else ""


def _usage(given: ScriptedUsage, blocks: list[Block], request: ModelRequest) -> Usage:
    prompt = tokens_of_request(request) if given.input is None else given.input
    output = tokens_of_answer(blocks) if given.output is None else given.output
    return Usage(
        input=prompt,
        output=output,
        cache_read=given.cache_read,
        cache_write=given.cache_write,
        total_tokens=prompt + output + given.cache_read + given.cache_write,
        cost=Cost(),
        reasoning=ABSENT if given.reasoning is None else given.reasoning,
    )


def _before_output(usage: Usage) -> Usage:
    return Usage(
        input=usage.input,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        total_tokens=usage.total_tokens - usage.output,
        cost=Cost(),
    )


def _failure(error: ScriptedError) -> Failure:
    return Failure(
        message=error.message,
        status=error.status,
        code=error.code,
        retryable=error.retryable,
        overflow=error.overflow,
        retry_after_ms=error.retry_after_ms,
    )


def _exhausted(path: str, served: int) -> Failure:
    said = (
        f"all {served} replies of the model script {path} are used up"
        if served
        else f"the model script {path} is empty"
    )
    text = f'{said[:1].upper()}{said[1:]}. Add to "replies", or give a "default".'
    return Failure(message=text, code="script_exhausted")
