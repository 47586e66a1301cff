"""`demo/guide`: a small model without a network that really uses tools, for first steps and for trying a host.

It understands a handful of plain sentences, calls the tools it is offered, answers with what they gave back, and says
so when it is asked for anything else. The same conversation always gets the same answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from pigeon.agent.inference import Delta, ModelMessage, ModelRequest
from pigeon.providers.demo.actions import action_text, call_for, entries_of, is_listing, result_text, tools_for
from pigeon.providers.demo.api import DEMO, GUIDE
from pigeon.providers.demo.phrases import About, Action, Greeting, Phrase, Unclear, phrases_of
from pigeon.providers.scripted.playback import PreparedAnswer, play_answer
from pigeon.providers.scripted.script import Block, TextBlock, ThinkingBlock
from pigeon.wire import codec
from pigeon.wire.content import ToolCall, text_of
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage
from pigeon.wire.model import Model, ModelCost

PACE_MS = 2.0
PIECE = [3, 11]
REMINDER = "<reminder>"  # what the agent says by itself

EXAMPLES = (
    "- list the files\n"
    "- read README.md\n"
    "- run `python3 --version`\n"
    "- write hello to notes.txt\n"
    '- replace "hello" with "goodbye" in notes.txt\n'
    "- search for TODO in src\n"
    "- list the files, then read README.md"
)
WHO = "I am the demo model that is built into Pigeon: a few rules, no network and no key."


class DemoModel:
    """The guide; `pace_ms` is the time between two pieces of an answer."""

    def __init__(self, pace_ms: float = PACE_MS) -> None:
        self._pace_ms = pace_ms

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Answer the last message of the user, one tool call at a time."""
        seed = len(request.messages)
        name, blocks = f"{DEMO.name}_{seed}", answer_to(request)
        answer = PreparedAnswer(
            name=name, call_prefix=name, blocks=blocks, chunk=PIECE, seed=seed, pace_ms=self._pace_ms
        )
        async for delta in play_answer(answer, request):
            yield delta


def demo_model() -> Model:
    """The model record of the guide."""
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


def answer_to(request: ModelRequest) -> list[Block]:
    """The blocks of the next answer: pure, and the same for the same request."""
    text, results = _since_user(request.messages)
    phrases = phrases_of(text)
    actions = [phrase for phrase in phrases if isinstance(phrase, Action)]
    if not actions:
        said = _talk(phrases[0]) if request.output is None else _output_text(request, text)
        return _with_thought(request, "No tool is needed for this.", [TextBlock(text=said)])
    done = min(len(results), len(actions))
    said = _last_result_text(actions, results)
    failed = bool(results) and results[-1].is_error
    if failed or done == len(actions):
        said = said if request.output is None else _output_text(request, text)
        return _with_thought(request, "That is all I was asked for.", [TextBlock(text=said)])
    return _next_step(request, actions[done], said)


def _output_text(request: ModelRequest, question: str) -> str:
    """The answer as a program wants it: made of the last listing of files in the conversation."""
    from pigeon.providers.demo.values import known_of, value_for

    assert request.output is not None
    value = value_for(request.output.schema, known_of(question, _listed(request.messages)))
    return codec.encode(value).decode()


def _listed(messages: list[ModelMessage]) -> list[str]:
    """The names in the newest result of a call that lists a folder."""
    for message in reversed(messages):
        if isinstance(message, ToolResultMessage) and not message.is_error:
            call = _call_of(message, messages)
            if call is not None and is_listing(call.name, call.arguments):
                return entries_of(text_of(message.content))
    return []


def _call_of(result: ToolResultMessage, messages: list[ModelMessage]) -> ToolCall | None:
    answers = (message for message in messages if isinstance(message, AssistantMessage))
    calls = (block for answer in answers for block in answer.content if isinstance(block, ToolCall))
    return next((call for call in calls if call.id == result.tool_call_id), None)


def _next_step(request: ModelRequest, action: Action, said: str) -> list[Block]:
    lead = f"{said}\n\n" if said else ""
    call = call_for(action, {tool.name: tool for tool in request.tools})
    if call is None:
        needed = f"that needs the tool {tools_for(action)}, and this session does not offer it."
        reason = f"I cannot {action_text(action)}: {needed}"
        return _with_thought(request, "None of my tools can do this.", [TextBlock(text=lead + reason)])
    thought = f"The user wants me to {action_text(action)}. I will use the tool {call.name}."
    return _with_thought(request, thought, [TextBlock(text=f"{lead}I will {action_text(action)}."), call])


def _last_result_text(actions: list[Action], results: list[ToolResultMessage]) -> str:
    """The newest result in words; earlier ones were reported when they came."""
    if not results:
        return ""
    last = results[-1]
    action = actions[min(len(results), len(actions)) - 1]
    return result_text(action, text_of(last.content), last.is_error)


def _with_thought(request: ModelRequest, thought: str, blocks: list[Block]) -> list[Block]:
    return blocks if request.thinking == "off" else [ThinkingBlock(thinking=thought), *blocks]


def _since_user(messages: list[ModelMessage]) -> tuple[str, list[ToolResultMessage]]:
    results: list[ToolResultMessage] = []
    for message in reversed(messages):
        if isinstance(message, UserMessage) and not text_of(message.content).startswith(REMINDER):
            return text_of(message.content), results[::-1]
        if isinstance(message, ToolResultMessage):
            results.append(message)
    return "", results[::-1]


def _talk(phrase: Phrase) -> str:
    if isinstance(phrase, Greeting):
        return "You are welcome." if phrase.thanks else f"Hello! {WHO} You can ask me, for example:\n\n{EXAMPLES}"
    if isinstance(phrase, About):
        return f"{WHO} I understand plain sentences like these, and do them with real tools:\n\n{EXAMPLES}"
    assert isinstance(phrase, Unclear)
    wanted = phrase.text if len(phrase.text) <= 80 else phrase.text[:79] + "…"
    asked = f'I do not understand "{wanted}"' if wanted else "I was not asked anything"
    return (
        f"{asked}. {WHO} I cannot write programs or answer questions; choose a real model for that. "
        f"What I can do:\n\n{EXAMPLES}"
    )
