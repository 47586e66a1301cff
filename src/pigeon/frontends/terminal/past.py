"""Earlier messages as blocks: what a resumed conversation shows first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pigeon.frontends.terminal.agent_rows import describe_plan_decision, describe_started_work
from pigeon.frontends.terminal.blocks import AnswerText, Block, Notice, ShellCard, ThinkingText, ToolCard, UserText
from pigeon.wire.base import value_or_default
from pigeon.wire.content import ImageContent, TextContent, ThinkingContent, ToolCall, text_of
from pigeon.wire.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    ToolResultMessage,
    UserMessage,
)

MOST_MESSAGES = 40
PLAN_LEAD = "The plan of the agent:"


def recent_blocks_of(messages: Sequence[Message], on_open: Callable[[ToolCall], None] | None = None) -> list[Block]:
    """The last of them, with a line that tells how many came before. While their agent works, `on_open` is called with
    the calls that have no result yet, which are left out."""
    shown = list(messages[-MOST_MESSAGES:])
    results = {one.tool_call_id: one for one in shown if isinstance(one, ToolResultMessage)}
    blocks: list[Block] = []
    if len(messages) > len(shown):
        blocks.append(Notice(f"{len(messages) - len(shown):,} earlier messages; /export shows all of them", "faint"))
    for message in shown:
        blocks += _message_blocks(message, results)
    if on_open is None:
        return blocks
    for message in shown:
        for part in message.content if isinstance(message, AssistantMessage) else ():
            if isinstance(part, ToolCall) and part.id not in results:
                on_open(part)
    return [one for one in blocks if not (isinstance(one, ToolCard) and one.call_id not in results)]


def _message_blocks(message: Message, results: dict[str, ToolResultMessage]) -> list[Block]:
    if isinstance(message, UserMessage):
        content = [] if isinstance(message.content, str) else message.content
        return [UserText(text_of(message.content), sum(isinstance(one, ImageContent) for one in content))]
    if isinstance(message, AssistantMessage):
        return _answer_blocks(message, results)
    if isinstance(message, BashExecutionMessage):
        for_model = not value_or_default(message.exclude_from_context, False)
        return [
            ShellCard(message.command, message.output, value_or_default(message.exit_code, None), for_model=for_model)
        ]
    if isinstance(message, CustomMessage) and message.display:
        return [Notice(text_of(message.content))]
    if isinstance(message, CompactionSummaryMessage):
        return [Notice(f"Compacted here: {message.tokens_before:,} tokens were replaced by a summary", "faint")]
    if isinstance(message, BranchSummaryMessage):
        return [Notice("Returned here from another branch", "faint")]
    return []


def _answer_blocks(message: AssistantMessage, results: dict[str, ToolResultMessage]) -> list[Block]:
    blocks: list[Block] = []
    for part in message.content:
        if isinstance(part, TextContent) and part.text.strip():
            blocks.append(AnswerText(part.text))
        elif isinstance(part, ThinkingContent) and part.thinking.strip():
            blocks.append(ThinkingText(part.thinking, None))
        elif isinstance(part, ToolCall):
            blocks += _call_blocks(part, results.get(part.id))
    if message.stop_reason == "error" and message.error_message:
        from pigeon.providers.explanations import explain_answer

        blocks.append(Notice(explain_answer(message), "error"))
    elif message.stop_reason == "aborted":
        blocks.append(Notice("Stopped", "warning"))
    return blocks


def _call_blocks(call: ToolCall, result: ToolResultMessage | None) -> list[Block]:
    decided = "" if result is None else describe_plan_decision(result.details)
    plan = call.arguments.get("plan") if isinstance(call.arguments, dict) else None
    if decided and isinstance(plan, str):
        return [Notice(PLAN_LEAD), AnswerText(plan), Notice(decided, "faint")]
    return [_tool_card(call, result)]


def _tool_card(call: ToolCall, result: ToolResultMessage | None) -> ToolCard:
    args: Any = call.arguments
    card = ToolCard(call.id, call.name, args if isinstance(args, dict) else {}, 0.0)
    if result is None:
        card.finish(0.0, True, "(no result)")
        return card
    details: Any = result.details
    diff = details.get("diff") if isinstance(details, dict) else None
    seconds = value_or_default(result.duration_ms, 0) / 1000
    diff = diff if isinstance(diff, str) else None
    card.finish(seconds, result.is_error, text_of(result.content), diff, describe_started_work(details))
    return card
