"""A failure of the model's server in every front end: a person reads one sentence, a program the server's words."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from html import unescape
from pathlib import Path

import pytest

import pigeon
from fakes.editor_client import Editor, RpcFailure
from fakes.model_server import ModelServer
from pigeon.wire.choices import DialectName
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess, run_pigeon
from support.pigeon_serve import PigeonServer
from support.terminal import PtyChat

SENTENCE = (
    'The provider "fake" refused the API key from models.json (401: invalid x-api-key): replace it there with a '
    "valid one"
)
WITHOUT_ORIGIN = 'The provider "fake" refused the API key (401: invalid x-api-key): `pigeon doctor` shows which'
RAW = '401 {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}'


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def folders(tmp_path: Path, server: ModelServer) -> AgentFolders:
    folders = AgentFolders(tmp_path)
    folders.agent = folders.home / ".pigeon" / "agent"
    folders.agent.mkdir(parents=True)
    known = providers(server.url)
    known["providers"]["fake"]["apiKey"] = "wrong-key-0123456789"
    folders.configure(
        known, {"defaultModel": "fake/fake-1", "retry": {"baseDelayMs": 1}, "compaction": {"keepRecentTokens": 1}}
    )
    return folders


def variables_of(folders: AgentFolders) -> dict[str, str]:
    return {**folders.environment(), "PIGEON_CODING_AGENT_DIR": str(folders.agent)}


def chat_of(folders: AgentFolders, *options: str) -> PtyChat:
    env = {"PIGEON_CODING_AGENT_DIR": str(folders.agent)}
    return PtyChat(folders.home.parent, list(options), columns=400, env=env)


def session_file(folders: AgentFolders) -> Path:
    [file] = folders.agent.rglob("sessions/**/*.jsonl")
    return file


async def print_answer(folders: AgentFolders) -> str:
    return run_pigeon(folders, "-p", "hello").err


async def print_events(folders: AgentFolders) -> str:
    return run_pigeon(folders, "--mode", "json", "hello").err


async def run_batch(folders: AgentFolders) -> str:
    (folders.work / "tasks.jsonl").write_text(json.dumps({"prompt": "hello"}))
    shown = run_pigeon(folders, "batch", "tasks.jsonl", "--out", "out")
    return shown.out + shown.err


async def use_library(folders: AgentFolders) -> str:
    async with pigeon.Agent(env=variables_of(folders), cwd=folders.work, agent_dir=folders.agent) as agent:
        result = await agent.run("hello")
        assert (result.ended, result.error) == ("error", SENTENCE)
        assert json.loads(str(result.messages[-1].error_message)[4:]) == json.loads(RAW[4:])
        return str(result.error)


async def use_editor(folders: AgentFolders) -> str:
    with Editor(folders) as editor:
        editor.initialize()
        session = editor.new()
        with pytest.raises(RpcFailure) as refused:
            editor.call("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "hello"}])
        return refused.value.message


async def chat(folders: AgentFolders) -> str:
    with chat_of(folders) as shown:
        shown.send_line("hello")
        return shown.until(lambda text: "invalid x-api-key" in text)


async def compact_in_the_chat(folders: AgentFolders) -> str:
    for _ in range(2):
        session = run_pigeon(folders, "--model", "demo", "--continue", "-p", "list the files")
        assert session.code == 0, session.err
    with chat_of(folders, "--session", str(session_file(folders))) as shown:
        shown.send_line("/model fake-1")
        shown.until(lambda text: "Model: fake/fake-1" in text)
        shown.send_line("/compact")
        shown.until(lambda text: "invalid x-api-key" in text)
        shown.send_line("/nothing")
        return shown.until(lambda text: "There is no command /nothing" in text)


async def page(folders: AgentFolders) -> str:
    server = PigeonServer(folders)
    try:
        made = server.call("POST", "/api/sessions", {"cwd": str(folders.work)})
        url = f"{server.url.replace('http', 'ws', 1)}/{made['id']}"
        async with pigeon.Client(url=url, token=server.token) as client:
            result = await client.run("hello")
            assert result.error == SENTENCE
            pieces = (await client.get_html()).pieces
    finally:
        server.stop()
    shown = "".join(piece.html for piece in pieces)
    seen, folded, whole = shown.partition("<details><summary>What the server sent")
    assert folded
    assert "authentication_error" in whole
    return unescape(seen)


FRONT_ENDS: list[Callable[[AgentFolders], Awaitable[str]]] = [
    print_answer,
    print_events,
    run_batch,
    use_library,
    use_editor,
    chat,
    compact_in_the_chat,
    page,
]


@pytest.mark.parametrize("front_end", FRONT_ENDS, ids=lambda one: one.__name__)
async def test_a_person_reads_one_sentence(
    folders: AgentFolders, server: ModelServer, front_end: Callable[[AgentFolders], Awaitable[str]]
) -> None:
    server.fails(401, "invalid x-api-key", "authentication_error")
    shown = " ".join((await front_end(folders)).split())
    assert SENTENCE in shown
    assert "authentication_error" not in shown
    if front_end is not run_batch:  # which says it as it happens, and at the end
        assert shown.count("invalid x-api-key") == 1


async def test_an_earlier_failure_is_explained_when_the_chat_goes_on_and_in_an_exported_page(
    folders: AgentFolders, server: ModelServer
) -> None:
    server.fails(401, "invalid x-api-key", "authentication_error")
    run_pigeon(folders, "-p", "hello")
    with chat_of(folders, "--session", str(session_file(folders))) as shown:
        text = " ".join(shown.until(lambda text: "invalid x-api-key" in text).split())
    written = run_pigeon(folders, "--export", str(session_file(folders)), "page.html")
    assert written.code == 0, written.err
    exported = unescape((folders.work / "page.html").read_text("utf-8"))
    for found in (text, exported):
        assert WITHOUT_ORIGIN in found
    assert "authentication_error" not in text


def failed_run(folders: AgentFolders, dialect: str) -> tuple[list[dict[str, object]], str]:
    with RpcProcess(folders, "--dialect", dialect) as agent:
        agent.send({"id": "p", "type": "prompt", "message": "hello"})
        agent.wait(lambda one: one["type"] == "agent_end" and not one.get("willRetry"))
        agent.close_stdin()
        agent.wait_exit()
        records = agent.since(0)
    return records, session_file(folders).read_text("utf-8")


@pytest.mark.parametrize("dialect", DialectName.__args__)
def test_hosts_and_session_files_get_the_words_of_the_server(
    folders: AgentFolders, server: ModelServer, dialect: str
) -> None:
    server.fails(401, "invalid x-api-key", "authentication_error")
    records, session = failed_run(folders, dialect)
    ends = [
        one for one in records if one.get("type") == "message_end" and '"assistant"' in json.dumps(one.get("message"))
    ]
    assert [end["message"]["errorMessage"] for end in ends] == [RAW]  # type: ignore[index]
    for text in (json.dumps(records), session):
        assert "explanation" not in text
        assert "replace it there" not in text
        assert RAW in text.replace('\\"', '"')
