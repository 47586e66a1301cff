"""The final answer of a run whose prompt had an `outputSchema`: asked for, checked, and asked for again if it is wrong.

There are two forms, chosen anew for each request. Where the model's API has a field for the schema of an answer and
takes this one (`OutputFormats`), the model stops with a text that is JSON. For all others it gets one more tool, whose
parameters are the schema, and the run ends with a valid call of it. Both leave all other tools usable before, and
survive compaction, because format, tool and instruction are part of each request and not of the history. If a server
refuses the format, the other form is used at once. In both forms a text that is nothing but valid JSON for the schema
is accepted.

    asked -> given (a value that fits)  -> asked again, where the run goes on after it: a queued message, an extension
      |
      +----> wrong, up to `MOST_REPAIRS` times: the model reads what is wrong -> asked
      +----> wrong once more: the run ends in an error

One object for one run, from its prompt to `agent_settled`. A run ends with its process, so nothing of it is stored: a
session that is reopened in the middle of such a run has no open final answer, and its next prompt states its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from pigeon.agent.answer import close_stream
from pigeon.agent.inference import Delta, Finished, ModelRequest, ToolSpec
from pigeon.agent.interfaces import ArgumentTool, Gate, ModelProvider, Spoken, Tool, ToolRun
from pigeon.agent.output_schema import OutputSchema
from pigeon.session.policies.policy import CompletedTurn, GateExceptTool, NextGate, RunEnd, RunPolicy, RunStart
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.content import TextContent, ToolCall, text_of
from pigeon.wire.errors import Refusal, ToolFailed
from pigeon.wire.events import ToolOutcome
from pigeon.wire.messages import AssistantMessage, CustomMessage
from pigeon.wire.model import Model

NAME = "final_answer"
CUSTOM_TYPE = "final-answer"
MOST_REPAIRS = 2
DESCRIPTION = (
    "Give the final answer and end the run. The arguments are the answer itself and must fit the schema. Call it once, "
    "when the work is done, with no other tool call beside it."
)
INSTRUCTION = (
    "A program reads the result of this conversation's current task. When the work is done, give the final answer by "
    "calling the tool {name}, once and with no other call beside it; its arguments are the answer. What you write as "
    "text is not read by the program."
)
FORMAT_INSTRUCTION = (
    "A program reads the result of this conversation's current task. Use your tools as ever. When the work is done, "
    "answer with the result alone: JSON that fits the schema of this request, and no other text."
)
NOT_ALONE = "Not accepted: {name} was called beside other calls. Call it once and alone, after you have their results."
MISSING = "<reminder>\n{problem} Give the final answer by calling the tool {name}.\n</reminder>"
MISSING_TEXT = "<reminder>\n{problem} Answer with the result alone: JSON that fits the schema.\n</reminder>"
REFUSING = (400, 422)
NO_ANSWER = "You stopped without a final answer."
CUT_OFF = "The response hit the output token limit before the final answer was complete."
FAILED = (
    "The model gave no final answer that fits the outputSchema, in {attempts} attempts. The last problem: {problem}"
)
ENDED = "The run ended without a final answer"


class FinalAnswer(RunPolicy):
    """The final answer that a run still owes its host. It belongs to one run."""

    def __init__(self, schema: Json) -> None:
        self._schema = OutputSchema(schema)
        self._value: Json | Absent = ABSENT
        self._problem = ""
        self._alone = True
        self._attempts = 0
        self._by_format = False
        self._start: RunStart
        self._plain: ModelRequest
        self._tool = _FinalAnswerTool(NAME, self._accept_arguments)

    def begin_run(self, start: RunStart) -> None:
        self._start = start

    @property
    def has_output(self) -> bool:
        return not isinstance(self._value, Absent)

    @property
    def has_ended_run(self) -> bool:
        return self._attempts > MOST_REPAIRS

    def end_run(self, cancelled: bool) -> RunEnd:
        if self.has_output:
            return RunEnd(output=self._value)
        failed = FAILED.format(attempts=self._attempts, problem=self._problem)
        return RunEnd(problem=failed if self.has_ended_run else ENDED)

    def change_request(self, request: ModelRequest) -> ModelRequest:
        """The request with whatever makes the model give the answer; an earlier answer is superseded."""
        self._value = ABSENT
        self._plain = request
        form = self._start.output_formats.find_output_format(
            request.model, self._schema.parameters, bool(request.tools)
        )
        self._by_format = form is not None
        if form is None:
            return self.build_tool_request()
        return replace(request, output=form, system_prompt=f"{request.system_prompt}\n\n{FORMAT_INSTRUCTION}")

    def build_tool_request(self) -> ModelRequest:
        """The last request in the form that every model supports."""
        self._by_format = False
        request, schema = self._plain, self._schema
        name = self._choose_tool_name({tool.name for tool in request.tools})
        return replace(
            request,
            tools=[*request.tools, ToolSpec(name, DESCRIPTION, schema.parameters, schema.strict)],
            system_prompt=f"{request.system_prompt}\n\n{INSTRUCTION.format(name=name)}",
        )

    def on_format_refused(self, model: Model) -> None:
        """Remember that the model accepted the request with the tool, and not with the format."""
        self._start.output_formats.on_format_refused(model)

    def wrap_provider(self, provider: ModelProvider) -> ModelProvider:
        """A provider that retries a refused format with the tool."""
        return _FormatFirst(provider, self)

    def change_tools(self, tools: dict[str, Tool]) -> dict[str, Tool]:
        """The tools, and the one that gives the answer."""
        return {**tools, self._choose_tool_name(set(tools)): self._tool}

    def is_own_call(self, call: ToolCall) -> bool:
        """True if the call is the final answer, which policies do not treat as a tool call."""
        return call.name == self._tool.name

    def wrap_gate(self, gate: NextGate) -> NextGate:
        """No gate applies to the final answer, which does nothing but answer."""

        def make_final_answer_gate() -> Gate | None:
            inner = gate()
            return None if inner is None else GateExceptTool(inner, self._tool)

        return make_final_answer_gate

    def on_answer(self, answer: AssistantMessage) -> None:
        """Note whether the answer's calls, which are about to run, are the final answer alone."""
        calls = [block for block in answer.content if isinstance(block, ToolCall)]
        self._problem = ""
        self._alone = all(call.name == calls[0].name and call.arguments == calls[0].arguments for call in calls)

    async def after_turn(self, turn: CompletedTurn) -> Sequence[Spoken] | None:
        """The messages to the model after a turn; None if the run has to end without an answer."""
        now = self._start.now()
        if self.has_output:
            return ()
        if not self._note_tool_attempt(turn.answer) and (not turn.ends or self._try_accept_text(turn.answer)):
            return ()
        self._attempts += 1
        if self.has_ended_run:
            return None
        if not turn.ends:
            return ()  # the result of the call explains what is wrong
        reminder = MISSING_TEXT if self._by_format else MISSING
        text = reminder.format(problem=self._problem, name=self._tool.name)
        return (CustomMessage(custom_type=CUSTOM_TYPE, content=text, display=False, timestamp=now),)

    def _note_tool_attempt(self, answer: AssistantMessage) -> bool:
        """Note what is wrong with a call of the tool; returns whether there was one that was not just skipped."""
        calls = [block for block in answer.content if isinstance(block, ToolCall) and block.name == self._tool.name]
        unreadable = next(
            (call.arguments_error for call in calls if not isinstance(call.arguments_error, Absent)), None
        )
        if calls and not self._problem:
            self._problem = CUT_OFF if answer.stop_reason == "length" else unreadable or ""
        return bool(calls) and bool(self._problem)

    def _try_accept_text(self, answer: AssistantMessage) -> bool:
        texts = [block.text for block in answer.content if isinstance(block, TextContent) and block.text.strip()]
        has_calls = any(isinstance(block, ToolCall) for block in answer.content)
        self._problem = CUT_OFF if answer.stop_reason == "length" else NO_ANSWER
        if answer.stop_reason == "length" or has_calls or not texts:
            return False
        for text in dict.fromkeys((text_of(answer.content), texts[-1])):
            try:
                self._value = self._validate_text_value(codec.decode(_strip_fence(text.strip())))
                return True
            except ToolFailed as error:
                self._problem = str(error)
            except Refusal:
                pass  # the text is no JSON
        return False

    def _validate_text_value(self, given: Json) -> Json:
        """The value of a text. It may be wrapped in an object, as in the schema given to the model, or stand alone."""
        ways: list[Callable[[Any], Json]] = [self._schema.validate_value]
        if isinstance(given, dict):
            ways.insert(0 if self._by_format else 1, self._schema.validate_arguments)
        problems: list[ToolFailed] = []
        for way in ways:
            try:
                return way(given)
            except ToolFailed as error:
                problems.append(error)
        raise problems[0]

    def _accept_arguments(self, arguments: dict[str, Json]) -> None:
        """Accept a call of the tool; raises `ToolFailed` with its errors."""
        try:
            if not self._alone:
                raise ToolFailed(NOT_ALONE.format(name=self._tool.name))
            self._value = self._schema.validate_arguments(arguments)
        except ToolFailed as error:
            self._problem = str(error)
            raise

    def _choose_tool_name(self, names: set[str]) -> str:
        """A name that no other tool has; it only changes if a tool of that name was added."""
        name, number = self._tool.name, 2
        while name in names:
            name, number = f"{NAME}_{number}", number + 1
        if name != self._tool.name:
            self._tool = _FinalAnswerTool(name, self._accept_arguments)
        return name


def _strip_fence(text: str) -> str:
    """The contents of the code fence, if the text consists of nothing else."""
    if not (text.startswith("```") and text.endswith("```") and "\n" in text):
        return text
    return text.partition("\n")[2][:-3]


class _FormatFirst:
    """Sends the request with the format, and with the tool if the server refuses the format."""

    def __init__(self, inner: ModelProvider, answer: FinalAnswer) -> None:
        self._inner = inner
        self._answer = answer

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        return self._inner.stream(request) if request.output is None else self._stream_with_fallback(request)

    async def _stream_with_fallback(self, request: ModelRequest) -> AsyncIterator[Delta]:
        deltas = self._inner.stream(request)
        try:
            async for delta in deltas:
                if _is_format_refusal(delta):
                    break
                yield delta
            else:
                return
        finally:
            await close_stream(deltas)
        deltas = self._inner.stream(self._answer.build_tool_request())
        try:
            async for delta in deltas:
                if isinstance(delta, Finished) and delta.failure is None:
                    self._answer.on_format_refused(request.model)
                yield delta
        finally:
            await close_stream(deltas)


def _is_format_refusal(delta: Delta) -> bool:
    """Whether a server reports that it cannot accept the request, perhaps because of its format."""
    failure = delta.failure if isinstance(delta, Finished) else None
    return failure is not None and failure.status in REFUSING and not failure.overflow


class _FinalAnswerTool(ArgumentTool):
    """The tool that ends the run. Its own schema accepts everything, so that invalid calls can be counted."""

    reads_only = False

    def __init__(self, name: str, take: Callable[[dict[str, Json]], None]) -> None:
        self.name = name
        self.spec = ToolSpec(name, DESCRIPTION, {"type": "object"})
        self._take = take

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        self._take(arguments)
        return ToolOutcome(content=[TextContent(text="Accepted.")], terminate=True)
