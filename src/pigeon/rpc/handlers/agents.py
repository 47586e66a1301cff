"""Handlers: the agents that were started, and what runs in the background."""

from __future__ import annotations

import asyncio

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire.agents import AgentList, AgentMerged, AgentMessages, AgentStarted, JobList, JobOutput
from pigeon.wire.commands import (
    AbortAgent,
    BackgroundTool,
    GetAgentMessages,
    GetAgents,
    GetJobOutput,
    GetJobs,
    MergeAgent,
    SpawnAgent,
    SteerAgent,
    StopJob,
)


@handles(SpawnAgent)
async def spawn_agent(cmd: SpawnAgent, s: Session) -> AgentStarted:
    return AgentStarted(agent_id=await s.dependencies.agents.spawn(cmd))


@handles(GetAgents)
def get_agents(cmd: GetAgents, s: Session) -> AgentList:
    return AgentList(agents=s.dependencies.agents.list_agents())


@handles(GetAgentMessages)
async def get_agent_messages(cmd: GetAgentMessages, s: Session) -> AgentMessages:
    return AgentMessages(messages=await asyncio.to_thread(s.dependencies.agents.list_messages, cmd.agent_id))


@handles(SteerAgent)
async def steer_agent(cmd: SteerAgent, s: Session) -> None:
    await s.dependencies.agents.steer(cmd.agent_id, cmd.message)


@handles(AbortAgent)
async def abort_agent(cmd: AbortAgent, s: Session) -> None:
    """Takes effect at once; answered when the agent has ended."""
    await s.dependencies.agents.abort(cmd.agent_id)


@handles(MergeAgent)
async def merge_agent(cmd: MergeAgent, s: Session) -> AgentMerged:
    return await s.dependencies.agents.merge(cmd.agent_id)


@handles(GetJobs)
def get_jobs(cmd: GetJobs, s: Session) -> JobList:
    return JobList(jobs=s.dependencies.jobs.list_all_jobs())


@handles(GetJobOutput)
def get_job_output(cmd: GetJobOutput, s: Session) -> JobOutput:
    job = s.dependencies.jobs.find_any_job(cmd.job_id)
    part, info = job.read(cmd.after), job.info
    return JobOutput(text=part.text, next=part.next, status=info.status, exit_code=info.exit_code)


@handles(StopJob)
async def stop_job(cmd: StopJob, s: Session) -> None:
    """Answered when everything of the job has ended."""
    await s.dependencies.jobs.find_any_job(cmd.job_id).stop()


@handles(BackgroundTool)
def background_tool(cmd: BackgroundTool, s: Session) -> None:
    """The call ends soon after, with the output so far."""
    s.dependencies.jobs.detach(cmd.tool_call_id)
