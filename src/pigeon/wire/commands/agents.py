"""Commands about the agents that an agent has started, and about what runs in the background."""

from __future__ import annotations

from typing import Annotated

from pigeon.wire import agents
from pigeon.wire.agents import AgentIsolation
from pigeon.wire.base import ABSENT, Absent, Intended, Json
from pigeon.wire.commands.base import Command
from pigeon.wire.steering import Limits


class SpawnAgent(Command, tag="spawn_agent", kw_only=True):
    """Start an agent of its own context for a message, as the tool `task` does; answered when it is accepted.

    It works in the background: with the feature `agents`, all of its events come with its `agentId`. `resume` continues
    one that has ended. Its last event is `agent_settled`.
    """

    answer = agents.AgentStarted
    required_scope = "talk"
    message: str
    agent: str | Absent = ABSENT
    title: str | Absent = ABSENT
    resume: str | Absent = ABSENT
    isolation: AgentIsolation = "none"
    output_schema: Json | Absent = ABSENT
    limits: Annotated[Json | Absent, Intended(Limits | Absent)] = ABSENT


class GetAgents(Command, tag="get_agents", kw_only=True):
    """All agents that were started in this conversation, by whichever of them, in the order of their start."""

    lane = "control"
    answer = agents.AgentList
    required_scope = "read"
    effect = "reads"


class GetAgentMessages(Command, tag="get_agent_messages", kw_only=True):
    """The messages of one agent's own conversation."""

    lane = "beside"
    answer = agents.AgentMessages
    required_scope = "read"
    effect = "reads"
    agent_id: str


class SteerAgent(Command, tag="steer_agent", kw_only=True):
    """Send a message to one running agent, which gets it at its next break."""

    lane = "control"
    required_scope = "talk"
    agent_id: str
    message: str


class AbortAgent(Command, tag="abort_agent", kw_only=True):
    """Stop one agent and those that it has started; answered when they have ended. The others go on."""

    lane = "control"
    required_scope = "talk"
    effect = "sets"
    agent_id: str


class MergeAgent(Command, tag="merge_agent", kw_only=True):
    """Merge the branch of an agent that worked in a worktree; with conflicts nothing changes."""

    lane = "beside"
    answer = agents.AgentMerged
    required_scope = "admin"
    agent_id: str


class GetJobs(Command, tag="get_jobs", kw_only=True):
    """The commands and agents in the background, those that have ended included; those of the conversation come first,
    then those of its agents, as long as these are running."""

    lane = "control"
    answer = agents.JobList
    required_scope = "read"
    effect = "reads"


class GetJobOutput(Command, tag="get_job_output", kw_only=True):
    """The output of a job from the position `after` on, which is the `next` of an earlier answer."""

    lane = "control"
    answer = agents.JobOutput
    required_scope = "read"
    effect = "reads"
    job_id: str
    after: int = 0


class StopJob(Command, tag="stop_job", kw_only=True):
    """Stop a job with everything that it has started; answered when it has ended."""

    lane = "control"
    required_scope = "talk"
    effect = "sets"
    job_id: str


class BackgroundTool(Command, tag="background_tool", kw_only=True):
    """Send a running command to the background: its call ends with the output so far and the id of the job."""

    lane = "control"
    required_scope = "talk"
    effect = "sets"
    tool_call_id: str


AGENTS: tuple[type[Command], ...] = (
    SpawnAgent, GetAgents, GetAgentMessages, SteerAgent, AbortAgent, MergeAgent,
    GetJobs, GetJobOutput, StopJob, BackgroundTool,
)  # fmt: skip
