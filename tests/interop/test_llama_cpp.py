"""A real OpenAI-compatible server that nobody wrote for us: llama.cpp, with a tiny random model."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]
PYTHON = os.environ.get("PIGEON_LLAMA_PYTHON", "")
PATIENCE = 60.0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    if not PYTHON or not os.path.exists(PYTHON):
        pytest.skip("PIGEON_LLAMA_PYTHON does not name a Python that has llama-cpp-python[server] and gguf")
    model, port = tmp_path / "tiny.gguf", _free_port()
    subprocess.run([PYTHON, str(Path(__file__).with_name("tiny_gguf.py")), str(model)], check=True)
    argv = [PYTHON, "-m", "llama_cpp.server", "--model", str(model), "--port", str(port), "--host", "127.0.0.1"]
    with subprocess.Popen(
        [*argv, "--n_ctx", "2048", "--chat_format", "chatml"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _until_open(port)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


def _until_open(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        with socket.socket() as probe:
            probe.settimeout(deadline - time.monotonic())
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "the server did not start"
        os.sched_yield()


def test_llama_cpp_answers_through_the_chat_adapter(server: str, tmp_path: Path) -> None:
    models = [{"id": "tiny", "contextWindow": 2048, "maxTokens": 24}]
    provider = {"baseUrl": server, "api": "openai-completions", "apiKey": "none", "models": models}
    (tmp_path / "models.json").write_text(json.dumps({"providers": {"llama": provider}}))
    pigeon = os.environ.get("PIGEON_BIN") or os.path.join(os.path.dirname(sys.executable), "pigeon")
    said = subprocess.run(
        [
            pigeon,
            "--mode",
            "rpc",
            "--drain",
            "--no-session",
            "--no-tools",
            "--no-context-files",
            "--model",
            "llama/tiny",
        ],
        input=b'{"id":"p","type":"prompt","message":"hello"}\n',
        env={**os.environ, "PIGEON_CODING_AGENT_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        timeout=PATIENCE,
        check=True,
    )
    records = [json.loads(line) for line in said.stdout.splitlines()]
    [answer] = [record["message"] for record in records if record["type"] == "turn_end"]
    assert answer["stopReason"] in ("stop", "length")
    assert "".join(block["text"] for block in answer["content"])
    assert records[-1]["type"] == "agent_settled"
