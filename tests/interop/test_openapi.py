"""The OpenAPI document against the server that it describes, by schemathesis: what it promises is kept.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; schemathesis is installed beside the repository.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.installed_programs import only_on_request, python_with
from support.pigeon_serve import TOKENS, AttackedServer

pytestmark = only_on_request
VERSION = "schemathesis==4.32.5"


def test_the_server_keeps_what_its_document_promises(tmp_path: Path) -> None:
    program = python_with(VERSION).with_name("schemathesis")
    with AttackedServer(tmp_path / "served") as server:
        server.new()
        document = f"{server.url}/api/openapi.json"
        token = f"Authorization: Bearer {TOKENS['admin']}"
        options = ["--max-examples", "100", "--checks", "all", "--seed", "1", "--no-color"]
        ran = subprocess.run(
            [str(program), "run", document, "-H", token, *options],
            cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout[-5_000:]
        assert server.lives()
        assert '"event":"fault"' not in server.log.read_text()
