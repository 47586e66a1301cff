"""`--trace` and `--verbose`: what is recorded and told, and that no key is in it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer
from pigeon.frontends.observing import Observer, TraceFile
from pigeon.providers.http.recorders import HttpRequest
from pigeon.secrets.redactor import Redactor
from pigeon.wire.errors import StartupError
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess, run_pigeon

KEY = "sk-pigeon-7f3Qz81LmXw20Rk9"
MODEL = ("--no-session", "--model", "fake/fake-1")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def folders(tmp_path: Path, server: ModelServer) -> AgentFolders:
    made = AgentFolders(tmp_path)
    described = providers(server.url)
    described["providers"]["fake"]["apiKey"] = KEY
    made.configure(described)
    return made


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("mode", ["rpc", "json", "answer"])
def test_a_trace_has_the_protocol_and_what_the_server_was_sent_without_keys(
    folders: AgentFolders, server: ModelServer, mode: str
) -> None:
    path = folders.work / "trace.jsonl"
    path.write_text("what was there before")
    path.chmod(0o644)
    server.answers(f"Never say {KEY}.", Call("bash", {"command": "echo traced"}))
    server.answers("Done.")
    arguments = ("--trace", "trace.jsonl", *MODEL)
    if mode == "rpc":
        with RpcProcess(folders, *arguments) as agent:
            agent.run(f"hello {KEY}")
    else:
        given = ("--mode", "json") if mode == "json" else ("-p",)
        assert run_pigeon(folders, *given, *arguments, "hello").code == 0
    found = entries(path)
    kinds = {entry["kind"] for entry in found}
    assert kinds == {"out", "request", "response", "received"} | ({"in"} if mode == "rpc" else set())
    request = next(entry for entry in found if entry["kind"] == "request")
    assert (request["url"], request["headers"]["x-api-key"]) == (f"{server.url}/v1/messages", "***")
    assert request["body"]["model"] == "fake-1"
    told = [entry["line"]["type"] for entry in found if entry["kind"] == "out"]
    assert "tool_execution_end" in told
    assert "event: message_stop" in "".join(entry["text"] for entry in found if entry["kind"] == "received")
    assert KEY not in path.read_text("utf-8")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_verbose_says_what_is_read_which_model_is_asked_and_how_long_it_takes(
    folders: AgentFolders, server: ModelServer
) -> None:
    (folders.work / "AGENTS.md").write_text("Be kind.")
    server.answers("hi", Call("bash", {"command": "true"}))
    server.answers("Done.")
    ended = run_pigeon(folders, "-p", "--verbose", *MODEL, f"hello {KEY}")
    assert (ended.code, ended.out) == (0, "Done.\n")
    for said in (
        f"pigeon: reads {folders.agent}/settings.json\n",
        f"pigeon: reads {folders.work}/AGENTS.md\n",
        "pigeon: model: fake/fake-1, thinking medium; ready after 0.",
        f"pigeon: POST {server.url}/v1/messages (",
        "pigeon: answered with status 200 after 0.",
        "pigeon: tool bash: done after 0.",
        "pigeon: answer of fake/fake-1: stop (",
    ):
        assert said in ended.err
    assert KEY not in ended.err


def test_verbose_says_what_fails_and_what_is_tried_again(folders: AgentFolders, server: ModelServer) -> None:
    folders.configure(settings={"retry": {"baseDelayMs": 1}})
    server.answers("hi", Call("bash", {"command": "false"}))
    server.fails(500, "out of order")
    server.fails(400, "no such thing", "invalid_request_error")
    ended = run_pigeon(folders, "-p", "--verbose", *MODEL, "hello")
    assert ended.code == 1
    for said in (
        "pigeon: tool bash: failed after 0.",
        "pigeon: retry 1 of 3 in 0.001 s\n",
        "pigeon: answer of fake/fake-1: error: 400 ",
    ):
        assert said in ended.err, ended.err


def test_verbose_says_that_older_messages_are_summarized(folders: AgentFolders, server: ModelServer) -> None:
    folders.configure(settings={"compaction": {"keepRecentTokens": 10}})
    for text in ("One.", "Two.", "They talked."):
        server.answers(text)
    with RpcProcess(folders, "--verbose", *MODEL) as agent:
        agent.run("tell me " * 500)
        agent.run("and then " * 500)
        agent.ask("compact")
    assert "pigeon: compaction: older messages are being summarized\n" in agent.stderr


def test_a_trace_that_cannot_be_written_is_told_at_the_start(folders: AgentFolders, server: ModelServer) -> None:
    ended = run_pigeon(folders, "-p", "--trace", "nowhere/trace", *MODEL, "hello")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == f"Error: --trace {folders.work}/nowhere/trace: No such file or directory\n"
    assert server.requests == []


def test_a_trace_follows_no_link_to_a_file(tmp_path: Path) -> None:
    """In a project the link may be the work of a command in a sandbox."""
    (tmp_path / "bashrc").write_text("the user's")
    for name, target in (("to-a-file", "bashrc"), ("to-nothing", "profile"), ("to-a-stream", "/dev/null")):
        (tmp_path / name).symlink_to(target)
    for name in ("to-a-file", "to-nothing"):
        with pytest.raises(StartupError, match=f"--trace .*{name}: this is a link"):
            TraceFile(str(tmp_path / name))
    TraceFile(str(tmp_path / "to-a-stream")).write_entry("begun")
    assert (tmp_path / "bashrc").read_text() == "the user's"
    assert not (tmp_path / "profile").exists()


@pytest.mark.leaves_open  # up to the end of its process
def test_a_trace_has_a_largest_size(tmp_path: Path) -> None:
    trace = TraceFile(str(tmp_path / "trace"), largest=500)
    for number in range(50):
        trace.write_entry("in", line=number)
    found = entries(tmp_path / "trace")
    assert len(found) < 20
    assert found[-1]["kind"] == "full"
    with pytest.raises(StartupError):
        TraceFile(str(tmp_path))


@pytest.mark.leaves_open  # up to the end of its process
def test_a_key_in_two_pieces_of_an_answer_is_masked(tmp_path: Path) -> None:
    redactor = Redactor()
    redactor.learn_keys([("key", KEY)])
    observer = Observer(TraceFile(str(tmp_path / "trace")), False, redactor)
    number = observer.on_request_start(
        HttpRequest("http://localhost/v1", {"Authorization": f"Bearer {KEY}"}, b"no json")
    )
    for piece in (b"it is " + KEY[:9].encode(), KEY[9:].encode() + "ä".encode()[:1], "ä".encode()[1:], None):
        observer.on_body_piece(number, piece)
    found = entries(tmp_path / "trace")
    text = "".join(entry.get("text", "") for entry in found)
    assert text.startswith("it is ")
    assert text.endswith("ä")
    assert found[0]["body"] == "no json"
    assert KEY not in os.fsdecode((tmp_path / "trace").read_bytes())


def test_a_pipe_that_is_not_read_is_no_place_for_a_trace(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StartupError, match="--trace"):
        TraceFile(str(tmp_path / "pipe"))
