"""Notices of extensions as each dialect passes them on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes import contract_extension
from fakes.model_server import ModelServer
from support.agent_process import RpcProcess, Start
from support.contract import proves

Record = dict[str, Any]
FILE = str(Path(contract_extension.__file__))
TOLD: dict[str, Record] = {
    "notify": {"message": "careful", "notifyType": "warning"},
    "setStatus": {"statusKey": "key", "statusText": "working"},
    "setWidget": {"widgetKey": "box", "widgetLines": ["one", "two"], "widgetPlacement": "belowEditor"},
    "setTitle": {"title": "a title"},
    "set_editor_text": {"text": "some text"},
}


@pytest.fixture
def extended(start: Start, dialect: str) -> RpcProcess:
    """The program with an extension that does as it is told."""
    return start("--extension", FILE, dialect=dialect)


def requests(agent: RpcProcess, start: int = 0) -> list[Record]:
    return agent.since(start, "extension_ui_request")


@proves("ui.fire_no_answer")
def test_notices_need_no_answer(extended: RpcProcess, server: ModelServer, dialect: str) -> None:
    server.answers("still here")
    extended.send({"type": "prompt", "message": "/tell"}, {"type": "prompt", "message": "x"})
    extended.wait_end()
    if dialect != "companion":
        extended.wait_event("extension_ui_request", method="set_editor_text")
    shown = {request["method"]: request for request in requests(extended)}
    expected = dict(TOLD) if dialect != "companion" else {}
    if dialect == "xcsh":
        del expected["setTitle"]
    without = {name: {k: v for k, v in one.items() if k not in ("type", "id", "method")} for name, one in shown.items()}
    assert without == expected
    assert len({request["id"] for request in shown.values()}) == len(expected)
