"""Against LiteLLM's proxy, a server that nobody here wrote: its mock answers, and its translations of a real stream.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`. The proxy is taken from the folder named by `PIGEON_INTEROP_DIR`, or
installed into a virtual environment there (a temporary folder if the variable is unset).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from fakes.http_server import HttpServer, Reply, sse
from pigeon.providers.apis import APIS
from pigeon.providers.http.client import HttpClient
from support.model_requests import (
    CollectedAnswer,
    a_model,
    a_request,
    assistant_message,
    collect_answer,
    request_setup,
    tool_call,
    tool_result,
    user_message,
)

VERSION = "1.106.0"
MASTER = "sk-master-1234"
MOCK = "Hello from the mock."
pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not os.environ.get("PIGEON_INTEROP"), reason="installs LiteLLM; set PIGEON_INTEROP=1 to run"),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.environ.get("PIGEON_INTEROP_DIR") or tmp_path_factory.mktemp("interop")) / "litellm"
    found = folder / "bin" / "litellm"
    if not found.exists():
        venv.create(folder, with_pip=True)
        command = [folder / "bin" / "python", "-m", "pip", "install", "-q", f"litellm[proxy]=={VERSION}"]
        installed = subprocess.run(command, capture_output=True, text=True, check=False)
        if installed.returncode:
            pytest.skip(f"LiteLLM does not install here: {installed.stderr.strip().splitlines()[-1]}")
    return found


class Proxy:
    def __init__(self, url: str, upstream: int) -> None:
        self.url = url
        self.upstream = upstream


@pytest.fixture(scope="module")
def proxy(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    port, upstream = free_port(), free_port()
    mock = {"model": "openai/gpt-4o", "api_key": "none", "mock_response": MOCK}
    real = {"model": "groq/m", "api_key": "none", "api_base": f"http://127.0.0.1:{upstream}/v1"}
    config = {
        "model_list": [
            {"model_name": "mock", "litellm_params": mock},
            {"model_name": "real", "litellm_params": real},
        ],
        "litellm_settings": {"num_retries": 0},
        "general_settings": {"master_key": MASTER},
    }
    folder = tmp_path_factory.mktemp("litellm")
    (folder / "config.yaml").write_text(json.dumps(config))
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [program, "--config", folder / "config.yaml", "--port", str(port), "--host", "127.0.0.1"],
        stdout=log,
        stderr=log,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_up(url, process)
        yield Proxy(url, upstream)
    finally:
        process.terminate()
        process.wait(30)
        log.close()


def wait_until_up(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        assert process.poll() is None, "LiteLLM ended"
        try:
            urllib.request.urlopen(f"{url}/health/liveliness", timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
        else:
            return
    sys.exit("LiteLLM did not come up")


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient({})
    yield client
    await client.aclose()


async def ask(
    proxy: Proxy, http: HttpClient, api: str, model: str, *messages: object, key: str = MASTER
) -> CollectedAnswer:
    base = proxy.url if api == "anthropic-messages" else f"{proxy.url}/v1"
    request = a_request(a_model(id=model, api=api, base_url=base), *messages)
    return await collect_answer(import_module(APIS[api].adapter).stream(request, request_setup(http, key=key)))


@pytest.mark.parametrize("api", ["openai-completions", "anthropic-messages"])
async def test_mock_answers_arrive(proxy: Proxy, http: HttpClient, api: str) -> None:
    answer = await ask(proxy, http, api, "mock")
    assert answer.texts == [MOCK]
    assert answer.end.stop == "stop"


@pytest.mark.parametrize("api", ["openai-completions", "anthropic-messages", "openai-responses"])
async def test_a_stream_with_text_and_a_call_survives_the_translation(proxy: Proxy, http: HttpClient, api: str) -> None:
    def chunk(delta: dict[str, object], finish: str | None = None, **more: object) -> dict[str, object]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}

    call = {"index": 0, "id": "call_9", "type": "function", "function": {"name": "bash", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": '{"command":"ls"}'}}
    usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
    chunks = sse(
        chunk({"role": "assistant", "content": "Let me "}),
        chunk({"content": "look."}),
        chunk({"tool_calls": [call]}),
        chunk({"tool_calls": [more]}),
        chunk({}, "tool_calls"),
        {**chunk({}), "choices": [], "usage": usage},
        "[DONE]",
    )
    history = (
        user_message("first"),
        assistant_message(tool_call("call_1")),
        tool_result("call_1", "output of the first"),
        user_message("again"),
    )
    async with HttpServer([Reply(chunks)], port=proxy.upstream) as upstream:
        answer = await ask(proxy, http, api, "real", *history)
        seen = json.dumps(upstream.body)
    assert "".join(answer.texts[:-1]) == "Let me look."
    assert answer.kinds[-1] == "toolCall"
    assert json.loads(answer.texts[-1]) == {"command": "ls"}
    [(call_id, name)] = answer.calls.values()
    assert call_id.startswith("call_9")
    assert name == "bash"
    assert answer.end.stop == "toolUse"
    assert answer.usage is not None
    assert answer.usage.output == 5
    for words in ("Be brief.", "first", "output of the first", "again"):
        assert words in seen


@pytest.mark.parametrize("api", ["openai-completions", "anthropic-messages", "openai-responses"])
async def test_an_unknown_model_and_a_wrong_key_are_clear_failures(proxy: Proxy, http: HttpClient, api: str) -> None:
    unknown = await ask(proxy, http, api, "nobody")
    assert unknown.failure.status in (400, 404)
    assert not unknown.failure.retryable
    refused = await ask(proxy, http, api, "mock", key="sk-wrong-key-9")
    assert refused.failure.status in (400, 401)
    assert not refused.failure.retryable
    assert "sk-wrong-key-9" not in refused.failure.message
