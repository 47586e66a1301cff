"""What hosts are told about failures of model servers: the server's own words, and a sentence for people on request."""

from __future__ import annotations

from fakes.model_server import ModelServer
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess, Start, run_pigeon
from support.contract import proves

LONG = "lorem ipsum dolor sit amet " * 40
SETTINGS = {"compaction": {"keepRecentTokens": 50, "reserveTokens": 1000}, "retry": {"baseDelayMs": 1}}
OVERLOAD = 'The provider "fake" is overloaded (529: Overloaded): wait a moment and try again, or choose another model'
REFUSED = (
    'The provider "fake" refused the API key from models.json (401: invalid x-api-key): replace it there with a '
    "valid one"
)


def fail_each_way(agent: RpcProcess, server: ModelServer) -> list[tuple[str, str, object]]:
    """A retry, the end of a run and a compaction fail; each event with the server's words and the explanation."""
    for message in ("one", "two"):
        server.answers(f"answer {message}")
        agent.run(f"{message} {LONG}")
    start = agent.mark()
    server.fails(529, "Overloaded", "overloaded_error")
    server.fails(401, "invalid x-api-key", "authentication_error")
    agent.send({"type": "prompt", "id": "p", "message": "three"})
    agent.wait(lambda one: one["type"] == "agent_settled", start)
    server.fails(401, "invalid x-api-key", "authentication_error")
    refused = agent.expect_error("compact")
    assert refused.endswith(
        '401 {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}'
    )
    told = []
    for record in agent.since(start):
        words = record.get("errorMessage") or record.get("message", {}).get("errorMessage")
        if record["type"] in ("message_end", "auto_retry_start", "compaction_end") and words:
            told.append((record["type"], words.partition(" {")[0], record.get("explanation")))
        else:
            assert "explanation" not in record
    return told


@proves("explanations.told")
def test_a_host_that_asks_gets_a_sentence_beside_the_words_of_the_server(start: Start, server: ModelServer) -> None:
    agent = start(settings=SETTINGS, dialect="pi-latest")
    agent.ask("hello", features=["explanations"])
    summary = f"Summarization failed: {REFUSED}"
    told = fail_each_way(agent, server)
    assert told == [
        ("message_end", "529", OVERLOAD),
        ("auto_retry_start", "529", OVERLOAD),
        ("message_end", "401", REFUSED),
        ("compaction_end", "Compaction failed: Summarization failed: 401", summary),
    ]


@proves("explanations.unasked")
def test_a_host_that_does_not_ask_gets_only_the_words_of_the_server(start: Start, server: ModelServer) -> None:
    told = fail_each_way(start(settings=SETTINGS, dialect="pi-latest"), server)
    assert [explanation for _, _, explanation in told] == [None] * 4


@proves("print.failure")
def test_one_answer_that_fails_is_a_sentence_on_stderr(folders: AgentFolders, server: ModelServer) -> None:
    folders.configure(providers(server.url))
    server.fails(401, "invalid x-api-key", "authentication_error")
    ended = run_pigeon(folders, "--model", "fake/fake-1", "-p", "hello")
    assert (ended.code, ended.out, ended.err) == (1, "", f"Error: {REFUSED}\n")
    [session] = folders.agent.rglob("sessions/**/*.jsonl")
    assert "authentication_error" in session.read_text("utf-8")
