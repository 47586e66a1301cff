"""What the model is told when little is left of a limit, as hosts, session files and providers see it."""

from __future__ import annotations

import json
from typing import Any

from fakes.model_server import Call, ModelServer
from fakes.strict_client import complaints
from support.agent_process import Start
from support.contract import in_each, proves

Record = dict[str, Any]


def said(request: Record) -> list[Any]:
    """The messages of a request, without the marks that say how far the provider shall keep them."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items() if key != "cache_control"}
        return [plain(item) for item in value] if isinstance(value, list) else value

    return [plain(message) for message in request["messages"]]


def works_on(server: ModelServer, turns: int) -> None:
    for number in range(turns):
        server.answers(Call("bash", {"command": f"echo {number}"}))


@proves("limits.notice", dialects=("pi", "pi-latest", "omp", "xcsh"))
@in_each("pi", "pi-latest", "omp", "xcsh")
def test_a_notice_is_a_hidden_message_that_every_client_knows(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start("--max-turns", "3", dialect=dialect, keeps=True)
    works_on(server, 3)
    agent.ask("prompt", message="go")
    agent.wait_end()
    if dialect in ("omp", "xcsh"):
        assert [text for record in agent.records for text in complaints(record)] == []
    told = [record["message"] for record in agent.since(0, "message_end") if record["message"]["role"] == "custom"]
    assert [(one["customType"], one["display"]) for one in told] == [("limit-notice", False)]
    first, second, third = (said(request) for request in server.requests)
    assert (second[: len(first)], third[: len(second)]) == (first, second)
    assert "1 of 3 turns" in str(third[-1])
    file = agent.ask("get_state")["sessionFile"]
    with open(file) as lines:
        entries = [entry for entry in map(json.loads, lines) if entry["type"] == "custom_message"]
    assert [(entry["customType"], entry["display"]) for entry in entries] == [("limit-notice", False)]
    agent.close_stdin()
    agent.wait_exit()
    resumed = start("--session", file, dialect=dialect, keeps=True)
    server.answers("on")
    resumed.ask("prompt", message="again")
    resumed.wait_end()
    assert str(server.requests[-1]).count("1 of 3 turns") == 1


@proves("limits.nothing_unasked", dialects=("pi", "pi-latest", "omp", "xcsh"))
@in_each("pi", "pi-latest", "omp", "xcsh")
def test_a_client_that_asked_for_no_limits_sees_none(start: Start, server: ModelServer, dialect: str) -> None:
    agent = start(dialect=dialect)
    for _ in range(12):
        server.answers(Call("bash", {"command": "true"}))
    server.answers("end")
    agent.ask("prompt", message="go")
    agent.wait_end()
    assert not [record for record in agent.records if "limit" in record or "limit-notice" in str(record)]
    assert not [record for record in agent.since(0, "message_end") if record["message"]["role"] == "custom"]
