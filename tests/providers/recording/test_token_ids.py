"""Token ids and log-probabilities: asked for where a model is configured so, kept in the session, not told unasked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fakes.http_server import HttpServer, Reply, sse
from pigeon.app.pages import export_trajectory
from support.in_process_agent import InProcessAgent, models_file
from support.sessions import environment_in

# As vLLM streams them.
CHUNKS: list[Any] = [
    {
        "id": "r",
        "prompt_token_ids": [1, 2, 3],
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}],
    },
    {
        "id": "r",
        "choices": [
            {"index": 0, "delta": {"content": "Hi"}, "token_ids": [7], "logprobs": {"content": [{"logprob": -0.5}]}}
        ],
    },
    {
        "id": "r",
        "choices": [
            {"index": 0, "delta": {"content": "!"}, "token_ids": [8, 9], "logprobs": {"content": [{"logprob": -1.5}]}}
        ],
    },
    {"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}},
    "[DONE]",
]


async def run_with_tokens(root: Path, compat: dict[str, Any]) -> tuple[InProcessAgent, Any, str]:
    agent = InProcessAgent(root)
    agent.configure({})
    async with HttpServer([Reply(sse(*CHUNKS))]) as server:
        described = models_file("openai-completions", f"{server.url}/v1")
        described["providers"]["here"]["compat"] = compat
        (agent.agent_dir / "models.json").write_text(json.dumps(described))
        built = await agent.start(model="here/one")
        await agent.prompt("Hello")
        file = built.session.journal.file
        await agent.stop()
        assert file is not None
        return agent, server.body, file


async def test_they_are_asked_for_kept_and_exported(tmp_path: Path) -> None:
    agent, body, file = await run_with_tokens(tmp_path / "a", {"returnTokenIds": True, "returnLogprobs": True})
    assert (body["return_token_ids"], body["logprobs"]) == (True, True)
    assert not [event for event in agent.events if "pigeon.tokens" in json.dumps(event)]
    export_trajectory(environment_in(tmp_path), file, str(tmp_path / "out.json"))
    steps = json.loads((tmp_path / "out.json").read_text())["steps"]
    metrics = steps[-1]["metrics"]
    assert metrics["prompt_token_ids"] == [1, 2, 3]
    assert metrics["completion_token_ids"] == [7, 8, 9]
    assert metrics["logprobs"] == [-0.5, -1.5]


async def test_a_model_that_is_not_configured_so_is_not_asked(tmp_path: Path) -> None:
    _, body, _ = await run_with_tokens(tmp_path / "b", {})
    assert not {"return_token_ids", "logprobs"} & body.keys()
