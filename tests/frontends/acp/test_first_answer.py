"""What stands before the first answer of `pigeon acp`: nothing that only a session needs."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = (
    "pigeon.app.build", "pigeon.sdk.agent", "pigeon.session", "pigeon.providers", "pigeon.extensions", "pigeon.tools",
    "pigeon.mcp", "httpx", "yaml", "email", "http",
)  # fmt: skip
PROGRAM = """
import io, json, sys
from pigeon.frontends.acp import command as acp
from pigeon.frontends.acp.acp_server import AcpServer

class Sink:
    is_full = is_overfull = False
    def put(self, buffers, apart=False, can_wait=False):
        assert json.loads(b"".join(buffers))["result"]["protocolVersion"] == 1

line = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
AcpServer(Sink(), None, "0", "/", "/").peer.handle_frames([json.dumps(line).encode()])
print(json.dumps(sorted(sys.modules)))
"""


def test_initialize_is_answered_before_anything_of_a_session_is_imported() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    loaded = set(json.loads(ended.stdout))
    assert not [name for name in HEAVY if name in loaded]
