"""A client whose connection breaks all the time loses nothing, and nothing happens twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pigeon
from fakes.network_peers import CuttingProxy
from pigeon.sdk.remote.addresses import parse_address
from pigeon.sdk.remote.served_transport import ServedTransport
from support.pigeon_serve import shared_server

PROMPTS = int(os.environ.get("PIGEON_CUT_PROMPTS", "2"))
SEED = int(os.environ.get("PIGEON_CUT_SEED", "1"))
WRITE = {"toolCalls": [{"name": "write", "arguments": {"path": "note.txt", "content": "one\n"}}]}
COUNT = {"toolCalls": [{"name": "count", "arguments": {}}]}


class NotingTransport(ServedTransport):
    """Notes the numbers of events in the order in which they are handed on."""

    async def open(self, receive: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self.numbers: list[int] = []

        def note_call(data: bytes) -> None:
            record = json.loads(data)
            if record["type"] != "response":
                self.numbers.append(record["seq"])
            receive(data)

        await super().open(note_call, lost)


async def test_each_event_comes_once_and_each_prompt_runs_once(tmp_path: Path) -> None:
    server = shared_server()
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": [COUNT, WRITE, {"text": "All is done here.", "chunk": 2}] * PROMPTS}))
    id = server.new(f"scripted/{script}", tmp_path)
    counted: list[int] = []

    @pigeon.tool
    def count() -> int:
        """Counts its calls."""
        counted.append(1)
        return len(counted)

    proxy = CuttingProxy(urlsplit(server.url).port or 0, SEED)
    port = await proxy.open()
    asked: list[str] = []

    def allow(request: pigeon.PermissionRequest) -> bool:
        asked.append(request.tool_name)
        return True

    transport = NotingTransport(parse_address(f"ws://127.0.0.1:{port}/{id}"), server.token, patience=None)
    async with pigeon.Client(connect=lambda going_on: transport, tools=[count], on_permission=allow) as client:
        await client.set_permissions({"ask": ["write"]})
        results = [await client.run(f"prompt {number}") for number in range(PROMPTS)]
        proxy.calm()
        messages = (await client.get_messages()).messages
    await proxy.close()
    print(f"{proxy.cuts} connections were cut")  # noqa: T201
    assert proxy.cuts > 3 * PROMPTS
    assert [one.ended for one in results] == ["done"] * PROMPTS
    assert [one.text for one in results] == ["All is done here."] * PROMPTS
    said = [one.content[0].text for one in messages if isinstance(one, pigeon.UserMessage)]  # type: ignore[union-attr]
    assert said == [f"prompt {number}" for number in range(PROMPTS)]
    assert (len(counted), len(asked)) == (PROMPTS, PROMPTS)
    assert transport.numbers == sorted(set(transport.numbers))
    logged = (server.folders.agent / "serve" / "conversations" / id / "events").glob("*.jsonl")
    events = [json.loads(line) for file in sorted(logged) for line in file.read_text().splitlines()]
    missing = [event for event in events if transport.numbers[0] <= event["seq"] <= transport.numbers[-1]]
    missing = [event for event in missing if event["seq"] not in transport.numbers]
    # What this client has answered is closed for the others, by an event that it is not shown.
    assert all(event["type"] == "host_tool_cancel" or event["method"] == "cancel" for event in missing)


def test_a_program_without_an_event_loop_begins_a_conversation_and_comes_back_to_it(tmp_path: Path) -> None:
    server = shared_server()
    with pigeon.SyncClient(url=server.url, token=server.token, cwd=tmp_path, model="demo") as client:
        url = client.url
        assert client.run("list the files").ended == "done"
    assert url is not None
    with pigeon.SyncClient(url=url, token=server.token) as client:
        assert client.get_state().message_count > 1
        client.restart()
        assert client.get_state().message_count > 1
