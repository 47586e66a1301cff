"""Asks a model for a summary of a conversation, for compaction and for leaving a branch.

The conversation goes into the request as plain text, in parts that fit the model's window, without tools; transient
failures are retried by the retry policy. `TouchedFiles` lists the files that were read and changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pigeon.agent.inference import (
    Failure,
    Finished,
    ModelRequest,
    report_failure,
)
from pigeon.agent.interfaces import ModelProvider, Publish
from pigeon.agent.scope import Scope
from pigeon.agent.tool_facts import ToolFacts
from pigeon.session.settings import RetryPolicy
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.content import TextContent, ToolCall, text_of
from pigeon.wire.errors import Refusal
from pigeon.wire.events import (
    CompactionReason,
    SummarizationRetryAttemptStart,
    SummarizationRetryFinished,
    SummarizationRetryScheduled,
)
from pigeon.wire.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    NestedCall,
    ToolResultMessage,
    UserMessage,
)
from pigeon.wire.model import Model, ThinkingLevel, Usage, sum_usage, zero_usage
from pigeon.wire.tokens import CHARACTERS_PER_PROMPT_TOKEN

MOST_OF_A_RESULT = 2000
MOST_OF_A_SUMMARY = 16_384
SummarySource = Literal["compaction", "branchSummary"]
ROLE = (
    "You summarize conversations between a user and a coding agent so that the agent can go on with the work. "
    "Write only the summary. Do not continue the conversation and do not answer questions in it."
)
HISTORY = """Summarize the conversation above for an agent that will continue it without seeing it.
Use exactly these sections:
## Goal
## Constraints & Preferences
## Progress
### Done
### In Progress
### Blocked
## Key Decisions
## Next Steps
## Critical Context
Keep exact names, paths, commands, figures and error texts. Leave out what no longer matters."""
UPDATE = """The summary in <previous-summary> covers what came before the conversation above. Give the whole summary
anew, with the same sections: keep what still holds, add what is new, move finished work to Done, drop what was
superseded."""
PREFIX = """The conversation above is the first part of a turn whose rest is kept. Summarize this part so that the
rest can be understood, with these sections:
## Original Request
## Progress So Far
## Context Needed"""


def paragraphs_of(message: Message) -> list[str]:
    """The content of one message, one paragraph for each kind."""
    if isinstance(message, AssistantMessage):
        return _paragraphs_of_answer(message)
    if isinstance(message, ToolResultMessage):
        return [f"[Tool result]: {_shorten_text(text_of(message.content))}"]
    if isinstance(message, BashExecutionMessage):
        return [f"[User ran]: {message.command}\n{_shorten_text(message.output)}"]
    if isinstance(message, (BranchSummaryMessage, CompactionSummaryMessage)):
        return [f"[Earlier summary]: {message.summary}"]
    assert isinstance(message, (UserMessage, CustomMessage))
    return [f"[User]: {text_of(message.content)}"]


def _paragraphs_of_answer(message: AssistantMessage) -> list[str]:
    """Leaves thinking out: its results are in the text and the calls."""
    text = "\n".join(block.text for block in message.content if isinstance(block, TextContent))
    calls = "; ".join(_format_call(block) for block in message.content if isinstance(block, ToolCall))
    labelled = (("[Assistant]", text), ("[Assistant tool calls]", calls))
    return [f"{label}: {said}" for label, said in labelled if said]


def _format_call(call: ToolCall) -> str:
    arguments = ", ".join(f"{key}={codec.encode(value).decode()}" for key, value in call.arguments.items())
    return f"{call.name}({arguments})"


def _shorten_text(text: str) -> str:
    if len(text) <= MOST_OF_A_RESULT:
        return text
    return f"{text[:MOST_OF_A_RESULT]}\n[... {len(text) - MOST_OF_A_RESULT} more characters]"


class TouchedFiles:
    """Files that were read and files that were changed."""

    def __init__(self, facts_of: Callable[[str], ToolFacts], earlier: Json = None) -> None:
        self._facts_of = facts_of
        known = earlier if isinstance(earlier, dict) else {}
        self._read = {path for path in known.get("readFiles", []) if isinstance(path, str)}
        self._modified = {path for path in known.get("modifiedFiles", []) if isinstance(path, str)}

    def add_messages(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, ToolCall):
                        self._add_call(block)
            elif isinstance(message, ToolResultMessage) and not isinstance(message.nested_calls, Absent):
                for call in message.nested_calls.calls:
                    self._add_call(call)

    def _add_call(self, call: ToolCall | NestedCall) -> None:
        facts = self._facts_of(call.name)
        path = facts.find_path(call.arguments) if isinstance(call.arguments, dict) else None
        if path is not None:
            if facts.kind == "read":
                self._read.add(path)
            elif facts.kind == "edit":
                self._modified.add(path)

    def details(self) -> dict[str, list[str]]:
        """Both lists, sorted; a file that was changed only appears as changed."""
        return {"readFiles": sorted(self._read - self._modified), "modifiedFiles": sorted(self._modified)}

    def render_appendix(self) -> str:
        """The lists as text for the end of a summary."""
        lists = self.details()
        blocks = [("read-files", lists["readFiles"]), ("modified-files", lists["modifiedFiles"])]
        return "".join(f"\n\n<{tag}>\n" + "\n".join(paths) + f"\n</{tag}>" for tag, paths in blocks if paths)


class SummaryFailed(Refusal):
    """The model returned no usable summary."""


class SummaryRequest(Struct):
    """Which model is asked, and until when; `source` and `about` are announced when the request is repeated."""

    model: Model
    thinking: ThinkingLevel
    scope: Scope
    source: SummarySource = "compaction"
    about: CompactionReason | Absent = ABSENT


class Summarizer:
    """Makes summaries with the session's model."""

    def __init__(
        self,
        provider: ModelProvider,
        publish: Publish,
        retries: RetryPolicy | None,
        facts_of: Callable[[str], ToolFacts],
    ) -> None:
        self._facts_of = facts_of
        self._provider = provider
        self._publish = publish
        self._retries = retries

    def make_touched_files(self, earlier: Json = None) -> TouchedFiles:
        """A list that adds to the details of an `earlier` summary."""
        return TouchedFiles(self._facts_of, earlier)

    async def summarize(
        self,
        messages: Sequence[Message],
        instructions: str,
        ask: SummaryRequest,
        previous: str | None = None,
    ) -> tuple[str, Usage]:
        """The summary and its usage; raises `SummaryFailed`, or `Aborted` when the scope ends."""
        spent = zero_usage()
        text = previous
        for chunk in _split_into_chunks(messages, ask.model):
            request = _build_request(chunk, instructions, text, ask)
            text, usage = await self._request_with_retries(request, ask)
            spent = sum_usage(spent, usage)
        # Like pi, report only the counts of a summary that every provider has.
        return text or "", replace(spent, cache_write_1h=ABSENT, reasoning=ABSENT)

    async def _request_with_retries(self, request: ModelRequest, ask: SummaryRequest) -> tuple[str, Usage]:
        attempt = 0
        while True:
            answer, failure = await self._request_answer(request, ask.scope)
            policy = self._retries
            if failure is None or not failure.retryable or policy is None or attempt >= policy.max_retries:
                break
            delay = min(policy.jittered_delay_ms(attempt, failure), policy.max_delay_ms)
            attempt += 1
            await self._publish(
                SummarizationRetryScheduled(
                    attempt=attempt, max_attempts=policy.max_retries, delay_ms=delay, error_message=failure.message
                )
            )
            await ask.scope.wait(policy.sleep(delay))
            await self._publish(SummarizationRetryAttemptStart(source=ask.source, reason=ask.about))
        if attempt:
            await self._publish(SummarizationRetryFinished())
        return _extract_summary(answer, failure), answer.usage

    async def _request_answer(self, request: ModelRequest, scope: Scope) -> tuple[AssistantMessage, Failure | None]:
        from pigeon.agent.answer import Fold, close_stream

        fold = Fold(request.model, 0)
        finished = Finished(stop="error", failure=Failure(message="the stream ended without an answer"))
        stream = self._provider.stream(request)
        try:
            iterator = stream.__aiter__()
            while True:
                delta = await scope.wait(iterator.__anext__())
                if isinstance(delta, Finished):
                    finished = delta
                else:
                    fold.add_delta(delta)
        except StopAsyncIteration:
            pass
        except Exception as error:
            scope.raise_if_cancelled()
            finished = Finished(stop="error", failure=report_failure(error))
        finally:
            await close_stream(stream)
        fold.close_open_blocks()
        return fold.to_message(finished.stop, finished), finished.failure


def _extract_summary(answer: AssistantMessage, failure: Failure | None) -> str:
    if failure is not None or answer.stop_reason in ("error", "aborted"):
        if failure is None:
            raise SummaryFailed("the request was aborted")
        raise SummaryFailed(failure.message, explanation=failure.explanation)
    if answer.stop_reason == "length":
        raise SummaryFailed("generation hit the token cap and the summary is incomplete")
    if answer.stop_reason == "toolUse":
        raise SummaryFailed("the model tried to call a tool instead of summarizing")
    text = text_of(answer.content).strip()
    if not text:
        raise SummaryFailed("the model returned an empty summary")
    return text


def _build_request(paragraphs: list[str], instructions: str, previous: str | None, ask: SummaryRequest) -> ModelRequest:
    """Allows an answer of the usual length, since a truncated summary is useless."""
    said = "<conversation>\n" + "\n\n".join(paragraphs) + "\n</conversation>"
    if previous is not None:
        said += f"\n\n<previous-summary>\n{previous}\n</previous-summary>\n\n{UPDATE}"
    said += f"\n\n{instructions}"
    message = UserMessage(content=[TextContent(text=said)], timestamp=0)
    return ModelRequest(
        model=ask.model,
        system_prompt=ROLE,
        messages=[message],
        tools=[],
        thinking=ask.thinking,
        cache="none",
    )


def _split_into_chunks(messages: Sequence[Message], model: Model) -> list[list[str]]:
    """The conversation in parts that fit the model's window together with an earlier and a new summary."""
    window = model.context_window
    summary = min(model.max_tokens or MOST_OF_A_SUMMARY, MOST_OF_A_SUMMARY, window // 5)
    room = int(max(window - 2 * summary, window // 4, 1000) * CHARACTERS_PER_PROMPT_TOKEN)
    chunks: list[list[str]] = [[]]
    size = 0
    for message in messages:
        for paragraph in paragraphs_of(message):
            if size and size + len(paragraph) > room:
                chunks.append([])
                size = 0
            chunks[-1].append(paragraph[:room])
            size += len(paragraph)
    return chunks
