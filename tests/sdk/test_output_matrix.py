"""Answers for programs over schemas, APIs, both forms and what models do: what settles with a value has one that fits.

One agent and one loopback server for an API and a form. For each schema every fifth behaviour is played, others for the
next schema, the next API and the other form, so that every schema meets every behaviour, every API and both forms.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

import pigeon
from fakes.http_server import APIS, PATHS, Calling, HttpServer, Reply, answer, asked_schema, tool_names
from pigeon.sdk.output import OutputType
from support.agent_folders import AgentFolders, model
from support.output_cases import CASES, TEXT

WRONG = (None, {"?": [1]}, -1e300, "no such value\x00", [[0]])


class Model:
    """Gives the next answer of a script in the form that the request asks for."""

    def __init__(self, api: str, schema: dict[str, Any], value: Any) -> None:
        self.api = api
        self.value = value
        self.wrong = next(one for one in WRONG if not Draft202012Validator(schema).is_valid(one))

    def gives(self, value: Any, *before: str, after: tuple[Calling, ...] = (), stop: str = "stop") -> Step:
        """The value, as a text or by the tool, whichever was asked for."""

        def step(body: dict[str, Any]) -> Reply:
            schema = asked_schema(self.api, body)
            part: str | Calling
            if schema is not None:
                part = json.dumps(self._value_to_send(value, schema))
            else:
                schema = parameters_of(self.api, body)
                sent = self._value_to_send(value, schema)
                part = Calling("final_answer", sent if isinstance(sent, dict) else {"value": sent})
            return answer(self.api, *before, part, *after, stop=stop)

        return step

    def gives_twice(self, value: Any, other: Any) -> Step:
        def step(body: dict[str, Any]) -> Reply:
            if asked_schema(self.api, body) is not None:
                return answer(self.api, json.dumps(value) + json.dumps(other))
            calls = [Calling("final_answer", {"value": one}) for one in (value, other)]
            return answer(self.api, *calls)

        return step

    def says(self, text: str, stop: str = "stop") -> Step:
        return lambda body: answer(self.api, *([text] if text else []), stop=stop)

    def calls(self, name: str, **arguments: Any) -> Step:
        return lambda body: answer(self.api, "Let me see.", Calling(name, arguments))

    def _value_to_send(self, value: Any, schema: dict[str, Any]) -> Any:
        """In the envelope, if the schema has one that the value has not."""
        return (
            value
            if isinstance(value, dict) and list(schema["properties"]) != ["value"]
            else self._wrap_value(value, schema)
        )

    def _wrap_value(self, value: Any, schema: dict[str, Any]) -> Any:
        own = schema["properties"].get("value")
        if own is None or (isinstance(value, dict) and list(value) == ["value"] and own == TEXT):
            return value
        return {"value": value}


Step = Callable[[dict[str, Any]], Reply]


def parameters_of(api: str, body: dict[str, Any]) -> dict[str, Any]:
    (tool,) = [
        one
        for tool in body["tools"]
        for one in tool.get("functionDeclarations", [tool.get("function", tool)])
        if one["name"] == "final_answer"
    ]
    found: dict[str, Any] = next(
        tool[key] for key in ("input_schema", "parameters", "parametersJsonSchema") if key in tool
    )
    return found


class Behaviour(NamedTuple):
    """What a model does, and how the run may end."""

    steps: Callable[[Model], list[Step]]
    ends: tuple[str, ...] = ("done",)


BEHAVIOURS: dict[str, Behaviour] = {
    "right at once": Behaviour(lambda m: [m.gives(m.value)]),
    "wrong, then right": Behaviour(lambda m: [m.gives(m.wrong), m.gives(m.value)]),
    "a text instead": Behaviour(lambda m: [m.says("I do not know."), m.gives(m.value)]),
    "broken JSON": Behaviour(lambda m: [m.says('{"value": ['), m.gives(m.value)]),
    "wrong for ever": Behaviour(lambda m: [m.gives(m.wrong)] * 4, ("error",)),
    "texts for ever": Behaviour(lambda m: [m.says("no")] * 4, ("error",)),
    "a code block": Behaviour(lambda m: [m.says(f"```json\n{json.dumps(m.value)}\n```")]),
    "another tool first": Behaviour(lambda m: [m.calls("ls", path="."), m.gives(m.value)]),
    "words before it": Behaviour(lambda m: [m.gives(m.value, "Here it is: "), m.gives(m.value)]),
    "nothing": Behaviour(lambda m: [m.says(""), m.gives(m.value)], ("done", "error")),
    "cut off": Behaviour(lambda m: [m.gives(m.value, stop="length"), m.gives(m.value)]),
    "a refusal": Behaviour(lambda m: [m.says("I will not.", stop="refusal"), m.gives(m.value)], ("done", "error")),
    "two answers": Behaviour(lambda m: [m.gives_twice(m.value, m.wrong), m.gives(m.value)]),
    "beside another call": Behaviour(
        lambda m: [m.gives(m.value, after=(Calling("ls", {"path": "."}),)), m.gives(m.value)]
    ),
    "a tool that is not there": Behaviour(lambda m: [m.calls("none"), m.gives(m.value)]),
}


def behaviours_for(api: str, by_format: bool) -> Iterator[tuple[str, str]]:
    for number, case in enumerate(CASES):
        for place, behaviour in enumerate(BEHAVIOURS):
            if (number + place + APIS.index(api) + 4 * by_format) % 5 == 0:
                yield case, behaviour


@pytest.mark.parametrize("by_format", [True, False], ids=["format", "tool"])
@pytest.mark.parametrize("api", APIS)
async def test_every_run_ends_with_a_value_that_fits_or_says_why_not(api: str, by_format: bool, tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    forms: set[bool] = set()
    async with HttpServer([]) as server:
        compat = {"supportsStructuredOutput": by_format}
        provider = {
            "baseUrl": server.url + PATHS[api],
            "api": api,
            "apiKey": "dummy-key",
            "models": [model("m", reasoning=False, compat=compat)],
        }
        folders.configure({"providers": {"fake": provider}}, {"retry": {"enabled": False}})
        given: dict[str, Any] = {
            "agent_dir": str(folders.agent),
            "env": folders.environment(),
            "cwd": str(folders.work),
        }
        async with pigeon.Agent(model="fake/m", no_session=True, builtin_tools=["ls"], **given) as agent:
            for case, behaviour in behaviours_for(api, by_format):
                await agent.new_session()
                forms |= await _hold(agent, server, api, case, BEHAVIOURS[behaviour])
    assert forms == ({True, False} if by_format else {False})


async def _hold(agent: pigeon.Agent, server: HttpServer, api: str, case: str, behaviour: Behaviour) -> set[bool]:
    """Play one run and check its end; the answer is in which forms it was asked for."""
    wanted, value = CASES[case]
    kind = OutputType(wanted)
    script = Model(api, kind.schema, value)
    asked = len(server.requests)
    server.prepare(behaviour.steps(script))
    result = await agent.run("go", output=wanted)
    where = f"{case}: {result.ended} {result.error}"
    assert result.ended in behaviour.ends, where
    if result.ended == "done":
        assert result.output == kind.convert_output(value), where
        assert Draft202012Validator(kind.schema).is_valid(value)
    else:
        assert result.output is None, where
        assert result.error, where
    bodies = [request.body for request in server.requests[asked:]]
    forms = {asked_schema(api, body) is not None for body in bodies}
    assert forms == {"final_answer" not in tool_names(api, body) for body in bodies}, where
    return forms
