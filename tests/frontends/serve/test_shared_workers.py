"""Several conversations in one process: `pigeon serve --shared N`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pigeon.frontends.serve.conversation import ServedConversation
from pigeon.transport.event_log import log_owner
from pigeon.wire.errors import StartupError
from support.processes import is_alive
from support.served_conversations import InProcessService, ServiceClient, wait_until

SHARED = 3


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    made = InProcessService(tmp_path_factory.mktemp("shared"), shared=SHARED)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def begin_with_no_process(shared: InProcessService) -> Iterator[None]:
    yield
    shared.restart(leave=False)


async def wake_new(shared: InProcessService, cwd: Path | None = None) -> ServedConversation:
    """A new conversation with its worker."""
    made = shared.all.create_conversation(str(cwd or shared.work))
    await made.wake()
    return made


def test_as_many_conversations_as_asked_for_are_in_one_process_and_the_next_one_is_in_another(
    shared: InProcessService,
) -> None:
    async def test() -> None:
        made = [await wake_new(shared) for _ in range(SHARED + 1)]
        pids = [one.pid for one in made]
        assert len(set(pids[:SHARED])) == 1
        assert pids[SHARED] not in pids[:SHARED]
        for one in made:
            async with ServiceClient(shared, one) as talk:
                assert (await talk.run("list the files"))["reason"] == "done"

    shared.run(test())


def test_those_that_start_at_once_get_into_one_process(shared: InProcessService) -> None:
    async def test() -> None:
        made = await asyncio.gather(*(wake_new(shared) for _ in range(SHARED)))
        assert len({one.pid for one in made}) == 1

    shared.run(test())


def test_each_hears_only_of_its_own_run(shared: InProcessService) -> None:
    async def test() -> None:
        first, second = await wake_new(shared), await wake_new(shared)
        async with ServiceClient(shared, first) as talk, ServiceClient(shared, second) as other:
            ended = await asyncio.gather(talk.run("say one"), other.run("say two"))
            assert [end["reason"] for end in ended] == ["done", "done"]
            asked = [event["message"]["content"] for event in talk.of("message_start") if "user" in str(event)]
            assert "say one" in str(asked)
            assert "say two" not in str(talk.events)
            assert "say one" not in str(other.events)

    shared.run(test())


def test_one_sleeps_and_wakes_in_the_same_process_while_another_runs(shared: InProcessService) -> None:
    async def test() -> None:
        sleeper, other = await wake_new(shared), await wake_new(shared)
        pid = other.pid
        async with ServiceClient(shared, other) as busy:
            await busy.data("prompt", message="run sleep 100")
            await busy.event("tool_execution_start")
            for forced in (False, True):
                assert await sleeper.try_sleep(forced)
                assert log_owner(sleeper.log_folder) is None
                await sleeper.wake()
                assert sleeper.pid == pid
            assert not busy.of("agent_restarted")
            assert other.is_running
            await busy.data("abort")
            await busy.event("agent_settled")

    shared.run(test())


def test_the_process_ends_with_its_last_conversation(shared: InProcessService) -> None:
    async def test() -> None:
        made = [await wake_new(shared) for _ in range(2)]
        pid = made[0].pid
        assert pid is not None
        await made[0].try_sleep()
        assert is_alive(pid)
        await made[1].try_sleep()
        assert not is_alive(pid)

    shared.run(test())


def test_a_crash_is_told_to_its_own_conversations_and_each_is_then_alone(shared: InProcessService) -> None:
    async def test() -> None:
        made = [await wake_new(shared) for _ in range(SHARED + 1)]
        pid, spared = made[0].pid, made[SHARED]
        assert pid is not None
        async with (
            ServiceClient(shared, made[0]) as first,
            ServiceClient(shared, made[1]) as second,
            ServiceClient(shared, spared) as other,
        ):
            await first.data("prompt", message="run sleep 100")
            await first.event("tool_execution_start")
            os.kill(pid, signal.SIGKILL)
            assert "killed by SIGKILL" in (await first.event("agent_restarted"))["reason"]
            assert "died during the run" in (await first.event("agent_settled"))["errorMessage"]
            for talk in (first, second):
                assert (await talk.run("list the files"))["reason"] == "done"
            assert not other.of("agent_restarted")
            assert len({made[0].pid, made[1].pid, spared.pid, pid}) == 4
        # Nobody waits for this one, so it is started when somebody does.
        await wait_until(lambda: made[2].state == "asleep")
        assert shared.counts.totals["worker_restarts"] == SHARED

    shared.run(test())


def test_a_conversation_that_cannot_start_says_why_and_leaves_the_others_alone(shared: InProcessService) -> None:
    async def test() -> None:
        other = await wake_new(shared)
        broken = shared.all.create_conversation(str(shared.work), model="no-such-model")
        with pytest.raises(StartupError, match="no-such-model"):
            await broken.wake()
        async with ServiceClient(shared, other) as talk:
            assert (await talk.run("list the files"))["reason"] == "done"
            assert not talk.of("agent_restarted")

    shared.run(test())


def test_the_next_supervisor_finds_all_conversations_of_a_process_and_adds_none(shared: InProcessService) -> None:
    async def prepare() -> list[ServedConversation]:
        return [await wake_new(shared) for _ in range(2)]

    made = shared.run(prepare())
    pid = made[0].pid
    shared.restart(leave=True)

    async def test() -> None:
        found = [shared.all.find_conversation(one.record.id) for one in made]
        assert [one.state for one in found] == ["awake", "awake"]
        assert [one.pid for one in found] == [pid, pid]
        assert (await wake_new(shared)).pid != pid
        await found[0].try_sleep(forced=True)
        async with ServiceClient(shared, found[1]) as talk:
            assert (await talk.run("list the files"))["reason"] == "done"
            assert not talk.of("agent_restarted")

    shared.run(test())


def test_a_folder_with_settings_of_its_own_shares_with_no_other_folder(shared: InProcessService) -> None:
    special = shared.root / "special"
    (special / ".pigeon").mkdir(parents=True)
    (special / ".pigeon" / "settings.json").write_text(json.dumps({"permissions": {"deny": ["bash"]}}))
    plain = shared.root / "plain"
    plain.mkdir()

    async def test() -> None:
        usual, elsewhere = await wake_new(shared), await wake_new(shared, plain)
        assert usual.pid == elsewhere.pid
        own, again = await wake_new(shared, special), await wake_new(shared, special)
        assert own.pid == again.pid
        assert own.pid != usual.pid

    shared.run(test())


def test_a_conversation_that_opens_a_session_of_another_project_leaves_the_others(shared: InProcessService) -> None:
    project = shared.root / "project"
    (project / ".pigeon").mkdir(parents=True)
    (project / ".pigeon" / "settings.json").write_text("{}")

    async def test() -> None:
        there = await wake_new(shared, project)
        async with ServiceClient(shared, there) as talk:
            await talk.run("list the files")
            session = (await talk.data("get_state"))["sessionFile"]
        await shared.all.forget_conversation(there.record.id)
        one, other = await wake_new(shared), await wake_new(shared)
        assert one.pid == other.pid
        async with ServiceClient(shared, one) as talk:
            await talk.data("switch_session", sessionPath=session)
            await wait_until(lambda: one.state == "asleep")
            assert (await talk.run("list the files"))["reason"] == "done"
            assert one.pid != other.pid

    shared.run(test())


def test_a_conversation_moves_when_its_permissions_were_changed(shared: InProcessService) -> None:
    async def test() -> None:
        one, other = await wake_new(shared), await wake_new(shared)
        async with ServiceClient(shared, one) as talk:
            await talk.data("set_permissions", permissions={"deny": ["bash"]})
            await wait_until(lambda: one.state == "asleep")
            assert (await talk.run("list the files"))["reason"] in ("done", "denied")
            assert one.pid != other.pid
            assert other.state == "awake"

    shared.run(test())


@pytest.mark.leaves_running
def test_the_helper_for_commands_is_there_for_the_next_run(shared: InProcessService) -> None:
    async def test() -> None:
        one = await wake_new(shared)
        assert one.pid is not None
        async with ServiceClient(shared, one) as talk:
            await talk.run("run true")
            before = children_of(one.pid)
            await talk.run("run true")
            assert before
            assert children_of(one.pid) == before

    shared.run(test())


def children_of(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()
