"""Sessions over HTTP, and who may do what in them, against the real program."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from websockets.exceptions import ConnectionClosed

from pigeon.frontends.serve.http.api import OPERATIONS, make_openapi_document
from pigeon.wire.commands import REPEATABLE_NAMES
from support.agent_folders import AgentFolders
from support.agent_process import RunningProgram, command_line
from support.pigeon_serve import TOKENS, AttackedServer, reply


def conversation_with(server: AttackedServer, text: str) -> str:
    """The id of a conversation in which this was said."""
    id = server.new()
    with server.socket_of(id, "admin") as link:
        assert reply(link, type="prompt", message=text)["success"]
        while json.loads(link.recv(30))["type"] != "agent_settled":
            pass
    return id


def sessions(server: AttackedServer, query: str = "") -> list[str]:
    return [row["id"] for row in server.ask("GET", f"/api/sessions{query}", scope="read").json()["sessions"]]


def check(operation: str, body: object) -> None:
    """Hold an answer against what the document says about it."""
    document = make_openapi_document()
    found = next(one for one in OPERATIONS if one.id == operation)
    answers = document["paths"][found.path][found.method.lower()]["responses"]
    schema = answers[str(found.status)]["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": document["components"]}).validate(body)


def test_a_conversation_is_begun_listed_shown_and_deleted(server: AttackedServer) -> None:
    made = server.ask("POST", "/api/sessions", {"cwd": str(server.folders.work)}, scope="talk")
    assert made.status == 201
    check("openSession", made.json())
    id = made.json()["id"]
    assert made.headers["location"] == f"/api/sessions/{id}"
    listed = server.ask("GET", "/api/sessions", scope="read").json()
    check("listSessions", listed)
    assert id in [row["id"] for row in listed["sessions"]]
    shown = server.ask("GET", f"/api/sessions/{id}", scope="read").json()
    check("showSession", shown)
    assert (shown["state"], shown["running"], shown["cwd"]) == ("awake", False, str(server.folders.work))
    again = server.ask("POST", "/api/sessions", {"sessionId": id}, scope="talk")
    assert (again.status, again.json()["id"]) == (200, id)
    assert server.ask("DELETE", f"/api/sessions/{id}", scope="admin").status == 204
    assert server.ask("GET", f"/api/sessions/{id}", scope="read").status == 404
    assert id not in sessions(server)


def test_a_new_conversation_may_be_given_its_id(server: AttackedServer) -> None:
    made = server.ask(
        "POST", "/api/sessions", {"cwd": str(server.folders.work), "sessionId": "my-own.id"}, scope="talk"
    )
    assert (made.status, made.json()["id"]) == (201, "my-own.id")
    assert server.ask("POST", "/api/sessions", {"sessionId": "not-there"}, scope="talk").status == 404


def test_what_cannot_be_begun_leaves_nothing(server: AttackedServer) -> None:
    before = sessions(server)
    script = {"cwd": str(server.folders.work), "model": "scripted//etc/passwd"}
    assert server.ask("POST", "/api/sessions", script, scope="talk").status == 403
    wrong = server.ask("POST", "/api/sessions", {"cwd": str(server.folders.work), "model": "no/such"}, scope="talk")
    assert wrong.status == 409
    assert "no/such" in wrong.json()["error"]
    missing = server.ask("POST", "/api/sessions", {"cwd": str(server.folders.work / "missing")}, scope="talk")
    assert missing.status == 404
    assert sessions(server) == before


@pytest.mark.parametrize(
    ("workspace", "scope", "status", "words"),
    [
        ("ftp://build/srv", "admin", 400, "workspace"),
        ("ssh://-oProxyCommand=x/srv", "admin", 400, "workspace"),
        ("exec:sh#/tmp", "admin", 403, "--allow-exec"),
        ("ssh://127.0.0.1:1/srv", "talk", 403, "admin"),
        ("podman://-x/srv", "admin", 400, "workspace"),
    ],
)
def test_a_workspace_that_may_not_be_used_is_refused(
    server: AttackedServer, workspace: str, scope: str, status: int, words: str
) -> None:
    before = sessions(server)
    refused = server.ask("POST", "/api/sessions", {"workspace": workspace}, scope=scope)
    assert (refused.status, words in refused.json()["error"]) == (status, True), refused.json()
    assert sessions(server) == before


def test_a_workspace_that_cannot_be_opened_is_refused_with_the_reason(server: AttackedServer) -> None:
    before = sessions(server)
    refused = server.ask("POST", "/api/sessions", {"workspace": "docker://no-such-container/srv"}, scope="admin")
    assert refused.status == 409
    assert "no-such-container" in refused.json()["error"]
    assert sessions(server) == before


def test_a_deleted_session_is_in_the_trash_and_its_clients_are_told(server: AttackedServer) -> None:
    id = conversation_with(server, "list the files")
    with server.socket_of(id, "read") as link:
        assert server.ask("DELETE", f"/api/sessions/{id}", scope="talk").status == 403
        assert server.ask("DELETE", f"/api/sessions/{id}", scope="admin").status == 204
        with pytest.raises(ConnectionClosed) as closed:
            link.recv(20)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4004, "The session was deleted")
    assert len(list((server.folders.agent / "trash").rglob(f"*_{id}.jsonl"))) == 1
    assert not list((server.folders.agent / "sessions").rglob(f"*_{id}.jsonl"))


def test_sessions_are_searched_and_paged(server: AttackedServer) -> None:
    ids = [conversation_with(server, f"run echo pelican {number}") for number in range(3)]
    assert set(sessions(server, "?query=PELICAN")) == set(ids)
    assert sessions(server, "?query=pelican%201") == [ids[1]]
    seen: list[str] = []
    page = server.ask("GET", "/api/sessions?query=pelican&limit=1", scope="read").json()
    while True:
        seen += [row["id"] for row in page["sessions"]]
        if "nextCursor" not in page:
            break
        query = f"?query=pelican&limit=1&cursor={page['nextCursor']}"
        page = server.ask("GET", f"/api/sessions{query}", scope="read").json()
    assert sorted(seen) == sorted(ids)
    for wrong in ("limit=0", "limit=x", "limit=1000", "limit=1&limit=2", "limit=%EF%BC%91"):
        assert server.ask("GET", f"/api/sessions?{wrong}", scope="read").status == 400


def test_a_conversation_is_exported_as_a_page_that_can_do_nothing(server: AttackedServer) -> None:
    id = conversation_with(server, "run echo heron")
    page = server.ask("GET", f"/api/sessions/{id}/export", scope="read")
    assert (page.status, b"heron" in page.body) == (200, True)
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("sandbox")
    assert server.ask("HEAD", f"/api/sessions/{id}/export", scope="read").body == b""
    assert not list((server.folders.agent / "serve").rglob("*.html"))


def test_folders_are_listed_below_the_roots(server: AttackedServer) -> None:
    work = server.folders.work
    for name in ("beta", "Alpha", ".hidden"):
        (work / name).mkdir()
    (work / "file").touch()
    listed = server.ask("GET", "/api/folders", scope="talk").json()
    check("listFolders", listed)
    assert [name for name in listed["folders"] if name in ("Alpha", "beta", ".hidden", "file")] == ["Alpha", "beta"]
    below = server.ask("GET", f"/api/folders?path={work}/Alpha", scope="talk").json()
    assert (below["folders"], below["parent"]) == ([], str(work))
    assert server.ask("GET", f"/api/folders?path={work}/missing", scope="talk").status == 404
    assert server.ask("GET", "/api/folders", scope="read").status == 403


def test_the_document_is_served_and_head_and_options_are_answered(server: AttackedServer) -> None:
    assert server.ask("GET", "/api/openapi.json").json() == make_openapi_document()
    head = server.ask("HEAD", "/api/openapi.json")
    assert (head.status, head.body, int(head.headers["content-length"]) > 1000) == (200, b"", True)
    assert server.ask("OPTIONS", "/api/sessions").headers["allow"] == "GET, POST, HEAD, OPTIONS"
    assert server.ask("GET", "/api/sessions/").status == 404


def test_the_page_learns_from_the_commands_what_may_be_asked_again(server: AttackedServer) -> None:
    script = server.ask("GET", "/page/commands.js").body.decode()
    names = json.loads(script.removeprefix("export const REPEATABLE = new Set(").removesuffix(");\n"))
    assert set(names) == REPEATABLE_NAMES
    assert {"get_state", "list_sessions", "find_files", "set_model", "abort"} <= set(names)
    assert not {"prompt", "abort_and_prompt", "bash", "cycle_model", "fork", "delete_session"} & set(names)


def test_a_watcher_changes_nothing(server: AttackedServer) -> None:
    id = server.new()
    with server.socket_of(id, "read") as link:
        for command in (
            {"type": "bash", "command": "touch pwned"},
            {"type": "prompt", "message": "run touch pwned"},
            {"type": "queue_message", "message": "run touch pwned"},
            {"type": "extension_ui_response", "confirmed": True},
            {"type": "set_session_name", "name": "x"},
            {"type": "abort"},
        ):
            answer = reply(link, **command)
            assert (answer["success"], "scope" in answer["error"]) == (False, True), answer
        assert reply(link, type="not_a_command")["error"] == "Unknown command: not_a_command"
        assert reply(link, type="get_state")["success"]
    with server.socket_of(id, "talk") as link:
        assert "scope admin" in reply(link, type="bash", command="touch pwned")["error"]
        assert reply(link, type="set_session_name", name="x")["success"]
    assert not (server.folders.work / "pwned").exists()


def test_tokens_come_and_go_while_it_runs(server: AttackedServer) -> None:
    id = server.new()
    added = {"Authorization": "Bearer added-token-0123456789"}
    assert server.ask("GET", "/api/sessions", headers=added).status == 401
    try:
        server.write_tokens({**TOKENS, "talk": "added-token-0123456789"})
        assert server.ask("GET", "/api/sessions", headers=added).status == 200
        with server.socket(id, added) as link:
            server.write_tokens(TOKENS)
            assert server.ask("GET", "/api/sessions", headers=added).status == 401
            with pytest.raises(ConnectionClosed) as closed:
                link.recv(20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4001
        server.token_file.chmod(0o644)
        assert server.ask("GET", "/api/sessions", scope="admin").status in (401, 429)
    finally:
        server.write_tokens(TOKENS)
    assert server.ask("GET", "/api/sessions", scope="admin").status == 200


def test_a_link_is_had_from_the_running_server(server: AttackedServer) -> None:
    def ask(*options: str) -> subprocess.CompletedProcess[str]:
        words = [*command_line(), "serve", "--link", *options]
        environment = server.folders.environment()
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30, check=False)

    link = ask("--scope", "read").stdout.strip()
    assert link.startswith(f"{server.url}/?token=")
    path = link.removeprefix(server.url)
    assert server.ask("GET", path).status == 303
    assert server.ask("GET", path).status == 401
    wrong = ask("--scope", "owner")
    assert (wrong.returncode, "scope" in wrong.stderr) == (1, True)


def test_figures_are_there_for_prometheus(server: AttackedServer) -> None:
    conversation_with(server, "list the files")
    text = server.ask("GET", "/metrics", scope="read").body.decode()
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    for name in ("pigeon_runs_total", "pigeon_worker_wakes_total", "pigeon_events_total", "pigeon_sent_bytes_total"):
        assert float(figures[name]) >= 1
    assert float(figures['pigeon_conversations{state="awake"}']) >= 1
    assert float(figures["pigeon_worker_memory_bytes"]) > 1_000_000
    assert figures["pigeon_worker_restarts_total"] == "0"
    assert text.count("# TYPE") == len({line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")})
    assert any(name.startswith("pigeon_http_requests_total{") for name in figures)


def test_the_log_says_what_happened_and_not_what_was_said(server: AttackedServer) -> None:
    conversation_with(server, "run echo secret-heron")
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    events = {line["event"] for line in lines}
    assert {"listening", "client_joined", "client_left"} <= events
    assert all(set(line) >= {"time", "level", "event"} for line in lines)
    assert "secret-heron" not in server.log.read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "can be reached from other machines"),
        (["--host", "::"], "can be reached from other machines"),
        (["--tls-key", "x"], "needs --tls-cert"),
        (["--tls-cert", "missing.pem"], "cannot be used for TLS"),
        (["--port", "70000"], "--port must be a whole number up to 65535"),
        (["--idle-minutes", "0.02"], "--idle-minutes must be a whole number"),
        (["--root", "missing"], "is not a folder"),
        (["--log-level", "loud"], "--log-level"),
        (["--port", "{port}"], "Cannot listen on"),
    ],
)
def test_what_cannot_be_served_is_said(server: AttackedServer, tmp_path: Path, options: list[str], said: str) -> None:
    words = [word.format(port=server.port) for word in options]
    anywhere = ["--port", "0"] if "--port" not in words else []
    ended = RunningProgram(AgentFolders(tmp_path), ("serve", *anywhere, *words)).wait_for_end()
    assert (ended.code != 0, ended.out) == (True, "")
    assert said in ended.err
