"""What every policy can rely on: the moments at which it is asked, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fakes.agent_loop import AnyTool, calls, says
from pigeon.agent.inference import ModelRequest
from pigeon.agent.interfaces import ModelProvider, Spoken
from pigeon.session.policies.policy import CompletedTurn, RunEnd, RunPolicy, RunStart
from pigeon.session.prompting import HostMessage
from pigeon.wire.content import ToolCall, text_of
from pigeon.wire.events import AgentSettled, MessageEnd, StreamEvent, TextDelta, TtsrTriggered
from pigeon.wire.messages import AssistantMessage, CustomMessage, UserMessage
from support.session_setup import SessionSetup


class Recorded(RunPolicy):
    """Notes at which moments it is asked; changes nothing."""

    def __init__(self, name: str = "", log: list[str] | None = None) -> None:
        self.name = name
        self.log: list[str] = [] if log is None else log

    def _note(self, moment: str) -> None:
        self.log.append(f"{self.name}{moment}")

    def begin_run(self, start: RunStart) -> None:
        self._note("begin")

    def wrap_provider(self, provider: ModelProvider) -> ModelProvider:
        self._note("provider")
        return provider

    def change_request(self, request: ModelRequest) -> ModelRequest:
        self._note("request")
        return request

    def on_answer(self, answer: AssistantMessage) -> None:
        self._note("answer")

    def admit_call(self, call: ToolCall) -> str | None:
        self._note("call")
        return None

    async def after_turn(self, turn: CompletedTurn) -> Sequence[Spoken] | None:
        self._note("ends" if turn.ends else "turn")
        return ()

    def end_run(self, cancelled: bool) -> RunEnd | None:
        self._note("over")
        return None


async def run_policies(setup: SessionSetup, *policies: RunPolicy, text: str = "go") -> None:
    scope = setup.session.activity.begin_run()
    setup.session.engine.start_run([UserMessage(content=text, timestamp=1)], scope, policies=policies)
    await setup.session.engine.wait_until_prompts_reported()


def message_texts(setup: SessionSetup) -> list[str]:
    messages = [event.message for event in setup.heard.of(MessageEnd)]
    return [text_of(one.content) for one in messages if isinstance(one, CustomMessage)]


def note(text: str) -> CustomMessage:
    return CustomMessage(custom_type="note", content=text, display=False, timestamp=1)


async def test_a_policy_is_asked_at_every_moment_of_a_run() -> None:
    policy = Recorded()
    await run_policies(SessionSetup(calls(("a", {})), says("done"), tools=(AnyTool("a"),)), policy)
    assert policy.log == [
        *("begin", "provider", "request", "answer", "call", "turn", "request", "answer", "ends", "over"),
    ]


async def test_policies_of_a_run_are_asked_in_their_order_and_in_no_other_run() -> None:
    log: list[str] = []
    setup = SessionSetup(says("done"), says("again"))
    await run_policies(setup, Recorded("1 ", log), Recorded("2 ", log))
    assert log == [
        f"{name} {moment}"
        for moment in ("begin", "provider", "request", "answer", "ends", "over")
        for name in ("1", "2")
    ]
    before = len(log)
    await setup.prompt("once more")
    assert len(log) == before


async def test_the_first_policy_that_has_something_to_say_decides() -> None:
    class Says(RunPolicy):
        def __init__(self, *texts: str) -> None:
            self.texts = list(texts)

        async def after_turn(self, turn: CompletedTurn) -> Sequence[Spoken] | None:
            return [note(self.texts.pop(0))] if self.texts else ()

    setup = SessionSetup(says("one"), says("two"), says("three"))
    await run_policies(setup, Says("first"), Says("second"))
    assert message_texts(setup) == ["first", "second"]
    assert len(setup.provider.requests) == 3


async def test_a_policy_can_end_the_run_and_every_policy_hears_the_end() -> None:
    class Ends(RunPolicy):
        async def after_turn(self, turn: CompletedTurn) -> Sequence[Spoken] | None:
            return None

        def end_run(self, cancelled: bool) -> RunEnd:
            return RunEnd(problem="enough")

    later = Recorded()
    setup = SessionSetup(calls(("a", {})), tools=(AnyTool("a"),))
    await run_policies(setup, Ends(), later)
    assert "turn" not in later.log
    assert later.log[-1] == "over"
    settled = setup.heard.of(AgentSettled)[-1]
    assert (settled.reason, settled.error_message) == ("error", "enough")


async def test_what_a_policy_notices_is_said_only_where_the_run_goes_on() -> None:
    class Notices(RunPolicy):
        def collect_notices(self, turn: CompletedTurn) -> Sequence[str]:
            return ("by the way",)

    setup = SessionSetup(calls(("a", {})), says("done"), tools=(AnyTool("a"),))
    await run_policies(setup, Notices(), Notices())
    assert message_texts(setup) == ["by the way", "by the way"]


async def test_a_call_that_a_policy_owns_is_refused_by_none() -> None:
    class Refuses(RunPolicy):
        def admit_call(self, call: ToolCall) -> str | None:
            return "no"

    class Owns(RunPolicy):
        def is_own_call(self, call: ToolCall) -> bool:
            return call.name == "mine"

    ran: list[str] = []

    def tool(name: str) -> AnyTool:
        async def run(arguments: dict[str, Any], run: object) -> Any:
            ran.append(name)
            raise RuntimeError

        return AnyTool(name, run)

    setup = SessionSetup(calls(("mine", {}), ("yours", {})), says("done"), tools=(tool("mine"), tool("yours")))
    await run_policies(setup, Refuses(), Owns())
    assert ran == ["mine"]


async def test_an_answer_is_cut_by_whichever_watch_wants_it() -> None:
    class Cuts(RunPolicy):
        def __init__(self, word: str) -> None:
            self.word = word

        def make_watch(self) -> Cuts:
            return self

        def check_for_cut(self, event: StreamEvent) -> TtsrTriggered | None:
            return TtsrTriggered(rules=[]) if isinstance(event, TextDelta) and self.word in event.delta else None

    for first, second in (("bad", "never"), ("never", "bad")):
        setup = SessionSetup(says("this is bad"), says("good"))
        await run_policies(setup, Cuts(first), Cuts(second))
        answers = [one.message for one in setup.heard.of(MessageEnd) if isinstance(one.message, AssistantMessage)]
        assert answers[0].stop_reason == "aborted"


async def test_a_prompt_with_a_final_answer_brings_it_as_a_policy() -> None:
    setup = SessionSetup(says('{"n": 1}'))
    assert HostMessage("go").final_answer is None
    from pigeon.session.prompting import make_final_answer

    await setup.prompt(
        "go", final_answer=make_final_answer({"type": "object", "properties": {"n": {"type": "integer"}}})
    )
    assert setup.heard.of(AgentSettled)[-1].output == {"n": 1}
