"""Slash commands about agents that the model has started, and about what runs in the background."""

from __future__ import annotations

from collections.abc import Callable

from pigeon.frontends.terminal.agent_rows import describe_use
from pigeon.frontends.terminal.blocks import BackgroundOutput, Notice, ToolCard
from pigeon.frontends.terminal.content.tool_details import first_words
from pigeon.frontends.terminal.past import recent_blocks_of
from pigeon.frontends.terminal.view import Choice, ChoiceQuestion, TextQuestion, View
from pigeon.sdk.conversation import Conversation
from pigeon.system.clock import duration_text
from pigeon.wire.agents import UNFINISHED, AgentInfo, JobInfo
from pigeon.wire.base import Absent, value_or_default
from pigeon.wire.content import ToolCall
from pigeon.wire.messages import UserMessage

DEEPEST = 6
NO_COMMAND = "No command of the agent is running that could go on in the background"
ENDED = {"error": "failed", "limit": "stopped by a limit", "aborted": "stopped", "denied": "not allowed"}


class AgentCommands:
    """The slash commands for one conversation. `running_command` returns the command that the model waits for."""

    def __init__(self, conversation: Conversation, view: View, running_command: Callable[[], ToolCard | None]) -> None:
        self._conversation = conversation
        self._view = view
        self._running_command = running_command

    async def choose_agent(self, rest: str) -> None:
        """Choose an agent, and what to do with it."""
        agents = (await self._conversation.get_agents()).agents
        if not agents:
            self._view.show(Notice("No agents have been started in this conversation", "faint"))
            return
        # What works comes first, then what has ended last.
        shown = [one for one in agents if one.status in UNFINISHED]
        shown += [one for one in reversed(agents) if one.status not in UNFINISHED]
        choices = [Choice(one.agent_id, _label_of(one), _state_of(one)) for one in shown]
        id = await self._view.ask(ChoiceQuestion("Which agent?", choices, search=True))
        chosen = next((one for one in agents if one.agent_id == id), None)
        if chosen is not None:
            await self._look_after_agent(chosen)

    async def _look_after_agent(self, agent: AgentInfo) -> None:
        works = agent.status in UNFINISHED
        choices = [
            Choice("show", "Show what it has said and done"),
            *((Choice("steer", "Send it a message"), Choice("stop", "Stop it")) if works else ()),
            *(() if works else (Choice("merge", "Merge its branch", "if it worked in a worktree"),)),
        ]
        match await self._view.ask(ChoiceQuestion(f"{agent.agent}: {_title_of(agent)}", choices, search=True)):
            case "show":
                await self._show_transcript(agent)
            case "steer":
                text = await self._view.ask(TextQuestion("What should it know?", multiline=True))
                if text:
                    await self._conversation.steer_agent(agent.agent_id, text)
                    self._view.show(Notice("It gets the message at its next break", "faint"))
            case "stop":
                await self._conversation.abort_agent(agent.agent_id)
                self._view.show(Notice(f"Stopped: {_title_of(agent)}", "faint"))
            case "merge":
                await self._merge(agent)

    async def _show_transcript(self, agent: AgentInfo) -> None:
        messages = (await self._conversation.get_agent_messages(agent.agent_id)).messages
        self._view.show(Notice(f"Agent {agent.agent}: {_title_of(agent)} ({_state_of(agent)})"))
        for block in recent_blocks_of(messages, _leave_out if agent.status in UNFINISHED else None):
            self._view.show(block)
        if not any(not isinstance(one, UserMessage) for one in messages):
            self._view.show(Notice("It has not said anything yet", "faint"))
        self._view.show(Notice("This was the agent; the conversation goes on below", "faint"))

    async def _merge(self, agent: AgentInfo) -> None:
        done = await self._conversation.merge_agent(agent.agent_id)
        if done.merged:
            files = value_or_default(done.files, [])
            self._view.show(Notice(f"Merged: {', '.join(files) or 'no file has changed'}"))
        else:
            files = value_or_default(done.conflicts, [])
            self._view.show(Notice(f"Not merged, because these files conflict: {', '.join(files)}", "warning"))

    async def choose_job(self, rest: str) -> None:
        """Choose what runs in the background or did, and what to do with it."""
        jobs = (await self._conversation.get_jobs()).jobs
        if not jobs:
            self._view.show(Notice("Nothing runs in the background", "faint"))
            return
        choices = [Choice(one.job_id, first_words(one.title), f"{one.kind}, {_state_of_job(one)}") for one in jobs]
        id = await self._view.ask(ChoiceQuestion("Which one?", choices, search=True))
        chosen = next((one for one in jobs if one.job_id == id), None)
        if chosen is None:
            return
        actions = [Choice("show", "Show its output")]
        if chosen.status == "running":
            actions.append(Choice("stop", "Stop it"))
        match await self._view.ask(ChoiceQuestion(first_words(chosen.title), actions, search=True)):
            case "show":
                await self._show_output(chosen.job_id)
            case "stop":
                await self._conversation.stop_job(chosen.job_id)

    async def _show_output(self, job_id: str) -> None:
        output = await self._conversation.get_job_output(job_id)
        job = next((one for one in (await self._conversation.get_jobs()).jobs if one.job_id == job_id), None)
        if job is not None:
            self._view.show(BackgroundOutput(job.title, f"{job.job_id}, {_state_of_job(job)}", output.text))

    async def send_to_background(self, rest: str) -> None:
        """Let the command that the model waits for go on in the background."""
        card = self._running_command()
        if card is None:
            self._view.show(Notice(NO_COMMAND, "warning"))
        else:
            await self._conversation.background_tool(card.call_id)


def _leave_out(call: ToolCall) -> None:
    """Leave out a call on which the agent is still at work."""


def _title_of(agent: AgentInfo) -> str:
    return first_words(value_or_default(agent.title, "")) or agent.agent_id


def _label_of(agent: AgentInfo) -> str:
    return f"{'  ' * min(agent.depth - 1, DEEPEST)}{agent.agent}: {_title_of(agent)}"


def _state_of(agent: AgentInfo) -> str:
    state = ENDED.get(agent.status, agent.status)
    used = describe_use(agent.usage.total_tokens, float(agent.usage.cost.total))
    return ", ".join(part for part in (state, used) if part)


def _state_of_job(job: JobInfo) -> str:
    if job.status == "running":
        return f"running for {duration_text(float(job.seconds))}"
    code = "" if isinstance(job.exit_code, Absent) else f", exit code {job.exit_code}"
    return f"{job.status}{code}, {duration_text(float(job.seconds))}"
