"""What extensions hear of and change in the real program, from the first event to what is on disk."""

from __future__ import annotations

import json
from typing import Any

from fakes.model_server import Call, ModelServer, said_in
from support.agent_folders import AgentFolders, extension, providers
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.records import answers, finished_messages, text_of

Record = dict[str, Any]
LISTEN = """
from pigeon.extensions.public.events import ALL
heard = []

def listener(kind):
    async def listen(event, ctx):
        heard.append(kind.name + (":" + event.message.__struct_config__.tag if "message_" in kind.name and
                                  hasattr(event, "message") else ""))
    return listen

for kind in ALL:
    ext.on(kind)(listener(kind))

@ext.command("heard")
async def tell(args, ctx):
    ctx.ui.notify("\\n".join(name for name in heard if not name.endswith("_update")))
"""


@proves("extension.order")
def test_the_events_of_one_tool_turn_come_in_order(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    host = start(*extension(folders, LISTEN))
    server.answers(Call("bash", {"command": "echo hi"}))
    server.answers("done")
    host.run("x")
    host.ask("prompt", message="/heard")
    heard = host.wait_event("extension_ui_request", method="notify")["message"].split("\n")
    request = ["context", "before_provider_request", "before_provider_headers", "after_provider_response"]
    answer = ["message_start:assistant", "message_end:assistant"]
    tool = ["tool_execution_start", "tool_call", "tool_result", "tool_execution_end"]
    assert heard == [
        "session_start", "resources_discover", "input", "before_agent_start", "agent_start", "turn_start",
        "message_start:user", "message_end:user", *request, *answer, *tool, "message_start:toolResult",
        "message_end:toolResult", "turn_end", "turn_start", *request, *answer, "turn_end", "agent_end",
        "agent_before_settle", "agent_settled",
    ]  # fmt: skip
    assert not host.since(0, "extension_error")


@proves("extension.requests")
def test_requests_to_a_provider_can_be_changed(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    host = start(*extension(folders, """
@ext.on(BeforeProviderRequest)
async def body(event, ctx):
    return Replace({**event.payload, "metadata": {"user_id": "bird"}})
"""))  # fmt: skip
    asked = server.answers("ok")
    host.run("x")
    assert asked.request["metadata"] == {"user_id": "bird"}


@proves("extension.replace")
def test_messages_can_be_replaced_before_they_are_kept(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    host = start(*extension(folders, """
@ext.on(MessageEnd)
async def end(event, ctx):
    for block in event.message.content:
        if hasattr(block, "text"):
            block.text = block.text.replace("dog", "bird")
    return Replace(event.message)
"""))  # fmt: skip
    server.answers("a dog barks")
    records = host.run("which dog?")
    assert text_of(finished_messages(records, "user")[0]) == "which bird?"
    assert text_of(answers(records)[0]) == "a bird barks"
    assert host.ask("get_last_assistant_text") == {"text": "a bird barks"}


@proves("extension.settle")
def test_a_run_goes_on_as_often_as_an_extension_wants(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    host = start(*extension(folders, """
left = [2]

@ext.on(AgentBeforeSettle)
async def more(event, ctx):
    if left[0]:
        left[0] -= 1
        return GoOn("and then?")
"""))  # fmt: skip
    for text in ("one", "two", "three"):
        server.answers(text)
    records = host.run("x")
    assert [text_of(message) for message in answers(records)] == ["one", "two", "three"]
    assert [record["type"] for record in records].count("agent_settled") == 1


@proves("extension.compaction")
def test_a_compaction_is_cancelled_or_summarized(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    text = """
@ext.on(SessionBeforeCompact)
async def compact(event, ctx):
    return Cancel() if event.instructions == "no" else Summary("all about birds", details={"by": "hand"})
"""
    host = start(*extension(folders, text), settings={"compaction": {"keepRecentTokens": 1}})
    for _ in range(2):
        server.answers("word " * 50)
        host.run("say " * 50)
    assert host.request("compact", customInstructions="no")["success"] is False
    assert host.ask("compact")["summary"] == "all about birds"
    asked = server.answers("ok")
    host.run("what was it about?")
    assert "all about birds" in json.dumps(said_in(asked.request))


@proves("extension.session_state")
def test_what_an_extension_keeps_is_there_after_a_restart(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    folders.configure(providers(server.url))
    options = ["--provider", "fake", "--model", "fake-1", *extension(folders, """
@ext.command("count")
async def count(args, ctx):
    state = ctx.state("count")
    state.set(state.get(0) + 1)
    ctx.session.rename(f"session {state.get()}")
    ctx.ui.notify(f"count {state.get()}")
""")]  # fmt: skip
    with RpcProcess(folders, *options) as host:
        server.answers("ok")
        host.run("x")
        host.ask("prompt", message="/count")
        host.wait_event("extension_ui_request", method="notify")
        file = host.ask("get_state")["sessionFile"]
    with RpcProcess(folders, *options, "--session", file) as again:
        again.ask("prompt", message="/count")
        assert again.wait_event("extension_ui_request", method="notify")["message"] == "count 2"
        assert again.ask("get_state")["sessionName"] == "session 2"
        assert [message["role"] for message in again.ask("get_messages")["messages"]] == ["user", "assistant"]


@proves("extension.control")
def test_an_extension_chooses_tools_and_models_and_runs_programs(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    host = start(*extension(folders, """
@ext.command("set")
async def choose(args, ctx):
    ctx.tools.activate(["read", "no such tool"])
    ctx.models.use("fake", "fake-2")
    ctx.models.think("low")
    ran = await ctx.exec("sh", ["-c", "echo $0; exit 3", "hi"])
    slow = await ctx.exec("sleep", ["60"], timeout=0.1)
    gone = await ctx.exec("no-such-program")
    ctx.ui.notify(f"{ran.stdout!r} {ran.code} {slow.killed} {gone.code != 0}")
"""))  # fmt: skip
    host.ask("prompt", message="/set")
    assert host.wait_event("extension_ui_request", method="notify")["message"] == "'hi\\n' 3 True True"
    state = host.ask("get_state")
    assert (state["model"]["id"], state["thinkingLevel"]) == ("fake-2", "low")
    asked = server.answers("ok")
    host.run("x")
    assert [tool["name"] for tool in asked.request["tools"]] == ["read"]
