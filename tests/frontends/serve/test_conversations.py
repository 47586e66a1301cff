"""Conversations of `pigeon serve`: workers die, sleep and wake, and neither clients nor sessions lose anything."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from fakes.strict_client import is_valid
from pigeon.frontends.serve import served_worker
from pigeon.frontends.serve.conversation import ServedConversation
from pigeon.frontends.serve.conversations import UnknownConversation
from pigeon.frontends.serve.wake_queue import TooMany
from pigeon.frontends.serve.worker_process import WorkerConnection
from pigeon.frontends.serve.workers.worker import end_events_of
from pigeon.transport.event_log import log_owner
from pigeon.wire.errors import PigeonError, StartupError
from pigeon.wire.events import AgentRestarted, AgentSettled
from pigeon.wire.open_work import read_open_work
from support.processes import is_alive
from support.served_conversations import InProcessService, ServiceClient, wait_until

ASK = {"ask": ["bash"]}
RUN = b'{"type":"agent_start","runId":"r1"}'
SETTLED = b'{"type":"agent_settled","reason":"error","runId":"r1"}'


def kill(one: ServedConversation) -> int:
    pid = one.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def without_file(state: dict[str, object]) -> dict[str, object]:
    """A file that does not exist yet is named after the time."""
    return {name: value for name, value in state.items() if name != "sessionFile"}


# Death


def test_a_worker_killed_in_a_run_is_replaced_and_the_run_ends_once(
    service: InProcessService, one: ServedConversation
) -> None:
    async def test() -> None:
        async with ServiceClient(service, one) as talk:
            await talk.run("list the files")
            assert (await talk.ask("prompt", message="run sleep 100"))["success"]
            await talk.event("tool_execution_start", 2)
            waiting = await talk.send("bash", command="sleep 100")
            killed = kill(one)
            end = await talk.event("agent_settled", 2)
            assert (end["reason"], end["aborted"]) == ("error", False)
            assert "SIGKILL" in end["errorMessage"]
            assert "SIGKILL" in talk.of("agent_restarted")[0]["reason"]
            refused = await talk.answer_to(waiting)
            assert not refused["success"]
            state = await talk.data("get_state")
            assert one.pid != killed
            assert not state["isStreaming"]
            assert [event["seq"] for event in talk.events] == list(range(1, len(talk.events) + 1))
            assert (await talk.run("list the files"))["reason"] == "done"
            assert service.counts.totals["runs"] == runs + 3

    runs = service.counts.totals["runs"]
    service.run(test())


@pytest.mark.parametrize("problem", [OSError(11, "Resource temporarily unavailable"), StartupError("no room")], ids=str)
def test_a_command_for_which_no_worker_can_be_started_is_answered_with_the_reason(
    service: InProcessService, one: ServedConversation, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    async def fail() -> None:
        raise problem

    async def test() -> None:
        async with ServiceClient(service, one) as talk:
            with monkeypatch.context() as patched:
                patched.setattr(one._worker, "ensure_awake", fail)
                answer = await talk.ask("get_messages")
            assert (answer["success"], answer["error"]) == (False, str(problem))
            assert (await talk.ask("get_messages"))["success"]

    service.run(test())


def test_a_worker_that_hangs_in_a_run_is_ended_and_the_conversation_goes_on(
    service: InProcessService, one: ServedConversation
) -> None:
    async def test() -> None:
        async with ServiceClient(service, one) as talk:
            await talk.send("prompt", message="run sleep 100")
            await talk.event("tool_execution_start")
            hanging = one.pid
            assert hanging is not None
            one.enforce_time_limits(silence=100, unserved=0)
            assert one.pid == hanging, "one that says that it lives is left alone"
            os.kill(hanging, signal.SIGSTOP)
            async with asyncio.timeout(30):
                while not talk.of("agent_restarted"):
                    one.enforce_time_limits(silence=3, unserved=0)
                    await asyncio.sleep(0)
            assert talk.of("agent_restarted")[0]["reason"] == "it did nothing for 3 seconds (--worker-silence)"
            assert (await talk.event("agent_settled"))["reason"] == "error"
            assert not is_alive(hanging)
            assert (await talk.run("list the files"))["reason"] == "done"

    service.run(test())


def test_a_worker_that_an_older_release_has_left_may_be_silent() -> None:
    connection = WorkerConnection(lambda notice: None, lambda line: None, lambda: None, lambda: None)
    assert [connection.increment_silence() for _ in range(3)] == [0, 0, 0]
    connection.data_received(b'{"type":"alive"}\n')
    assert [connection.increment_silence() for _ in range(3)] == [0, 1, 2]
    connection.data_received(b'{"type":"logged","segment":1,"offset":0,"pid":1}\n')
    assert connection.increment_silence() == 0


def test_a_question_of_a_killed_worker_is_cancelled(service: InProcessService, one: ServedConversation) -> None:
    async def test() -> None:
        async with ServiceClient(service, one) as talk:
            await talk.data("set_permissions", permissions=ASK)
            await talk.send("prompt", message="run true")
            question = await talk.event("select")
            kill(one)
            assert (await talk.event("cancel"))["targetId"] == question["id"]
            await talk.event("agent_settled")
            # The rules are in force again before anything can be asked of the new worker.
            await talk.send("prompt", message="run true")
            await talk.event("select", 2)

    service.run(test())


def test_a_prompt_whose_run_was_not_announced_before_the_worker_died_ends_too(
    service: InProcessService, one: ServedConversation
) -> None:
    async def test() -> None:
        async with ServiceClient(service, one) as talk:
            for count in range(1, 4):
                answer = await talk.ask("prompt", message="list the files")
                assert answer["success"], answer["error"]
                kill(one)
                await talk.event("agent_restarted", count)
                await talk.data("get_state")
                assert len(talk.of("agent_settled")) == count

    service.run(test())


@pytest.mark.parametrize("known", [[RUN, SETTLED], [SETTLED]], ids=["it-had-ended", "a-worker-said-so-and-died"])
def test_a_run_that_ended_without_a_word_to_the_supervisor_does_not_end_again(known: list[bytes]) -> None:
    left = read_open_work(enumerate(known, 1))
    assert [type(end) for end in end_events_of(left, "killed", "r1")] == [AgentRestarted]
    assert [type(end) for end in end_events_of(left, "killed", "r2")] == [AgentRestarted, AgentSettled]


def test_a_prompt_ends_though_the_worker_was_killed_before_its_run_began_and_the_supervisor_too(
    service: InProcessService, one: ServedConversation
) -> None:
    async def both_killed() -> str:
        async with ServiceClient(service, one) as talk:
            answer = await talk.data("prompt", message="run sleep 100")
            await service.all.close(stop=False)
            killed = kill(one)
            await wait_until(lambda: log_owner(one.log_folder) != killed)
        return str(answer["runId"])

    async def check_end(run: str) -> None:
        async with ServiceClient(service, service.all.find_conversation(one.record.id), after=0) as talk:
            end = await talk.event("agent_settled")
            assert (end["runId"], end["reason"]) == (run, "error")
            assert talk.of("agent_restarted")
            await talk.data("get_state")

    async def ended_once(run: str) -> None:
        async with ServiceClient(service, service.all.find_conversation(one.record.id), after=0) as talk:
            await talk.run("list the files")
            assert [end["runId"] for end in talk.of("agent_settled")].count(run) == 1

    run = service.run(both_killed())
    # The worker had come so far and no further.
    for segment in Path(one.log_folder).glob("*.jsonl"):
        segment.write_bytes(b"")
    service.restart()
    service.run(check_end(run))
    service.restart(leave=False)
    service.run(ended_once(run))


def test_the_end_of_a_worker_is_noticed_when_the_warm_parent_was_killed(
    service: InProcessService, one: ServedConversation
) -> None:
    async def test() -> None:
        async with ServiceClient(service, one) as talk:
            before = service.all.workers.parent_pid
            os.kill(before, signal.SIGKILL)
            assert (await talk.run("list the files"))["reason"] == "done"
            kill(one)
            await talk.event("agent_restarted")
            await talk.data("get_state")
            assert service.all.workers.parent_pid not in (0, before)

    service.run(test())


def test_a_worker_that_dies_again_and_again_is_not_started_for_a_while(
    service: InProcessService, one: ServedConversation
) -> None:
    async def test() -> None:
        async with ServiceClient(service, one) as talk:
            for count in range(1, 5):
                kill(one)
                await talk.event("agent_restarted", count)
                await talk.data("get_state")
            kill(one)
            await wait_until(lambda: one.state == "asleep")
            answer = await talk.ask("get_state")
            assert "has ended 5 times within a minute" in answer["error"]
            assert "SIGKILL" in answer["error"]

    service.run(test())


# Starts that fail


def test_a_worker_that_cannot_start_says_why_and_is_gone(service: InProcessService) -> None:
    async def test() -> None:
        made = service.all.create_conversation(str(service.work), "no-such-model-anywhere")
        with pytest.raises(StartupError, match="no-such-model-anywhere"):
            await made.wake()
        assert (made.state, made.pid) == ("asleep", None)
        folder = service.root / "passing"
        folder.mkdir()
        made = service.all.create_conversation(str(folder))
        folder.rmdir()
        with pytest.raises(StartupError, match="passing"):
            await made.wake()

    service.run(test())


def test_a_worker_that_hangs_at_its_start_is_ended(
    service: InProcessService, one: ServedConversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        with monkeypatch.context() as hasty:
            hasty.setattr(served_worker, "START_SECONDS", 0.001)
            with pytest.raises(StartupError, match="not ready within"):
                await one.wake()
        assert (one.state, one.pid) == ("asleep", None)
        # One that was forked too late to be known is ended before the next begins.
        await one.wake()
        assert log_owner(one.log_folder) == one.pid

    service.run(test())


def test_a_worker_that_was_lost_sight_of_is_ended_before_another_starts(
    service: InProcessService, one: ServedConversation
) -> None:
    async def test() -> None:
        await one.wake()
        lost = one.pid
        assert lost is not None
        one.disconnect_worker()
        service.workers.sockets.remove(one.record.id)

    async def then() -> None:
        again = service.all.find_conversation(one.record.id)
        await again.wake()
        assert again.pid == log_owner(again.log_folder)

    service.run(test())
    lost = log_owner(one.log_folder)
    assert lost is not None
    service.restart()
    service.run(then())
    assert not is_alive(lost)


# Supervisors


# Host tools


def test_a_host_tool_waits_for_its_client_and_fails_if_none_comes_back(service: InProcessService) -> None:
    script = service.root / "host-tool.json"
    call = {"toolCalls": [{"name": "add", "arguments": {}}]}
    script.write_text(json.dumps({"replies": [call, {"text": "Added."}, call, {"text": "Not added."}]}))
    one = service.all.create_conversation(str(service.work), f"scripted/{script}")
    tool = {"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {}}}

    async def test() -> None:
        async with ServiceClient(service, one) as talk:
            await talk.data("set_host_tools", tools=[tool])
            await talk.send("prompt", message="add")
            called = await talk.event("host_tool_call")
        one.enforce_time_limits(silence=0, unserved=5)
        async with ServiceClient(service, one) as talk:
            assert (await talk.event("host_tool_call"))["id"] == called["id"], "it waits for its client"
            await talk.send("host_tool_result", id=called["id"], result={"content": [{"type": "text", "text": "3"}]})
            await talk.event("agent_settled")
            await talk.send("prompt", message="add again")
            await talk.event("host_tool_call", 2)
            for _ in range(10):
                one.enforce_time_limits(silence=0, unserved=5)
            assert not (await talk.data("get_messages"))["messages"][6:], "a client is there"
            assert one.work.questions
        for _ in range(6):
            one.enforce_time_limits(silence=0, unserved=5)
        await wait_until(lambda: not one.work.running)
        async with ServiceClient(service, one) as talk:
            messages = (await talk.data("get_messages"))["messages"]
            results = [message["content"][0]["text"] for message in messages if message["role"] == "toolResult"]
            assert results == ["3", "No client that could run this tool was connected for 5 seconds"]

    service.run(test())
    service.run(service.all.forget_conversation(one.record.id))


# Sleep


def test_sleep_is_not_noticed(service: InProcessService, one: ServedConversation) -> None:
    tool = {"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {}}}

    async def test() -> None:
        async with ServiceClient(service, one) as talk:
            await talk.data("set_permissions", permissions=ASK)
            await talk.data("set_limits", limits={"turns": 20})
            await talk.data("set_host_tools", tools=[tool])
            await talk.data("set_steering_mode", mode="all")
            await talk.data("set_follow_up_mode", mode="all")
            await talk.data("set_auto_compaction", enabled=False)
            await talk.data("set_session_name", name="a name")
            await talk.data("set_thinking_level", level="high")
            await talk.send("prompt", message="run true")
            question = await talk.event("select")
            assert not await one.try_sleep()
            await talk.send("extension_ui_response", id=question["id"], value=question["options"][1])
            await talk.event("agent_settled")
            before = [await talk.data(name) for name in ("get_state", "get_limits", "get_permissions", "get_messages")]
            told, pid = len(talk.events), one.pid
            assert await one.try_sleep()
            assert (one.state, one.pid) == ("asleep", None)
            after = [await talk.data(name) for name in ("get_state", "get_limits", "get_permissions", "get_messages")]
            assert one.pid != pid
            assert after == before
            assert after[2]["allowed"]
            assert len(talk.events) == told
            # What was allowed for the session is allowed still.
            await talk.run("run true")
            assert len(talk.of("select")) == 1

    service.run(test())


def test_a_conversation_without_a_message_keeps_its_model_and_its_session(
    service: InProcessService, one: ServedConversation
) -> None:
    async def test() -> None:
        async with ServiceClient(service, one) as talk:
            await talk.data("set_thinking_level", level="low")
            state = await talk.data("get_state")
            await one.try_sleep()
            assert without_file(await talk.data("get_state")) == without_file(state)
            # Another session that is not on disk yet, and then one that is.
            await talk.data("new_session")
            new = await talk.data("get_state")
            assert new["sessionId"] != state["sessionId"]
            kill(one)
            await talk.event("agent_restarted")
            assert without_file(await talk.data("get_state")) == without_file(new)
            await talk.run("list the files")
            await one.try_sleep()
            assert (await talk.data("get_state"))["sessionId"] == new["sessionId"]
            assert (await talk.data("get_state"))["messageCount"] > 0

    service.run(test())


def test_commands_that_come_while_it_falls_asleep_are_answered(
    service: InProcessService, one: ServedConversation
) -> None:
    async def test() -> None:
        async with ServiceClient(service, one) as talk:
            for _ in range(3):
                sleeping = asyncio.ensure_future(one.try_sleep())
                await asyncio.sleep(0)
                assert (await talk.run("list the files"))["reason"] == "done"
                await sleeping
            assert [event["seq"] for event in talk.events] == list(range(1, len(talk.events) + 1))

    service.run(test())


def test_an_idle_conversation_falls_asleep_and_one_with_a_question_does_not(service: InProcessService) -> None:
    async def test() -> None:
        idle, asking = (
            service.all.create_conversation(str(service.work)),
            service.all.create_conversation(str(service.work)),
        )
        async with ServiceClient(service, asking) as talk:
            await idle.wake()
            await talk.data("set_permissions", permissions=ASK)
            await talk.send("prompt", message="run true")
            await talk.event("select")
            await wait_until(lambda: idle.state == "asleep")
            assert asking.state == "awake"
            await talk.data("abort")

    service.restart(leave=False, idle_seconds=0.0)
    service.run(test())
    service.restart(leave=False)


# Limits


def test_a_worker_that_takes_too_much_is_ended_and_others_are_not(service: InProcessService) -> None:
    async def test() -> None:
        greedy, other = (
            service.all.create_conversation(str(service.work)),
            service.all.create_conversation(str(service.work)),
        )
        async with ServiceClient(service, greedy) as talk, ServiceClient(service, other) as calm:
            await talk.ask("prompt", message="run for i in 1 2 3 4 5 6 7 8; do sleep 100 & done; wait")
            end = await talk.event("agent_settled")
            assert "more than 8 processes (--worker-processes)" in end["errorMessage"]
            assert (await calm.run("list the files"))["reason"] == "done"
            # Those in the same process are started again, each in one of its own.
            assert len(calm.of("agent_restarted")) == service.shares
            assert greedy.pid != other.pid

    service.restart(leave=False, worker_processes=8)
    service.run(test())

    async def memory() -> None:
        greedy = service.all.create_conversation(str(service.work))
        async with ServiceClient(service, greedy) as talk:
            script = "import signal\nx = bytearray(b'x') * 300_000_000\nsignal.pause()"
            (service.work / "greedy.py").write_text(script)
            await talk.ask("prompt", message="run python3 greedy.py")
            end = await talk.event("agent_settled")
            assert "more than 200 MB of memory (--worker-memory)" in end["errorMessage"]

    service.restart(leave=False, worker_memory=200)
    service.run(memory())
    service.restart(leave=False)


def test_more_conversations_than_are_allowed_are_refused(service: InProcessService) -> None:
    async def test() -> None:
        first, second = (
            service.all.create_conversation(str(service.work)),
            service.all.create_conversation(str(service.work)),
        )
        async with ServiceClient(service, first) as talk:
            # One that does nothing makes room.
            await service.all.wait_until_wakeable(second)
            assert first.state == "asleep"
            await talk.ask("prompt", message="run sleep 100")
            await talk.event("tool_execution_start")
            with pytest.raises(TooMany, match="are busy"):
                await service.all.wait_until_wakeable(second)
            await talk.data("abort")

    service.restart(leave=False, awake=1)
    service.run(test())
    service.restart(leave=False, kept=1)
    with pytest.raises(TooMany, match="which is the limit"):
        service.all.create_conversation(str(service.work))
    service.restart(leave=False)


# Sessions


def test_two_conversations_do_not_share_a_session(service: InProcessService, one: ServedConversation) -> None:
    async def test() -> None:
        other = service.all.create_conversation(str(service.work))
        async with ServiceClient(service, one) as talk, ServiceClient(service, other) as second:
            await talk.data("new_session")
            await talk.run("list the files")
            state = await talk.data("get_state")
            # Asked for by the id of the session that it is in now, it is the same conversation.
            assert service.all.find_conversation(state["sessionId"]) is one
            refused = await second.ask("switch_session", sessionPath=state["sessionFile"])
            assert f"open in the conversation {one.record.id}" in refused["error"]

    service.run(test())


def test_a_removed_conversation_is_gone_for_its_clients(service: InProcessService) -> None:
    async def test() -> None:
        made = service.all.create_conversation(str(service.work))
        async with ServiceClient(service, made) as talk:
            await talk.run("list the files")
            pid = made.pid
            await service.all.delete_session(made.record.id)
            assert pid is not None
            assert not is_alive(pid) or service.shares
            assert log_owner(made.log_folder) is None
            answer = await asyncio.wait_for(_refusal(made), 10)
            assert "deleted" in answer
        with pytest.raises(UnknownConversation):
            service.all.find_conversation(made.record.id)

    async def _refusal(made: ServedConversation) -> str:
        with pytest.raises(PigeonError) as error:
            await made.wake()
        return str(error.value)

    service.run(test())


def test_a_gap_brings_what_is_needed_to_go_on(service: InProcessService, one: ServedConversation) -> None:
    async def test() -> None:
        async with ServiceClient(service, one) as talk:
            await talk.run("list the files")
            await talk.data("set_permissions", permissions=ASK)
            await talk.send("prompt", message="run true")
            question = await talk.event("select")
            async with ServiceClient(service, one, after=10**9) as late:
                gap = await late.event("gap")
                assert gap["after"] == 10**9
                assert is_valid(gap, "Gap", is_closed=True)
                snapshot = gap["snapshot"]
                assert [entry["id"] for entry in snapshot["questions"]] == [question["id"]]
                assert len(snapshot["messages"]) >= 4
                await late.send("extension_ui_response", id=question["id"], value=question["options"][0])
                await late.event("agent_settled")
                assert late.events[1]["seq"] == snapshot["seq"] + 1

    service.run(test())
