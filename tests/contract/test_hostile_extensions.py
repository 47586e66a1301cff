"""Extensions that misbehave in the real program: the protocol stays clean, the session stays whole, the run ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import HEAD, AgentFolders, extension, providers
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.records import answers, text_of, tool_texts

# What would end a process or take its streams is tried on one that was really started.
ENDING = ("exits", "leaves", "aborts", "interrupts", "prints", "closes")


def deeds(all_of_them: dict[str, str]) -> list[Any]:
    return [pytest.param(deed, marks=pytest.mark.by_exec) if deed in ENDING else deed for deed in all_of_them]


AT_IMPORT = {
    "raises": "raise ValueError('bad day')",
    "exits": "sys.exit(5)",
    "leaves": "os._exit(5)",
    "prints": "print('{\"type\": \"forged\"}', flush=True); os.write(1, b'raw\\n')\nraise ValueError('printed')",
    "reads": "input('?')",
    "has no syntax": "def x(:",
    "has nothing": "del ext",
    "closes": "os.close(0); os.close(1); sys.stdout.close(); raise ValueError('closed')",
}


@proves("extension.hostile_load")
@pytest.mark.parametrize("deed", deeds(AT_IMPORT))
def test_an_extension_that_fails_while_it_is_loaded_is_told_of_and_left_out(
    start: Start, folders: AgentFolders, server: ModelServer, deed: str
) -> None:
    path = folders.agent / "extensions" / "found.py"
    path.parent.mkdir()
    path.write_text(HEAD + AT_IMPORT[deed])
    host = start()
    error = host.wait_event("extension_error")
    assert (error["extensionPath"], error["event"]) == (str(path), "load")
    server.answers("fine")
    assert text_of(answers(host.run("x"))[0]) == "fine"


IN_HANDLERS = {
    "raises": "raise ValueError('bad day')",
    "exits": "sys.exit(5)",
    "leaves": "os._exit(5)",
    "aborts": "os.abort()",
    "interrupts": "raise KeyboardInterrupt",
    "prints": "print('{\"type\": \"forged\"}', flush=True); os.write(1, b'raw\\n'); raise ValueError('printed')",
    "reads": "input('?')",
    "recurses": "f = lambda: f(); f()",
    "stops its loop": "asyncio.get_event_loop().stop(); raise ValueError('stopped')",
    "cancels itself": "raise asyncio.CancelledError",
    "forges": "ctx.ui.notify({'type': 'x'})",
    "fills": "ctx.session.append_entry('x', object())",
    "returns nonsense": "return object()",
}
EVERYWHERE = """
async def bad(event, ctx):
    {deed}

def plain(event, ctx):
    {plain}

for kind in (Input, BeforeAgentStart, ModelContext, MessageEnd, ToolResult, AgentBeforeSettle, SessionBeforeSwitch,
             SessionStart, TurnStart, AgentEnd, MessageUpdate, ModelSelect, BeforeProviderRequest):
    ext.on(kind)(bad)
    ext.on(kind)(plain)
"""


@proves("extension.hostile_handler")
@pytest.mark.parametrize("deed", deeds(IN_HANDLERS))
def test_an_extension_that_fails_everywhere_breaks_nothing(
    start: Start, folders: AgentFolders, server: ModelServer, deed: str
) -> None:
    body = IN_HANDLERS[deed]
    host = start(*extension(folders, EVERYWHERE.format(deed=body, plain=body if "asyncio" not in body else "1 / 0")))
    server.answers(Call("bash", {"command": "echo hi"}))
    server.answers("fine")
    records = host.run("x")
    assert tool_texts(records) == ["hi\n"]
    assert text_of(answers(records)[-1]) == "fine"
    assert host.ask("new_session") == {"cancelled": False}
    told = {record["event"] for record in host.records if record["type"] == "extension_error"}
    assert {"input", "before_agent_start", "context", "tool_result", "session_before_switch"} <= told
    assert "forged" not in json.dumps(host.records)


HANGS = {
    "loops": "while True: pass",
    "sleeps": "time.sleep(600)",
    "waits": "await asyncio.sleep(600)",
    "keeps what ends it": "while True:\n        try: time.sleep(600)\n        except BaseException: pass",
}


@proves("extension.hostile_hang")
@pytest.mark.parametrize("deed", HANGS)
def test_an_extension_that_hangs_delays_nothing_but_itself(
    start: Start, folders: AgentFolders, server: ModelServer, deed: str
) -> None:
    text = f"""
@ext.on(TurnStart)
async def turn(event, ctx):
    {HANGS[deed]}

@ext.on(MessageUpdate)
async def update(event, ctx):
    {HANGS[deed]}

@ext.on(ToolCall, timeout=0.3)
async def gate(event, ctx):
    {HANGS[deed]}
"""
    host = start(*extension(folders, text))
    server.answers(Call("bash", {"command": "echo hi"}))
    server.answers("fine")
    begun = host.mark()
    host.ask("prompt", message="x")
    assert host.ask("get_state")["isStreaming"] is True
    host.wait_end(begun)
    assert "hi\n" not in tool_texts(host.since(begun)), "a gate that does not answer is closed"
    assert host.wait_event("extension_error", begun)
    assert text_of(answers(host.since(begun))[-1]) == "fine"
    host.close()


@proves("extension.hostile_hang_abort")
def test_an_abort_does_not_wait_for_an_extension_that_hangs(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    text = """
@ext.on(ToolCall)
async def gate(event, ctx):
    time.sleep(600)

@ext.on(Input)
async def hold(event, ctx):
    if event.text == "hold":
        ctx.ui.notify("held")
        while True: pass
"""
    host = start(*extension(folders, text))
    server.answers(Call("bash", {"command": "echo hi"}))
    begun = host.mark()
    host.ask("prompt", message="x")
    host.wait_event("tool_execution_start", begun)
    host.ask("abort")
    host.wait_end(begun)
    host.close()
    host = start(*extension(folders, text))
    host.send({"id": "p", "type": "prompt", "message": "hold"})
    host.wait_event("extension_ui_request")
    host.ask("abort")
    assert host.response("p")["success"] is False
    host.close()


@proves("extension.hostile_session")
def test_a_session_survives_an_extension_that_misbehaves(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    folders.configure(providers(server.url))
    model = ["--provider", "fake", "--model", "fake-1"]
    bad = extension(folders, EVERYWHERE.format(deed="os._exit(1)", plain="os._exit(1)"))
    with RpcProcess(folders, *model, *bad, by_exec=True) as host:
        server.answers("kept")
        host.run("remember this")
        file = host.ask("get_state")["sessionFile"]
    with RpcProcess(folders, *model, "--session", file) as again:
        kept = again.ask("get_messages")["messages"]
    assert [text_of(message) for message in kept] == ["remember this", "kept"]
