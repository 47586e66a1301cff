"""Commands about the conversation as it goes: prompts, state, models, modes, the shell."""

from __future__ import annotations

from typing import Annotated, Literal, NoReturn

from pigeon.wire import answers
from pigeon.wire.base import ABSENT, Absent, Intended, Json
from pigeon.wire.commands.base import Command
from pigeon.wire.content import Attachment, ImageInput
from pigeon.wire.model import Model, ThinkingLevel
from pigeon.wire.steering import Limits

QueueMode = Literal["all", "one-at-a-time"]
InterruptMode = Literal["immediate", "wait"]
StreamingBehavior = Literal["steer", "followUp"]
# Any value is accepted here, because `parse_limits` refuses invalid values and unknown names.
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

    required_scope = "talk"
    streaming_behavior: StreamingBehavior | Absent = ABSENT
    output_schema: dict[str, Json] | Absent = ABSENT
    locale: str | Absent = ABSENT
    limits: LimitsGiven = ABSENT


class Steer(_Says, tag="steer", kw_only=True):
    """Queue a message for the next break in the running turn."""

    required_scope = "talk"
    older_names = ("queue_message",)


class FollowUp(_Says, tag="follow_up", kw_only=True):
    """Queue a message for when the agent would otherwise stop."""

    required_scope = "talk"


class AbortAndPrompt(_Says, tag="abort_and_prompt", kw_only=True):
    """Abort what is running, wait until it has ended, then prompt; `outputSchema` and `limits` as for `prompt`."""

    required_scope = "talk"
    output_schema: dict[str, Json] | Absent = ABSENT
    limits: LimitsGiven = ABSENT


class Abort(Command, tag="abort", kw_only=True):
    """Cancel the run and everything that belongs to it; answered when the agent is idle. With `toolCallId`,
    stop only that call and continue the turn; answered when the call has ended."""

    lane = "control"
    required_scope = "talk"
    effect = "sets"
    tool_call_id: str | Absent = ABSENT


class ClearQueue(Command, tag="clear_queue", kw_only=True):
    """Take back all queued messages."""

    answer = answers.ClearedQueue
    required_scope = "talk"


class RemoveQueued(Command, tag="remove_queued", kw_only=True):
    """Take back one queued message."""

    answer = answers.QueueItem
    required_scope = "talk"
    queued_id: str


class EditQueued(Command, tag="edit_queued", kw_only=True):
    """Change the text of a queued message; its images and its place in the queue stay."""

    answer = answers.QueueItem
    required_scope = "talk"
    queued_id: str
    message: str


class PromoteQueued(Command, tag="promote_queued", kw_only=True):
    """Deliver a queued message next: it becomes the first of the steering messages."""

    answer = answers.QueueItem
    required_scope = "talk"
    queued_id: str


# --- state -----------------------------------------------------------------------------------------------------------


class GetState(Command, tag="get_state", kw_only=True):
    """The current state of the session."""

    lane = "control"
    about = "connection"
    answer = answers.State
    required_scope = "read"
    effect = "reads"


class GetMessages(Command, tag="get_messages", kw_only=True):
    """The messages of the current context."""

    lane = "beside"
    answer = answers.Messages
    required_scope = "read"
    effect = "reads"


class GetMessagesPage(Command, tag="get_messages_page", kw_only=True):
    """One page of the messages, from the cursor of the previous page on."""

    lane = "beside"
    answer = answers.MessagesPage
    required_scope = "read"
    effect = "reads"
    cursor: Annotated[Json | Absent, Intended(str | Absent)] = ABSENT
    limit: Annotated[Json | Absent, Intended(int | Absent)] = ABSENT


class GetLastAssistantText(Command, tag="get_last_assistant_text", kw_only=True):
    """The text of the last answer; null if there is none."""

    lane = "beside"
    answer = answers.LastAssistantText
    required_scope = "read"
    effect = "reads"


class GetSessionStats(Command, tag="get_session_stats", kw_only=True):
    """Counts, tokens and cost of the session."""

    lane = "beside"
    answer = answers.SessionStats
    required_scope = "read"
    effect = "reads"


class GetCommands(Command, tag="get_commands", kw_only=True):
    """Slash commands that `prompt` understands."""

    lane = "beside"
    answer = answers.Commands
    required_scope = "read"
    effect = "reads"


class GetAvailableCommands(Command, tag="get_available_commands", kw_only=True):
    """`get_commands` under its other name."""

    lane = "beside"
    answer = answers.Commands
    required_scope = "read"
    effect = "reads"


class GetIntegrations(Command, tag="get_integrations", kw_only=True):
    """Whether the model can be used, and which services are attached."""

    lane = "beside"
    about = "connection"
    answer = answers.Integrations
    required_scope = "read"
    effect = "reads"


# --- models and thinking ---------------------------------------------------------------------------------------------


class SetModel(Command, tag="set_model", kw_only=True):
    """Use another model from the next request on."""

    answer = Model
    required_scope = "talk"
    effect = "sets"
    provider: str
    model_id: str


class CycleModel(Command, tag="cycle_model", kw_only=True):
    """Use the next model; null if there is nothing to cycle."""

    answer = answers.CycledModel | None
    required_scope = "talk"


class GetAvailableModels(Command, tag="get_available_models", kw_only=True):
    """All models with configured credentials."""

    lane = "beside"
    answer = answers.Models
    required_scope = "read"
    effect = "reads"


class SetThinkingLevel(Command, tag="set_thinking_level", kw_only=True):
    """Set the thinking level; it is clamped to what the model supports."""

    required_scope = "talk"
    effect = "sets"
    level: ThinkingLevel


class CycleThinkingLevel(Command, tag="cycle_thinking_level", kw_only=True):
    """Use the next thinking level; null for a model without thinking."""

    answer = answers.Level | None
    required_scope = "talk"


class GetAvailableThinkingLevels(Command, tag="get_available_thinking_levels", kw_only=True):
    """The thinking levels of the current model."""

    lane = "beside"
    answer = answers.Levels
    required_scope = "read"
    effect = "reads"


class SetFastMode(Command, tag="set_fast_mode", kw_only=True):
    """A model's faster service; it can only be turned off."""

    lane = "control"
    answer = answers.FastMode
    required_scope = "talk"
    effect = "sets"
    enabled: bool


class GetLoginProviders(Command, tag="get_login_providers", kw_only=True):
    """Providers that can be logged in to: none; keys come from files and variables."""

    lane = "control"
    answer = answers.LoginProviders
    required_scope = "read"
    effect = "reads"


class Login(Command, tag="login", kw_only=True):
    """Log in to a provider; refused, because keys come from files and variables."""

    lane = "control"
    answer = NoReturn
    required_scope = "admin"
    provider_id: Annotated[Json | Absent, Intended(str)] = ABSENT


# --- modes -----------------------------------------------------------------------------------------------------------


class SetSteeringMode(Command, tag="set_steering_mode", kw_only=True):
    """Deliver steering one message at a time, or all at once."""

    required_scope = "talk"
    effect = "sets"
    older_names = ("set_queue_mode",)
    outlives_worker = True
    mode: QueueMode


class SetFollowUpMode(Command, tag="set_follow_up_mode", kw_only=True):
    """Deliver follow-ups one message at a time, or all at once."""

    required_scope = "talk"
    effect = "sets"
    outlives_worker = True
    mode: QueueMode


class SetInterruptMode(Command, tag="set_interrupt_mode", kw_only=True):
    """`immediate` lets steering skip the remaining tool calls of a turn, `wait` does not."""

    required_scope = "talk"
    effect = "sets"
    outlives_worker = True
    mode: InterruptMode


class SetLocale(Command, tag="set_locale", kw_only=True):
    """Tell the model the language and region of the person at the host; an empty text clears it."""

    required_scope = "talk"
    effect = "sets"
    outlives_worker = True
    locale: str


class SetAutoCompaction(Command, tag="set_auto_compaction", kw_only=True):
    """Turn automatic compaction on or off."""

    required_scope = "talk"
    effect = "sets"
    outlives_worker = True
    enabled: bool


class SetAutoRetry(Command, tag="set_auto_retry", kw_only=True):
    """Turn the automatic retry of transient errors on or off."""

    required_scope = "talk"
    effect = "sets"
    outlives_worker = True
    enabled: bool


class SetLimits(Command, tag="set_limits", kw_only=True):
    """Replace the limits of the conversation; use counts from here on, and an empty object removes them."""

    lane = "control"
    answer = answers.LimitsState
    required_scope = "admin"
    effect = "sets"
    outlives_worker = True
    limits: Annotated[Json | Absent, Intended(Limits)] = ABSENT


class GetLimits(Command, tag="get_limits", kw_only=True):
    """The limits in force, and how much of them has been used."""

    lane = "control"
    answer = answers.LimitsState
    required_scope = "read"
    effect = "reads"


class AbortRetry(Command, tag="abort_retry", kw_only=True):
    """Cancel a retry that is waiting for its delay to pass."""

    lane = "control"
    required_scope = "talk"
    effect = "sets"


class Compact(Command, tag="compact", kw_only=True):
    """Summarize the history of the conversation now."""

    lane = "beside"
    answer = answers.Compacted
    required_scope = "talk"
    custom_instructions: str | Absent = ABSENT


class Handoff(Command, tag="handoff", kw_only=True):
    """Hand the work to a new conversation; refused: use `compact` and `new_session`."""

    lane = "control"
    answer = NoReturn
    required_scope = "talk"
    custom_instructions: Annotated[Json | Absent, Intended(str | Absent)] = ABSENT


# --- shell -----------------------------------------------------------------------------------------------------------


class Bash(Command, tag="bash", kw_only=True):
    """Run a shell command; its output becomes context of the next prompt."""

    lane = "beside"
    answer = answers.BashResult
    required_scope = "admin"
    command: str
    exclude_from_context: bool | Absent = ABSENT


class AbortBash(Command, tag="abort_bash", kw_only=True):
    """Kill the running `bash` commands."""

    lane = "control"
    required_scope = "admin"
    effect = "sets"


# --- subagents -------------------------------------------------------------------------------------------------------


class SetSubagentSubscription(Command, tag="set_subagent_subscription", kw_only=True):
    """Choose which frames about started agents to receive, in the dialects of oh-my-pi."""

    lane = "control"
    about = "connection"
    answer = answers.SubagentSubscription
    required_scope = "talk"
    effect = "sets"
    level: Annotated[Json | Absent, Intended(answers.SubagentLevel)] = ABSENT


class GetSubagents(Command, tag="get_subagents", kw_only=True):
    """The started agents that are at work, in oh-my-pi's words."""

    lane = "control"
    answer = answers.Subagents
    required_scope = "read"
    effect = "reads"


class GetSubagentMessages(Command, tag="get_subagent_messages", kw_only=True):
    """The session of a started agent from a byte of its file on, in oh-my-pi's words."""

    lane = "beside"
    answer = answers.SubagentPage
    required_scope = "read"
    effect = "reads"
    session_paths = ("session_file",)
    subagent_id: Annotated[Json | Absent, Intended(str | Absent)] = ABSENT
    session_file: Annotated[Json | Absent, Intended(str | Absent)] = ABSENT
    from_byte: Annotated[Json | Absent, Intended(int | Absent)] = ABSENT


CONVERSATION: tuple[type[Command], ...] = (
    Prompt, Steer, FollowUp, AbortAndPrompt, Abort, ClearQueue, RemoveQueued, EditQueued, PromoteQueued,
    GetState, GetMessages, GetMessagesPage, GetLastAssistantText,
    GetSessionStats, GetCommands, GetAvailableCommands, GetIntegrations, SetModel, CycleModel, GetAvailableModels,
    SetThinkingLevel, CycleThinkingLevel, GetAvailableThinkingLevels, SetFastMode, GetLoginProviders, Login,
    SetSteeringMode, SetFollowUpMode, SetInterruptMode, SetLocale, SetAutoCompaction, SetAutoRetry, SetLimits,
    GetLimits, AbortRetry, Compact, Handoff, Bash, AbortBash, SetSubagentSubscription, GetSubagents,
    GetSubagentMessages,
)  # fmt: skip
