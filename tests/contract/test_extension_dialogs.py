"""Dialogs and notices of extensions, on the wire."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fakes.agent_folders import AgentFolders
from fakes.contract_manifest import proves
from fakes.extension_files import example, extension
from fakes.model_server import Call, ModelServer
from fakes.record_outline import tool_texts
from fakes.rpc_process import RpcProcess, Start

Record = dict[str, Any]
ALL = ("pi", "omp", "xcsh")
PARTS = ("notify", "status", "widget", "title")


@pytest.fixture(params=ALL)
def demo(start: Start, request: pytest.FixtureRequest) -> RpcProcess:
    """The program in each dialect, with the example that uses every method."""
    return start(*example("ui_demo"), dialect=request.param)


def asked(host: RpcProcess, method: str, start: int = 0) -> Record:
    return host.wait_event("extension_ui_request", start, method=method)


def said(host: RpcProcess, text: str, start: int = 0) -> Record:
    def has(record: Record) -> bool:
        return record.get("method") == "notify" and str(record["message"]).startswith(text)

    return host.wait(has, start)


def begin(host: RpcProcess, text: str, id: str = "p") -> None:
    host.send({"id": id, "type": "prompt", "message": text})


def reply(host: RpcProcess, request: Record, **answer: Any) -> None:
    host.send({"type": "extension_ui_response", "id": request["id"], **answer})


FIELDS: dict[str, Record] = {
    "select": {"title": "Which bird?", "options": ["pigeon", "parrot", "penguin"]},
    "confirm": {"title": "Fly south?", "message": "It is getting cold."},
    "input": {"title": "Name?", "placeholder": "what the bird is called"},
    "editor": {"title": "A letter", "prefill": "Dear pigeon,"},
}


@proves("ui.select", "ui.confirm", "ui.input", "ui.editor", "ui.blocks", "ui.select_value", "ui.confirm_value",
        "ui.input_value", "ui.editor_value", dialects=ALL)  # fmt: skip
@proves("note/ui.request", "note/ui.response", "note/ui.waits", "note/in.ui_response", "note/ui.extensions_run")
@pytest.mark.parametrize(
    ("method", "answer", "result"),
    [
        ("select", {"value": "parrot"}, "select: selected 'parrot'"),
        ("confirm", {"confirmed": True}, "confirm: confirmed True"),
        ("input", {"value": "Pidge"}, "input: typed 'Pidge'"),
        ("editor", {"value": "Dear pigeon,\nfly!"}, r"editor: edited 'Dear pigeon,\nfly!'"),
    ],
)
def test_a_question_waits_for_the_answer_with_its_id(
    demo: RpcProcess, method: str, answer: Record, result: str
) -> None:
    begin(demo, f"/demo {method}")
    request = asked(demo, method)
    fields = {key: value for key, value in request.items() if key not in ("type", "id", "method")}
    assert fields == FIELDS[method]
    assert re.fullmatch(r"[0-9a-f-]{36}|[0-9a-f]{16}", request["id"])
    demo.ask("get_state")
    assert not [record for record in demo.records if record.get("method") == "notify"]
    reply(demo, request, **answer)
    assert said(demo, f"{method}: ")["message"] == result
    assert demo.response("p")["success"] is True
    assert not [r for r in demo.records if r["type"] == "response" and "extension_ui" in str(r["command"])]


@proves("ui.select_cancel", "ui.confirm_cancel", "ui.input_cancel", "ui.editor_cancel", dialects=ALL)
@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("select", "select: selected None"),
        ("confirm", "confirm: confirmed False"),
        ("input", "input: typed None"),
        ("editor", "editor: edited None"),
    ],
)
@pytest.mark.parametrize("answer", [{"cancelled": True}, {"cancelled": True, "value": "x", "confirmed": True}, {}])
def test_a_cancelled_or_empty_answer_gives_the_default(
    demo: RpcProcess, method: str, result: str, answer: Record
) -> None:
    begin(demo, f"/demo {method}")
    reply(demo, asked(demo, method), **answer)
    assert said(demo, f"{method}: ")["message"] == result


@proves("ui.timeout", dialects=ALL)
def test_a_question_with_a_time_out_resolves_by_itself(demo: RpcProcess) -> None:
    begin(demo, "/demo quick")
    request = asked(demo, "confirm")
    assert request["timeout"] == 200
    assert said(demo, "quick: ")["message"] == "quick: in time False"
    reply(demo, request, confirmed=True)
    demo.ask("get_state")
    assert demo.response("p")["success"] is True


@proves("ui.prompt_after", "ui.unknown_answer", dialects=ALL)
def test_ordinary_prompts_and_stray_answers_work_beside_an_open_question(demo: RpcProcess, server: ModelServer) -> None:
    begin(demo, "/demo select")
    request = asked(demo, "select")
    for id in ("nobody", "", 5, None, ["x"]):
        demo.send({"type": "extension_ui_response", "id": id, "value": "penguin"})
    demo.send({"type": "extension_ui_response", "value": "penguin"})
    server.answers("beside")
    start = demo.mark()
    demo.ask("prompt", message="hello")
    demo.wait_event("agent_end", start)
    assert demo.ask("get_last_assistant_text") == {"text": "beside"}
    reply(demo, request, value="pigeon")
    reply(demo, request, value="penguin")
    assert said(demo, "select: ")["message"] == "select: selected 'pigeon'"


@proves("ui.notify", "ui.setStatus", "ui.setWidget", "ui.setTitle", "ui.set_editor_text", "ui.ids")
@proves("note/ui.fire", "note/ui.setTitle")
@proves("ui.fire_no_answer", dialects=("pi", "xcsh"))
@proves("xcsh/ui.notify", "xcsh/ui.setStatus", "xcsh/ui.setWidget", "xcsh/ui.set_editor_text",
        "xcsh/ui.title_suppressed", dialects=("xcsh",))  # fmt: skip
@pytest.mark.parametrize("dialect", ["pi", "omp", "xcsh"])
def test_notices_are_sent_with_their_fields_and_need_no_answer(start: Start, dialect: str) -> None:
    host = start(*example("ui_demo"), dialect=dialect)
    host.ask("prompt", message="/demo notify status widget title")
    said(host, "title: ")
    sent = [record for record in host.records if record["type"] == "extension_ui_request"]
    assert len({record["id"] for record in sent}) == len(sent)
    plain = [{k: v for k, v in record.items() if k not in ("type", "id")} for record in sent]
    expected: list[Record] = [
        {"method": "notify", "message": "All is well", "notifyType": "info"},
        {"method": "notify", "message": "Something is odd", "notifyType": "warning"},
        {"method": "notify", "message": "Something is wrong", "notifyType": "error"},
        {"method": "setStatus", "statusKey": "ui-demo", "statusText": "flying"},
        {"method": "setStatus", "statusKey": "ui-demo"},
        {"method": "setWidget", "widgetKey": "ui-demo", "widgetLines": ["line one", "line two"],
         "widgetPlacement": "belowEditor"},
        {"method": "setWidget", "widgetKey": "ui-demo"},
        {"method": "setTitle", "title": "A bird's view"},
        {"method": "set_editor_text", "text": "Tell me about pigeons"},
        {"method": "set_editor_text", "text": " and parrots"},
    ]  # fmt: skip
    shown = [row for row in plain if str(row.get("message", "")).split(":")[0] not in PARTS]
    assert shown == [row for row in expected if dialect != "xcsh" or row["method"] != "setTitle"]


@proves("xcsh/ui.title_env", dialects=("xcsh",))
def test_a_variable_brings_titles_back(start: Start) -> None:
    host = start(*example("ui_demo"), dialect="xcsh", env={"PI_RPC_EMIT_TITLE": "1"})
    host.ask("prompt", message="/demo title")
    assert asked(host, "setTitle")["title"] == "A bird's view"


@proves("omp/ui.degraded_custom", "omp/ui.degraded_editor_text", "omp/ui.degraded_expanded", "omp/ui.degraded_themes",
        "omp/ui.degraded_theme", "omp/ui.degraded_set_theme", "omp/ui.has_ui", "omp/ui.degraded_silent",
        dialects=("omp",))  # fmt: skip
@proves("note/ui.theme", "note/ui.expanded", "note/ui.degraded_silent")
def test_what_only_a_terminal_can_show_answers_as_documented_and_sends_nothing(demo: RpcProcess) -> None:
    demo.ask("prompt", message="/demo terminal")
    said(demo, "terminal: ")
    requests = [record for record in demo.records if record["type"] == "extension_ui_request"]
    assert [record["message"] for record in requests] == [
        "terminal: custom None, editor '', expanded False, themes [], theme None, set False: "
        "Theme switching not supported in RPC mode, has_ui True, mode rpc"
    ]


TWO_AT_ONCE = """
@ext.command("both")
async def both(args, ctx):
    first, second = await asyncio.gather(ctx.ui.input("first"), ctx.ui.input("second"))
    ctx.ui.notify(f"{first} {second}")

@ext.on(ToolCall)
async def gate(event, ctx):
    if not await ctx.ui.confirm("Run it?", event.args["command"]):
        return Block("the user said no")
"""


@pytest.fixture
def asking(start: Start, folders: AgentFolders) -> RpcProcess:
    """The program with an extension that asks before every tool."""
    return start(*extension(folders, TWO_AT_ONCE))


@proves("ui.several")
def test_several_questions_are_open_at_once(asking: RpcProcess) -> None:
    begin(asking, "/both")
    first = asking.wait_event("extension_ui_request", title="first")
    second = asking.wait_event("extension_ui_request", title="second")
    reply(asking, second, value="2")
    reply(asking, first, value="1")
    assert said(asking, "1 2")


@proves("ui.tool_gate")
@pytest.mark.parametrize(
    ("answer", "result"),
    [({"confirmed": True}, "hi\n"), ({"confirmed": False}, "the user said no"), ({"value": "yes"}, "the user said no")],
)
def test_a_question_before_a_tool_decides_about_it(
    asking: RpcProcess, server: ModelServer, answer: Record, result: str
) -> None:
    server.answers(Call("bash", {"command": "echo hi"}))
    server.answers("done")
    start = asking.mark()
    asking.ask("prompt", message="x")
    reply(asking, asked(asking, "confirm"), **answer)
    asking.wait_end(start)
    assert tool_texts(asking.since(start)) == [result]


@proves("ui.abort")
def test_an_abort_ends_a_run_that_waits_for_an_answer(asking: RpcProcess, server: ModelServer) -> None:
    server.answers(Call("bash", {"command": "echo hi"}))
    start = asking.mark()
    asking.ask("prompt", message="x")
    request = asked(asking, "confirm")
    asking.ask("abort")
    asking.wait_end(start)
    reply(asking, request, confirmed=True)
    assert "hi\n" not in tool_texts(asking.since(start))
    server.answers("after")
    asking.run("again")


@proves("ui.eof")
def test_the_end_of_input_ends_a_process_that_waits_for_an_answer(asking: RpcProcess) -> None:
    begin(asking, "/both")
    asked(asking, "input")
    asking.close()
