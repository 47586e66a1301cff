"""Models that an extension brings: one behind an HTTP service that Pigeon knows how to speak to, one answered here.

pigeon --mode rpc --extension examples/extensions/custom_provider.py --provider echo --model parrot
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from pigeon import ToolResultMessage, UserMessage, text_of
from pigeon.extensions import Call, Extension, ModelRequest, Think

ext = Extension("custom-provider", needs=[])

ext.provider(
    "my-proxy",
    api="openai-completions",
    base_url="http://127.0.0.1:8080/v1",
    api_key="$MY_PROXY_KEY",
    models=[{"id": "big", "name": "Big behind my proxy", "contextWindow": 128_000}],
)


@ext.provider("echo", models=[{"id": "parrot", "name": "Parrot", "contextWindow": 32_000}])
async def answer(request: ModelRequest) -> AsyncIterator[str | Think | Call]:
    """Say what was said; `read FILE` asks for that file first."""
    last = request.messages[-1]
    if isinstance(last, ToolResultMessage):
        yield f"The file says: {text_of(last.content)[:200]}"
        return
    said = text_of(last.content) if isinstance(last, UserMessage) else ""
    yield Think("What did they say?")
    if said.startswith("read "):
        yield Call("read", {"path": said.removeprefix("read ").strip()})
        return
    for word in said.split(" "):
        yield word + " "
