"""Questions of servers to a person, as dialogs of the host: sign-ins, and questions during a call.

Servers are not trusted: each question names the server, addresses are shown and never opened, and no answer is ever
invented.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pigeon.mcp.connector.records import ElicitAction, ElicitAnswer, ElicitQuestion, SignInAnswer, SignInQuestion
from pigeon.mcp.server_config import InputQuestion
from pigeon.session.host.dialogs import Dialogs
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.commands import ExtensionUiResponse
from pigeon.wire.dialogs import CancelRequest, ConfirmRequest, DialogRequest, InputRequest, SelectRequest

MOST_FIELDS = 20
SKIP = "(leave empty)"
YES, NO = "Yes", "No"
# One field of the form that a server wants to be filled in, as a JSON Schema.
Schema = dict[str, Json]


class Questions:
    """Asks the host. An answer that never comes delays only the call that waits for it."""

    def __init__(self, dialogs: Dialogs) -> None:
        self._dialogs = dialogs

    async def ask_sign_in(self, server: str, question: SignInQuestion) -> SignInAnswer | None:
        """Ask for a sign-in: by entering a code in any browser, or in one that is redirected to this machine.

        Returns None if the person refuses.
        """
        if question.code is not None:
            return await self._ask_code_sign_in(server, question)
        title = (
            f"The tool server {server} requires you to sign in. Open this address in a browser:\n{question.url}\n"
            "If the browser runs on another machine, paste the address to which it was redirected."
        )
        answer = await self._ask_host(
            lambda id: InputRequest(id=id, title=title, placeholder="http://127.0.0.1/callback")
        )
        redirect = _text_of_answer(answer)
        return None if redirect is None else SignInAnswer(redirect=redirect)

    async def _ask_code_sign_in(self, server: str, question: SignInQuestion) -> SignInAnswer | None:
        complete = question.complete_url
        at_once = f"\nOr open this address, which has the code in it:\n{complete}" if complete else ""
        answer = await self._ask_host(
            lambda id: ConfirmRequest(
                id=id,
                title=f"The tool server {server} requires you to sign in",
                message=f"Open this address in a browser, on any device:\n{question.url}\n"
                f"and enter the code {question.code}{at_once}\n"
                "Pigeon continues on its own once you have signed in. Sign in?",
            )
        )
        return SignInAnswer() if answer is not None and answer.confirmed is True else None

    async def ask_input(self, server: str, question: InputQuestion) -> str | None:
        """A value that the configuration asks for."""
        title = f"Tool server {server}: {question.about}"
        if question.choices:
            shown = dict(question.choices)
            chosen = _text_of_answer(
                await self._ask_host(lambda id: SelectRequest(id=id, title=title, options=list(shown)))
            )
            return None if chosen is None else shown.get(chosen)
        hint = ABSENT if question.default is None else question.default
        answer = _text_of_answer(await self._ask_host(lambda id: InputRequest(id=id, title=title, placeholder=hint)))
        return question.default if answer == "" and question.default is not None else answer

    async def ask_elicitation(self, server: str, question: ElicitQuestion) -> ElicitAnswer:
        """Ask the question of a server (elicitation)."""
        message = f"The tool server {server} asks: {question.message}"
        if question.url is not None:
            said = await self._ask_host(
                lambda id: ConfirmRequest(id=id, title=message, message=f"Open this address?\n{question.url}")
            )
            return ElicitAnswer(action=_elicit_action_of(said))
        fields = question.requested.get("properties")
        if not isinstance(fields, dict) or not fields:
            said = await self._ask_host(lambda id: ConfirmRequest(id=id, title=message, message="Do you accept?"))
            return ElicitAnswer(action=_elicit_action_of(said), content={})
        listed = question.requested.get("required")
        required = listed if isinstance(listed, list) else []
        content: dict[str, Json] = {}
        for name, field in list(fields.items())[:MOST_FIELDS]:
            told, value = await self._ask_field(
                message, name, field if isinstance(field, dict) else {}, name in required
            )
            if not told:
                return ElicitAnswer(action="cancel")
            if value is not None:
                content[name] = value
        return ElicitAnswer(action="accept", content=content)

    async def _ask_field(self, message: str, name: str, field: Schema, required: bool) -> tuple[bool, Any]:
        """Whether a field was answered, and its value; None if the person left it out."""
        about = field.get("title") or name
        more = f" ({field['description']})" if isinstance(field.get("description"), str) else ""
        title = f"{message}\n{about}{more}"
        choices = _list_choices(field)
        if choices:
            shown = [*choices, *([] if required else [SKIP])]
            answer = await self._ask_host(lambda id: SelectRequest(id=id, title=title, options=shown))
            chosen = _text_of_answer(answer)
            if chosen is None:
                return False, None
            return True, _value_of_choice(field, choices, chosen)
        answer = await self._ask_host(lambda id: InputRequest(id=id, title=title, placeholder=_placeholder(field)))
        text = _text_of_answer(answer)
        if text is None:
            return False, None
        return _parse_typed(field, text, required)

    async def _ask_host(self, make: Callable[[str], DialogRequest]) -> ExtensionUiResponse | None:
        """Ask, and withdraw the question if the server no longer wants an answer."""
        asked: list[str] = []

        def make_request_with_id(id: str) -> DialogRequest:
            asked.append(id)
            return make(id)

        ended = False
        try:
            end = await self._dialogs.run_dialog(make_request_with_id)
            ended = True
            return end.answer
        finally:
            if asked and not ended:
                self._dialogs.send_notice(lambda id: CancelRequest(id=id, target_id=asked[0]))


def _elicit_action_of(answer: ExtensionUiResponse | None) -> ElicitAction:
    if answer is None or answer.cancelled is True:
        return "cancel"
    return "accept" if answer.confirmed is True else "decline"


def _text_of_answer(answer: ExtensionUiResponse | None) -> str | None:
    if answer is None or answer.cancelled is True or not isinstance(answer.value, str):
        return None
    return answer.value


def _list_choices(field: Schema) -> list[str]:
    if field.get("type") == "boolean":
        return [YES, NO]
    titled = field.get("oneOf") or field.get("anyOf")
    if isinstance(titled, list):
        return [str(one.get("title", one.get("const"))) for one in titled if isinstance(one, dict) and "const" in one]
    listed = field.get("enum")
    if not isinstance(listed, list):
        return []
    names = field.get("enumNames")
    shown = names if isinstance(names, list) and len(names) == len(listed) else listed
    return [str(one) for one in shown][:100]


def _value_of_choice(field: Schema, choices: list[str], chosen: str) -> Any:
    if chosen not in choices:
        return None
    if field.get("type") == "boolean":
        return chosen == YES
    index = choices.index(chosen)
    titled = field.get("oneOf") or field.get("anyOf")
    return (
        [one for one in titled if isinstance(one, dict) and "const" in one][index]["const"]
        if isinstance(titled, list)
        else field["enum"][index]
    )


def _parse_typed(field: Schema, text: str, required: bool) -> tuple[bool, Any]:
    kind = field.get("type")
    if not text.strip() and not required:
        return True, None
    if kind in ("integer", "number"):
        try:
            return True, int(text) if kind == "integer" else float(text)
        except ValueError:
            return False, None
    if kind == "array":
        return True, [part.strip() for part in text.split(",") if part.strip()]
    return True, text


def _placeholder(field: Schema) -> Any:
    given = field.get("default")
    return str(given) if isinstance(given, str | int | float) else ABSENT
