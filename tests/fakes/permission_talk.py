"""Tool calls in the real program that a permission rule is about: how they are made, asked about and answered."""

from __future__ import annotations

from typing import Any

from fakes.model_server import Call, ModelServer
from fakes.record_outline import ended, tool_texts
from fakes.rpc_process import RpcProcess

Record = dict[str, Any]


def calls(host: RpcProcess, server: ModelServer, *made: Call) -> int:
    """Prompt, and let the model call; gives the place where this began."""
    server.answers(*made)
    server.answers("done")
    start = host.mark()
    host.ask("prompt", message="x")
    return start


def question(host: RpcProcess, start: int) -> Record:
    """The first question about permission since then."""
    return host.wait_event("extension_ui_request", start, method="select")


def reply(host: RpcProcess, request: Record, **answer: Any) -> None:
    """Answer a question."""
    host.send({"type": "extension_ui_response", "id": request["id"], **answer})


def results(host: RpcProcess, start: int) -> list[tuple[bool, str]]:
    """Whether each call failed, and its text, once the run has ended."""
    host.wait_end(start)
    records = host.since(start)
    failed = [message["isError"] for message in ended(records, "toolResult")]
    return list(zip(failed, tool_texts(records), strict=True))
