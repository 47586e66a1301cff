"""A session as a trajectory: ATIF, version 1.7, the form that Harbor and trainers of models read.

Each step is what a user, the model or the system said, in the order of one branch; results of tools belong to the
answer that called them. After a compaction the model sees the summary and the kept messages: the summary is a step of
the system, and the kept steps follow it once more, marked as copied context and without metrics, so that nothing is
counted or learned twice.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from pigeon.session.history.started_agents import is_result_of_agent
from pigeon.wire.base import Absent, Json, value_or_default
from pigeon.wire.content import ImageContent, TextContent, ThinkingContent, ToolCall, UserBlock, text_of
from pigeon.wire.entries import (
    TOKENS_ENTRY,
    BranchSummaryEntry,
    CompactionEntry,
    ContextEdit,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    MessageEntry,
)
from pigeon.wire.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)
from pigeon.wire.model import Usage

SCHEMA = "ATIF-v1.7"
NOTES = (
    "Steps with is_copied_context stand for what the model was shown again after a compaction, and have no metrics. "
    "Totals count everything that was billed, summaries, other branches and started agents included."
)
_IMAGE_ENDINGS = {"image/jpeg": "jpg", "image/png": "png", "image/gif": "gif", "image/webp": "webp"}
# In the result of a call that has started an agent: which trajectory is that of the agent.
REFERENCE = "subagent_trajectory_ref"
Step = dict[str, Any]
# Stores an image and returns its path; None if it is not stored.
KeepImage = Callable[[str, bytes], str | None]


class TrajectoryAgent(Struct, frozen=True):
    """The program that made a session, with its version."""

    name: str
    version: str


class Trajectory:
    """The trajectory of one branch, built entry by entry."""

    def __init__(self, keep_image: KeepImage) -> None:
        """`keep_image` is called with a file name and the bytes of each image."""
        self._keep_image = keep_image
        self._steps: list[Step] = []
        self._places: dict[str, int] = {}
        self._calls: dict[str, int] = {}
        self._tools: dict[str, Json] = {}
        self._models: list[str] = []
        self._images = 0

    def add(self, entry: Entry) -> None:
        """Add the next entry of the branch."""
        if isinstance(entry, MessageEntry):
            self._add_message(entry.message, entry)
        elif isinstance(entry, CustomMessageEntry):
            self._add_text_step("system", entry.content, entry, custom_type=entry.custom_type)
        elif isinstance(entry, BranchSummaryEntry):
            spent = {} if isinstance(entry.usage, Absent) else {"usage": _token_counts(entry.usage)}
            self._add_text_step("system", entry.summary, entry, kind="branch_summary", from_id=entry.from_id, **spent)
        elif isinstance(entry, CompactionEntry):
            self._add_compaction(entry)
        elif isinstance(entry, ContextEdit):
            self._mark_edited_step(entry)
        elif isinstance(entry, CustomEntry) and entry.custom_type == TOKENS_ENTRY:
            self._add_tokens(entry)

    def build_document(
        self,
        header: Mapping[str, Any],
        agent: TrajectoryAgent,
        totals: Mapping[str, Any],
        extra: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The whole document; `totals` are the final metrics."""
        for number, step in enumerate(self._steps, 1):
            step["step_id"] = number
        described: dict[str, Any] = {"name": agent.name, "version": agent.version}
        if self._models:
            described["model_name"] = self._models[0]
        if self._tools:
            described["tool_definitions"] = list(self._tools.values())
        if header.get("cwd"):
            described["extra"] = {"cwd": header["cwd"]}
        identity = str(header.get("id", ""))
        return {
            "schema_version": SCHEMA,
            "session_id": identity,
            "trajectory_id": identity,
            "agent": described,
            "steps": self._steps,
            "notes": NOTES,
            "final_metrics": {**totals, "total_steps": len(self._steps)},
            "extra": {"started": header.get("timestamp", ""), **extra},
        }

    @property
    def is_empty(self) -> bool:
        """True if the branch has no step, so there is nothing to write."""
        return not self._steps

    def _add_message(self, message: Message, entry: MessageEntry) -> None:
        if isinstance(message, AssistantMessage):
            self._add_answer(message, entry)
        elif isinstance(message, ToolResultMessage):
            self._add_result(message, entry)
        elif isinstance(message, UserMessage):
            self._add_text_step("user", message.content, entry)
        elif isinstance(message, BashExecutionMessage):
            self._add_shell_step(message, entry)
        elif isinstance(message, CustomMessage):
            self._add_text_step("system", message.content, entry, custom_type=message.custom_type)
        elif isinstance(message, BranchSummaryMessage | CompactionSummaryMessage):
            self._add_text_step("system", message.summary, entry)
        elif isinstance(message, SystemMessage):
            self._record_declared_tools(message, entry)

    def _record_declared_tools(self, message: SystemMessage, entry: MessageEntry) -> None:
        for tool in value_or_default(message.tools_added, []):
            function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            self._tools[tool.name] = {"type": "function", "function": function}
        if text_of(message.content):
            self._add_text_step("system", message.content, entry)

    def _add_text_step(self, source: str, content: str | list[UserBlock], entry: Entry, **extra: Any) -> None:
        self._add_step(entry, {"source": source, "message": self._to_parts(content)}, extra)

    def _add_shell_step(self, message: BashExecutionMessage, entry: MessageEntry) -> None:
        """Add a shell command of the person at the host."""
        extra = {"kind": "bash", "exit_code": value_or_default(message.exit_code, None), "cancelled": message.cancelled}
        if value_or_default(message.exclude_from_context, False):
            extra["left_out_of_context"] = True
        step = {
            "source": "user",
            "message": f"$ {message.command}",
            "observation": {"results": [{"content": message.output}]},
        }
        self._add_step(entry, step, extra)

    def _add_answer(self, message: AssistantMessage, entry: MessageEntry) -> None:
        name = f"{message.provider}/{message.model}"
        if name not in self._models:
            self._models.append(name)
        thinking = [block.thinking for block in message.content if isinstance(block, ThinkingContent)]
        calls = [block for block in message.content if isinstance(block, ToolCall)]
        step: Step = {"source": "agent", "model_name": name, "message": text_of(message.content), "llm_call_count": 1}
        if any(thinking):
            step["reasoning_content"] = "\n\n".join(filter(None, thinking))
        level = value_or_default(message.thinking_level, "off")
        if level != "off":
            step["reasoning_effort"] = level
        if calls:
            step["tool_calls"] = [_record_of_call(call) for call in calls]
        step["metrics"] = _step_metrics(message.usage)
        extra = {
            "stop_reason": message.stop_reason,
            "api": message.api,
            "error": value_or_default(message.error_message, None),
            "response_id": value_or_default(message.response_id, None),
            "response_model": value_or_default(message.response_model, None),
            "duration_ms": value_or_default(message.duration_ms, None),
        }
        self._add_step(entry, step, extra)
        # An id belongs to the last call that has it.
        self._calls.update((call.id, len(self._steps) - 1) for call in calls)

    def _add_result(self, message: ToolResultMessage, entry: MessageEntry) -> None:
        result: dict[str, Any] = {"source_call_id": message.tool_call_id, "content": self._to_parts(message.content)}
        extra = {
            "is_error": message.is_error,
            "tool_name": message.tool_name,
            "entry_id": entry.id,
            "timestamp": entry.timestamp,
            "duration_ms": value_or_default(message.duration_ms, None),
            "details": value_or_default(message.details, None) or None,
        }
        result["extra"] = {key: value for key, value in extra.items() if value is not None}
        if is_result_of_agent(message) and isinstance(message.details, dict):
            result[REFERENCE] = [{"trajectory_id": message.details["agentId"]}]
        place = self._calls.get(message.tool_call_id)
        if place is None:
            # The answer with the call is not part of this branch.
            del result["source_call_id"]
            self._add_step(entry, {"source": "system", "message": "", "observation": {"results": [result]}}, {})
            return
        self._steps[place].setdefault("observation", {"results": []})["results"].append(result)
        self._places[entry.id] = place

    def _add_compaction(self, entry: CompactionEntry) -> None:
        extra: dict[str, Any] = {"kind": "compaction", "tokens_before": entry.tokens_before}
        if not isinstance(entry.usage, Absent):
            extra["usage"] = _token_counts(entry.usage)
        first = self._places.get(entry.first_kept_entry_id, len(self._steps))
        kept = [at for at in range(first, len(self._steps)) if self._steps[at]["extra"].get("kind") != "compaction"]
        self._add_text_step("system", entry.summary, entry, **extra)
        copies = {at: len(self._steps) + number for number, at in enumerate(kept)}
        self._steps.extend([_mark_copied(self._steps[at]) for at in kept])
        # Later references to a kept entry mean its copy.
        self._places = {id: copies.get(at, at) for id, at in self._places.items()}

    def _mark_edited_step(self, entry: ContextEdit) -> None:
        place = self._places.get(entry.target_id)
        if place is not None:
            changed = "left_out_of_context" if entry.replacement is None else "replaced_in_context"
            self._steps[place].setdefault("extra", {})[changed] = True

    def _add_tokens(self, entry: CustomEntry) -> None:
        """Add the token ids of an earlier answer."""
        data = entry.data if isinstance(entry.data, dict) else {}
        place = self._places.get(str(data.get("messageId")))
        if place is None:
            return
        metrics = self._steps[place].get("metrics")
        names = {"promptTokenIds": "prompt_token_ids", "tokenIds": "completion_token_ids", "logprobs": "logprobs"}
        for name, called in names.items():
            values = data.get(name)
            if isinstance(values, list) and metrics is not None:
                metrics[called] = values

    def _add_step(self, entry: Entry, step: Step, extra: Mapping[str, Any]) -> None:
        found = {"entry_id": entry.id, **{key: value for key, value in extra.items() if value is not None}}
        made = {"step_id": 0, **step, "extra": found}
        if entry.timestamp:
            made["timestamp"] = entry.timestamp
        self._places[entry.id] = len(self._steps)
        self._steps.append(made)

    def _to_parts(self, content: str | list[UserBlock]) -> str | list[dict[str, Any]]:
        """Text unchanged; with images a list of parts, in which each image is a file."""
        if isinstance(content, str) or not any(isinstance(block, ImageContent) for block in content):
            return text_of(content)
        return [self._to_part(block) for block in content]

    def _to_part(self, block: UserBlock) -> dict[str, Any]:
        if isinstance(block, TextContent):
            return {"type": "text", "text": block.text}
        self._images += 1
        ending = _IMAGE_ENDINGS.get(block.mime_type)
        path = None
        if ending is not None:
            try:
                path = self._keep_image(f"image-{self._images}.{ending}", binascii.a2b_base64(block.data))
            except ValueError:
                path = None
        if path is None:
            return {"type": "text", "text": f"[an image of the type {block.mime_type}, which is not part of this]"}
        return {"type": "image", "source": {"media_type": block.mime_type, "path": path}}


def add_trajectories_of_agents(document: dict[str, Any], agents: list[dict[str, Any]]) -> None:
    """Add the trajectories of the agents that were started in this one; references to others are left out."""
    if agents:
        document["subagent_trajectories"] = agents
    known = {agent["trajectory_id"] for agent in agents}
    for step in document["steps"]:
        for result in step.get("observation", {}).get("results", ()):
            if REFERENCE in result and result[REFERENCE][0]["trajectory_id"] not in known:
                del result[REFERENCE]


def sum_final_metrics(entries: Iterable[Usage]) -> dict[str, Any]:
    """The sums of all billed usage."""
    used = list(entries)
    return {
        "total_prompt_tokens": sum(map(_prompt_tokens, used)),
        "total_completion_tokens": sum(usage.output for usage in used),
        "total_cached_tokens": sum(usage.cache_read for usage in used),
        "total_cost_usd": float(sum(usage.cost.total for usage in used)),
    }


def _record_of_call(call: ToolCall) -> dict[str, Any]:
    made: dict[str, Any] = {"tool_call_id": call.id, "function_name": call.name, "arguments": call.arguments}
    if not isinstance(call.arguments_error, Absent):
        made["extra"] = {"arguments_error": call.arguments_error}
    return made


def _mark_copied(step: Step) -> Step:
    """Mark a step that the model sees again."""
    return {key: value for key, value in step.items() if key not in ("metrics",)} | {"is_copied_context": True}


def _prompt_tokens(usage: Usage) -> int:
    return usage.input + usage.cache_read + usage.cache_write


def _token_counts(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": _prompt_tokens(usage),
        "completion_tokens": usage.output,
        "cached_tokens": usage.cache_read,
        "cost_usd": float(usage.cost.total),
    }


def _step_metrics(usage: Usage) -> dict[str, Any]:
    extra = {"cache_write_tokens": usage.cache_write, "reasoning_tokens": value_or_default(usage.reasoning, 0)}
    found = {name: count for name, count in extra.items() if count}
    return {**_token_counts(usage), "extra": found} if found else _token_counts(usage)
