"""The table of dialects, a test for each cell: what the row is about, and what each column says of it."""

from __future__ import annotations

from typing import Any

import pytest

from pigeon.dialects.base import with_sequence_number
from pigeon.dialects.choice import NAMES, switch_dialect
from pigeon.wire.answers import Accepted, Compacted, SlashCommand, failure_response, success_response
from pigeon.wire.dialogs import NotifyRequest, SetTitleRequest
from pigeon.wire.errors import BUSY
from pigeon.wire.events import (
    AgentEnd,
    AgentSettled,
    AgentStart,
    CommandsChanged,
    CompactionEnd,
    CompactionStart,
    MessageEnd,
    MessageStart,
    PromptResult,
    QueueUpdate,
    SessionSettled,
    TextDelta,
    TextStart,
    ToolcallStart,
    ToolCallStarted,
    ToolExecutionStart,
    TurnStart,
)
from pigeon.wire.messages import SystemMessage, UserMessage
from support.records import (
    VERSION,
    Record,
    an_answer,
    answer_start,
    dialect_for,
    parse_lines,
    records_for,
    update,
)

DECLARED = SystemMessage(content="x", timestamp=1)
SAID = UserMessage(content="x", timestamp=1)
OK: Record = {"id": 1, "type": "response", "command": "prompt", "success": True}
NO: Record = {"id": 1, "type": "response", "command": "prompt", "success": False, "error": "busy"}
UNKNOWN: Record = {"type": "response", "command": "nope", "success": False, "error": "Unknown command: nope"}
UNDONE: Record = {
    "type": "prompt_result",
    "id": 1,
    "agentInvoked": False,
    "status": "error",
    "sessionSettled": True,
    "error": {"message": "busy", "retryable": False},
}
SUMMARY = Compacted(summary="s", first_kept_entry_id="e", tokens_before=9)


def cells(**columns: Any) -> pytest.MarkDecorator:
    """One row of the table; a column that is not named is as its neighbour `pi`."""
    named = {name.replace("_", "-").replace("0-73", "0.73"): value for name, value in columns.items()}
    return pytest.mark.parametrize(("name", "cell"), [(name, named.get(name, named["pi"])) for name in NAMES])


@cells(pi=[], omp=[{"type": "ready"}], xcsh=[{"type": "ready", "version": VERSION}])
def test_first_line(name: str, cell: list[Record]) -> None:
    assert parse_lines(dialect_for(name).make_greeting_lines()) == cell


@cells(pi=True, pi_latest=False)
def test_message_update_has_the_message_so_far(name: str, cell: bool) -> None:
    dialect = dialect_for(name)
    records_for(dialect, answer_start(), update(TextStart(content_index=0)))
    (record,) = records_for(dialect, update(TextDelta(content_index=0, delta="Hi"), output=3))
    event = record["assistantMessageEvent"]
    assert (event["type"], event["contentIndex"], event["delta"]) == ("text_delta", 0, "Hi")
    assert (record["message"] if name == "pi-0.73" else record)["usage"]["output"] == 3
    assert ("message" in record, "partial" in event) == (cell, cell)
    if cell:
        assert record["message"] == event["partial"]
        assert record["message"]["content"] == [{"type": "text", "text": "Hi"}]
        assert (record["message"]["role"], record["message"]["stopReason"]) == ("assistant", "stop")
    (call,) = records_for(dialect, update(ToolcallStart(content_index=1, id="c", tool_name="bash")))
    told = (call["assistantMessageEvent"].get("id"), call["assistantMessageEvent"].get("toolName"))
    assert told == ((None, None) if name == "pi-0.73" else ("c", "bash"))


@cells(pi=0, pi_latest=1)
def test_update_of_an_answer_whose_beginning_was_missed(name: str, cell: int) -> None:
    missed = update(TextDelta(content_index=0, delta="Hi"))
    assert len(records_for(dialect_for(name), missed)) == cell
    dialect = dialect_for(name)
    records_for(dialect, answer_start(), MessageEnd(message=an_answer("Hi", stop="stop")))
    assert len(records_for(dialect, missed)) == cell


@cells(pi=[SAID], pi_latest=[DECLARED, SAID])
def test_messages_of_an_agent_elsewhere(name: str, cell: list[Any]) -> None:
    assert dialect_for(name).filter_messages([DECLARED, SAID]) == cell


@cells(pi=None, pi_latest=b"{}")
def test_event_of_a_later_version(name: str, cell: bytes | None) -> None:
    assert dialect_for(name).convert_later_event(b"{}") == cell


@cells(pi=[], omp=[{"type": "available_commands_update", "commands": [{"name": "x", "source": "file"}]}])
def test_other_slash_commands(name: str, cell: list[Record]) -> None:
    dialect = dialect_for(name)
    shown = dialect.convert_commands(CommandsChanged(), lambda: [SlashCommand(name="x", source="prompt")])
    assert records_for(dialect, shown) == cell


@cells(pi=[NO], omp=[OK, NO, UNDONE], xcsh=[OK, NO], companion=[{"type": "error", "error": "busy"}])
def test_rejected_prompt(name: str, cell: list[Record]) -> None:
    assert parse_lines(dialect_for(name).to_refusal_lines(failure_response("prompt", "busy", 1))) == cell


@cells(pi="Specify streamingBehavior", omp="Use steer() or followUp()", xcsh="Use steer() or followUp()")
def test_words_of_a_refusal(name: str, cell: str) -> None:
    lines = parse_lines(dialect_for(name).to_refusal_lines(failure_response("prompt", BUSY, 1)))
    errors = [line["error"] for line in lines if "error" in line]
    texts = [error["message"] if isinstance(error, dict) else error for error in errors]
    assert texts
    assert {text.startswith(f"Agent is already processing. {cell}") for text in texts} == {True}


@cells(pi=[{"id": "u", **UNKNOWN}], pi_0_73=[UNKNOWN], xcsh=[UNKNOWN], companion=[])
def test_unknown_command(name: str, cell: list[Record]) -> None:
    assert (
        parse_lines(dialect_for(name).to_unknown_command_lines(failure_response("nope", "Unknown command: nope", "u")))
        == cell
    )


@cells(
    pi=[("agent_start", None), ("agent_end", False), ("agent_settled", None)],
    pi_0_73=[("agent_start", None), ("agent_end", None)],
    omp=[("agent_start", None), ("agent_end", None), ("prompt_result", None), ("session_settled", None)],
    xcsh=[("agent_start", None), ("agent_end", None)],
    companion=[("agent_start", None), ("agent_end", None)],
)
def test_run_end(name: str, cell: list[tuple[str, bool | None]]) -> None:
    records = records_for(
        dialect_for(name),
        AgentStart(),
        AgentEnd(messages=[SAID], will_retry=False),
        AgentSettled(),
        PromptResult(agent_invoked=True, status="completed", session_settled=True),
        SessionSettled(),
    )
    assert [(record["type"], record.get("willRetry")) for record in records] == cell
    assert next(record for record in records if record["type"] == "agent_end")["messages"][0]["content"] == "x"


@pytest.mark.parametrize("name", ["pi", "pi-latest"])
def test_settled_is_said_in_a_write_of_its_own(name: str) -> None:
    dialect = dialect_for(name)
    assert [line.apart for line in dialect.to_lines(AgentEnd(messages=[]))] == [False]
    assert [line.apart for line in dialect.to_lines(AgentSettled())] == [True]


@cells(pi=[1, 2], omp=[2], xcsh=[2], companion=[2])
def test_runs_that_follow_by_themselves(name: str, cell: list[int]) -> None:
    dialect = dialect_for(name)
    first = records_for(dialect, AgentStart(), AgentEnd(messages=[SAID], will_retry=True), AgentStart())
    second = records_for(dialect, AgentEnd(messages=[an_answer("ok", stop="stop")], will_retry=False), AgentSettled())
    ends = [
        (number, len(record["messages"]))
        for number, records in ((1, first), (2, second))
        for record in records
        if record["type"] == "agent_end"
    ]
    assert [number for number, _ in ends] == cell
    assert sum(count for _, count in ends) == 2
    again = records_for(dialect, AgentStart(), AgentEnd(messages=[SAID]), AgentSettled())
    assert [record["type"] for record in again][:2] == ["agent_start", "agent_end"]
    assert len(again[1]["messages"]) == 1


@cells(
    pi=["auto_compaction_start", "compaction_start", "auto_compaction_end", "compaction_end"],
    pi_latest=["compaction_start", "compaction_end"],
    pi_0_73=["compaction_start", "compaction_end"],
    omp=["auto_compaction_start", "auto_compaction_end"],
    xcsh=["auto_compaction_start", "auto_compaction_end"],
    companion=[],
)
def test_automatic_compaction(name: str, cell: list[str]) -> None:
    records = records_for(
        dialect_for(name),
        CompactionStart(reason="threshold"),
        CompactionEnd(reason="threshold", result=SUMMARY, aborted=False, will_retry=False),
    )
    assert [record["type"] for record in records] == cell


@cells(pi=["compaction_start", "compaction_end"], omp=[], xcsh=[], companion=[])
def test_compaction_on_request(name: str, cell: list[str]) -> None:
    records = records_for(
        dialect_for(name),
        CompactionStart(reason="manual"),
        CompactionEnd(reason="manual", result=SUMMARY, aborted=False, will_retry=False),
    )
    assert [record["type"] for record in records] == cell


@cells(
    pi={"auto_compaction_end": None, "compaction_end": "absent"},
    pi_latest={"compaction_end": "absent"},
    pi_0_73={"compaction_end": "absent"},
    omp={"auto_compaction_end": None},
    xcsh={"auto_compaction_end": None},
    companion={},
)
def test_the_result_of_an_aborted_compaction(name: str, cell: dict[str, str | None]) -> None:
    records = records_for(dialect_for(name), CompactionEnd(reason="threshold", aborted=True, will_retry=False))
    assert {record["type"]: record.get("result", "absent") for record in records} == cell


@cells(pi=(True, True), xcsh=(False, True), companion=(False, False))
def test_titles(name: str, cell: tuple[bool, bool]) -> None:
    title = SetTitleRequest(id="t", title="A title")
    assert bool(records_for(dialect_for(name), title)) is cell[0]
    for word in ("1", "true", " Yes ", "ON"):
        assert bool(records_for(dialect_for(name, PI_RPC_EMIT_TITLE=word), title)) is cell[1]
    for word in ("0", "", "no", "maybe"):
        assert bool(records_for(dialect_for(name, PI_RPC_EMIT_TITLE=word), title)) is cell[0]


@cells(pi="immediate", pi_latest="wait", xcsh="wait")
def test_default_interrupt_mode(name: str, cell: str) -> None:
    assert dialect_for(name).default_interrupt_mode == cell


@cells(pi=True, pi_latest=False)
def test_data_that_is_no_image(name: str, cell: bool) -> None:
    assert dialect_for(name).keeps_unreadable_images is cell


@cells(pi=([OK], [NO]), companion=([], [{"type": "error", "error": "busy"}]))
def test_responses(name: str, cell: tuple[list[Record], list[Record]]) -> None:
    dialect = dialect_for(name)
    assert parse_lines(dialect.to_answer_lines(success_response("prompt", id=1))) == cell[0]
    assert parse_lines(dialect.to_answer_lines(failure_response("prompt", "busy", 1))) == cell[1]


@cells(pi="stop", pi_latest="pending")
def test_the_stop_reason_of_an_answer_in_progress(name: str, cell: str) -> None:
    (record,) = records_for(dialect_for(name), answer_start())
    assert (record["message"]["stopReason"], record["message"]["content"]) == (cell, [])


@cells(pi=True, companion=False)
def test_events_that_the_early_protocol_does_not_have(name: str, cell: bool) -> None:
    for event in (QueueUpdate(steering=[], follow_up=[]), NotifyRequest(id="n", message="m")):
        assert bool(records_for(dialect_for(name), event)) is cell
    assert len(records_for(dialect_for(name), TurnStart(), MessageEnd(message=SAID))) == 2


@pytest.mark.parametrize("name", NAMES)
def test_separators_of_lines_leave_escaped_and_no_id_is_null(name: str) -> None:
    dialect = dialect_for(name)
    records_for(dialect, answer_start(), update(TextStart(content_index=0)))
    lines = dialect.to_lines(update(TextDelta(content_index=0, delta="a\u2028b\u2029c")))
    raw = b"".join(lines[0].pieces)
    assert "\u2028".encode() not in raw
    assert "\u2029".encode() not in raw
    assert parse_lines(lines)[0]["assistantMessageEvent"]["delta"] == "a\u2028b\u2029c"
    assert all("id" not in record for record in parse_lines(dialect.to_answer_lines(failure_response("x", "y"))))


@pytest.mark.parametrize("name", NAMES)
def test_every_dialect_can_leave_the_message_so_far_out(name: str) -> None:
    dialect = switch_dialect(dialect_for("pi"), name, deltas=True)
    assert (dialect.name, dialect.version) == (name, VERSION)
    records_for(dialect, answer_start())
    (record,) = records_for(dialect, update(TextDelta(content_index=0, delta="Hi")))
    assert set(record) - {"messageId"} == {"type", "usage", "assistantMessageEvent"}


def test_the_newest_dialect_never_sends_the_message_so_far() -> None:
    dialect = switch_dialect(dialect_for("pi"), "pi-latest", deltas=False)
    records_for(dialect, answer_start())
    (record,) = records_for(dialect, update(TextDelta(content_index=0, delta="Hi")))
    assert "message" not in record


def test_a_number_does_not_change_how_a_line_is_written() -> None:
    assert [with_sequence_number(line, 1).apart for line in dialect_for("pi").to_lines(AgentSettled())] == [True]
    assert [with_sequence_number(line, 1).apart for line in dialect_for("pi").to_lines(AgentStart())] == [False]


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_event_can_be_numbered(name: str) -> None:
    dialect = dialect_for(name)
    lines = [
        *dialect.to_lines(AgentStart()),
        *dialect.to_lines(answer_start()),
        *dialect.to_lines(update(TextStart(content_index=0))),
    ]
    records = parse_lines([with_sequence_number(line, number) for number, line in enumerate(lines, 7)])
    assert [(record["type"], record["seq"]) for record in records] == [
        ("agent_start", 7), ("message_start", 8), ("message_update", 9),
    ]  # fmt: skip


def test_omp_answers_a_prompt_without_data_unless_no_run_follows() -> None:
    dialect = dialect_for("omp")
    for id, disposition in (("a", "started"), ("b", "queued"), ("c", "handled")):
        (line,) = parse_lines(
            dialect.to_answer_lines(success_response("prompt", Accepted(disposition=disposition), id))
        )
        assert line.get("data") == ({"agentInvoked": False} if disposition == "handled" else None)


def test_omp_promises_a_refused_prompt_that_the_session_settles_only_while_it_has_not() -> None:
    dialect = dialect_for("omp")

    def says_settled() -> bool:
        return bool(parse_lines(dialect.to_refusal_lines(failure_response("prompt", "busy", 1)))[-1]["sessionSettled"])

    assert says_settled()
    dialect.to_answer_lines(success_response("prompt", Accepted(disposition="started"), 2))
    assert not says_settled()
    records_for(dialect, AgentStart(), AgentEnd(messages=[]), AgentSettled())
    assert not says_settled()
    records_for(dialect, SessionSettled())
    assert says_settled()


def test_the_newest_omp_gives_each_message_one_id() -> None:
    dialect = dialect_for("omp")
    said = records_for(dialect, MessageStart(message=SAID), MessageEnd(message=SAID))
    streamed = records_for(dialect, answer_start(), update(TextStart(content_index=0)))
    ids = [record["messageId"] for record in (*said, *streamed)]
    assert ids == ["msg-1", "msg-1", "msg-2", "msg-2"]
    assert "messageId" not in records_for(dialect_for("xcsh"), MessageEnd(message=SAID))[0]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_tool_declares_of_a_call_stays_in_the_process(name: str) -> None:
    about: dict[str, Any] = {"tool_call_id": "1", "tool_name": "bash", "args": {"command": "ls"}, "run_id": "r"}
    declared = ToolCallStarted(**about, kind="execute", title="ls")
    assert records_for(dialect_for(name), declared) == records_for(dialect_for(name), ToolExecutionStart(**about)) != []
