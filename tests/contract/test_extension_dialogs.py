"""Dialogs and notices of extensions, on the wire."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import AgentFolders, example, extension
from support.agent_process import RpcProcess, Start
from support.contract import proves, proves_each
from support.contract_scenes import Seen, Stage, scenario
from support.records import tool_texts

Record = dict[str, Any]
PARTS = ("notify", "status", "widget", "title")


@pytest.fixture
def demo(start: Start, dialect: str) -> RpcProcess:
    """The program in each dialect, with the example that uses every method."""
    return start(*example("ui_demo"), dialect=dialect)


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
ANSWERS: dict[str, Record] = {
    "select": {"value": "parrot"},
    "confirm": {"confirmed": True},
    "input": {"value": "Pidge"},
    "editor": {"value": "Dear pigeon,\nfly!"},
}
NO_ANSWERS: list[Record] = [{"cancelled": True}, {"cancelled": True, "value": "x", "confirmed": True}, {}]


@scenario
def questions(stage: Stage) -> Seen:
    """Each kind of question, answered; and each again, with every answer that is none."""
    host = stage.start(*example("ui_demo"))
    asked_for, results, early, responses, defaults = {}, {}, {}, {}, {}
    for method, answer in ANSWERS.items():
        start = host.mark()
        begin(host, f"/demo {method}", id=method)
        request = asked_for[method] = asked(host, method, start)
        host.ask("get_state")
        early[method] = [record for record in host.since(start) if record.get("method") == "notify"]
        reply(host, request, **answer)
        results[method] = said(host, f"{method}: ", start)["message"]
        responses[method] = host.response(method)
    for number, (method, answer) in enumerate(itertools.product(ANSWERS, NO_ANSWERS)):
        start = host.mark()
        begin(host, f"/demo {method}", id=f"none-{number}")
        reply(host, asked(host, method, start), **answer)
        defaults.setdefault(method, []).append(said(host, f"{method}: ", start)["message"])
    return Seen(
        asked=asked_for, results=results, early=early, responses=responses, defaults=defaults,
        commands=[str(record["command"]) for record in host.since(0, "response")],
    )  # fmt: skip


@proves_each("method", {
    "ui.select": ("select",),
    "ui.confirm": ("confirm",),
    "ui.input": ("input",),
    "ui.editor": ("editor",),
})  # fmt: skip
def test_a_question_is_asked_with_its_fields(questions: Seen, method: str) -> None:
    request = questions.asked[method]
    assert {key: value for key, value in request.items() if key not in ("type", "id", "method")} == FIELDS[method]


@proves_each("method,result", {
    "ui.select_value": ("select", "select: selected 'parrot'"),
    "ui.confirm_value": ("confirm", "confirm: confirmed True"),
    "ui.input_value": ("input", "input: typed 'Pidge'"),
    "ui.editor_value": ("editor", r"editor: edited 'Dear pigeon,\nfly!'"),
})  # fmt: skip
def test_an_answer_resolves_the_question(questions: Seen, method: str, result: str) -> None:
    assert questions.results[method] == result


@proves_each("method,result", {
    "ui.select_cancel": ("select", "select: selected None"),
    "ui.confirm_cancel": ("confirm", "confirm: confirmed False"),
    "ui.input_cancel": ("input", "input: typed None"),
    "ui.editor_cancel": ("editor", "editor: edited None"),
})  # fmt: skip
def test_a_cancelled_or_empty_answer_gives_the_default(questions: Seen, method: str, result: str) -> None:
    assert questions.defaults[method] == [result] * len(NO_ANSWERS)


@proves("ui.blocks", same=("note/ui.waits",))
def test_a_question_waits_for_the_answer_with_its_id(questions: Seen) -> None:
    assert questions.early == {method: [] for method in ANSWERS}


@proves("note/ui.request")
def test_a_question_has_an_id(questions: Seen) -> None:
    assert all(re.fullmatch(r"[0-9a-f-]{36}|[0-9a-f]{16}", request["id"]) for request in questions.asked.values())


@proves("note/ui.response")
def test_every_question_is_resolved_by_the_answer_with_its_id(questions: Seen) -> None:
    assert set(questions.results) == set(ANSWERS)


@proves("note/in.ui_response")
def test_an_answer_to_a_question_gets_no_response(questions: Seen) -> None:
    assert not [command for command in questions.commands if "extension_ui" in command]


@proves("note/ui.extensions_run")
def test_commands_of_extensions_run(questions: Seen) -> None:
    assert all(response["success"] is True for response in questions.responses.values())


@proves("ui.timeout")
def test_a_question_with_a_time_out_resolves_by_itself(demo: RpcProcess) -> None:
    begin(demo, "/demo quick")
    request = asked(demo, "confirm")
    assert request["timeout"] == 200
    assert said(demo, "quick: ")["message"] == "quick: in time False"
    reply(demo, request, confirmed=True)
    demo.ask("get_state")
    assert demo.response("p")["success"] is True


@scenario
def beside(stage: Stage) -> Seen:
    """Answers for nobody, and an ordinary prompt, while a question is open."""
    host = stage.start(*example("ui_demo"))
    begin(host, "/demo select")
    request = asked(host, "select")
    for id in ("nobody", "", 5, None, ["x"]):
        host.send({"type": "extension_ui_response", "id": id, "value": "penguin"})
    host.send({"type": "extension_ui_response", "value": "penguin"})
    stage.server.answers("beside")
    start = host.mark()
    host.ask("prompt", message="hello")
    host.wait_event("agent_end", start)
    text = host.ask("get_last_assistant_text")
    reply(host, request, value="pigeon")
    reply(host, request, value="penguin")
    return Seen(text=text, result=said(host, "select: ")["message"])


@proves("ui.prompt_after")
def test_ordinary_prompts_work_beside_an_open_question(beside: Seen) -> None:
    assert beside.text == {"text": "beside"}


@proves("ui.unknown_answer")
def test_answers_for_nobody_are_ignored(beside: Seen) -> None:
    assert beside.result == "select: selected 'pigeon'"


@scenario
def notices(stage: Stage) -> Seen:
    """Everything that is told and needs no answer."""
    host = stage.start(*example("ui_demo"))
    host.ask("prompt", message="/demo notify status widget title")
    said(host, "title: ")
    sent = host.since(0, "extension_ui_request")
    plain = [{k: v for k, v in record.items() if k not in ("type", "id")} for record in sent]
    return Seen(sent=sent, shown=[row for row in plain if str(row.get("message", "")).split(":")[0] not in PARTS])


NOTICES: dict[str, list[Record]] = {
    "notify": [{"message": "All is well", "notifyType": "info"},
               {"message": "Something is odd", "notifyType": "warning"},
               {"message": "Something is wrong", "notifyType": "error"}],
    "setStatus": [{"statusKey": "ui-demo", "statusText": "flying"}, {"statusKey": "ui-demo"}],
    "setWidget": [{"widgetKey": "ui-demo", "widgetLines": ["line one", "line two"], "widgetPlacement": "belowEditor"},
                  {"widgetKey": "ui-demo"}],
    "setTitle": [{"title": "A bird's view"}],
    "set_editor_text": [{"text": "Tell me about pigeons"}, {"text": " and parrots"}],
}  # fmt: skip


@proves_each("method", {
    "ui.notify": ("notify",),
    "ui.setStatus": ("setStatus",),
    "ui.setWidget": ("setWidget",),
    "ui.setTitle": ("setTitle",),
    "ui.set_editor_text": ("set_editor_text",),
    "note/ui.setTitle": ("setTitle",),
    "xcsh/ui.notify": ("notify",),
    "xcsh/ui.setStatus": ("setStatus",),
    "xcsh/ui.setWidget": ("setWidget",),
    "xcsh/ui.set_editor_text": ("set_editor_text",),
})  # fmt: skip
def test_a_notice_is_sent_with_its_fields(notices: Seen, method: str) -> None:
    assert [row for row in notices.shown if row["method"] == method] == [
        {"method": method, **fields} for fields in NOTICES[method]
    ]


@proves("note/ui.fire")
def test_notices_come_one_after_another_without_any_answer(notices: Seen, dialect: str) -> None:
    order = [method for method, rows in NOTICES.items() for _ in rows if dialect != "xcsh" or method != "setTitle"]
    assert [row["method"] for row in notices.shown] == order


@proves("ui.ids")
def test_every_request_has_an_id_of_its_own(notices: Seen) -> None:
    assert len({record["id"] for record in notices.sent}) == len(notices.sent)


@proves("xcsh/ui.title_suppressed")
def test_titles_are_not_sent_to_xcsh(notices: Seen) -> None:
    assert "setTitle" not in {row["method"] for row in notices.shown}


@proves("xcsh/ui.title_env", dialects=("xcsh",))
def test_a_variable_brings_titles_back(start: Start) -> None:
    host = start(*example("ui_demo"), dialect="xcsh", env={"PI_RPC_EMIT_TITLE": "1"})
    host.ask("prompt", message="/demo title")
    assert asked(host, "setTitle")["title"] == "A bird's view"


@scenario
def terminal(stage: Stage) -> Seen:
    """What only a terminal can show, asked for without one."""
    host = stage.start(*example("ui_demo"))
    host.ask("prompt", message="/demo terminal")
    said(host, "terminal: ")
    requests = host.since(0, "extension_ui_request")
    return Seen(messages=[record["message"] for record in requests])


@proves_each("answer", {
    "omp/ui.degraded_custom": ("custom None",),
    "omp/ui.degraded_editor_text": ("editor ''",),
    "omp/ui.degraded_expanded": ("expanded False",),
    "omp/ui.degraded_themes": ("themes []",),
    "omp/ui.degraded_theme": ("theme None",),
    "omp/ui.degraded_set_theme": ("set False: Theme switching not supported in RPC mode",),
    "omp/ui.has_ui": ("has_ui True",),
    "note/ui.theme": ("set False: Theme switching not supported in RPC mode",),
    "note/ui.expanded": ("expanded False",),
})  # fmt: skip
def test_what_only_a_terminal_can_show_answers_as_documented(terminal: Seen, answer: str) -> None:
    assert answer in terminal.messages[0].removeprefix("terminal: ").split(", ")


@proves("omp/ui.degraded_silent", same=("note/ui.degraded_silent",), dialects=("pi", "omp", "xcsh"))
def test_what_only_a_terminal_can_show_sends_nothing(terminal: Seen) -> None:
    assert terminal.messages == [
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
