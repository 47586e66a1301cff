"""Agents that an agent starts, their types, and the commands that run in the background."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from pigeon.wire.base import ABSENT, Absent, Record
from pigeon.wire.messages import Message
from pigeon.wire.model import Number, ThinkingLevel, Usage
from pigeon.wire.steering import Limits

AgentSource = Literal["bundled", "user", "project", "program"]
AgentStatus = Literal["waiting", "running", "done", "error", "limit", "aborted", "denied"]
AgentIsolation = Literal["none", "worktree"]
JobKind = Literal["command", "agent"]
JobStatus = Literal["running", "done", "failed", "stopped"]
# The type of the custom entry with which a session records an agent that it has started.
AGENT_ENTRY = "pigeon.agent"
UNFINISHED: tuple[AgentStatus, ...] = ("waiting", "running")


class AgentType(Struct, frozen=True, kw_only=True):
    """A kind of agent that the model can start with the tool `task`.

    Attributes:
        name: how the model names it
        description: what it is for; the model reads this to choose
        prompt: its system prompt; empty for that of Pigeon
        tools: the tools that it gets, by name or pattern; by default those of the agent that starts it
        model: `PROVIDER/ID`; by default the model of the agent that starts it
        thinking: how much it thinks; by default as the agent that starts it
        limits: the most that one of them may use; the limits of the whole tree hold besides
        permissions: rules that deny or ask, in addition to all others
        spawns: the types that it may start itself; by default all

    Example:
        import pigeon

        reviewer = pigeon.AgentType(name="reviewer", description="Reviews a change", tools=["read", "grep"])
        agent = pigeon.Agent(model="demo", agents=[reviewer])
    """

    name: str
    description: str
    prompt: str = ""
    tools: list[str] | None = None
    model: str | None = None
    thinking: ThinkingLevel | None = None
    limits: Limits = field(default_factory=Limits)
    permissions: dict[str, Any] = field(default_factory=dict)
    spawns: list[str] | None = None
    source: AgentSource = "program"
    path: str = ""


class AgentInfo(Record, kw_only=True):
    """An agent that another one has started: its type, what it was started for, and how far it is.

    `agentId` is the id of its session. `parentAgentId` is the agent that has started it: the id of the conversation's
    own session, or of another of these agents; `depth` is 1 for those of the conversation itself. `toolCallId` is the
    call of `task` that has started it. `usage` includes the agents that it has started itself.
    """

    agent_id: str
    parent_agent_id: str
    agent: str
    title: str | Absent = ABSENT
    status: AgentStatus
    depth: int
    tool_call_id: str | Absent = ABSENT
    session_id: str
    session_file: str | Absent = ABSENT
    usage: Usage
    background: bool | Absent = ABSENT
    activity: str | Absent = ABSENT


class RecentCall(Record, kw_only=True):
    """A tool call of an agent that has ended, and when."""

    tool: str
    args: str
    end_ms: int


class AgentWork(Record, kw_only=True):
    """What an agent has done and is doing, with the members of oh-my-pi's progress.

    `index` is its place among the agents that the same one has started; `recentTools` begins with the newest.
    """

    index: int
    agent_source: AgentSource
    task: str
    recent_tools: list[RecentCall]
    recent_output: list[str]
    tool_count: int
    requests: int
    tokens: int
    cost: Number
    duration_ms: int
    context_window: int | Absent = ABSENT
    resolved_model: str | Absent = ABSENT
    context_tokens: int | Absent = ABSENT
    current_tool: str | Absent = ABSENT
    current_tool_args: str | Absent = ABSENT
    current_tool_start_ms: int | Absent = ABSENT


class AgentList(Record, kw_only=True):
    """Answer of `get_agents`: all agents that were started in this conversation, those that have ended included."""

    agents: list[AgentInfo]


class AgentMessages(Record, kw_only=True):
    """Answer of `get_agent_messages`: the conversation as its model sees it."""

    messages: list[Message]


class AgentStarted(Record, kw_only=True):
    """Answer of `spawn_agent`: the id under which everything about the agent comes."""

    agent_id: str


class AgentMerged(Record, kw_only=True):
    """Answer of `merge_agent`. `files` are those that changed; with `conflicts`, nothing was merged."""

    merged: bool
    files: list[str] | Absent = ABSENT
    conflicts: list[str] | Absent = ABSENT


class JobInfo(Record, kw_only=True):
    """A command or an agent in the background; the job of an agent has its `agentId` as id.

    `seconds` is how long it has run, `exitCode` that of a command that has ended by itself. `agentId` is the agent that
    a command belongs to, if that is not the conversation itself.
    """

    job_id: str
    kind: JobKind
    title: str
    status: JobStatus
    seconds: Number
    exit_code: int | Absent = ABSENT
    tool_call_id: str | Absent = ABSENT
    agent_id: str | Absent = ABSENT


class JobList(Record, kw_only=True):
    """Answer of `get_jobs`: the oldest first."""

    jobs: list[JobInfo]


class JobOutput(Record, kw_only=True):
    """Answer of `get_job_output`: the output from a position on, where the next one begins, and how far the job is.

    If more has come since than is kept, the text begins with a note that says how much is left out.
    """

    text: str
    next: int
    status: JobStatus
    exit_code: int | Absent = ABSENT
