"""What a person chooses in the editor, where the conversation refuses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import pigeon
from pigeon.frontends.acp.options import SessionOptions
from pigeon.frontends.acp.rpc_errors import RpcError
from pigeon.testing import scripted
from support.agent_folders import AgentFolders


class WithoutModel:
    """A conversation whose model is gone from the models file after the editor was told of it."""

    def __init__(self, conversation: pigeon.Conversation) -> None:
        self._conversation = conversation

    async def set_model(self, provider: str, model_id: str) -> None:
        raise pigeon.Refusal(f"Model not found: {provider}/{model_id}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conversation, name)


async def test_a_choice_that_is_refused_is_an_error_with_the_reason(folders: AgentFolders, tmp_path: Path) -> None:
    environment = folders.environment()
    with scripted("ok") as model:
        agent = pigeon.Agent(model=model, cwd=str(tmp_path), agent_dir=str(folders.agent), env=environment)
    async with agent:
        options = SessionOptions(cast("Any", WithoutModel(agent)))
        chosen = next(option.current for option in await options.read() if option.id == "model")
        with pytest.raises(RpcError, match="Model not found: scripted/") as refused:
            await options.set_value("model", chosen)
        assert refused.value.code == -32602
