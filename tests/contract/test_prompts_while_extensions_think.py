"""Prompts that come while an extension still looks at the first one."""

from __future__ import annotations

import signal

import pytest

from fakes.model_server import ModelServer, said_in
from support.agent_folders import AgentFolders, extension
from support.agent_process import RpcProcess, Start
from support.contract import proves

ASKS = """
@ext.on(Input)
async def asks(event, ctx):
    if event.text == "first" and not await ctx.ui.confirm("go?", "really"):
        return Handled()

@ext.command("hi")
async def hi(arguments, ctx):
    ctx.ui.notify("hi " + arguments)
"""


def thinking(start: Start, folders: AgentFolders, dialect: str) -> tuple[RpcProcess, str]:
    """An agent whose extension asks the host about a prompt, and the id of its question."""
    host = start(*extension(folders, ASKS), dialect=dialect)
    host.send({"id": "first", "type": "prompt", "message": "first"})
    return host, host.wait_event("extension_ui_request", method="confirm")["id"]


@proves("prompt.while_extensions_think", dialects=("pi-latest", "omp"))
@pytest.mark.parametrize("dialect", ["pi-latest", "omp"])
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_second_prompt_is_refused_while_an_extension_looks_at_the_first(
    start: Start, folders: AgentFolders, server: ModelServer, dialect: str, goes_on: bool
) -> None:
    host, question = thinking(start, folders, dialect)
    host.send({"id": "second", "type": "prompt", "message": "second"})
    refusal = host.wait(lambda record: record.get("id") == "second" and record.get("success") is False)
    assert refusal["error"].startswith("Agent is already processing")
    assert not any(record.get("id") == "first" for record in host.since(0))
    host.send({"id": "later", "type": "prompt", "message": "later", "streamingBehavior": "followUp"})
    host.ask("prompt", message="/hi you")
    host.wait_event("extension_ui_request", method="notify", message="hi you")
    server.answers("well, one")
    server.answers("well, two")
    host.send({"type": "extension_ui_response", "id": question, "confirmed": goes_on})
    assert host.response("later")["success"] is True
    # The second may have a run of its own: its answer is the last.
    last = "well, two" if goes_on else "well, one"
    host.wait(lambda record: record.get("type") == "message_end" and last in str(record["message"]["content"]))
    host.wait_end()
    said = [words for request in server.requests for role, words in said_in(request) if role == "user"]
    assert [*dict.fromkeys(said)] == (["first", "later"] if goes_on else ["later"])
    if dialect == "omp":
        host.wait_event("prompt_result", id="later")
        results = [record["id"] for record in host.since(0, "prompt_result")]
        assert results == (["second", "first", "later"] if goes_on else ["second", "later"])


@proves("exit.signal_silent", dialects=("omp",))
@pytest.mark.parametrize("by_signal", [True, False])
def test_a_prompt_that_an_extension_still_looks_at_gets_no_result_when_the_process_ends(
    start: Start, folders: AgentFolders, by_signal: bool
) -> None:
    host, _ = thinking(start, folders, "omp")
    if by_signal:
        host.signal(signal.SIGTERM)
    else:
        host.close_stdin()
    assert host.wait_exit() == (143 if by_signal else 0)
    assert host.response("first")["success"] is False
    assert not host.since(0, "prompt_result")
    assert not host.since(0, "session_settled")
