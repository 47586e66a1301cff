"""What servers ask a person: as which question of the host, and what the server gets as the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pigeon.mcp.connector.records import ElicitQuestion, SignInQuestion
from pigeon.mcp.questions import SKIP, Questions
from pigeon.mcp.server_config import InputQuestion
from pigeon.wire.commands import ExtensionUiResponse
from pigeon.wire.dialogs import CancelRequest, ConfirmRequest, InputRequest, SelectRequest

# What a host answers: a text, yes or no, or that the person has closed the question.
CLOSED = object()


class Host:
    """Answers questions in order, and keeps them; nothing is left to answer with means that it hangs."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[Any] = []
        self.notices: list[Any] = []
        self.questions = Questions(cast("Any", self))

    async def run_dialog(self, make: Callable[[str], Any]) -> Any:
        self.asked.append(make(f"q{len(self.asked)}"))
        if not self._answers:
            await asyncio.get_running_loop().create_future()
        answer = self._answers.pop(0)
        if answer is None:
            return SimpleNamespace(answer=None)
        id = self.asked[-1].id
        if answer is CLOSED:
            return SimpleNamespace(answer=ExtensionUiResponse(id=id, cancelled=True))
        if isinstance(answer, bool):
            return SimpleNamespace(answer=ExtensionUiResponse(id=id, confirmed=answer))
        return SimpleNamespace(answer=ExtensionUiResponse(id=id, value=answer))

    def send_notice(self, make: Callable[[str], Any]) -> None:
        self.notices.append(make("notice"))


def question(properties: dict[str, Any] | None = None, required: Any = (), **more: Any) -> ElicitQuestion:
    requested = {} if properties is None else {"properties": properties, "required": list(required)}
    return ElicitQuestion(message="Tell me", requested=requested, **more)


async def ask(properties: dict[str, Any] | None, *answers: Any, required: Any = ()) -> tuple[Host, Any]:
    host = Host(*answers)
    return host, await host.questions.ask_elicitation("s", question(properties, required))


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        ({"type": "string"}, "Ada", "Ada"),
        ({"type": "string"}, " Ada ", " Ada "),
        ({"type": "integer"}, "42", 42),
        ({"type": "integer"}, "-1", -1),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "array"}, "a, b,,c ", ["a", "b", "c"]),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "No", False),
        ({"enum": ["a", "b"]}, "b", "b"),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": ["a", "b"], "enumNames": ["Alpha", "Beta"]}, "Beta", "b"),
        ({"enum": ["a", "b"], "enumNames": ["only one"]}, "b", "b"),
        ({"oneOf": [{"const": "a", "title": "Alpha"}, {"title": "none"}, {"const": "b"}]}, "b", "b"),
        ({"anyOf": [{"const": "a", "title": "Alpha"}, 7, {"const": "b", "title": "Beta"}]}, "Beta", "b"),
        ("no schema", "text", "text"),
    ],
)
@pytest.mark.parametrize("required", [True, False])
async def test_what_is_typed_or_chosen_becomes_a_value_of_the_field(
    field: Any, typed: str, value: Any, required: bool
) -> None:
    _, answer = await ask({"f": field}, typed, required=["f"] if required else [])
    assert (answer.action, answer.content) == ("accept", {"f": value})


@pytest.mark.parametrize("kind", ["integer", "number"])
async def test_what_is_no_number_cancels_the_question(kind: str) -> None:
    _, answer = await ask({"f": {"type": kind}}, "many")
    assert answer.action == "cancel"


@pytest.mark.parametrize("field", [{"type": "string"}, {"type": "integer"}, {"type": "array"}])
async def test_a_field_that_is_not_required_may_be_left_empty(field: dict[str, Any]) -> None:
    _, answer = await ask({"f": field, "g": {"type": "string"}}, " ", "there")
    assert (answer.action, answer.content) == ("accept", {"g": "there"})


async def test_a_choice_may_be_skipped_where_it_is_not_required() -> None:
    field = {"enum": ["a", "b"]}
    host, answer = await ask({"f": field}, SKIP)
    assert host.asked[0].options == ["a", "b", SKIP]
    assert (answer.action, answer.content) == ("accept", {})
    host, answer = await ask({"f": field}, "a", required=["f"])
    assert host.asked[0].options == ["a", "b"]


@pytest.mark.parametrize("closed", [CLOSED, None])
@pytest.mark.parametrize("field", [{"type": "string"}, {"enum": ["a"]}])
async def test_a_question_that_is_closed_cancels_all_of_them(closed: Any, field: dict[str, Any]) -> None:
    host, answer = await ask({"f": {"type": "string"}, "g": field, "h": field}, "x", closed)
    assert answer.action == "cancel"
    assert len(host.asked) == 2


async def test_questions_name_the_server_the_field_and_what_it_is_about() -> None:
    field = {"type": "string", "title": "Your name", "description": "as in the passport"}
    host, _ = await ask({"f": field, "g": {"type": "string"}}, "x", "y")
    assert host.asked[0].title == "The tool server s asks: Tell me\nYour name (as in the passport)"
    assert host.asked[1].title == "The tool server s asks: Tell me\ng"
    assert all(isinstance(one, InputRequest) for one in host.asked)


async def test_only_so_many_fields_are_asked_for() -> None:
    fields = {f"f{number}": {"type": "string"} for number in range(30)}
    host, answer = await ask(fields, *["x"] * 30)
    assert len(host.asked) == 20
    assert list(answer.content) == list(fields)[:20]


@pytest.mark.parametrize(
    ("said", "action"), [(True, "accept"), (False, "decline"), (CLOSED, "cancel"), (None, "cancel")]
)
async def test_a_question_without_fields_and_an_address_are_confirmed(said: Any, action: str) -> None:
    host, answer = await ask(None, said)
    assert answer.action == action
    assert isinstance(host.asked[0], ConfirmRequest)
    host = Host(said)
    answer = await host.questions.ask_elicitation("s", question(url="https://example.com/pay"))
    assert answer.action == action
    assert host.asked[0].message == "Open this address?\nhttps://example.com/pay"


async def test_a_question_that_the_server_withdraws_is_closed_at_the_host() -> None:
    host = Host()
    asking = asyncio.ensure_future(host.questions.ask_elicitation("s", question({"f": {"type": "string"}})))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    (notice,) = host.notices
    assert isinstance(notice, CancelRequest)
    assert notice.target_id == "q0"
    host, _ = await ask(None, True)
    assert host.notices == []


@pytest.mark.parametrize(
    ("given", "answer", "value"),
    [
        (InputQuestion("The key"), "abc", "abc"),
        (InputQuestion("The key"), "", ""),
        (InputQuestion("The key"), CLOSED, None),
        (InputQuestion("The key", default="d"), "", "d"),
        (InputQuestion("The key", default="d"), "abc", "abc"),
        (InputQuestion("Which", choices=(("One", "1"), ("Two", "2"))), "Two", "2"),
        (InputQuestion("Which", choices=(("One", "1"), ("Two", "2"))), "Three", None),
        (InputQuestion("Which", choices=(("One", "1"), ("Two", "2"))), CLOSED, None),
    ],
)
async def test_a_value_of_the_configuration_is_asked_for(given: InputQuestion, answer: Any, value: str | None) -> None:
    host = Host(answer)
    assert await host.questions.ask_input("s", given) == value
    assert host.asked[0].title == f"Tool server s: {given.about}"
    assert isinstance(host.asked[0], SelectRequest if given.choices else InputRequest)


@pytest.mark.parametrize(
    ("code", "answer", "signs_in"),
    [
        (None, "http://127.0.0.1/callback?code=x", True),
        (None, CLOSED, False),
        (None, None, False),
        ("ABCD", True, True),
        ("ABCD", False, False),
        ("ABCD", CLOSED, False),
    ],
)
async def test_a_person_signs_in_or_refuses(code: str | None, answer: Any, signs_in: bool) -> None:
    host = Host(answer)
    asked = SignInQuestion(url="https://example.com/in", code=code, complete_url=None)
    found = await host.questions.ask_sign_in("s", asked)
    assert (found is not None) is signs_in
    shown = host.asked[0]
    assert "https://example.com/in" in (shown.title if code is None else shown.message)
    if found is not None and code is None:
        assert found.redirect == answer
