"""Final answers by a format of the API: the text is the value, it is checked as ever, and a refusal is no end."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fakes.agent_loop import AnyTool, Script, calls, fails, says
from pigeon.agent.inference import Metered
from pigeon.session.policies.final_answer import FORMAT_INSTRUCTION
from pigeon.session.policies.finish_gate import VERIFY
from pigeon.session.prompting import HostMessage, make_final_answer
from pigeon.session.settings import CompactionPolicy, SessionSettings
from pigeon.wire.base import ABSENT
from pigeon.wire.content import text_of
from pigeon.wire.events import AgentSettled, MessageEnd
from pigeon.wire.messages import CustomMessage
from pigeon.wire.model import Cost, Usage
from pigeon.wire.steering import Limits
from support.model_requests import a_model
from support.session_setup import SessionSetup

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
TEXTS = {"type": "array", "items": {"type": "string"}}
BOTH = pytest.mark.parametrize("by_format", [True, False], ids=["format", "tool"])


async def run(
    *scripts: Script, schema: Any = SCHEMA, by_format: bool = True, limits: Limits | None = None, **more: Any
) -> tuple[SessionSetup, AgentSettled]:
    setup = SessionSetup(*scripts, **more)
    setup.formats.known = by_format
    await setup.prompt("go", final_answer=make_final_answer(schema), limits=limits)
    return setup, setup.heard.of(AgentSettled)[-1]


def reminders(setup: SessionSetup) -> list[str]:
    messages = [event.message for event in setup.heard.of(MessageEnd)]
    return [text_of(message.content) for message in messages if isinstance(message, CustomMessage)]


def script_with_value(value: int, by_format: bool) -> Script:
    return says(f'{{"n": {value}}}') if by_format else calls(("final_answer", {"n": value}))


async def test_the_schema_is_part_of_the_request_and_the_text_is_the_value() -> None:
    setup, settled = await run(calls(("look", {})), says('{"n": 1}'), tools=(AnyTool("look"),))
    assert (settled.reason, settled.output) == ("done", {"n": 1})
    for request in setup.provider.requests:
        assert request.output is not None
        assert request.output.schema == SCHEMA
        assert [tool.name for tool in request.tools] == ["look"]
        assert request.system_prompt.endswith(FORMAT_INSTRUCTION)


@pytest.mark.parametrize("text", ['{"value": ["a"]}', '["a"]', '```json\n["a"]\n```', '```\n{"value": ["a"]}\n```'])
async def test_a_value_that_is_no_object_is_in_one_or_alone(text: str) -> None:
    for by_format in (True, False):
        _, settled = await run(says(text), schema=TEXTS, by_format=by_format)
        assert settled.output == ["a"]


async def test_a_member_that_is_named_like_the_envelope_is_no_envelope() -> None:
    anything: dict[str, Any] = {"type": "object"}
    _, settled = await run(says('{"value": 1}'), schema=anything, by_format=False)
    assert settled.output == {"value": 1}
    _, settled = await run(says('{"value": {"a": 1}}'), schema=anything)
    assert settled.output == {"a": 1}


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        (says('{"n": "1"}'), "n: expected integer, got string"),
        (says("It is 1."), "without a final answer"),
        (says(""), "without a final answer"),
        (says('{"n": 1}', stop="length"), "output token limit"),
        (says('{"n": 1} {"n": 2}'), "without a final answer"),
    ],
)
async def test_a_text_that_is_wrong_is_asked_for_again_with_what_is_wrong(first: Script, problem: str) -> None:
    setup, settled = await run(first, says('{"n": 3}'))
    assert settled.output == {"n": 3}
    (reminder,) = reminders(setup)
    assert problem in reminder
    assert "final_answer" not in reminder


async def test_a_text_beside_a_call_is_not_the_answer_yet() -> None:
    call = [replace(delta, index=1) if hasattr(delta, "index") else delta for delta in calls(("look", {}))]
    early = [*says('{"n": 1}')[:-1], *call]
    _, settled = await run(early, says('{"n": 2}'), tools=(AnyTool("look"),))
    assert settled.output == {"n": 2}


async def test_wrong_texts_end_the_run_in_an_error() -> None:
    setup, settled = await run(says("no"), says("no"), says("no"), says('{"n": 1}'))
    assert (settled.reason, settled.output, len(setup.provider.requests)) == ("error", ABSENT, 3)


async def test_a_server_that_refuses_the_format_is_asked_by_the_tool_from_then_on() -> None:
    setup, settled = await run(
        fails("unknown field", status=400), script_with_value(1, False), script_with_value(2, False)
    )
    assert settled.output == {"n": 1}
    refused, asked = setup.provider.requests
    assert refused.output is not None
    assert not refused.tools
    assert asked.output is None
    assert [tool.name for tool in asked.tools] == ["final_answer"]
    assert FORMAT_INSTRUCTION not in asked.system_prompt
    await setup.prompt("again", final_answer=make_final_answer(SCHEMA))
    assert setup.heard.of(AgentSettled)[-1].output == {"n": 2}
    assert setup.provider.requests[-1].output is None


async def test_a_refusal_for_another_reason_says_nothing_about_formats() -> None:
    setup, settled = await run(fails("bad key", status=400), fails("bad key", status=400))
    assert (settled.reason, len(setup.provider.requests), setup.formats.refused) == ("error", 2, [])
    setup, settled = await run(fails("gone", status=404))
    assert (settled.reason, len(setup.provider.requests)) == ("error", 1)


async def test_a_refused_format_is_one_turn() -> None:
    _, settled = await run(fails("unknown field", status=400), script_with_value(1, False), limits=Limits(turns=1))
    assert (settled.reason, settled.output) == ("done", {"n": 1})


@BOTH
async def test_the_finish_gate_asks_once_and_the_value_is_the_one_after_it(by_format: bool) -> None:
    settings = SessionSettings(finish_gate=True)
    setup, settled = await run(
        script_with_value(1, by_format), script_with_value(2, by_format), by_format=by_format, settings=settings
    )
    assert (settled.reason, settled.output) == ("done", {"n": 2})
    assert reminders(setup) == [VERIFY]


@BOTH
async def test_a_limit_in_the_middle_of_repairs_ends_the_run_without_a_value(by_format: bool) -> None:
    setup, settled = await run(says("no"), says("no"), by_format=by_format, limits=Limits(turns=1))
    assert (settled.reason, settled.output, len(setup.provider.requests)) == ("limit", ABSENT, 1)


@BOTH
async def test_an_abort_in_the_middle_of_repairs_ends_the_run_without_a_value(by_format: bool) -> None:
    async def abort() -> None:
        setup.session.engine.abort()

    setup = SessionSetup(says("no"), [abort, *script_with_value(1, by_format)])
    setup.formats.known = by_format
    await setup.prompt("go", final_answer=make_final_answer(SCHEMA))
    settled = setup.heard.of(AgentSettled)[-1]
    assert (settled.reason, settled.output) == ("aborted", ABSENT)


@BOTH
async def test_steering_before_the_end_asks_for_another_value(by_format: bool) -> None:
    async def steer() -> None:
        setup.session.prompting.queue_message(HostMessage("no, two"), "steering")

    setup = SessionSetup([steer, *script_with_value(1, by_format)], script_with_value(2, by_format))
    setup.formats.known = by_format
    await setup.prompt("go", final_answer=make_final_answer(SCHEMA))
    assert setup.heard.of(AgentSettled)[-1].output == {"n": 2}


@BOTH
async def test_the_answer_is_still_asked_for_after_a_compaction(by_format: bool) -> None:
    long = "lorem ipsum dolor sit amet " * 40
    settings = SessionSettings(compaction=CompactionPolicy(keep_tokens=50, reserve_tokens=1_000))
    full = Metered(usage=Usage(input=9_500, output=1, total_tokens=9_501, cost=Cost()))
    scripts = [says("one"), says("two"), [full, *calls(("look", {}))], says("THE SUMMARY"), says("no")]
    model = a_model(context_window=10_000, max_tokens=1_000)
    look = (AnyTool("look"),)
    setup = SessionSetup(*scripts, script_with_value(1, by_format), model=model, settings=settings, tools=look)
    setup.formats.known = by_format
    for number in (1, 2):
        await setup.prompt(f"question {number} {long}")
    await setup.prompt("go", final_answer=make_final_answer(SCHEMA))
    assert setup.heard.of(AgentSettled)[-1].output == {"n": 1}
    wanted = [request.output is not None for request in setup.provider.requests[-2:]]
    assert wanted == [by_format, by_format]
    assert setup.provider.requests[3].output is None  # a summary is a text
