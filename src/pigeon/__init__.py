"""Pigeon: a coding agent that other programs talk to.

import pigeon

async with pigeon.Agent(model="demo") as agent:
    async for event in agent.prompt("list the files"):
        if isinstance(event, pigeon.TextDelta):
            print(event.delta, end="")

Nothing is loaded before it is asked for, so that `import pigeon` itself costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pigeon.frontends.batch.public import batch as batch
    from pigeon.frontends.batch.public import batch_sync as batch_sync
    from pigeon.frontends.batch.records import Check as Check
    from pigeon.frontends.batch.records import CheckResult as CheckResult
    from pigeon.frontends.batch.records import Task as Task
    from pigeon.frontends.batch.records import TaskResult as TaskResult
    from pigeon.frontends.batch.records import Workspace as Workspace
    from pigeon.frontends.batch.shared_limits import Rate as Rate
    from pigeon.sdk.agent import Agent as Agent
    from pigeon.sdk.conversation import Conversation as Conversation
    from pigeon.sdk.errors import AnswerTimeout as AnswerTimeout
    from pigeon.sdk.errors import ConnectionLost as ConnectionLost
    from pigeon.sdk.errors import ConversationClosed as ConversationClosed
    from pigeon.sdk.errors import ProcessDied as ProcessDied
    from pigeon.sdk.errors import ReaderTooSlow as ReaderTooSlow
    from pigeon.sdk.errors import RunOver as RunOver
    from pigeon.sdk.host_calls import PermissionAnswer as PermissionAnswer
    from pigeon.sdk.host_calls import PermissionRequest as PermissionRequest
    from pigeon.sdk.images import ImageLike as ImageLike
    from pigeon.sdk.records import UnknownEvent as UnknownEvent
    from pigeon.sdk.remote.client import Client as Client
    from pigeon.sdk.results import ConversationEvent as ConversationEvent
    from pigeon.sdk.results import Result as Result
    from pigeon.sdk.spawned_runs import SpawnedRun as SpawnedRun
    from pigeon.sdk.sync import SyncAgent as SyncAgent
    from pigeon.sdk.sync import SyncClient as SyncClient
    from pigeon.sdk.sync import run_sync as run_sync
    from pigeon.sdk.tools import HostFunction as HostFunction
    from pigeon.sdk.tools import ToolContext as ToolContext
    from pigeon.sdk.tools import tool as tool
    from pigeon.session.history.file_store import FileStore as FileStore
    from pigeon.store.postgres import PostgresStore as PostgresStore
    from pigeon.store.protocol import Lease as Lease
    from pigeon.store.protocol import PositionMismatch as PositionMismatch
    from pigeon.store.protocol import SessionExists as SessionExists
    from pigeon.store.protocol import SessionNotFound as SessionNotFound
    from pigeon.store.protocol import SessionStore as SessionStore
    from pigeon.store.protocol import StaleEpoch as StaleEpoch
    from pigeon.store.protocol import StoredSession as StoredSession
    from pigeon.store.protocol import StoreUnavailable as StoreUnavailable

    # records
    from pigeon.wire.agents import AgentInfo as AgentInfo
    from pigeon.wire.agents import AgentList as AgentList
    from pigeon.wire.agents import AgentMerged as AgentMerged
    from pigeon.wire.agents import AgentMessages as AgentMessages
    from pigeon.wire.agents import AgentStarted as AgentStarted
    from pigeon.wire.agents import AgentType as AgentType
    from pigeon.wire.agents import AgentWork as AgentWork
    from pigeon.wire.agents import JobInfo as JobInfo
    from pigeon.wire.agents import JobList as JobList
    from pigeon.wire.agents import JobOutput as JobOutput
    from pigeon.wire.agents import RecentCall as RecentCall
    from pigeon.wire.answers import Accepted as Accepted
    from pigeon.wire.answers import BashResult as BashResult
    from pigeon.wire.answers import Branches as Branches
    from pigeon.wire.answers import BranchInfo as BranchInfo
    from pigeon.wire.answers import Cancelled as Cancelled
    from pigeon.wire.answers import ClearedQueue as ClearedQueue
    from pigeon.wire.answers import Commands as Commands
    from pigeon.wire.answers import Compacted as Compacted
    from pigeon.wire.answers import ContextUsage as ContextUsage
    from pigeon.wire.answers import CycledModel as CycledModel
    from pigeon.wire.answers import DumpedTool as DumpedTool
    from pigeon.wire.answers import Entries as Entries
    from pigeon.wire.answers import EventFilter as EventFilter
    from pigeon.wire.answers import Exported as Exported
    from pigeon.wire.answers import FastMode as FastMode
    from pigeon.wire.answers import Forked as Forked
    from pigeon.wire.answers import ForkMessage as ForkMessage
    from pigeon.wire.answers import ForkMessages as ForkMessages
    from pigeon.wire.answers import FoundFiles as FoundFiles
    from pigeon.wire.answers import FoundText as FoundText
    from pigeon.wire.answers import FoundTexts as FoundTexts
    from pigeon.wire.answers import HostUriSchemes as HostUriSchemes
    from pigeon.wire.answers import HtmlPage as HtmlPage
    from pigeon.wire.answers import HtmlPiece as HtmlPiece
    from pigeon.wire.answers import InputLimits as InputLimits
    from pigeon.wire.answers import Integrations as Integrations
    from pigeon.wire.answers import LastAssistantText as LastAssistantText
    from pigeon.wire.answers import Level as Level
    from pigeon.wire.answers import Levels as Levels
    from pigeon.wire.answers import LimitsState as LimitsState
    from pigeon.wire.answers import LocalOnly as LocalOnly
    from pigeon.wire.answers import LoginProviders as LoginProviders
    from pigeon.wire.answers import Messages as Messages
    from pigeon.wire.answers import MessagesPage as MessagesPage
    from pigeon.wire.answers import ModelReadiness as ModelReadiness
    from pigeon.wire.answers import Models as Models
    from pigeon.wire.answers import Navigated as Navigated
    from pigeon.wire.answers import OpenedSession as OpenedSession
    from pigeon.wire.answers import Permissions as Permissions
    from pigeon.wire.answers import QueueItem as QueueItem
    from pigeon.wire.answers import RenderedHtml as RenderedHtml
    from pigeon.wire.answers import SandboxState as SandboxState
    from pigeon.wire.answers import Service as Service
    from pigeon.wire.answers import SessionAllowance as SessionAllowance
    from pigeon.wire.answers import SessionRow as SessionRow
    from pigeon.wire.answers import Sessions as Sessions
    from pigeon.wire.answers import SessionStats as SessionStats
    from pigeon.wire.answers import SlashCommand as SlashCommand
    from pigeon.wire.answers import SourceInfo as SourceInfo
    from pigeon.wire.answers import SourceRules as SourceRules
    from pigeon.wire.answers import State as State
    from pigeon.wire.answers import SubagentPage as SubagentPage
    from pigeon.wire.answers import Subagents as Subagents
    from pigeon.wire.answers import SubagentSubscription as SubagentSubscription
    from pigeon.wire.answers import TodoPhases as TodoPhases
    from pigeon.wire.answers import TokenTotals as TokenTotals
    from pigeon.wire.answers import ToolNames as ToolNames
    from pigeon.wire.answers import Tree as Tree
    from pigeon.wire.answers import TreeNode as TreeNode
    from pigeon.wire.answers import TrustChange as TrustChange
    from pigeon.wire.answers import TrustState as TrustState
    from pigeon.wire.answers import Welcome as Welcome
    from pigeon.wire.answers import WorkspaceState as WorkspaceState
    from pigeon.wire.commands.changes import ChangedFile as ChangedFile
    from pigeon.wire.commands.changes import Changes as Changes
    from pigeon.wire.commands.mcp import McpCompletion as McpCompletion
    from pigeon.wire.commands.mcp import McpCompletions as McpCompletions
    from pigeon.wire.commands.mcp import McpResource as McpResource
    from pigeon.wire.commands.mcp import McpResources as McpResources
    from pigeon.wire.commands.mcp import McpServers as McpServers
    from pigeon.wire.commands.mcp import McpServerState as McpServerState
    from pigeon.wire.commands.services import HostFileStatus as HostFileStatus
    from pigeon.wire.commands.services import HostFolderEntry as HostFolderEntry
    from pigeon.wire.commands.services import HostMatch as HostMatch
    from pigeon.wire.commands.services import HostServicesState as HostServicesState
    from pigeon.wire.commands.undo import CheckpointInfo as CheckpointInfo
    from pigeon.wire.commands.undo import Checkpoints as Checkpoints
    from pigeon.wire.commands.undo import FileAndChange as FileAndChange
    from pigeon.wire.commands.undo import FileAndReason as FileAndReason
    from pigeon.wire.commands.undo import RestoredFiles as RestoredFiles
    from pigeon.wire.commands.undo import UndoPreview as UndoPreview
    from pigeon.wire.content import Attachment as Attachment
    from pigeon.wire.content import ImageContent as ImageContent
    from pigeon.wire.content import ImageInput as ImageInput
    from pigeon.wire.content import ImageSource as ImageSource
    from pigeon.wire.content import TextContent as TextContent
    from pigeon.wire.content import ThinkingContent as ThinkingContent
    from pigeon.wire.content import ToolCall as ToolCall
    from pigeon.wire.content import text_of as text_of
    from pigeon.wire.dialogs import CancelRequest as CancelRequest
    from pigeon.wire.dialogs import ConfirmRequest as ConfirmRequest
    from pigeon.wire.dialogs import DialogRequest as DialogRequest
    from pigeon.wire.dialogs import EditorRequest as EditorRequest
    from pigeon.wire.dialogs import InputRequest as InputRequest
    from pigeon.wire.dialogs import NotifyRequest as NotifyRequest
    from pigeon.wire.dialogs import SelectRequest as SelectRequest
    from pigeon.wire.dialogs import SetEditorTextRequest as SetEditorTextRequest
    from pigeon.wire.dialogs import SetStatusRequest as SetStatusRequest
    from pigeon.wire.dialogs import SetTitleRequest as SetTitleRequest
    from pigeon.wire.dialogs import SetWidgetRequest as SetWidgetRequest
    from pigeon.wire.entries import BranchSummaryEntry as BranchSummaryEntry
    from pigeon.wire.entries import CompactionEntry as CompactionEntry
    from pigeon.wire.entries import ContextEdit as ContextEdit
    from pigeon.wire.entries import CustomEntry as CustomEntry
    from pigeon.wire.entries import CustomMessageEntry as CustomMessageEntry
    from pigeon.wire.entries import ForeignEntry as ForeignEntry
    from pigeon.wire.entries import LabelEntry as LabelEntry
    from pigeon.wire.entries import MessageEntry as MessageEntry
    from pigeon.wire.entries import ModelChange as ModelChange
    from pigeon.wire.entries import SessionHeader as SessionHeader
    from pigeon.wire.entries import SessionInfo as SessionInfo
    from pigeon.wire.entries import ThinkingLevelChange as ThinkingLevelChange
    from pigeon.wire.entries import UsageEntry as UsageEntry
    from pigeon.wire.errors import PigeonError as PigeonError
    from pigeon.wire.errors import Refusal as Refusal
    from pigeon.wire.errors import StartupError as StartupError
    from pigeon.wire.events import AgentChanged as AgentChanged
    from pigeon.wire.events import AgentEnd as AgentEnd
    from pigeon.wire.events import AgentRestarted as AgentRestarted
    from pigeon.wire.events import AgentSettled as AgentSettled
    from pigeon.wire.events import AgentStart as AgentStart
    from pigeon.wire.events import AutoCompactionEnd as AutoCompactionEnd
    from pigeon.wire.events import AutoCompactionStart as AutoCompactionStart
    from pigeon.wire.events import AutoRetryEnd as AutoRetryEnd
    from pigeon.wire.events import AutoRetryStart as AutoRetryStart
    from pigeon.wire.events import AvailableCommand as AvailableCommand
    from pigeon.wire.events import AvailableCommandsUpdate as AvailableCommandsUpdate
    from pigeon.wire.events import BashExecutionUpdate as BashExecutionUpdate
    from pigeon.wire.events import CompactionEnd as CompactionEnd
    from pigeon.wire.events import CompactionStart as CompactionStart
    from pigeon.wire.events import EntryAppended as EntryAppended
    from pigeon.wire.events import ErrorEvent as ErrorEvent
    from pigeon.wire.events import Event as Event
    from pigeon.wire.events import ExtensionError as ExtensionError
    from pigeon.wire.events import FileChanged as FileChanged
    from pigeon.wire.events import FilesRestored as FilesRestored
    from pigeon.wire.events import Gap as Gap
    from pigeon.wire.events import GapSnapshot as GapSnapshot
    from pigeon.wire.events import HostCommandRun as HostCommandRun
    from pigeon.wire.events import HostFileList as HostFileList
    from pigeon.wire.events import HostFileRead as HostFileRead
    from pigeon.wire.events import HostFileStat as HostFileStat
    from pigeon.wire.events import HostFileWrite as HostFileWrite
    from pigeon.wire.events import HostSearch as HostSearch
    from pigeon.wire.events import HostServiceCancel as HostServiceCancel
    from pigeon.wire.events import HostToolCall as HostToolCall
    from pigeon.wire.events import HostToolCancel as HostToolCancel
    from pigeon.wire.events import JobChanged as JobChanged
    from pigeon.wire.events import McpServerChanged as McpServerChanged
    from pigeon.wire.events import MessageEnd as MessageEnd
    from pigeon.wire.events import MessageStart as MessageStart
    from pigeon.wire.events import MessageUpdate as MessageUpdate
    from pigeon.wire.events import PermissionResolved as PermissionResolved
    from pigeon.wire.events import PromptError as PromptError
    from pigeon.wire.events import PromptResult as PromptResult
    from pigeon.wire.events import QueueUpdate as QueueUpdate
    from pigeon.wire.events import Ready as Ready
    from pigeon.wire.events import SelectionChanged as SelectionChanged
    from pigeon.wire.events import SessionInfoChanged as SessionInfoChanged
    from pigeon.wire.events import SessionSettled as SessionSettled
    from pigeon.wire.events import StreamEvent as StreamEvent
    from pigeon.wire.events import SubagentEvent as SubagentEvent
    from pigeon.wire.events import SubagentLifecycle as SubagentLifecycle
    from pigeon.wire.events import SubagentProgress as SubagentProgress
    from pigeon.wire.events import SummarizationRetryAttemptStart as SummarizationRetryAttemptStart
    from pigeon.wire.events import SummarizationRetryFinished as SummarizationRetryFinished
    from pigeon.wire.events import SummarizationRetryScheduled as SummarizationRetryScheduled
    from pigeon.wire.events import TextDelta as TextDelta
    from pigeon.wire.events import TextEnd as TextEnd
    from pigeon.wire.events import TextStart as TextStart
    from pigeon.wire.events import ThinkingDelta as ThinkingDelta
    from pigeon.wire.events import ThinkingEnd as ThinkingEnd
    from pigeon.wire.events import ThinkingLevelChanged as ThinkingLevelChanged
    from pigeon.wire.events import ThinkingStart as ThinkingStart
    from pigeon.wire.events import TodoAutoClear as TodoAutoClear
    from pigeon.wire.events import TodoReminder as TodoReminder
    from pigeon.wire.events import ToolcallDelta as ToolcallDelta
    from pigeon.wire.events import ToolcallEnd as ToolcallEnd
    from pigeon.wire.events import ToolcallStart as ToolcallStart
    from pigeon.wire.events import ToolExecutionEnd as ToolExecutionEnd
    from pigeon.wire.events import ToolExecutionStart as ToolExecutionStart
    from pigeon.wire.events import ToolExecutionUpdate as ToolExecutionUpdate
    from pigeon.wire.events import ToolOutcome as ToolOutcome
    from pigeon.wire.events import ToolsDeclared as ToolsDeclared
    from pigeon.wire.events import TrustRequired as TrustRequired
    from pigeon.wire.events import TtsrTriggered as TtsrTriggered
    from pigeon.wire.events import TurnEnd as TurnEnd
    from pigeon.wire.events import TurnStart as TurnStart
    from pigeon.wire.messages import Acceptance as Acceptance
    from pigeon.wire.messages import AssistantMessage as AssistantMessage
    from pigeon.wire.messages import BashExecutionMessage as BashExecutionMessage
    from pigeon.wire.messages import BranchSummaryMessage as BranchSummaryMessage
    from pigeon.wire.messages import CompactionSummaryMessage as CompactionSummaryMessage
    from pigeon.wire.messages import CustomMessage as CustomMessage
    from pigeon.wire.messages import Message as Message
    from pigeon.wire.messages import NestedCall as NestedCall
    from pigeon.wire.messages import NestedCalls as NestedCalls
    from pigeon.wire.messages import SystemMessage as SystemMessage
    from pigeon.wire.messages import ToolDeclaration as ToolDeclaration
    from pigeon.wire.messages import ToolReference as ToolReference
    from pigeon.wire.messages import ToolResultMessage as ToolResultMessage
    from pigeon.wire.messages import UserMessage as UserMessage
    from pigeon.wire.model import Cost as Cost
    from pigeon.wire.model import CostTier as CostTier
    from pigeon.wire.model import Model as Model
    from pigeon.wire.model import ModelCost as ModelCost
    from pigeon.wire.model import Usage as Usage
    from pigeon.wire.steering import LimitedUse as LimitedUse
    from pigeon.wire.steering import LimitReached as LimitReached
    from pigeon.wire.steering import Limits as Limits
    from pigeon.wire.steering import Rule as Rule
    from pigeon.wire.steering import RuleSource as RuleSource
    from pigeon.wire.steering import TodoPhase as TodoPhase
    from pigeon.wire.steering import TodoPhaseGiven as TodoPhaseGiven
    from pigeon.wire.steering import TodoTask as TodoTask
    from pigeon.wire.steering import TodoTaskGiven as TodoTaskGiven
    # end of records

__version__ = "0.1.0"

# Each module with the names that are taken from it when they are first asked for.
_HOMES = {
    "pigeon.frontends.batch.public": "batch batch_sync",
    "pigeon.frontends.batch.records": "Check CheckResult Task TaskResult Workspace",
    "pigeon.frontends.batch.shared_limits": "Rate",
    "pigeon.sdk.agent": "Agent",
    "pigeon.sdk.remote.client": "Client",
    "pigeon.sdk.conversation": "Conversation",
    "pigeon.sdk.errors": "AnswerTimeout ConnectionLost ConversationClosed ProcessDied ReaderTooSlow RunOver",
    "pigeon.sdk.host_calls": "PermissionAnswer PermissionRequest",
    "pigeon.sdk.images": "ImageLike",
    "pigeon.sdk.records": "UnknownEvent",
    "pigeon.sdk.results": "ConversationEvent Result",
    "pigeon.sdk.spawned_runs": "SpawnedRun",
    "pigeon.sdk.sync": "SyncAgent SyncClient run_sync",
    "pigeon.sdk.tools": "HostFunction ToolContext tool",
    "pigeon.session.history.file_store": "FileStore",
    "pigeon.store.postgres": "PostgresStore",
    "pigeon.store.protocol": (
        "Lease PositionMismatch SessionExists SessionNotFound SessionStore StaleEpoch StoredSession StoreUnavailable "
    ),
    # lazy records
    "pigeon.wire.agents": (
        "AgentInfo AgentList AgentMerged AgentMessages AgentStarted AgentType AgentWork JobInfo JobList "
        "JobOutput RecentCall "
    ),
    "pigeon.wire.answers": (
        "Accepted BashResult BranchInfo Branches Cancelled ClearedQueue Commands Compacted ContextUsage "
        "CycledModel DumpedTool Entries EventFilter Exported FastMode ForkMessage ForkMessages Forked "
        "FoundFiles FoundText FoundTexts HostUriSchemes HtmlPage HtmlPiece InputLimits Integrations "
        "LastAssistantText Level Levels LimitsState LocalOnly LoginProviders Messages MessagesPage "
        "ModelReadiness Models Navigated OpenedSession Permissions QueueItem RenderedHtml SandboxState "
        "Service SessionAllowance SessionRow SessionStats Sessions SlashCommand SourceInfo SourceRules State "
        "SubagentPage SubagentSubscription Subagents TodoPhases TokenTotals ToolNames Tree TreeNode "
        "TrustChange TrustState Welcome WorkspaceState "
    ),
    "pigeon.wire.commands.changes": "ChangedFile Changes",
    "pigeon.wire.commands.mcp": "McpCompletion McpCompletions McpResource McpResources McpServerState McpServers",
    "pigeon.wire.commands.services": "HostFileStatus HostFolderEntry HostMatch HostServicesState",
    "pigeon.wire.commands.undo": "CheckpointInfo Checkpoints FileAndChange FileAndReason RestoredFiles UndoPreview",
    "pigeon.wire.content": (
        "Attachment ImageContent ImageInput ImageSource TextContent ThinkingContent ToolCall text_of "
    ),
    "pigeon.wire.dialogs": (
        "CancelRequest ConfirmRequest DialogRequest EditorRequest InputRequest NotifyRequest SelectRequest "
        "SetEditorTextRequest SetStatusRequest SetTitleRequest SetWidgetRequest "
    ),
    "pigeon.wire.entries": (
        "BranchSummaryEntry CompactionEntry ContextEdit CustomEntry CustomMessageEntry ForeignEntry "
        "LabelEntry MessageEntry ModelChange SessionHeader SessionInfo ThinkingLevelChange UsageEntry "
    ),
    "pigeon.wire.errors": "PigeonError Refusal StartupError",
    "pigeon.wire.events": (
        "AgentChanged AgentEnd AgentRestarted AgentSettled AgentStart AutoCompactionEnd AutoCompactionStart "
        "AutoRetryEnd AutoRetryStart AvailableCommand AvailableCommandsUpdate BashExecutionUpdate "
        "CompactionEnd CompactionStart EntryAppended ErrorEvent Event ExtensionError FileChanged "
        "FilesRestored Gap GapSnapshot HostCommandRun HostFileList HostFileRead HostFileStat HostFileWrite "
        "HostSearch HostServiceCancel HostToolCall HostToolCancel JobChanged McpServerChanged MessageEnd "
        "MessageStart MessageUpdate PermissionResolved PromptError PromptResult QueueUpdate Ready "
        "SelectionChanged SessionInfoChanged SessionSettled StreamEvent SubagentEvent SubagentLifecycle "
        "SubagentProgress SummarizationRetryAttemptStart SummarizationRetryFinished "
        "SummarizationRetryScheduled TextDelta TextEnd TextStart ThinkingDelta ThinkingEnd "
        "ThinkingLevelChanged ThinkingStart TodoAutoClear TodoReminder ToolExecutionEnd ToolExecutionStart "
        "ToolExecutionUpdate ToolOutcome ToolcallDelta ToolcallEnd ToolcallStart ToolsDeclared TrustRequired "
        "TtsrTriggered TurnEnd TurnStart "
    ),
    "pigeon.wire.messages": (
        "Acceptance AssistantMessage BashExecutionMessage BranchSummaryMessage CompactionSummaryMessage "
        "CustomMessage Message NestedCall NestedCalls SystemMessage ToolDeclaration ToolReference "
        "ToolResultMessage UserMessage "
    ),
    "pigeon.wire.model": "Cost CostTier Model ModelCost Usage",
    "pigeon.wire.steering": (
        "LimitReached LimitedUse Limits Rule RuleSource TodoPhase TodoPhaseGiven TodoTask TodoTaskGiven "
    ),
    # end of lazy records
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}
__all__ = ["__version__", *_MODULES]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"pigeon has no {name!r}")
    from importlib import import_module

    from pigeon.system.garbage import pausing_garbage_collection

    with pausing_garbage_collection():
        value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
