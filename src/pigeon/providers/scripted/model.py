"""`scripted/<file>`: a model that answers from a script, so that hosts can be tested without a key or a network.

Each request gets the first rule that matches, else the next reply of the list, else the default. The same script and
the same requests give the same deltas. A script that cannot be used is a failed answer that names the file and the
field.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pigeon.agent.inference import Delta, Failure, Finished, ModelRequest
from pigeon.providers.scripted.api import SCRIPTED
from pigeon.providers.scripted.playback import PreparedAnswer, play_answer
from pigeon.providers.scripted.script import (
    Block,
    Locate,
    RuleCondition,
    Script,
    ScriptedReply,
    ScriptedUsage,
    ScriptError,
    TextBlock,
    ThinkingBlock,
    read_script,
    to_reply,
)
from pigeon.wire.content import text_of
from pigeon.wire.messages import ToolResultMessage, UserMessage
from pigeon.wire.model import Model


class ScriptedModel:
    """Plays scripts; the progress of each is kept for the life of the agent."""

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
        reply = progress.pop_reply(request)
        if reply is None:
            yield Finished(stop="error", failure=_exhausted_failure(path, progress.served))
            return
        async for delta in self._play(reply, progress, request):
            yield delta

    async def _play(
        self, reply: ScriptedReply, progress: _ScriptProgress, request: ModelRequest
    ) -> AsyncIterator[Delta]:
        await asyncio.sleep(reply.delay_ms / 1000)
        script, served = progress.script, progress.served
        answer = PreparedAnswer(
            name=f"scripted_{served}",
            call_prefix=f"call_{served}",
            blocks=[_fill_block(block, request) for block in reply.to_blocks()],
            chunk=script.chunk if reply.chunk is None else reply.chunk,
            seed=script.seed + served,
            pace_ms=script.chunk_delay_ms if reply.chunk_delay_ms is None else reply.chunk_delay_ms,
            usage=reply.usage or ScriptedUsage(),
            stop=reply.stop,
            error=reply.error,
            hang=reply.hang,
        )
        async for delta in play_answer(answer, request):
            yield delta


def make_scripted_model(path: str, absolute: Locate) -> Model:
    """The model record of a script, with the facts in the file if it can be read, else the defaults."""
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
    """One script and its progress."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.served = 0
        self._next = 0
        self._left = [rule.times for rule in script.rules]

    def pop_reply(self, request: ModelRequest) -> ScriptedReply | None:
        """Return and use up the answer to this request; None when the script has no reply left."""
        reply = self._choose_reply(request)
        if reply is not None:
            self.served += 1
        return reply

    def _choose_reply(self, request: ModelRequest) -> ScriptedReply | None:
        for at, rule in enumerate(self.script.rules):
            left = self._left[at]
            if left != 0 and _is_condition_met(rule.when, request):
                self._left[at] = None if left is None else left - 1
                return to_reply(rule.reply)
        if self._next < len(self.script.replies):
            self._next += 1
            return to_reply(self.script.replies[self._next - 1])
        return None if self.script.default is None else to_reply(self.script.default)


def _fill_block(block: Block, request: ModelRequest) -> Block:
    """The block with `${user}` and `${toolResult}` filled in."""
    if isinstance(block, TextBlock):
        return TextBlock(text=_fill_text(block.text, request), repeat=block.repeat)
    if isinstance(block, ThinkingBlock):
        return ThinkingBlock(
            thinking=_fill_text(block.thinking, request),
            repeat=block.repeat,
            signature=block.signature,
            redacted=block.redacted,
        )
    return block


def _fill_text(text: str, request: ModelRequest) -> str:
    if "${" not in text:
        return text
    return text.replace("${user}", _last_user_text(request)).replace("${toolResult}", _last_result_text(request))


def _is_condition_met(when: RuleCondition, request: ModelRequest) -> bool:
    return (
        _is_unset_or_contained(when.user, _last_user_text(request))
        and _is_unset_or_contained(when.tool_result, _last_result_text(request))
        and _is_unset_or_contained(when.system, request.system_prompt)
        and (
            when.anywhere is None
            or any(_is_unset_or_contained(when.anywhere, text_of(m.content)) for m in request.messages)
        )
        and (when.tool is None or any(tool.name == when.tool for tool in request.tools))
    )


def _is_unset_or_contained(wanted: str | None, text: str) -> bool:
    return wanted is None or wanted.casefold() in text.casefold()


def _last_user_text(request: ModelRequest) -> str:
    said = (m for m in reversed(request.messages) if isinstance(m, UserMessage))
    last = next(said, None)
    return "" if last is None else text_of(last.content)


def _last_result_text(request: ModelRequest) -> str:
    """The text of the newest tool result, unless the user has written since."""
    last = request.messages[-1] if request.messages else None
    return text_of(last.content) if isinstance(last, ToolResultMessage) else ""


def _exhausted_failure(path: str, served: int) -> Failure:
    said = (
        f"all {served} replies of the model script {path} are used up"
        if served
        else f"the model script {path} is empty"
    )
    text = f'{said[:1].upper()}{said[1:]}. Add to "replies", or give a "default".'
    return Failure(message=text, code="script_exhausted")
