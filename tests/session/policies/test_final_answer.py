"""Runs whose prompt had an output schema: they end with a value that fits, or in an error that says why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fakes.agent_loop import AnyTool, Script, calls, fails, says
from pigeon.agent.inference import BlockClosed, BlockGrew, BlockOpened, Finished, Metered
from pigeon.session.prompting import HostMessage, make_final_answer
from pigeon.session.settings import CompactionPolicy, RetryPolicy, SessionSettings
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import text_of
from pigeon.wire.errors import Refusal
from pigeon.wire.events import AgentSettled, CompactionEnd, MessageEnd, PromptResult
from pigeon.wire.messages import CustomMessage, ToolResultMessage
from pigeon.wire.model import Cost, Usage
from support.model_requests import a_model
from support.session_setup import SessionSetup

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
GOOD = calls(("final_answer", {"n": 1}))
WRONG = calls(("final_answer", {"n": "one"}))
FAST = SessionSettings(retry=RetryPolicy(base_delay_ms=0))


def unreadable() -> Script:
    return [
        BlockOpened(index=0, kind="toolCall", call_id="1", name="final_answer"),
        BlockGrew(index=0, text='{"n": 1'),
        BlockClosed(index=0),
        Finished(stop="toolUse"),
    ]


async def run(*scripts: Script, schema: Any = SCHEMA, **more: Any) -> tuple[SessionSetup, AgentSettled]:
    setup = SessionSetup(*scripts, **more)
    await setup.prompt("go", final_answer=make_final_answer(schema))
    return setup, setup.heard.of(AgentSettled)[-1]


def messages_about_answers(setup: SessionSetup) -> list[str]:
    """What the model was told about its answers."""
    messages = [event.message for event in setup.heard.of(MessageEnd)]
    return [text_of(one.content) for one in messages if isinstance(one, ToolResultMessage | CustomMessage)]


async def test_a_call_that_fits_ends_the_run_with_its_arguments() -> None:
    setup, settled = await run(GOOD)
    assert (settled.reason, settled.output, settled.error_message) == ("done", {"n": 1}, ABSENT)
    (request,) = setup.provider.requests
    assert [tool.parameters for tool in request.tools] == [SCHEMA]
    assert request.tools[0].strict
    assert "final_answer" in request.system_prompt


async def test_tools_are_usable_before_the_final_answer() -> None:
    look = AnyTool("look")
    setup, settled = await run(calls(("look", {})), GOOD, tools=(look,))
    assert (settled.output, len(look.seen), len(setup.provider.requests)) == ({"n": 1}, 1, 2)


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        (WRONG, "n: expected integer, got string"),
        (calls(("final_answer", {})), "n: missing"),
        (unreadable(), "final_answer"),
        (calls(("final_answer", {"n": 1}), stop="length"), "output token limit"),
        (calls(("final_answer", {"n": 1}), ("final_answer", {"n": 2})), "beside other calls"),
        (calls(("final_answer", {"n": 1}), ("look", {})), "beside other calls"),
        (says("The answer is 1."), "without a final answer"),
        (says('Here it is: {"n": 1}'), "without a final answer"),
        (says('{"n": 1'), "without a final answer"),
        (says('{"n": "1"}'), "n: expected integer, got string"),
        (says('{"n": 1}', stop="length"), "output token limit"),
        (says(""), "without a final answer"),
    ],
)
async def test_an_answer_that_is_wrong_is_asked_for_again_with_what_is_wrong(first: Script, problem: str) -> None:
    setup, settled = await run(first, calls(("final_answer", {"n": 3})), tools=(AnyTool("look"),))
    assert (settled.reason, settled.output) == ("done", {"n": 3})
    assert problem in "\n".join(messages_about_answers(setup))


async def test_the_same_call_twice_is_one_answer() -> None:
    setup, settled = await run(calls(("final_answer", {"n": 1}), ("final_answer", {"n": 1})))
    assert (settled.output, len(setup.provider.requests)) == ({"n": 1}, 1)


async def test_a_text_that_is_the_answer_as_json_is_taken() -> None:
    _, settled = await run(says('{"n": 4}'))
    assert settled.output == {"n": 4}


@pytest.mark.parametrize(
    "wrong", [WRONG, says("no"), unreadable(), calls(("final_answer", {"n": 1}), ("look", {}))], ids=str
)
async def test_the_run_ends_in_an_error_when_the_attempts_are_used_up(wrong: Script) -> None:
    setup, settled = await run(wrong, wrong, wrong, GOOD, tools=(AnyTool("look"),))
    assert (settled.reason, settled.aborted, settled.output) == ("error", False, ABSENT)
    assert "in 3 attempts" in str(settled.error_message)
    assert len(setup.provider.requests) == 3
    (result,) = setup.heard.of(PromptResult)
    assert (result.status, result.output) == ("error", ABSENT)
    assert not isinstance(result.error, Absent)
    assert result.error.message == settled.error_message


async def test_the_result_of_the_prompt_has_the_output() -> None:
    setup, _ = await run(GOOD)
    (result,) = setup.heard.of(PromptResult)
    assert (result.status, result.output) == ("completed", {"n": 1})


async def test_a_message_that_follows_the_answer_asks_for_another() -> None:
    setup = SessionSetup(GOOD, calls(("final_answer", {"n": 2})))
    running = asyncio.ensure_future(setup.prompt("go", final_answer=make_final_answer(SCHEMA)))
    await setup.until(lambda: setup.provider.requests)
    setup.session.prompting.queue_message(HostMessage("and now?"), "followUp")
    await running
    assert setup.heard.of(AgentSettled)[-1].output == {"n": 2}


async def test_an_aborted_run_has_no_output() -> None:
    async def abort() -> None:
        setup.session.engine.abort()

    setup = SessionSetup([abort, *GOOD])
    await setup.prompt("go", final_answer=make_final_answer(SCHEMA))
    settled = setup.heard.of(AgentSettled)[-1]
    assert (settled.reason, settled.output, settled.error_message) == ("aborted", ABSENT, ABSENT)


async def test_a_retry_asks_for_the_same_answer() -> None:
    setup, settled = await run(fails("overloaded", retryable=True), WRONG, GOOD, settings=FAST)
    assert settled.output == {"n": 1}
    assert all(request.tools[-1].name == "final_answer" for request in setup.provider.requests)


async def test_a_compaction_in_the_run_does_not_lose_what_was_asked_for() -> None:
    long = "lorem ipsum dolor sit amet " * 40
    settings = SessionSettings(compaction=CompactionPolicy(keep_tokens=50, reserve_tokens=1_000))
    full = Metered(usage=Usage(input=9_500, output=1, total_tokens=9_501, cost=Cost()))
    setup = SessionSetup(
        says("one"),
        says("two"),
        [full, *calls(("look", {}))],
        says("THE SUMMARY"),
        WRONG,
        GOOD,
        model=a_model(context_window=10_000, max_tokens=1_000),
        settings=settings,
        tools=(AnyTool("look"),),
    )
    for number in (1, 2):
        await setup.prompt(f"question {number} {long}")
    await setup.prompt("go", final_answer=make_final_answer(SCHEMA))
    assert len(setup.heard.of(CompactionEnd)) == 1
    assert setup.heard.of(AgentSettled)[-1].output == {"n": 1}


async def test_the_next_prompt_has_no_final_answer_of_the_one_before() -> None:
    setup, _ = await run(GOOD, says("Fine."))
    await setup.prompt("thanks")
    settled = setup.heard.of(AgentSettled)[-1]
    assert (settled.reason, settled.output) == ("done", ABSENT)
    assert not setup.provider.requests[-1].tools


async def test_a_tool_of_the_same_name_keeps_it() -> None:
    taken = AnyTool("final_answer")
    setup, settled = await run(calls(("final_answer", {})), calls(("final_answer_2", {"n": 1})), tools=(taken,))
    assert (settled.output, len(taken.seen)) == ({"n": 1}, 1)
    assert [tool.name for tool in setup.provider.requests[-1].tools] == ["final_answer", "final_answer_2"]


async def test_a_prompt_with_a_schema_is_not_queued() -> None:
    refused: list[str] = []

    async def prompt_again() -> None:
        try:
            setup.session.prompting.prompt(HostMessage("more", final_answer=make_final_answer(SCHEMA)), "steer")
        except Refusal as error:
            refused.append(str(error))

    setup = SessionSetup([prompt_again, *says("one")])
    await setup.prompt("go")
    assert len(refused) == 1
    assert "run of its own" in refused[0]


async def test_no_output_where_none_was_asked_for() -> None:
    setup = SessionSetup(says('{"n": 1}'))
    await setup.prompt("go")
    settled = setup.heard.of(AgentSettled)[-1]
    assert (settled.reason, settled.output, settled.error_message) == ("done", ABSENT, ABSENT)
