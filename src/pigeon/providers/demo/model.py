"""`demo/guide`: a small model without a network that really uses tools, for first steps and for trying a host.

Plays `guide` as a scripted model plays its file: it understands a handful of plain sentences, calls the tools it is
offered, answers with their results, and admits when it does not understand. The same conversation always gets the same
answer.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncIterator, Mapping

from pigeon.agent.inference import Delta, ModelMessage, ModelRequest, ToolSpec
from pigeon.providers.demo.api import DEMO, GUIDE
from pigeon.providers.demo.guide import LISTING, SHELL_TOOL
from pigeon.providers.demo.phrases import DemoReply, DemoStep, phrases_of
from pigeon.providers.scripted.playback import PreparedAnswer, play_answer
from pigeon.providers.scripted.script import Block, CallBlock, TextBlock, ThinkingBlock
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.content import ToolCall, text_of
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage
from pigeon.wire.model import Model, ModelCost

PACE_MS = 2.0
PIECE = [3, 11]
REMINDER = "<reminder>"  # messages that the agent adds by itself
SHOWN_ENTRIES = 30
SHOWN_LINES = 20
SHOWN_CHARS = 2_000
NO_OUTPUT = "(no output)"


class DemoModel:
    """The guide; `pace_ms` is the time between two pieces of an answer."""

    def __init__(self, pace_ms: float = PACE_MS) -> None:
        self._pace_ms = pace_ms

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Answer the last message of the user, one tool call at a time."""
        seed = len(request.messages)
        name, blocks = f"{DEMO.name}_{seed}", build_answer(request)
        answer = PreparedAnswer(
            name=name, call_prefix=name, blocks=blocks, chunk=PIECE, seed=seed, pace_ms=self._pace_ms
        )
        async for delta in play_answer(answer, request):
            yield delta


def make_demo_model() -> Model:
    """The model record of the demo."""
    return Model(
        id=GUIDE,
        name="Demo guide (no key, no network)",
        api=DEMO.name,
        provider=DEMO.name,
        base_url="",
        reasoning=True,
        input=["text"],
        cost=ModelCost(),
        context_window=200_000,
        max_tokens=8_192,
    )


def build_answer(request: ModelRequest) -> list[Block]:
    """The blocks of the next answer: pure, and the same for the same request."""
    text, results = _last_prompt_and_results(request.messages)
    phrases = phrases_of(text)
    steps = [phrase for phrase in phrases if isinstance(phrase, DemoStep)]
    done = min(len(results), len(steps))
    said = ""
    if not steps:
        thought = "No tool is needed for this."
        said = "".join(phrase.text for phrase in phrases[:1] if isinstance(phrase, DemoReply))
    else:
        thought = "That is all I was asked for."
        if results:
            # Earlier results were reported when they came.
            said = _result_text(steps[done - 1], results[-1])
        if done < len(steps) and not (results and results[-1].is_error):
            return _build_step_blocks(request, steps[done], said)
    if request.output is not None:
        said = _make_structured_output(request, text)
    return _with_thought(request, thought, [TextBlock(text=said)])


def _build_step_blocks(request: ModelRequest, step: DemoStep, said: str) -> list[Block]:
    lead = f"{said}\n\n" if said else ""
    action = step.action
    goal = action.goal.format_map(_values_of(step))
    call = _call_for(step, {tool.name: tool for tool in request.tools})
    if call is None:
        names = " or ".join([*filter(None, [action.tool]), *([SHELL_TOOL] if action.command else [])])
        reason = f"I cannot {goal}: that needs the tool {names}, and this session does not offer it."
        return _with_thought(request, "None of my tools can do this.", [TextBlock(text=lead + reason)])
    thought = f"The user wants me to {goal}. I will use the tool {call.name}."
    return _with_thought(request, thought, [TextBlock(text=f"{lead}I will {goal}."), call])


def _with_thought(request: ModelRequest, thought: str, blocks: list[Block]) -> list[Block]:
    return blocks if request.thinking == "off" else [ThinkingBlock(thinking=thought), *blocks]


def _call_for(step: DemoStep, tools: Mapping[str, ToolSpec]) -> CallBlock | None:
    """The tool call that performs the step, or None if no offered tool can."""
    action = step.action
    values = _values_of(step)
    if action.tool in tools:
        known = tools[action.tool].parameters.get("properties", {})
        forms = (form for form in action.arguments if form.keys() <= known.keys())
        arguments = _fill_arguments(next(forms, action.arguments[0]), values)
        return CallBlock(name=action.tool, arguments=arguments)
    if action.command and SHELL_TOOL in tools:
        quoted = {**values, "path": _quote_path(values["path"]), "text": shlex.quote(values.get("text", ""))}
        return CallBlock(name=SHELL_TOOL, arguments={"command": action.command.format_map(quoted)})
    return None


def _fill_arguments(form: Json, values: Mapping[str, str]) -> Json:
    if isinstance(form, dict):
        return {name: _fill_arguments(value, values) for name, value in form.items()}
    if isinstance(form, list):
        return [_fill_arguments(value, values) for value in form]
    return form.format_map(values)


def _values_of(step: DemoStep) -> dict[str, str]:
    """The values of the names in the texts of an action."""
    named = {"path": ".", **step.named}
    path, content = named["path"], named.get("content", "")
    content = content if content.endswith("\n") else content + "\n"
    folder = "this folder" if path in (".", "./") else path
    regex = re.escape(named.get("text", ""))
    return {**named, "folder": folder, "regex": regex, "content": content, "size": str(len(content))}


def _quote_path(path: str) -> str:
    """A path as one shell word that cannot be mistaken for an option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def _result_text(step: DemoStep, message: ToolResultMessage) -> str:
    """Describes the result of a step in sentences for the user."""
    action = step.action
    result = text_of(message.content)
    result = "" if result.strip() == NO_OUTPUT else result.strip("\n")
    if message.is_error:
        return f"I could not {action.goal.format_map(_values_of(step))}:\n\n{_to_code_fence(result)}"
    names, lines = _listed_names_of(result), result.splitlines()
    more = [f"and {len(names) - SHOWN_ENTRIES} more"] if len(names) > SHOWN_ENTRIES else []
    values = {
        **_values_of(step),
        "block": _to_code_fence(result),
        "listing": "\n".join(f"- {name}" for name in [*names[:SHOWN_ENTRIES], *more]),
        "entries": f"{len(names)} {'entry' if len(names) == 1 else 'entries'}",
        "lines": f"{len(lines)} {'line' if len(lines) == 1 else 'lines'}"
        + (". It begins:" if len(lines) > SHOWN_LINES else ":"),
    }
    is_empty = not (names if action.lists_names else result)
    return (action.when_empty if is_empty and action.when_empty else action.done).format_map(values)


def _to_code_fence(text: str) -> str:
    """The beginning of a text in a code fence that the text itself cannot close."""
    lines = text[:SHOWN_CHARS].splitlines()[:SHOWN_LINES]
    runs = [len(run) for run in re.findall(r"`{3,}", "\n".join(lines))]
    fence = "`" * (max(runs, default=2) + 1)
    body = "\n".join(lines)
    cut = "\n…" if len(body) < len(text.rstrip()) else ""
    return f"{fence}\n{body}{cut}\n{fence}"


def _last_prompt_and_results(messages: list[ModelMessage]) -> tuple[str, list[ToolResultMessage]]:
    results: list[ToolResultMessage] = []
    for message in reversed(messages):
        if isinstance(message, UserMessage) and not text_of(message.content).startswith(REMINDER):
            return text_of(message.content), results[::-1]
        if isinstance(message, ToolResultMessage):
            results.append(message)
    return "", results[::-1]


def _make_structured_output(request: ModelRequest, question: str) -> str:
    """The answer for a program, made from the last listing of files in the conversation."""
    from pigeon.providers.demo.values import build_matching_value, select_relevant_files

    assert request.output is not None
    value = build_matching_value(
        request.output.schema, select_relevant_files(question, _last_listing(request.messages))
    )
    return codec.encode(value).decode()


def _last_listing(messages: list[ModelMessage]) -> list[str]:
    """The names in the newest result of a tool that lists a folder."""
    answers = (message for message in messages if isinstance(message, AssistantMessage))
    calls = {block.id: block for answer in answers for block in answer.content if isinstance(block, ToolCall)}
    for message in reversed(messages):
        if isinstance(message, ToolResultMessage) and not message.is_error:
            call = calls.get(message.tool_call_id)
            if call is not None and _is_listing(call):
                return _listed_names_of(text_of(message.content))
    return []


def _is_listing(call: ToolCall) -> bool:
    start = LISTING.command.partition("{")[0]
    return call.name == LISTING.tool or (
        call.name == SHELL_TOOL and str(call.arguments.get("command", "")).startswith(start)
    )


def _listed_names_of(result: str) -> list[str]:
    """The names in the result of a listing; empty for an empty folder."""
    entries = [line.strip() for line in result.splitlines() if line.strip()]
    return [] if entries and entries[0].startswith("(") else entries
