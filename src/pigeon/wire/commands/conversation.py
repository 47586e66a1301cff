"""Commands about the conversation as it goes: prompts, state, models, modes, the shell."""

from __future__ import annotations

from typing import Annotated, Literal

from pigeon.wire import answers
from pigeon.wire.base import ABSENT, Absent, Intended, Json
from pigeon.wire.commands.base import Command
from pigeon.wire.content import Attachment, ImageInput
from pigeon.wire.model import Model, ThinkingLevel
from pigeon.wire.steering import Limits

QueueMode = Literal["all", "one-at-a-time"]
InterruptMode = Literal["immediate", "wait"]
StreamingBehavior = Literal["steer", "followUp"]
# Any value is read, because `limits_of` refuses what does not fit, and names that are not known.
LimitsGiven = Annotated[Json | Absent, Intended(Limits | Absent)]


# --- prompting -------------------------------------------------------------------------------------------------------


class _Says(Command, kw_only=True):
    answer = answers.Accepted
    shown = answers.LocalOnly | Absent
    message: str
    images: list[ImageInput] | Absent = ABSENT
    attachments: list[Attachment] | Absent = ABSENT
    client_message_id: str | Absent = ABSENT


class Prompt(_Says, tag="prompt", kw_only=True):
    """Start a run with a user message, or queue it while one is active. With `outputSchema`, a JSON Schema, the run
    ends with a final answer that fits it, which is the `output` of `agent_settled`. `limits` apply to the run that it
    starts."""

    streaming_behavior: StreamingBehavior | Absent = ABSENT
    output_schema: dict[str, Json] | Absent = ABSENT
    locale: str | Absent = ABSENT
    limits: LimitsGiven = ABSENT


class Steer(_Says, tag="steer", kw_only=True):
    """Queue a message for the next break in the running turn."""


class FollowUp(_Says, tag="follow_up", kw_only=True):
    """Queue a message for when the agent would otherwise stop."""


class AbortAndPrompt(_Says, tag="abort_and_prompt", kw_only=True):
    """Abort what is running, wait until it has ended, then prompt; `outputSchema` and `limits` as for `prompt`."""

    output_schema: dict[str, Json] | Absent = ABSENT
    limits: LimitsGiven = ABSENT


class Abort(Command, tag="abort", kw_only=True):
    """Cancel the run and everything that belongs to it; answered when the agent is idle. With `toolCallId`,
    stop only that call and continue the turn; answered when the call has ended."""

    lane = "control"
    tool_call_id: str | Absent = ABSENT


class ClearQueue(Command, tag="clear_queue", kw_only=True):
    """Take back all queued messages."""

    answer = answers.ClearedQueue


class RemoveQueued(Command, tag="remove_queued", kw_only=True):
    """Take back one queued message."""

    answer = answers.QueueItem
    queued_id: str


class EditQueued(Command, tag="edit_queued", kw_only=True):
    """Change the text of a queued message; its images and its place in the queue stay."""

    answer = answers.QueueItem
    queued_id: str
    message: str


class PromoteQueued(Command, tag="promote_queued", kw_only=True):
    """Deliver a queued message next: it becomes the first of the steering messages."""

    answer = answers.QueueItem
    queued_id: str


# --- state -----------------------------------------------------------------------------------------------------------


class GetState(Command, tag="get_state", kw_only=True):
    """The current state of the session."""

    lane = "control"
    answer = answers.State


class GetMessages(Command, tag="get_messages", kw_only=True):
    """The messages of the current context."""

    lane = "beside"
    answer = answers.Messages


class GetLastAssistantText(Command, tag="get_last_assistant_text", kw_only=True):
    """The text of the last answer; null if there is none."""

    lane = "beside"
    answer = answers.LastAssistantText


class GetSessionStats(Command, tag="get_session_stats", kw_only=True):
    """Counts, tokens and cost of the session."""

    lane = "beside"
    answer = answers.SessionStats


class GetCommands(Command, tag="get_commands", kw_only=True):
    """Slash commands that `prompt` understands."""

    lane = "beside"
    answer = answers.Commands


class GetAvailableCommands(Command, tag="get_available_commands", kw_only=True):
    """`get_commands` under its other name."""

    lane = "beside"
    answer = answers.Commands


class GetIntegrations(Command, tag="get_integrations", kw_only=True):
    """Whether the model can be used, and which services are attached."""

    lane = "beside"
    about = "connection"
    answer = answers.Integrations


# --- models and thinking ---------------------------------------------------------------------------------------------


class SetModel(Command, tag="set_model", kw_only=True):
    """Use another model from the next request on."""

    answer = Model
    provider: str
    model_id: str


class CycleModel(Command, tag="cycle_model", kw_only=True):
    """Use the next model; null if there is nothing to cycle."""

    answer = answers.CycledModel | None


class GetAvailableModels(Command, tag="get_available_models", kw_only=True):
    """All models with configured credentials."""

    lane = "beside"
    answer = answers.Models


class SetThinkingLevel(Command, tag="set_thinking_level", kw_only=True):
    """Set the thinking level; it is clamped to what the model supports."""

    level: ThinkingLevel


class CycleThinkingLevel(Command, tag="cycle_thinking_level", kw_only=True):
    """Use the next thinking level; null for a model without thinking."""

    answer = answers.Level | None


class GetAvailableThinkingLevels(Command, tag="get_available_thinking_levels", kw_only=True):
    """The thinking levels of the current model."""

    lane = "beside"
    answer = answers.Levels


# --- modes -----------------------------------------------------------------------------------------------------------


class SetSteeringMode(Command, tag="set_steering_mode", kw_only=True):
    """Deliver steering one message at a time, or all at once."""

    mode: QueueMode


class SetFollowUpMode(Command, tag="set_follow_up_mode", kw_only=True):
    """Deliver follow-ups one message at a time, or all at once."""

    mode: QueueMode


class SetInterruptMode(Command, tag="set_interrupt_mode", kw_only=True):
    """`immediate` lets steering skip the remaining tool calls of a turn, `wait` does not."""

    mode: InterruptMode


class SetLocale(Command, tag="set_locale", kw_only=True):
    """Tell the model the language and region of the person at the host; an empty text clears it."""

    locale: str


class SetAutoCompaction(Command, tag="set_auto_compaction", kw_only=True):
    """Turn automatic compaction on or off."""

    enabled: bool


class SetAutoRetry(Command, tag="set_auto_retry", kw_only=True):
    """Turn the automatic retry of transient errors on or off."""

    enabled: bool


class SetLimits(Command, tag="set_limits", kw_only=True):
    """Replace the limits of the conversation; use counts from here on, and an empty object removes them."""

    lane = "control"
    answer = answers.LimitsState
    limits: Annotated[Json | Absent, Intended(Limits)] = ABSENT


class GetLimits(Command, tag="get_limits", kw_only=True):
    """The limits in force, and how much of them has been used."""

    lane = "control"
    answer = answers.LimitsState


class AbortRetry(Command, tag="abort_retry", kw_only=True):
    """Cancel a waiting retry."""

    lane = "control"


class Compact(Command, tag="compact", kw_only=True):
    """Summarize the history now."""

    lane = "beside"
    answer = answers.Compacted
    custom_instructions: str | Absent = ABSENT


# --- shell -----------------------------------------------------------------------------------------------------------


class Bash(Command, tag="bash", kw_only=True):
    """Run a shell command; its output becomes context of the next prompt."""

    lane = "beside"
    answer = answers.BashResult
    command: str
    exclude_from_context: bool | Absent = ABSENT


class AbortBash(Command, tag="abort_bash", kw_only=True):
    """Kill the running `bash` commands."""

    lane = "control"


CONVERSATION: tuple[type[Command], ...] = (
    Prompt, Steer, FollowUp, AbortAndPrompt, Abort, ClearQueue, RemoveQueued, EditQueued, PromoteQueued,
    GetState, GetMessages, GetLastAssistantText,
    GetSessionStats, GetCommands, GetAvailableCommands, GetIntegrations, SetModel, CycleModel, GetAvailableModels,
    SetThinkingLevel, CycleThinkingLevel, GetAvailableThinkingLevels, SetSteeringMode, SetFollowUpMode,
    SetInterruptMode, SetLocale, SetAutoCompaction, SetAutoRetry, SetLimits, GetLimits, AbortRetry,
    Compact, Bash, AbortBash,
)  # fmt: skip
