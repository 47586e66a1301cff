"""Commands in the background: started there, sent there, read, written to, waited for and stopped."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path
from typing import Any

import pytest

import pigeon
from pigeon.system.shell.kept_output import KeptOutput
from support.agent_trees import AgentTree, calls, events_of, results_of, task, text_of_result
from support.processes import eventually, processes_in
from support.sdk_agents import call


@pytest.fixture
def tree(tmp_path: Path) -> AgentTree:
    return AgentTree(tmp_path)


def details_of(events: list[Any], tool: str) -> list[dict[str, Any]]:
    return [end.result.details for end in results_of(events, tool)]


async def test_a_command_is_started_written_to_and_waited_for(tree: AgentTree) -> None:
    tree.says(
        "ROOT",
        call("bash", command="read x; echo got $x; exit 3", background=True),
        call("jobs", action="write", id="job-1", text="plum\n"),
        call("jobs", action="wait", id="job-1", seconds=20),
        call("jobs", action="list"),
        "Done.",
    )
    async with tree.start() as agent:
        events = await events_of(agent, "ROOT")
    assert details_of(events, "bash")[0]["jobId"] == "job-1"
    _, waited, listed = results_of(events, "jobs")
    assert "got plum" in text_of_result(waited)
    assert (waited.result.details["status"], waited.result.details["exitCode"]) == ("failed", 3)
    [job] = listed.result.details["jobs"]
    assert (job["jobId"], job["kind"], job["status"], job["exitCode"]) == ("job-1", "command", "failed", 3)


async def test_reading_goes_on_where_the_last_result_has_ended(tree: AgentTree) -> None:
    tree.says(
        "ROOT",
        call("bash", command="echo one; read x; echo two", background=True),
        call(
            "bash",
            command="while ! grep -q one *job-1* ../*/*/*job-1* 2>/dev/null && [ $((n=n+1)) -lt 20 ]; do :; done",
        ),
        call("jobs", action="write", id="job-1", text="\n"),
        call("jobs", action="wait", id="job-1", seconds=20),
        call("jobs", action="read", id="job-1", after=4),
        "Done.",
    )
    async with tree.start() as agent:
        events = await events_of(agent, "ROOT")
    *_, read = results_of(events, "jobs")
    assert text_of_result(read).endswith("two\n")
    assert "one" not in text_of_result(read).partition("\n\n")[2]
    assert read.result.details["next"] == 8


async def test_the_model_is_told_of_an_end_once(tree: AgentTree) -> None:
    tree.says(
        "ROOT",
        call("bash", command="true", background=True),
        call("jobs", action="list"),
        call("bash", command="true"),
        "Done.",
    )
    async with tree.start() as agent:
        events = await events_of(agent, "ROOT")
        async with asyncio.timeout(20):
            while (await agent.get_jobs()).jobs[0].status == "running":  # noqa: ASYNC110
                await asyncio.sleep(0)
        again = await events_of(agent, "And now?")
    notices = [
        event.message.content
        for event in [*events, *again]
        if isinstance(event, pigeon.MessageEnd) and isinstance(event.message, pigeon.CustomMessage)
    ]
    assert [text for text in map(str, notices) if "job-1" in text and "exit code 0" in text] == list(map(str, notices))
    assert len(notices) == 1


async def test_an_end_starts_a_run_if_the_settings_say_so(tree: AgentTree) -> None:
    tree.made.settings(jobs={"startRun": True})
    tree.says("ROOT", call("bash", command="while [ ! -e go ]; do :; done", background=True), "I wait.")
    tree.says("has ended", "I saw it.")
    async with tree.start() as agent:
        await agent.run("ROOT")
        reading = agent.events()
        (tree.work / "go").touch()
        async with asyncio.timeout(20):
            async for event in reading:
                if isinstance(event, pigeon.AgentSettled):
                    break
        assert (await agent.get_last_assistant_text()).text == "I saw it."


async def test_a_running_command_is_sent_to_the_background(tree: AgentTree) -> None:
    tree.says("ROOT", call("bash", command="echo first; while [ ! -e go ]; do :; done; echo last"), "Done.")
    async with tree.start() as agent:
        async for event in agent.prompt("ROOT"):
            if isinstance(event, pigeon.ToolExecutionUpdate) and "first" in pigeon.text_of(
                event.partial_result.content
            ):
                await agent.background_tool(event.tool_call_id)
            if isinstance(event, pigeon.ToolExecutionEnd):
                assert "first" in text_of_result(event)
                job = event.result.details["jobId"]
        assert (await agent.get_jobs()).jobs[0].status == "running"
        watching = agent.events()
        (tree.work / "go").touch()
        async for event in watching:
            if isinstance(event, pigeon.JobChanged) and event.job.status != "running":
                break
        output = await agent.get_job_output(job)
    assert (output.text, output.status, output.exit_code) == ("first\nlast\n", "done", 0)


async def test_jobs_end_with_the_conversation_and_leave_no_process(tree: AgentTree) -> None:
    tree.says("ROOT", call("bash", command="sleep 60 & setsid sleep 60 & sleep 60", background=True), "Done.")
    async with tree.start() as agent:
        await agent.run("ROOT")
        assert (await agent.get_jobs()).jobs[0].status == "running"
        await agent.new_session()
        assert (await agent.get_jobs()).jobs == []
    assert not processes_in(f"HOME={tree.folders.home}")


async def test_the_model_stops_a_command_which_has_ended_then(tree: AgentTree) -> None:
    tree.says(
        "ROOT",
        call("bash", command="sleep 60 & sleep 60", background=True),
        call("jobs", action="stop", id="job-1"),
        call("jobs", action="list"),
        "Done.",
    )
    async with tree.start() as agent:
        events = await events_of(agent, "ROOT")
    stopped, listed = results_of(events, "jobs")
    assert text_of_result(stopped) == "Stopped job-1."
    assert stopped.result.details["status"] == "stopped"
    assert [job["status"] for job in listed.result.details["jobs"]] == ["stopped"]


async def test_an_abort_leaves_commands_in_the_background_until_they_are_stopped(tree: AgentTree) -> None:
    tree.says("ROOT", call("bash", command="sleep 60", background=True), {"text": "On", "hang": True})
    async with tree.start() as agent:
        async for event in agent.prompt("ROOT"):
            if isinstance(event, pigeon.TextDelta):
                break
        assert (await agent.get_jobs()).jobs[0].status == "running"
        await agent.stop_job("job-1")
        assert (await agent.get_jobs()).jobs[0].status == "stopped"


async def test_rules_hold_for_commands_in_the_background(tree: AgentTree) -> None:
    tree.says("ROOT", call("bash", command="touch x", background=True), "Done.")
    async with tree.start(permissions={"deny": ["bash(touch *)"]}) as agent:
        [end] = results_of(await events_of(agent, "ROOT"), "bash")
        assert (await agent.get_jobs()).jobs == []
    assert end.is_error
    assert not (tree.work / "x").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"action": "read"}, "id is missing"),
        ({"action": "read", "id": "job-9"}, 'no job "job-9". Known: job-1'),
        ({"action": "write", "id": "job-1"}, "text is missing"),
        ({"action": "wait", "id": "job-1", "seconds": -1}, "Invalid seconds: -1"),
        ({"action": "read", "id": "job-1", "after": -1}, "Invalid after: -1"),
        ({"action": "dance", "id": "job-1"}, "action"),
    ],
)
async def test_a_wrong_action_says_what_is_wrong(tree: AgentTree, arguments: dict[str, Any], expected: str) -> None:
    tree.says("ROOT", call("bash", command="true", background=True), call("jobs", **arguments), "Done.")
    async with tree.start() as agent:
        [end] = results_of(await events_of(agent, "ROOT"), "jobs")
    assert end.is_error
    assert expected in text_of_result(end)


async def test_without_the_tool_for_jobs_a_command_cannot_be_left_in_the_background(tree: AgentTree) -> None:
    tree.says("ROOT", call("bash", command="echo here", background=True), "Done.")
    async with tree.start(tools=("bash",)) as agent:
        [end] = results_of(await events_of(agent, "ROOT"), "bash")
        assert (await agent.get_jobs()).jobs == []
    assert text_of_result(end) == "here\n"


def test_a_kept_output_is_limited_and_keeps_its_end(tmp_path: Path) -> None:
    kept = KeptOutput(str(tmp_path / "out"), largest=1000)
    for number in range(1000):
        kept.append(b"%04d\n" % number)
    part = kept.read(0, most=100)
    assert part.next == kept.end == 5000
    assert part.text.endswith("0998\n0999\n")
    assert part.text.startswith("[4.8KB of output are left out here]\n")
    assert kept.read(4990).text == "0998\n0999\n"[:10]
    assert (tmp_path / "out").stat().st_size <= 1000
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600
    kept.close()
    assert kept.read(4990).text == "0998\n0999\n"


def test_a_kept_output_goes_on_in_memory_when_the_disk_is_full(tmp_path: Path) -> None:
    kept = KeptOutput(str(tmp_path / "out"))
    kept.append(b"one\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, before[1]))
    try:
        kept.append(b"two\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    kept.append(b"three\n")
    assert kept.read(0).text == "one\ntwo\nthree\n"
    assert kept.read(4).text == "two\nthree\n"


def test_a_kept_output_without_a_disk_keeps_the_end_in_memory() -> None:
    kept = KeptOutput(None)
    kept.append("ä".encode() * 200_000)
    part = kept.read(0)
    assert part.next == 400_000
    assert part.text.rstrip("ä").startswith("[")


async def test_waiting_for_any_job_returns_the_first_that_has_ended(tree: AgentTree) -> None:
    tree.says(
        "ROOT",
        call("bash", command="read x", background=True),
        call("bash", command="echo quick", background=True),
        call("jobs", action="wait", seconds=20),
        call("jobs", action="stop", id="job-1"),
        call("jobs", action="wait"),
        "Done.",
    )
    async with tree.start() as agent:
        events = await events_of(agent, "ROOT")
    waited, _, nothing = results_of(events, "jobs")
    assert waited.result.details["jobId"] == "job-2"
    assert "quick" in text_of_result(waited)
    assert nothing.is_error
    assert "Nothing runs" in text_of_result(nothing)


async def test_a_read_is_at_most_50_kb_and_keeps_the_end(tree: AgentTree) -> None:
    """Bytes that are no text become longer when they are shown."""
    tree.says(
        "ROOT",
        call("bash", command="head -c 300000 /dev/urandom; echo; echo äöü END", background=True),
        call("jobs", action="wait", id="job-1", seconds=20),
        "Done.",
    )
    async with tree.start() as agent:
        [read] = results_of(await events_of(agent, "ROOT"), "jobs")
        output = (await agent.get_job_output("job-1")).text
    for text in (text_of_result(read), output):
        assert len(text.encode()) <= 50 * 1024
        assert text.rstrip().endswith("äöü END")
    assert "left out" in output


async def test_the_output_of_an_agent_is_read_once(tree: AgentTree) -> None:
    tree.says("CHILD", call("bash", command="while [ ! -e go ]; do :; done"), "the answer")
    tree.says("ROOT", calls(task("CHILD", background=True, title="work")), "Done.")
    async with tree.start() as agent:
        watching = agent.events()
        await agent.run("ROOT")
        async for event in watching:
            if isinstance(event, pigeon.AgentChanged) and isinstance(event.agent.activity, str):
                break
        [job] = (await agent.get_jobs()).jobs
        before = await agent.get_job_output(job.job_id)
        (tree.work / "go").touch()
        async for event in watching:
            if isinstance(event, pigeon.JobChanged) and event.job.status != "running":
                break
        after = await agent.get_job_output(job.job_id, after=before.next)
        again = await agent.get_job_output(job.job_id, after=after.next)
        whole = await agent.get_job_output(job.job_id)
    assert "while" in before.text
    assert after.text.startswith("the answer")
    assert (again.text, again.next) == ("", after.next)
    assert whole.text == after.text


async def test_the_host_sees_and_stops_the_commands_of_agents(tree: AgentTree) -> None:
    tree.says("ROOT", call("bash", command="read x", background=True), calls(task("CHILD")), "Done.")
    tree.says("CHILD", call("bash", command="read x", background=True), call("jobs", action="wait"), "done")
    async with tree.start() as agent:
        watching = agent.events()
        running = asyncio.ensure_future(agent.run("ROOT"))
        async for event in watching:
            if isinstance(event, pigeon.AgentChanged) and event.agent.activity == "wait":
                break
        own, other = (await agent.get_jobs()).jobs
        [known] = (await agent.get_agents()).agents
        assert (own.job_id, other.job_id, other.agent_id) == ("job-1", "job-2", known.agent_id)
        await agent.stop_job(other.job_id)
        await running
        assert [job.job_id for job in (await agent.get_jobs()).jobs] == ["job-1"]


async def test_a_command_of_an_agent_is_sent_to_the_background(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", call("bash", command="touch begun; while [ ! -e go ]; do :; done"), "It goes on.")
    async with tree.start() as agent:
        running = asyncio.ensure_future(agent.run("ROOT"))
        assert await asyncio.to_thread(eventually, (tree.work / "begun").exists)
        [known] = (await agent.get_agents()).agents
        answer = (await agent.get_agent_messages(known.agent_id)).messages[-1]
        [called] = [block.id for block in answer.content if isinstance(block, pigeon.ToolCall)]
        await agent.background_tool(called)
        result = await running
    assert result.ended == "done"
    assert not (tree.work / "go").exists()
