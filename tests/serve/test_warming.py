"""What a warm parent does before it forks, and how a worker is asked for."""

from __future__ import annotations

import asyncio
import os
import tempfile

from pigeon.app.options import AgentOptions
from pigeon.serve import warming
from pigeon.serve.worker import WorkerRequest, packed, unpacked
from pigeon.serve.worker_state import WorkerState
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
    assert unpacked(packed(request)) == request


def test_each_model_that_is_played_uses_a_tool_and_ends_in_order() -> None:
    for model in warming.PLAYED:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(warming.play(model, folder, os.defpath, 1))
            (log,) = os.listdir(f"{folder}/events")
            with open(f"{folder}/events/{log}", encoding="utf-8") as file:
                text = file.read()
        assert '"type":"tool_execution_end"' in text
        assert '"isError":true' not in text
        assert '"type":"agent_settled","aborted":false,"reason":"done"' in text


def test_functions_go_on_to_work_with_a_copy_of_their_code() -> None:
    def outer(number: int) -> list[int]:
        return [number + other for other in range(3)]

    before = outer.__code__
    warming.put_side_by_side({before, *(one for one in before.co_consts if hasattr(one, "co_code"))})
    assert outer.__code__ is not before
    assert outer(1) == [1, 2, 3]


def test_only_blocks_between_others_are_kept() -> None:
    blocks = [bytes(64) for _ in range(5000)]
    assert len(warming.between_others(blocks, 64)) < len(blocks) // 2
