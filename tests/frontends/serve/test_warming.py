"""What a warm parent does before it forks, and how a worker is asked for."""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile

from pigeon.app.options import AgentOptions
from pigeon.frontends.serve.worker_request import WorkerRequest, decode_request, encode_request
from pigeon.frontends.serve.worker_state import WorkerState
from pigeon.frontends.serve.workers import warming
from pigeon.wire.steering import Limits


def test_a_request_comes_through_the_socket_as_it_was() -> None:
    options = AgentOptions(
        agent_dir="/a",
        model="demo",
        tools=("read", "bash"),
        no_skills=True,
        flags={"plan": True},
        permissions={"bash": "ask"},
        limits=Limits(turns=3, cost=0.5),
    )
    state = WorkerState(session_id="s", session_file=None, cwd="/w", model=None, thinking="off")
    request = WorkerRequest(
        options=options,
        folder="/w",
        variables={"A": "ü"},
        log_folder="/l",
        state_file="/f",
        commands=({"type": "set_locale", "locale": "de"},),
        state=state,
        died="why",
    )
    assert decode_request(encode_request(request)) == request


def test_each_model_that_is_played_uses_a_tool_and_ends_in_order() -> None:
    for model, settings in itertools.product(warming.PLAYED, (None, warming.RULES)):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(warming.simulate_conversation(model, folder, os.defpath, 1, settings))
            (log,) = os.listdir(f"{folder}/events")
            with open(f"{folder}/events/{log}", encoding="utf-8") as file:
                text = file.read()
        assert '"type":"tool_execution_end"' in text
        assert '"isError":true' not in text
        assert '"type":"agent_settled","aborted":false,"reason":"done"' in text
