"""What clients and the machine do to a served conversation at bad moments, against the real program."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from pigeon.frontends.serve.http.server import divide_file_limit
from support.agent_process import command_line
from support.pigeon_serve import TOKENS, WAIT, AttackedServer, reply

AWAKE = 4
ADMIN = {"Authorization": f"Bearer {TOKENS['admin']}"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    with AttackedServer(tmp_path_factory.mktemp("hostile"), "--max-awake", str(AWAKE)) as server:
        yield server


def worker_of(server: AttackedServer, session: str) -> int:
    return int(server.ask("GET", f"/api/sessions/{session}", scope="read").json()["pid"])


def open_files(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


def test_commands_for_a_worker_that_does_not_read_are_refused_before_they_fill_the_memory(
    server: AttackedServer,
) -> None:
    session = server.new()
    worker = worker_of(server, session)
    with server.socket_of(session, "talk") as link:
        os.kill(worker, signal.SIGSTOP)
        try:
            long = "x" * (23 << 20)
            for number, message in enumerate((long, long, long, "short")):
                link.send(json.dumps({"id": number, "type": "prompt", "message": message}))
            refused = json.loads(link.recv(WAIT))
        finally:
            os.kill(worker, signal.SIGKILL)
    assert (refused["id"], refused["success"]) == (3, False)
    assert "Try again later" in refused["error"]


def test_a_client_whose_gap_cannot_be_filled_is_sent_away_and_not_left_waiting(server: AttackedServer) -> None:
    session = server.new()
    worker = worker_of(server, session)
    os.kill(worker, signal.SIGSTOP)
    with server.socket(session, ADMIN, "?after=500") as link:
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(ConnectionClosed) as closed:
            link.recv(WAIT)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1013


def test_a_conversation_whose_folder_is_gone_can_be_looked_at_and_deleted(server: AttackedServer) -> None:
    folder = server.folders.work / "passing"
    folder.mkdir()
    made = server.ask("POST", "/api/sessions", {"cwd": str(folder)}, scope="talk").json()
    shutil.rmtree(folder)
    with server.socket_of(made["id"], "admin") as link:
        os.kill(made["pid"], signal.SIGKILL)
        while "its folder is gone" not in (said := reply(link, type="get_state")).get("error", ""):
            assert not said["success"], said
    assert server.ask("GET", f"/api/sessions/{made['id']}", scope="read").status == 200
    assert server.ask("DELETE", f"/api/sessions/{made['id']}", scope="admin").status == 204


def test_no_more_workers_are_started_at_once_than_may_be_awake(server: AttackedServer) -> None:
    def ask(_: int) -> int:
        return server.ask("POST", "/api/sessions", {"cwd": str(server.folders.work)}, scope="talk").status

    with ThreadPoolExecutor(12) as threads:
        statuses = set(threads.map(ask, range(12)))
    assert statuses <= {201, 503}
    listed = server.ask("GET", "/api/sessions?limit=200", scope="read").json()["sessions"]
    assert sum(one["state"] != "asleep" for one in listed) <= AWAKE


def test_a_conversation_begins_also_when_the_parent_of_the_workers_has_just_died(server: AttackedServer) -> None:
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    (parent,) = [int(one) for one in children if b"warm_parent" in Path(f"/proc/{one}/cmdline").read_bytes()]
    os.kill(parent, signal.SIGKILL)
    server.new()


def test_a_conversation_that_sleeps_keeps_no_file_open(server: AttackedServer) -> None:
    for _ in range(AWAKE):
        server.new()
    before = open_files(server.process.pid)
    for _ in range(2 * AWAKE):
        server.new()
    assert open_files(server.process.pid) < before + AWAKE


@pytest.mark.parametrize("id", ["x" * 128, "a.b_c-d"])
def test_ids_may_be_long(server: AttackedServer, id: str) -> None:
    body = {"cwd": str(server.folders.work), "sessionId": id}
    assert server.ask("POST", "/api/sessions", body, scope="talk").status == 201
    with server.socket_of(id, "read") as link:
        assert reply(link, type="get_state")["success"]


@pytest.mark.parametrize("id", ["a\n", "a-", "x" * 129, "", ".", "a/b"])
def test_ids_that_are_no_names_are_refused(server: AttackedServer, id: str) -> None:
    body = {"cwd": str(server.folders.work), "sessionId": id}
    answer = server.ask("POST", "/api/sessions", body, scope="talk")
    assert answer.status == 400
    assert '"sessionId"' in answer.json()["error"]


def test_a_disk_or_a_table_that_is_full_is_told(server: AttackedServer) -> None:
    folder = server.folders.agent / "serve" / "conversations"
    hidden = folder.rename(folder.with_name("hidden"))
    try:
        answer = server.ask("POST", "/api/sessions", {"cwd": str(server.folders.work)}, scope="talk")
    finally:
        hidden.rename(folder)
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["error"].startswith("This cannot be done now: ")


@pytest.mark.parametrize("files", [64, 200, 256, 1024, 4096])
def test_what_is_allowed_at_once_fits_into_the_files_that_may_be_open(files: int) -> None:
    shares = divide_file_limit(files)
    assert min(shares.awake, shares.known, shares.unknown) >= 1
    if files > 64:
        assert 3 * shares.awake + 2 * shares.known + shares.unknown <= files - 64


def test_a_worker_that_nobody_could_reach_is_ended_at_the_next_start(tmp_path: Path) -> None:
    with AttackedServer(tmp_path) as first:
        session = first.new()
        process = os.pidfd_open(worker_of(first, session))
        first.process.kill()
    (first.folders.agent / "serve" / "conversations" / session / "conversation.json").unlink()
    try:
        with AttackedServer(tmp_path) as second:
            assert second.ask("GET", f"/api/sessions/{session}", scope="read").status == 404
            # Which becomes readable with the end of the process.
            assert select.select([process], [], [], 0)[0]
    finally:
        os.close(process)


def test_attach_says_why_it_ends_also_when_its_input_has_ended(server: AttackedServer) -> None:
    words = [*command_line(), "attach", f"ws://{server.host}/nothing-here"]
    given = b'{"type":"get_state"}\n'
    variables = server.folders.environment()
    ended = subprocess.run(words, input=given, capture_output=True, timeout=WAIT, env=variables, check=False)
    assert (ended.returncode, ended.stderr) == (1, b"Error: There is no session nothing-here\n")
