"""Agents one after the other in one process share what belongs to the program, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pigeon


async def test_an_agent_reads_what_has_changed_since_the_one_before_it(tmp_path: Path) -> None:
    def entry(name: str) -> dict[str, Any]:
        model = {"id": name, "name": name}
        return {"baseUrl": "http://127.0.0.1:9", "api": "openai-completions", "apiKey": "key", "models": [model]}

    async def available() -> list[str]:
        agent = pigeon.Agent(model="mine/x", cwd=tmp_path, agent_dir=tmp_path, env={"HOME": str(tmp_path)})
        async with agent:
            return [model.reference for model in (await agent.get_available_models()).models]

    def write(name: str, contents: Any) -> None:
        (tmp_path / name).write_text(json.dumps(contents))

    write("models.json", {"providers": {"mine": entry("x")}})
    assert await available() == ["mine/x"]
    write("models.json", {"providers": {"mine": entry("x"), "more": entry("y")}})
    assert await available() == ["mine/x", "more/y"]
    write("auth.json", {"groq": {"type": "api_key", "key": "another"}})
    listed = await available()
    assert {name.partition("/")[0] for name in listed} == {"groq", "mine", "more"}
    (tmp_path / "auth.json").unlink()
    assert await available() == ["mine/x", "more/y"]
