"""Supervisors of `pigeon serve`: one finds what another has left, counts what happened meanwhile, and stops."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from pigeon.frontends.serve import worker_process
from pigeon.frontends.serve.conversation import ServedConversation
from pigeon.frontends.serve.http.server import HttpServer, ServeOptions
from pigeon.frontends.serve.http.tokens import Tokens
from pigeon.frontends.serve.service_log import ServiceLog
from pigeon.frontends.serve.wake_queue import TooMany
from pigeon.frontends.serve.workers.worker import QUEUE_FILE
from pigeon.transport.event_log import log_owner
from support.processes import Fifo
from support.served_conversations import PATIENCE, InProcessService, ServiceClient, wait_until

ASK = {"ask": ["bash"]}


def kept_queue(service: InProcessService, one: ServedConversation) -> Path:
    return service.agent_dir / "serve" / "conversations" / one.record.id / QUEUE_FILE


def test_the_next_supervisor_finds_workers_questions_and_every_event(
    service: InProcessService, one: ServedConversation
) -> None:
    seen: list[dict[str, object]] = []

    async def begin() -> int | None:
        async with ServiceClient(service, one) as talk:
            await talk.data("set_permissions", permissions=ASK)
            await talk.ask("prompt", message="run echo hi")
            await talk.event("select")
            seen.extend(talk.events)
            return one.pid

    async def go_on() -> None:
        again = service.all.find_conversation(one.record.id)
        assert (again.state, again.pid) == ("awake", pid)
        assert not await again.try_sleep()
        async with ServiceClient(service, again, after=len(seen)) as talk, ServiceClient(service, again) as fresh:
            question = await fresh.event("select")
            assert question["id"] == next(event["id"] for event in seen if event.get("method") == "select")
            await talk.send("extension_ui_response", id=question["id"], value=question["options"][0])
            await fresh.send("extension_ui_response", id=question["id"], value=question["options"][-1])
            for client in (talk, fresh):
                assert (await client.event("cancel"))["targetId"] == question["id"]
                assert (await client.event("agent_settled"))["reason"] == "done"
                # The first answer has counted.
                assert client.of("permission_resolved")[0]["outcome"] == "once"
            numbers = [event["seq"] for event in (*seen, *talk.events)]
            assert numbers == list(range(1, len(numbers) + 1))

    pid = service.run(begin())
    service.restart()
    service.run(go_on())


def test_a_run_that_ended_while_there_was_no_supervisor_is_counted(
    service: InProcessService, one: ServedConversation
) -> None:
    async def begin() -> None:
        async with ServiceClient(service, one) as talk:
            await talk.ask("prompt", message=f"run {go.waits}")
            await talk.event("tool_execution_start")

    async def end() -> None:
        go.release()
        await wait_until(lambda: b'{"type":"agent_settled"' in log.read_bytes())

    go = Fifo(service.work)
    service.run(begin())
    log = next(Path(one.log_folder).glob("*.jsonl"))
    service.restart(between=end)
    assert service.counts.totals["runs"] == 1


def test_a_second_supervisor_of_the_same_private_folder_is_refused(service: InProcessService) -> None:

    place = str(service.agent_dir / "serve")
    assert Path(place).stat().st_mode & 0o777 == 0o700
    script = "import sys\nfrom pigeon.transport.event_log import lock_log\nlock_log(sys.argv[1])"
    tried = subprocess.run([sys.executable, "-c", script, place], capture_output=True, text=True, check=False)
    assert "unavailable" in tried.stderr


def test_a_run_gets_time_to_end_and_is_aborted_after_that(service: InProcessService, one: ServedConversation) -> None:
    async def test() -> None:
        async with ServiceClient(service, one) as talk:
            await talk.ask("prompt", message="run sleep 100")
            await talk.event("tool_execution_start")
            draining = asyncio.ensure_future(service.all.drain(0.01))
            await asyncio.sleep(0)
            refused = await talk.ask("prompt", message="list the files", streamingBehavior="followUp")
            assert "shutting down" in refused["error"]
            with pytest.raises(TooMany, match="shutting down"):
                service.all.create_conversation(str(service.work))
            assert (await talk.ask("find_text", text="sleep"))["success"]
            assert (await talk.event("agent_settled"))["aborted"]
            await draining

    service.run(test())
    service.restart(leave=False)


def test_workers_that_a_second_signal_kills_are_not_started_again(
    service: InProcessService, one: ServedConversation
) -> None:
    async def test() -> None:
        async with ServiceClient(service, one) as talk:
            await talk.ask("prompt", message="run sleep 100")
            await talk.event("tool_execution_start")
            service.all.kill()
            await wait_until(lambda: one.state == "asleep")
            assert "shutting down" in (await talk.ask("get_state"))["error"]
            await service.all.close()
            assert log_owner(one.log_folder) is None

    service.run(test())
    service.restart(leave=False)


def test_a_client_whose_conversation_still_wakes_when_the_service_stops_is_told_to_come_back(
    service: InProcessService, one: ServedConversation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not before the client was answered, however slow the machine is.
    monkeypatch.setattr(worker_process, "FORK_SECONDS", 2 * PATIENCE)

    async def test(log: ServiceLog) -> None:
        tokens = Tokens(str(tmp_path / "tokens"))
        admin = tokens.find_first_token("admin")
        assert admin is not None
        server = HttpServer(service.all, tokens, ServeOptions(port=0), service.counts, log)
        serving = asyncio.ensure_future(server.serve())
        await wait_until(lambda: server.started)
        # No worker begins as long as the process does not run that they are forked from.
        os.kill(service.workers.parent_pid, signal.SIGSTOP)
        try:
            address = f"{server.address.url.replace('http', 'ws')}/api/sessions/{one.record.id}/rpc"
            token = {"Authorization": f"Bearer {admin.secret}"}
            link = connect(address, additional_headers=token, proxy=None, open_timeout=PATIENCE)
            client = asyncio.ensure_future(link)
            await wait_until(lambda: one.state == "starting")
            server.request_exit()
            with pytest.raises(InvalidStatus) as refused:
                await client
        finally:
            os.kill(service.workers.parent_pid, signal.SIGCONT)
        response = refused.value.response
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")
        assert b"shutting down" in (response.body or b"")
        await serving

    with open(os.devnull, "wb") as nowhere:
        log = ServiceLog(nowhere.fileno())
        service.run(test(log))
        log.close()


def test_messages_that_wait_outlive_a_stop_of_the_service_and_the_death_of_their_worker(
    service: InProcessService, one: ServedConversation
) -> None:
    later = {"message": "list the files", "clientMessageId": "later"}

    async def stop_service() -> None:
        async with ServiceClient(service, one) as talk:
            await talk.ask("prompt", message="run sleep 100")
            await talk.event("tool_execution_start")
            assert (await talk.data("follow_up", **later))["disposition"] == "queued"
            assert kept_queue(service, one).stat().st_mode & 0o777 == 0o600
            await service.all.drain(0.0)

    async def killed_and_said() -> None:
        again = service.all.find_conversation(one.record.id)
        async with ServiceClient(service, again) as talk:
            assert (await talk.data("get_state"))["pendingMessageCount"] == 1
            assert again.pid is not None
            os.kill(again.pid, signal.SIGKILL)
            await talk.event("agent_restarted")
            assert [item["text"] for item in (await talk.event("queue_update"))["items"]] == [later["message"]]
            # One that is sent again is known.
            assert (await talk.data("follow_up", **later))["disposition"] == "queued"
            await talk.run("list the files")
            said = [message["content"][0]["text"] for message in (await talk.data("get_messages"))["messages"]
                    if message["role"] == "user"]  # fmt: skip
            assert said == ["run sleep 100", "list the files", "list the files"]
            assert (await talk.data("get_state"))["pendingMessageCount"] == 0
            assert not kept_queue(service, one).exists(), "nothing of it stays on disk"

    service.run(stop_service())
    service.restart(leave=False)
    service.run(killed_and_said())


def test_a_queue_that_cannot_be_read_is_told_and_keeps_no_conversation_from_waking(
    service: InProcessService, one: ServedConversation
) -> None:
    async def test() -> None:
        file = kept_queue(service, one)
        file.write_bytes(b'{"session_id":')
        async with ServiceClient(service, one) as talk:
            assert (await talk.data("get_state"))["pendingMessageCount"] == 0
            assert "queue.json cannot be read" in file.with_name("stderr.log").read_text()

    service.run(test())


def test_a_conversation_begins_before_the_parent_of_the_workers_is_warm_also_if_that_has_died(
    service: InProcessService,
) -> None:
    async def test() -> None:
        dead = service.workers.parent_pid
        os.kill(dead, signal.SIGKILL)
        await wait_until(lambda: service.workers.parent_pid != dead)
        made = service.all.create_conversation(str(service.work))
        await made.wake()
        assert not service.workers.is_parent_warm
        async with ServiceClient(service, made) as talk:
            assert (await talk.run("list the files"))["reason"] == "done"
        # Its first run is what the warm-up has waited for.
        await wait_until(lambda: service.workers.is_parent_warm)

    service.restart(leave=False)
    service.run(test())


def test_when_many_conversations_begin_at_once_the_later_ones_wait_for_the_warm_parent(
    service: InProcessService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "MOST_COLD", 1)
    monkeypatch.setattr(worker_process, "PREPARATION_SECONDS", PATIENCE)

    async def test() -> None:
        dead = service.workers.parent_pid
        os.kill(dead, signal.SIGKILL)
        await wait_until(lambda: service.workers.parent_pid != dead)
        first, second = (service.all.create_conversation(str(service.work)) for _ in range(2))
        await first.wake()
        assert not service.workers.is_parent_warm
        assert await first.try_sleep(forced=True)
        await second.wake()
        assert service.workers.is_parent_warm

    service.restart(leave=False)
    service.run(test())
