"""`outputSchema` on prompts: the run ends with a value that fits, or says why not."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.model_server import Call, Gate, ModelServer
from support.agent_process import RpcProcess, Start
from support.contract import proves

Record = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture
def agent(dialect: str, start: Start) -> RpcProcess:
    return start(dialect=dialect)


def ended(agent: RpcProcess) -> Record:
    """The record that ends a prompt with the schema."""
    agent.send({"id": "a", "type": "prompt", "message": "count", "outputSchema": SCHEMA})
    return agent.wait(lambda record: record["type"] in ("prompt_result", "agent_settled"))


@proves("output.value")
def test_a_run_ends_with_the_value(agent: RpcProcess, server: ModelServer) -> None:
    server.answers(Call("bash", {"command": "echo 3"}))
    server.answers(Call("final_answer", {"n": 3}))
    assert ended(agent)["output"] == {"n": 3}
    server.answers("Fine.")
    agent.run("thanks")
    assert [record for record in agent.records if "output" in record and record["type"] != "tool_execution_end"] == [
        record for record in agent.records if record.get("output") == {"n": 3}
    ]


@proves("output.resumed", dialects=("pi",))
def test_a_session_opened_again_in_the_middle_of_such_a_run_takes_the_prompt_anew(
    start: Start, server: ModelServer
) -> None:
    agent = start(keeps=True)
    answer = server.answers(Call("final_answer", {"n": "three"}))
    gate = Gate()
    server.answers(gate, "on and on")
    agent.send({"id": "a", "type": "prompt", "message": "count", "outputSchema": SCHEMA})
    answer.wait_arrived()
    gate.wait_reached()
    agent.kill()
    again = start("--continue", keeps=True)
    server.answers("Fine.")
    assert "output" not in again.run("hello")[-1]
    server.answers(Call("final_answer", {"n": 4}))
    mark = again.mark()
    again.send({"id": "b", "type": "prompt", "message": "count", "outputSchema": SCHEMA})
    assert again.wait_event("agent_settled", mark)["output"] == {"n": 4}


@proves("output.repair")
def test_an_answer_that_does_not_fit_is_asked_for_again(agent: RpcProcess, server: ModelServer) -> None:
    server.answers(Call("final_answer", {"n": "three"}))
    again = server.answers(Call("final_answer", {"n": 3}))
    assert ended(agent)["output"] == {"n": 3}
    assert "n: expected integer, got string" in str(again.wait_arrived())


@proves("output.error")
def test_a_run_without_a_fitting_answer_ends_in_an_error(agent: RpcProcess, server: ModelServer, dialect: str) -> None:
    for _ in range(3):
        server.answers("I do not know.")
    record = ended(agent)
    assert "output" not in record
    text = record["error"]["message"] if dialect == "omp" else record["errorMessage"]
    assert "no final answer that fits" in text
    assert record.get("status", record.get("reason")) == "error"


DEEP: Any = {"type": "string"}
for _ in range(70):
    DEEP = {"type": "array", "items": DEEP}
BAD: list[tuple[Any, str]] = [
    (7, '"outputSchema": expected object'),
    ([], '"outputSchema": expected object'),
    ({"type": "x"}, "outputSchema.type"),
    ({"$ref": "#/a"}, "outputSchema: $ref #/a names nothing"),
    ({"$ref": "https://example.com/schema.json"}, "outputSchema: $ref https://example.com/schema.json names no place"),
    ({"$ref": "#"}, "outputSchema: $ref # leads to nothing but itself"),
    (DEEP, "outputSchema: "),
    ({"enum": ["x" * 300_000]}, "outputSchema: too large"),
]


@proves("output.refused")
def test_a_bad_schema_is_refused_with_what_is_wrong_before_anything_runs(agent: RpcProcess) -> None:
    mark = agent.mark()
    for number, (schema, says) in enumerate(BAD):
        for kind in ("prompt", "abort_and_prompt"):
            command = f"{kind}-{number}"
            agent.send({"id": command, "type": kind, "message": "count", "outputSchema": schema})
            response = agent.wait_event("response", id=command, success=False)
            assert says in response["error"]
    assert not agent.since(mark, "agent_start")
