"""The script of a scripted model: a JSON file as typed replies.

Reading one either returns a complete, checked script or raises `ScriptError`, whose text names the file and the field.
The format is described for hosts in `docs/scripted-models.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from pigeon.system.files import read_whole
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.errors import BadRecord, PigeonError
from pigeon.wire.model import ModelCost

NotNegative = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
ChunkSize = Positive | list[Positive]  # not a pair type: msgspec crashes on a bounded number beside a fixed tuple
Locate = Callable[[str], str]  # resolves a path of the options
LARGEST = 256 << 20
ScriptedStop = Literal["stop", "length", "toolUse"]


class ScriptError(PigeonError):
    """The script is missing or malformed; the text names the place."""


class _ScriptRecord(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    pass


class TextBlock(_ScriptRecord, tag_field="type", tag="text"):
    """A text; `repeat` makes long answers from short scripts."""

    text: str
    repeat: Positive = 1


class ThinkingBlock(_ScriptRecord, tag_field="type", tag="thinking"):
    """A piece of thinking; `repeat` makes long thoughts from short scripts."""

    thinking: str
    repeat: Positive = 1
    signature: str | None = None
    redacted: bool = False


class ScriptedCall(_ScriptRecord):
    """A tool call; `raw` replaces the arguments' JSON with text that need not be JSON."""

    name: str
    arguments: dict[str, Json] = field(default_factory=dict)
    id: str | None = None
    raw: str | None = None


class CallBlock(ScriptedCall, tag_field="type", tag="toolCall"):
    """A tool call among other blocks."""


class DelayBlock(_ScriptRecord, tag_field="type", tag="delay"):
    """A pause between two blocks, in which nothing is sent."""

    ms: NotNegative


Block = TextBlock | ThinkingBlock | CallBlock | DelayBlock


class ScriptedError(_ScriptRecord):
    """How the answer fails after its blocks."""

    message: str
    status: int | None = None
    code: str | None = None
    retryable: bool = False
    overflow: bool = False
    retry_after_ms: NotNegative | None = None


class ScriptedUsage(_ScriptRecord):
    """Token counts to report; missing ones are estimated."""

    input: NotNegative | None = None
    output: NotNegative | None = None
    cache_read: NotNegative = 0
    cache_write: NotNegative = 0
    reasoning: NotNegative | None = None


class ScriptedReply(_ScriptRecord):
    """One answer: the short form (`thinking`, `text`, `toolCalls`) or `blocks`, and how it streams and ends."""

    thinking: str | None = None
    text: str | None = None
    tool_calls: list[ScriptedCall] = field(default_factory=list)
    blocks: list[Block] | None = None
    usage: ScriptedUsage | None = None
    stop: ScriptedStop | None = None
    error: ScriptedError | None = None
    delay_ms: NotNegative = 0
    chunk_delay_ms: NotNegative | None = None
    chunk: ChunkSize | None = None
    hang: bool = False

    def to_blocks(self) -> list[Block]:
        """The blocks in the order of the answer, whichever form they were written in."""
        if self.blocks is not None:
            return self.blocks
        parts: list[Block] = []
        if self.thinking is not None:
            parts.append(ThinkingBlock(thinking=self.thinking))
        if self.text is not None:
            parts.append(TextBlock(text=self.text))
        parts += [
            CallBlock(name=call.name, arguments=call.arguments, id=call.id, raw=call.raw) for call in self.tool_calls
        ]
        return parts


class RuleCondition(_ScriptRecord):
    """What a request must contain, all of it, for a rule to match; texts are compared without regard to case."""

    user: str | None = None
    tool_result: str | None = None
    anywhere: str | None = None
    system: str | None = None
    tool: str | None = None


class ScriptRule(_ScriptRecord):
    """A reply for requests that match, `times` times at most."""

    when: RuleCondition
    reply: str | ScriptedReply
    times: Positive | None = None


class Script(_ScriptRecord):
    """A whole script file: replies in order, rules, and the default reply."""

    replies: list[str | ScriptedReply] = field(default_factory=list)
    rules: list[ScriptRule] = field(default_factory=list)
    default: str | ScriptedReply | None = None
    seed: int = 0
    chunk: ChunkSize = field(default_factory=lambda: [8, 24])
    chunk_delay_ms: NotNegative = 0
    name: str | None = None
    reasoning: bool = True
    input: list[Literal["text", "image"]] = field(default_factory=lambda: ["text", "image"])
    context_window: Positive = 200_000
    max_tokens: Positive = 32_000
    cost: ModelCost = field(default_factory=ModelCost)


def to_reply(reply: str | ScriptedReply) -> ScriptedReply:
    """A bare string is an answer with that text."""
    return ScriptedReply(text=reply) if isinstance(reply, str) else reply


def read_script(path: str, absolute: Locate) -> Script:
    """The script in a file; raises only `ScriptError`, which names the path as given."""
    try:
        raw = read_whole(absolute(path), LARGEST)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ScriptError(f"Cannot read the model script {path}: {reason}. Name a JSON file: scripted/<file>") from None
    try:
        value = codec.decode(raw)
        script = codec.convert({"replies": value} if isinstance(value, list) else value, Script)
    except BadRecord as error:
        raise ScriptError(f"The model script {path} is not valid: {error}") from None
    _check_script(script, path)
    return script


def _check_script(script: Script, path: str) -> None:
    named = [(f"replies[{at}]", reply) for at, reply in enumerate(script.replies)]
    named += [(f"rules[{at}].reply", rule.reply) for at, rule in enumerate(script.rules)]
    if script.default is not None:
        named.append(("default", script.default))
    for place, reply in named:
        if isinstance(reply, str) or reply.blocks is None:
            continue
        if reply.thinking is not None or reply.text is not None or reply.tool_calls:
            reason = f'"{place}" has "blocks" and also "text", "thinking" or "toolCalls": use one form'
            raise ScriptError(f"The model script {path} is not valid: {reason}")
    for place, size in [
        ("chunk", script.chunk),
        *((f"{p}.chunk", r.chunk) for p, r in named if isinstance(r, ScriptedReply)),
    ]:
        if isinstance(size, list) and (len(size) != 2 or size[0] > size[1]):
            raise ScriptError(f'The model script {path} is not valid: "{place}" must be [smallest, largest]')
