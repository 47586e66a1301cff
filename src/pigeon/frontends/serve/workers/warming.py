"""What the warm parent (`warm_parent.py`) does in its spare time, so that its workers start quickly and share memory.

It imports everything that an agent may need and plays conversations the way a worker does: code that this compiles,
caches and specializes is ready when a worker needs it, and stays shared. With `PIGEON_SERVE_WARM_UP=off` it only
imports, and its workers are larger.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from pigeon.app.options import AgentOptions
from pigeon.frontends.agent_imports import import_one_by_one
from pigeon.frontends.serve.worker_request import WorkerRequest, decode_request, encode_request
from pigeon.frontends.serve.workers.worker import serve_worker
from pigeon.providers.anthropic.api import ANTHROPIC_MESSAGES
from pigeon.providers.demo.api import DEMO
from pigeon.providers.http.certificates import load_default_certificates
from pigeon.providers.openai_chat.api import OPENAI_COMPLETIONS
from pigeon.secrets.redactor import Redactor
from pigeon.system.clock import SteadyLoop, now_ms
from pigeon.system.environment import Environment
from pigeon.system.files import create_or_replace_file
from pigeon.system.ids import RANDOM_IDS
from pigeon.tools.catalog import SHELL
from pigeon.transport.event_log import LogEnd, lines_since
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.open_work import is_settled

PROMPT = "list the files"
# The models that are played: one that needs no server, and one for each of the two APIs that most providers speak.
PLAYED = (DEMO.name, "warm-chat/chat", "warm-messages/messages")
RULES: Mapping[str, Json] = {
    "permissions": {"allow": ["bash(ls *)"], "ask": ["write", "bash(git push *)"], "deny": ["write(.env)"]}
}
PLAY_SECONDS = 10.0
# Rounds and prompts: after a few runs the interpreter has specialized the code, and changes fewer pages.
ROUNDS = 3
# On a busy machine, fewer rounds must do.
MOST_SECONDS = 8.0
PROMPTS = 2
PIECES = 12
M_ARENA_MAX = -8
_TOOL_RESULT = (b'"role":"tool"', b'"tool_result"')
_ENDLESS = LogEnd(sys.maxsize, sys.maxsize)


def warm_up(plays: bool, path: str) -> Iterator[None]:
    """Import everything, and play conversations if it `plays`; `path` is where programs are found. A step takes at most
    as long as one conversation, and leaves no thread, file or process behind."""
    with suppress(AttributeError, OSError):
        # All threads allocate from one arena.
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
    yield from import_one_by_one()
    with suppress(OSError):
        # If each worker loaded them, they would take most of a megabyte each.
        load_default_certificates()
    yield
    began = time.monotonic()
    for number, model in enumerate(PLAYED * (ROUNDS if plays else 0)):
        if time.monotonic() - began < MOST_SECONDS:
            # Every other time with rules, which most users have.
            _simulate_with_model(model, path, RULES if number % 2 else None)
            yield
    _collect_garbage()


def _collect_garbage() -> None:
    """Remove the garbage that warming has left, just before everything else is shared."""
    # A worker excludes its start from garbage collection; here the start was only played.
    gc.unfreeze()
    gc.collect()
    with suppress(AttributeError, OSError):
        # The C library returns free memory to the system.
        ctypes.CDLL(None).malloc_trim(0)


def _simulate_with_model(model: str, path: str, settings: Mapping[str, Json] | None) -> None:
    """Have a model use a tool. If something cannot be played here, as without a loopback interface, it only costs
    memory later."""
    loop = SteadyLoop()
    try:
        with tempfile.TemporaryDirectory(prefix="pigeon-") as folder, suppress(OSError, TimeoutError):
            loop.run_until_complete(simulate_conversation(model, folder, path, PROMPTS, settings))
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


async def simulate_conversation(
    model: str, folder: str, path: str, prompts: int, settings: Mapping[str, Json] | None = None
) -> None:
    """Play one conversation with so many prompts in an empty folder, with these settings."""
    create_or_replace_file(os.path.join(folder, "settings.json"), codec.encode(settings or {}), 0o600)
    models = await asyncio.start_server(_answer_model_request, "127.0.0.1", 0)
    port = models.sockets[0].getsockname()[1]
    create_or_replace_file(
        os.path.join(folder, "models.json"), codec.encode(_make_models_config(f"http://127.0.0.1:{port}")), 0o600
    )
    log_folder = os.path.join(folder, "events")
    os.mkdir(log_folder, 0o700)
    variables = {"HOME": folder, "PATH": path}
    options = AgentOptions(agent_dir=folder, model=model, session_id=RANDOM_IDS.session_id(now_ms()))
    asked = WorkerRequest(
        options=options,
        folder=folder,
        variables=variables,
        log_folder=log_folder,
        state_file=os.path.join(folder, "state.json"),
    )
    request = decode_request(encode_request(asked))
    environment = Environment(variables=variables, home=folder, cwd=folder)
    async with models, asyncio.timeout(PLAY_SECONDS):
        address = f"\0pigeon-{os.urandom(16).hex()}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(1)
            worker = asyncio.ensure_future(serve_worker(request, environment, Redactor(), listener))
            try:
                await _send_prompts(address, log_folder, prompts)
                # The way in which workers are stopped.
                signal.raise_signal(signal.SIGTERM)
                await worker
            finally:
                worker.cancel()


async def _send_prompts(address: str, log_folder: str, prompts: int) -> None:
    reader, writer = await asyncio.open_unix_connection(address)
    for number in range(prompts):
        writer.write(b'{"type":"get_state"}\n' + codec.encode({"type": "prompt", "message": PROMPT}) + b"\n")
        # Each line reports that the log has grown, or is an answer.
        while await reader.readline():
            lines = lines_since(log_folder, lambda line: True, _ENDLESS)
            if sum(is_settled(line) for _, line in lines) > number:
                break
    writer.close()


def _make_models_config(address: str) -> dict[str, Json]:
    chat = {"baseUrl": f"{address}/v1", "api": OPENAI_COMPLETIONS.name, "apiKey": "none", "models": [{"id": "chat"}]}
    messages = {"baseUrl": address, "api": ANTHROPIC_MESSAGES.name, "apiKey": "none", "models": [{"id": "messages"}]}
    return {"providers": {"warm-chat": chat, "warm-messages": messages}}


async def _answer_model_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Act as a model server that first calls a tool and then answers."""
    with suppress(asyncio.IncompleteReadError, ConnectionError, ValueError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            body = await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
            is_last = any(mark in body.replace(b" ", b"") for mark in _TOOL_RESULT)
            events = (
                _make_messages_events(is_last) if b"/messages" in head.split(b"\r\n")[0] else _make_chat_events(is_last)
            )
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for event in (*events, None):
                data = b"data: %s\n\n" % (b"[DONE]" if event is None else codec.encode(event))
                writer.write(b"%x\r\n%s\r\n" % (len(data), data))
                # Each piece arrives separately, as from a real server.
                await asyncio.sleep(0)
            writer.write(b"0\r\n\r\n")
    writer.close()


def _make_chat_events(is_last: bool) -> list[Mapping[str, Json]]:
    call = {"index": 0, "id": "1", "type": "function", "function": {"name": SHELL, "arguments": '{"command":"ls"}'}}
    delta: Json = {"content": "Done."} if is_last else {"tool_calls": [call]}
    reason = "stop" if is_last else "tool_calls"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return [
        *([{"id": "1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}] * (PIECES if is_last else 1)),
        {"id": "1", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage},
    ]


def _make_messages_events(is_last: bool) -> list[Mapping[str, Json]]:
    block: Json = (
        {"type": "text", "text": ""} if is_last else {"type": "tool_use", "id": "1", "name": SHELL, "input": {}}
    )
    text = {"type": "text_delta", "text": "Done."}
    delta: Json = text if is_last else {"type": "input_json_delta", "partial_json": '{"command":"ls"}'}
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "1", "type": "message", "role": "assistant", "content": [], "model": "messages", "usage": usage}
    reason = "end_turn" if is_last else "tool_use"
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *([{"type": "content_block_delta", "index": 0, "delta": delta}] * (PIECES if is_last else 1)),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
        {"type": "message_stop"},
    ]
