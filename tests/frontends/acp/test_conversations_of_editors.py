"""The agents that `pigeon acp` builds for the sessions of an editor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pigeon.cli.args import parse_arguments
from pigeon.frontends.acp.command import _Beginner
from pigeon.frontends.acp.sessions import Beginning
from pigeon.system.environment import Environment
from pigeon.wire.base import ABSENT


@pytest.mark.parametrize(("rules", "limit"), [({}, ABSENT), ({"timeoutMs": 7000}, 7000)])
async def test_a_question_waits_for_the_person_at_the_editor_unless_the_settings_limit_it(
    tmp_path: Path, rules: dict[str, int], limit: object
) -> None:
    agent_dir = tmp_path / "agent"
    agent_dir.mkdir()
    (agent_dir / "settings.json").write_text(json.dumps({"permissions": {"ask": ["bash"], **rules}}))
    environment = Environment(variables={"PIGEON_CODING_AGENT_DIR": str(agent_dir)}, home=str(tmp_path), cwd="/")
    beginner = _Beginner(parse_arguments(["--model", "demo"]), environment)
    agent = await beginner.begin(Beginning(cwd=str(tmp_path)))
    try:
        assert (await agent.get_permissions()).timeout_ms == limit
    finally:
        await agent.close()
