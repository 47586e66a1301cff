"""Commands in, answers out, with a whole session behind them and no process around it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from msgspec.structs import replace

from fakes.agent_loop import Script, fails, says
from pigeon.dialects.pi_latest import PiLatest
from pigeon.rpc.handlers.all import HANDLERS
from pigeon.rpc.lanes import CommandRunner
from pigeon.rpc.outbox import EncodedData, LongAnswer
from pigeon.rpc.server import Server
from pigeon.rpc.session_connection import SessionConnection
from pigeon.session.hooks import NoHooks, PromptInput
from pigeon.session.model_choice import ModelOptions
from pigeon.wire import codec, commands
from pigeon.wire.answers import Response
from pigeon.wire.errors import ABORTED_BEFORE
from pigeon.wire.events import AgentSettled
from support.model_requests import a_model, assistant_message, text_block
from support.session_setup import MODEL, KnownModels, SessionSetup


class Host:
    """Sends commands to a session and keeps the answers by id; `refused` are those of prompts."""

    is_overfull = False

    def __init__(self, *scripts: Script, **more: Any) -> None:
        self.setup = SessionSetup(*scripts, **more)
        self.answers: dict[Any, Any] = {}
        self.refused: list[Any] = []
        self.order: list[Any] = []
        outbox: Any = self
        connection = SessionConnection(self.setup.session, PiLatest("9"))
        self._server = Server(
            CommandRunner({"session": self.setup.session, "connection": connection}, HANDLERS), outbox
        )

    def encode_answer(self, answer: LongAnswer) -> EncodedData:
        return EncodedData(list(answer.pieces))

    def send_answer(self, response: Response) -> None:
        if isinstance(response.data, EncodedData):
            response = replace(response, data=msgspec.Raw(b"".join(response.data.pieces)))
        plain = codec.decode(codec.encode(response))
        assert plain.get("id") not in self.answers, "answered twice"
        self.answers[plain.get("id")] = plain
        self.order.append(plain.get("id"))

    def refuse_prompt(self, response: Response) -> None:
        self.refused.append(response.id)
        self.send_answer(response)

    unknown = send_answer

    def send(self, id: Any, kind: str, **fields: Any) -> None:
        assert self._server.handle_frames([codec.encode({"id": id, "type": kind, **fields})]) is None

    async def ask(self, kind: str, **fields: Any) -> Any:
        """The data of a command that must succeed."""
        answer = await self.response(kind, **fields)
        assert answer["success"], answer
        return answer.get("data")

    async def response(self, kind: str, **fields: Any) -> Any:
        id = f"auto-{len(self.answers)}"
        self.send(id, kind, **fields)
        await self.setup.until(lambda: id in self.answers)
        return self.answers[id]

    async def prompt(self, message: str) -> None:
        settled = len(self.setup.heard.of(AgentSettled))
        await self.ask("prompt", message=message)
        await self.setup.until(lambda: len(self.setup.heard.of(AgentSettled)) > settled)


class Step:
    """A step of a script that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.goes_on.wait()


async def test_abort_and_prompt_ends_one_run_and_begins_the_next() -> None:
    step = Step()
    host = Host([step], says("two"))
    host.send("p", "prompt", message="one")
    await step.reached.wait()
    await host.ask("abort_and_prompt", message="other")
    await host.setup.until(lambda: len(host.setup.heard.of(AgentSettled)) == 2)
    assert host.setup.message_texts() == ["user: one", "assistant: ", "user: other", "assistant: two"]


async def test_an_abort_behind_an_abort_and_prompt_takes_the_prompt_back() -> None:
    step = Step()
    host = Host([step])
    host.send("p", "prompt", message="one")
    await step.reached.wait()
    host.send("a", "abort_and_prompt", message="other")
    host.send("b", "abort")
    await host.setup.until(lambda: {"a", "b"} <= set(host.answers))
    assert (host.answers["a"]["error"], host.answers["b"]["success"]) == (ABORTED_BEFORE, True)
    assert host.refused == ["a"]
    assert host.setup.message_texts() == ["user: one", "assistant: "]
    assert not host.setup.session.activity.is_busy


class Slow(NoHooks):
    """An extension that looks at a prompt until `goes_on` is set."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()

    async def transform_input(self, said: PromptInput) -> PromptInput:  # type: ignore[override]
        await self.goes_on.wait()
        return said


@pytest.mark.parametrize("command", ["prompt", "abort_and_prompt"])
async def test_a_prompt_is_answered_when_it_is_accepted(command: str) -> None:
    hooks = Slow()
    host = Host(says("one"), hooks=hooks)
    host.send("p", command, message="go")
    for _ in range(20):
        await asyncio.sleep(0)
    assert "p" not in host.answers
    hooks.goes_on.set()
    await host.setup.until(lambda: "p" in host.answers)
    assert host.answers["p"]["success"]


async def test_a_second_prompt_is_refused_as_prompts_are() -> None:
    host = Host([Step()])
    host.send(1, "prompt", message="one")
    host.send(2, "prompt", message="two")
    host.send(3, "prompt", message="three", streamingBehavior="followUp")
    assert [host.answers[id]["success"] for id in (1, 2, 3)] == [True, False, True]
    assert host.refused == [2]
    host.send(4, "prompt", message="four", images=[{"type": "image", "data": "!", "mimeType": "image/png"}])
    assert not host.answers[4]["success"]
    assert host.refused == [2], "a wrong field is an error of the command in every dialect"
    await host.setup.close()


async def test_the_state_follows_what_is_going_on() -> None:
    step = Step()
    host = Host([step, *says("one")])
    idle = await host.ask("get_state")
    assert (idle["isStreaming"], idle["isCompacting"], idle["messageCount"]) == (False, False, 0)
    host.send("p", "prompt", message="go")
    await step.reached.wait()
    host.send("s", "steer", message="now")
    host.send("f", "follow_up", message="later")
    busy = await host.ask("get_state")
    assert (busy["isStreaming"], busy["messageCount"], busy["pendingMessageCount"]) == (True, 1, 2)
    assert await host.ask("clear_queue") == {"steering": ["now"], "followUp": ["later"]}
    step.goes_on.set()
    await host.setup.until(lambda: host.setup.heard.of(AgentSettled))
    after = await host.ask("get_state")
    assert (after["isStreaming"], after["messageCount"], after["pendingMessageCount"]) == (False, 2, 0)


async def test_switches_hold_from_the_next_time_on() -> None:
    host = Host()
    await host.ask("set_steering_mode", mode="all")
    await host.ask("set_follow_up_mode", mode="all")
    await host.ask("set_interrupt_mode", mode="wait")
    await host.ask("set_auto_compaction", enabled=False)
    state = await host.ask("get_state")
    assert (state["steeringMode"], state["followUpMode"], state["interruptMode"]) == ("all", "all", "wait")
    assert state["autoCompactionEnabled"] is False


@pytest.mark.parametrize("enabled", [True, False])
async def test_a_retry_can_be_switched_off(enabled: bool) -> None:
    host = Host(fails("busy", retryable=True))
    await host.ask("set_auto_retry", enabled=enabled)
    host.send("p", "prompt", message="go")
    await host.setup.until(lambda: host.setup.session.activity.state in ("retrying", "idle"))
    assert host.setup.session.activity.state == ("retrying" if enabled else "idle")
    await host.ask("abort_retry")
    await host.setup.until(lambda: not host.setup.session.activity.is_busy)


async def test_the_last_answer_is_the_last_that_says_something() -> None:
    host = Host()
    journal = host.setup.session.journal
    assert await host.ask("get_last_assistant_text") == {"text": None}
    journal.append_message(assistant_message(text_block(" hello "), text_block(" you ")))
    assert (await host.ask("get_last_assistant_text"))["text"] == "hello  you"
    journal.append_message(assistant_message(stop_reason="aborted"))
    assert (await host.ask("get_last_assistant_text"))["text"] == "hello  you", "an abort before a word does not count"
    journal.append_message(assistant_message(text_block("half"), stop_reason="aborted"))
    assert (await host.ask("get_last_assistant_text"))["text"] == "half"
    journal.append_message(assistant_message())
    assert (await host.ask("get_last_assistant_text"))["text"] is None


async def test_entries_can_be_asked_for_from_one_on() -> None:
    host = Host(says("one"))
    await host.prompt("go")
    everything = await host.ask("get_entries")
    ids = [entry["id"] for entry in everything["entries"]]
    assert everything["leafId"] == ids[-1]
    some = await host.ask("get_entries", since=ids[1])
    assert [entry["id"] for entry in some["entries"]] == ids[2:]
    assert (await host.ask("get_entries", since=ids[-1]))["entries"] == []
    assert (await host.response("get_entries", since="gone"))["error"] == "Entry not found: gone"


async def test_a_page_of_sessions_has_one_to_five_hundred_rows(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    mine = tmp_path / "mine"
    mine.mkdir()
    for folder in (mine, other):
        host = Host(says("one"), folder=folder)
        await host.prompt("go")
        await host.setup.close()
    host = Host(folder=mine)
    for limit, reason in ((0, ">= 1"), (-1, ">= 1"), (-0.0, ">= 1"), (501, "<= 500"), (1e20, "got a number")):
        refusal = await host.response("list_sessions", limit=limit)
        assert refusal["error"].startswith('Missing or invalid field "limit": expected an integer')
        assert refusal["error"].endswith(reason)
    assert len((await host.ask("list_sessions", limit=500))["sessions"]) == 1
    page = await host.ask("list_sessions", limit=1, scope="all")
    assert len(page["sessions"]) == 1
    rest = await host.ask("list_sessions", limit=1, scope="all", cursor=page["nextCursor"])
    assert len(rest["sessions"]) == 1
    assert "nextCursor" not in rest


async def test_a_name_is_told_before_the_answer_and_on_record() -> None:
    host = Host()
    await host.ask("set_session_name", name=" my\nname ")
    assert (await host.ask("get_state"))["sessionName"] == "my name"
    assert [codec.decode(codec.encode(event))["name"] for event in host.setup.heard.events] == ["my name"]
    assert (await host.response("set_session_name", name=" "))["error"] == "Session name cannot be empty"


async def test_what_is_not_on_disk_cannot_be_a_page(tmp_path: Path) -> None:
    refusal = await Host().response("export_html")
    assert refusal["error"] == "Cannot export in-memory session to HTML"
    refusal = await Host(folder=tmp_path).response("export_html")
    assert refusal["error"].startswith("Nothing to export yet")
    host = Host(says("one"), folder=tmp_path)
    await host.prompt("go")
    path = str(tmp_path / "page.html")
    assert await host.ask("export_html", outputPath=path) == {"path": path}
    await host.setup.close()


OTHER = a_model(id="other", reasoning=True)


def with_models(*known: Any, model: Any = MODEL) -> Host:
    return Host(models=ModelOptions(source=KnownModels(*known), model=model, thinking="low"))


async def test_the_readiness_of_the_model_is_told_without_asking_it() -> None:
    assert (await with_models(MODEL).ask("get_integrations"))["model"] == {"state": "connected", "provider": "here"}
    assert (await with_models(OTHER).ask("get_integrations"))["model"]["state"] == "auth_error"
    without = await with_models(model=None).ask("get_integrations")
    assert (without["model"], without["version"]) == ({"state": "no_provider"}, "9")


async def test_models_and_levels_are_chosen_and_listed() -> None:
    host = with_models(MODEL, OTHER)
    assert [one["id"] for one in (await host.ask("get_available_models"))["models"]] == ["m-1", "other"]
    assert (await host.ask("get_available_thinking_levels"))["levels"] == ["off"]
    assert await host.ask("cycle_thinking_level") is None
    assert (await host.ask("cycle_model"))["model"]["id"] == "other"
    assert (await host.ask("cycle_thinking_level"))["level"] == "medium"
    await host.ask("set_thinking_level", level="high")
    assert (await host.ask("get_state"))["thinkingLevel"] == "high"
    assert (await host.ask("set_model", provider="here", modelId="m-1"))["id"] == "m-1"
    assert await with_models(MODEL).ask("cycle_model") is None


async def test_bash_commands_are_aborted_together() -> None:
    class Waiting(NoHooks):
        async def intercept_user_bash(self, command: str, excluded: bool, cwd: str) -> None:
            await asyncio.get_running_loop().create_future()

    host = Host(hooks=Waiting())
    host.send("a", "bash", command="sleep")
    host.send("b", "bash", command="sleep", excludeFromContext=True)
    host.send("c", "abort_bash")
    await host.setup.until(lambda: len(host.answers) == 3)
    assert host.order[0] == "c", "answered at once"
    assert [host.answers[id]["data"]["cancelled"] for id in "ab"] == [True, True]
    kept = [line.message for line in host.setup.session.journal.branch if line.role == "bashExecution"]
    assert [getattr(message, "exclude_from_context", None) is True for message in kept] == [False, True]


async def test_a_prompt_may_bring_the_locale_of_its_user() -> None:
    host = Host(says("one"), says("two"))
    await host.ask("prompt", message="go", locale="de-DE")
    await host.setup.until(lambda: host.setup.heard.of(AgentSettled))
    await host.ask("set_locale", locale="fr-FR")
    await host.prompt("on")
    prompts = [request.system_prompt for request in host.setup.provider.requests]
    assert [("de-DE" in prompt, "fr-FR" in prompt) for prompt in prompts] == [(True, False), (False, True)]


def outcomes(hint: Any) -> set[Any]:
    """What a handler with this return type may give, now or later."""
    if get_origin(hint) is Awaitable:
        return outcomes(get_args(hint)[0])
    parts = get_args(hint)
    return set().union(*map(outcomes, parts)) if parts else {type(None) if hint is None else hint}


@pytest.mark.parametrize("kind", commands.ALL, ids=lambda kind: kind.__name__)
def test_a_handler_gives_the_answer_that_its_command_declares(kind: type[commands.Command]) -> None:
    given = outcomes(get_type_hints(HANDLERS[kind])["return"])
    assert given in ({LongAnswer}, outcomes(kind.answer))
